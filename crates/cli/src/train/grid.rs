//! `cognate train --grid`: one run for each combination of settings, and a table of the validation
//! results.
//!
//! Each run has a folder such as `OUT/positions=rotary,norm_placement=pre/`. The table is made from
//! the logs, so that it contains runs of earlier commands.

use super::Run;
use crate::messages;
use anyhow::{Context, Result, ensure};
use cognate_train::config::{Metric, TrainingConfig};
use cognate_train::{Beginning, Ending, GridAxis, GridRun, LogLine, Validation, grid, read_log};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// All runs, in order.
pub(super) struct Grid {
    out: PathBuf,
    fields: Vec<String>,
    /// Each with its number of parameters, once it has started.
    runs: Vec<(GridRun, Option<usize>)>,
    metric: Metric,
}

/// The results of a run.
#[derive(Default)]
struct Results {
    updates: u64,
    best: Option<Validation>,
    tokens_per_second: f64,
    seconds: f64,
}

impl Grid {
    /// Every combination of the values.
    ///
    /// # Errors
    /// If a field has no such value, a combination is invalid, or there is no validation text.
    pub(super) fn new(axes: &[GridAxis], config: &TrainingConfig, out: &Path) -> Result<Self> {
        let runs =
            grid(axes, config, out).context("--grid")?.into_iter().map(|run| (run, None)).collect();
        let fields = axes.iter().map(|axis| axis.field.clone()).collect();
        Ok(Self { out: out.to_owned(), fields, runs, metric: config.schedule.metric })
    }

    /// Runs all that are not finished and writes the table.
    pub(super) fn run(
        mut self,
        run: &Run<'_>,
        resume: bool,
        out: &mut dyn Write,
    ) -> Result<Ending> {
        let is_there = fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(
            resume || !is_there,
            "{}: expected an empty or new folder; continue with --resume, or choose another",
            self.out.display()
        );
        let (mut ending, count) = (Ending::Updates, self.runs.len());
        for (index, (cell, parameters)) in self.runs.iter_mut().enumerate() {
            let name = cell.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !messages::is_quiet() {
                messages::note(format_args!("run {} of {count}: {name}", index + 1));
            }
            let (outcome, count) = run
                .train(cell.config.clone(), &cell.folder, beginning(&cell.folder)?)
                .with_context(|| name)?;
            *parameters = Some(count);
            if outcome.ending == Ending::Stopped {
                ending = Ending::Stopped;
                break;
            }
        }
        self.write_table(out)?;
        Ok(ending)
    }

    /// Prints the table of all started runs, and writes it into two files.
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let columns = [
            "parameters",
            "updates",
            "valid_loss",
            "perplexity",
            "bleu",
            "tokens_per_second",
            "minutes",
        ];
        let header: Vec<String> =
            self.fields.iter().cloned().chain(columns.map(str::to_owned)).collect();
        let mut rows = Vec::new();
        for (run, parameters) in
            self.runs.iter().filter_map(|(run, parameters)| Some((run, (*parameters)?)))
        {
            let Results { updates, best, tokens_per_second, seconds } = results(&run.folder)?;
            let digits = |number: Option<f64>, digits: usize| {
                number.map_or_else(String::new, |number| format!("{number:.digits$}"))
            };
            let numbers = [
                parameters.to_string(),
                updates.to_string(),
                digits(best.map(|best| best.valid_loss), 4),
                digits(best.map(|best| best.perplexity), 3),
                digits(best.and_then(|best| best.bleu), 2),
                format!("{tokens_per_second:.0}"),
                format!("{:.1}", seconds / 60.0),
            ];
            rows.push(run.values.iter().cloned().chain(numbers).collect::<Vec<_>>());
        }
        let value = |text: &String| {
            serde_json::from_str::<Value>(text).unwrap_or_else(|_| Value::from(text.as_str()))
        };
        let object = |row: &Vec<String>| {
            let full = header.iter().zip(row).filter(|(_, text)| !text.is_empty());
            Value::Object(
                full.map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>(),
            )
        };
        let json = json!({ "metric": if self.metric == Metric::Bleu { "bleu" } else { "loss" }, "runs": rows.iter().map(object).collect::<Vec<_>>() });
        let csv: String =
            [&header].into_iter().chain(&rows).map(|row| row.join(",") + "\n").collect();
        for (name, text) in [("grid.json", format!("{json:#}\n")), ("grid.csv", csv)] {
            let path = self.out.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        write!(out, "{}", self.drawn(&header, &rows))?;
        Ok(out.flush()?)
    }

    /// The rows, the best first, with bars of the metric.
    fn drawn(&self, header: &[String], rows: &[Vec<String>]) -> String {
        let (column, name) =
            if self.metric == Metric::Bleu { (4, "bleu") } else { (2, "valid_loss") };
        let measure = |row: &Vec<String>| row[self.fields.len() + column].parse::<f64>().ok();
        let mut ordered: Vec<&Vec<String>> = rows.iter().collect();
        ordered.sort_by(|one, other| {
            let [one, other] = [one, other].map(|row| measure(row).unwrap_or(f64::INFINITY));
            if self.metric == Metric::Bleu { other.total_cmp(&one) } else { one.total_cmp(&other) }
        });
        let most = rows.iter().filter_map(measure).fold(f64::MIN_POSITIVE, f64::max);
        let bar = |row: &Vec<String>| {
            measure(row).map_or_else(String::new, |value| {
                "█".repeat((20.0 * value / most).round().max(1.0) as usize)
            })
        };
        let is_shown = |place: &usize| rows.iter().any(|row| !row[*place].is_empty());
        let shown: Vec<usize> = (0..header.len()).filter(is_shown).collect();
        let width = |place: usize| {
            rows.iter()
                .map(|row| row[place].chars().count())
                .fold(header[place].chars().count(), usize::max)
        };
        let line = |row: &[String], end: String| {
            let cell = |&place: &usize| match place < self.fields.len() {
                true => format!("{:<1$}", row[place], width(place)),
                false => format!("{:>1$}", row[place], width(place)),
            };
            format!("{}  {end}", shown.iter().map(cell).collect::<Vec<_>>().join("  "))
                .trim_end()
                .to_owned()
                + "\n"
        };
        line(header, name.into())
            + &ordered.iter().map(|row| line(row, bar(row))).collect::<String>()
    }
}

/// Resumes a run that was saved; another starts again.
fn beginning(folder: &Path) -> Result<Beginning> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Beginning::Fresh) };
    let is_saved = entries
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"));
    if is_saved {
        return Ok(Beginning::Resume);
    }
    fs::remove_dir_all(folder)
        .with_context(|| format!("{}: cannot be removed", folder.display()))?;
    Ok(Beginning::Fresh)
}

/// Reads a run's log.
fn results(folder: &Path) -> Result<Results> {
    let (mut found, mut speeds) = (Results::default(), Vec::new());
    for line in read_log(folder)? {
        let (update, seconds) = match line {
            LogLine::Stretch(stretch) => {
                speeds.push(stretch.tokens_per_second);
                (stretch.update, stretch.seconds)
            }
            LogLine::Validation(validation) => {
                found.best = Some(validation).filter(|validation| validation.best).or(found.best);
                (validation.update, validation.seconds)
            }
        };
        (found.updates, found.seconds) = (found.updates.max(update), found.seconds.max(seconds));
    }
    speeds.sort_by(f64::total_cmp);
    found.tokens_per_second = speeds.get(speeds.len() / 2).copied().unwrap_or_default();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_run_is_first() {
        let grid = Grid {
            out: PathBuf::new(),
            fields: vec!["norm".into()],
            runs: Vec::new(),
            metric: Metric::Loss,
        };
        let header = ["norm", "parameters", "updates", "valid_loss", "perplexity", "bleu"]
            .map(str::to_owned);
        let rows =
            [["layer", "10", "9", "2.0000", "7.4", ""], ["rms", "8", "9", "1.0000", "2.7", ""]]
                .map(|row| row.map(str::to_owned).to_vec());
        let expected = "\
            norm   parameters  updates  valid_loss  perplexity  valid_loss\n\
            rms             8        9      1.0000         2.7  ██████████\n\
            layer          10        9      2.0000         7.4  ████████████████████\n";
        assert_eq!(grid.drawn(&header, &rows), expected);
    }
}
