//! `cognate train --grid`: one run for each combination of settings, and a table of the validation results.
//!
//! Each run has a folder such as `OUT/positions=rotary,norm_placement=pre/`. The table is made from the logs, so that it contains
//! runs of earlier commands.

use super::Run;
use crate::messages;
use anyhow::{Context, Result, bail, ensure};
use cognate_train::config::{Metric, TrainingConfig};
use cognate_train::{Beginning, Ending};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A setting and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GridOption {
    field: String,
    values: Vec<String>,
}

impl FromStr for GridOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected a field and its values, such as norm_placement=pre,post".to_owned();
        let (field, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if field.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        if let Some(twice) = (1..values.len()).find(|&place| values[..place].contains(&values[place])) {
            return Err(format!("{} occurs twice", values[twice]));
        }
        Ok(Self { field: field.trim().to_owned(), values })
    }
}

/// All runs, in order.
pub(super) struct Grid {
    out: PathBuf,
    fields: Vec<String>,
    cells: Vec<Cell>,
    metric: Metric,
}

/// A run.
struct Cell {
    /// In the order of fields.
    values: Vec<String>,
    config: TrainingConfig,
    folder: PathBuf,
    parameters: Option<usize>,
}

/// The results of a run.
#[derive(Default)]
struct Results {
    updates: u64,
    best: Option<Value>,
    tokens_per_second: f64,
    seconds: f64,
}

impl Grid {
    /// Every combination of the values.
    ///
    /// # Errors
    /// If a field has no such value, a combination is invalid, or there is no validation text.
    pub(super) fn new(options: &[GridOption], config: &TrainingConfig, out: &Path) -> Result<Self> {
        ensure!(!config.data.valid.is_empty(), "--grid: expected validation text; pass --valid SOURCE TARGET");
        let fields: Vec<String> = options.iter().map(|option| option.field.clone()).collect();
        if let Some(twice) = (1..fields.len()).find(|&place| fields[..place].contains(&fields[place])) {
            bail!("--grid: {} occurs twice; pass all its values in one option", fields[twice]);
        }
        let mut combinations = vec![Vec::new()];
        for option in options {
            let with = |former: &Vec<String>, value: &String| former.iter().chain([value]).cloned().collect::<Vec<_>>();
            combinations = combinations.iter().flat_map(|former| option.values.iter().map(move |value| with(former, value))).collect();
        }
        let cell = |values: Vec<String>| {
            let mut config = config.clone();
            for (field, value) in fields.iter().zip(&values) {
                let name = if field.contains('.') || field == "seed" { field.clone() } else { format!("model.{field}") };
                config.set(&name, value).context("--grid")?;
            }
            let name: Vec<_> =
                fields.iter().zip(&values).map(|(field, value)| format!("{field}={value}").replace(['/', '\\'], "_")).collect();
            let name = name.join(",");
            config.check().with_context(|| format!("--grid: {name}"))?;
            Ok(Cell { values, config, folder: out.join(name), parameters: None })
        };
        let cells = combinations.into_iter().map(cell).collect::<Result<_>>()?;
        Ok(Self { out: out.to_owned(), fields, cells, metric: config.schedule.metric })
    }

    /// Runs all unfinished cells and writes the table.
    pub(super) fn run(mut self, run: &Run<'_>, resume: bool, out: &mut dyn Write) -> Result<Ending> {
        let is_there = fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(resume || !is_there, "{}: expected an empty or new folder; continue with --resume, or choose another", self.out.display());
        let (mut ending, count) = (Ending::Updates, self.cells.len());
        for (index, cell) in self.cells.iter_mut().enumerate() {
            let name = cell.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !messages::is_quiet() {
                messages::note(format_args!("run {} of {count}: {name}", index + 1));
            }
            let (outcome, parameters) = run.train(cell.config.clone(), &cell.folder, beginning(&cell.folder)?).with_context(|| name)?;
            cell.parameters = Some(parameters);
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
        let begun: Vec<(&Cell, Results)> = self
            .cells
            .iter()
            .filter(|cell| cell.parameters.is_some())
            .map(|cell| Ok((cell, results(&cell.folder)?)))
            .collect::<Result<_>>()?;
        let columns = ["parameters", "updates", "valid_loss", "perplexity", "bleu", "tokens_per_second", "minutes"];
        let header: Vec<String> = self.fields.iter().cloned().chain(columns.map(str::to_owned)).collect();
        let mut rows = Vec::new();
        for (cell, found) in &begun {
            let best = |name: &str| found.best.as_ref().and_then(|best| best[name].as_f64());
            let digits = |number: Option<f64>, digits: usize| number.map_or_else(String::new, |number| format!("{number:.digits$}"));
            let numbers = [
                cell.parameters.map_or_else(String::new, |count| count.to_string()),
                found.updates.to_string(),
                digits(best("valid_loss"), 4),
                digits(best("perplexity"), 3),
                digits(best("bleu"), 2),
                format!("{:.0}", found.tokens_per_second),
                format!("{:.1}", found.seconds / 60.0),
            ];
            rows.push(cell.values.iter().cloned().chain(numbers).collect::<Vec<_>>());
        }
        let value = |text: &String| serde_json::from_str::<Value>(text).unwrap_or_else(|_| Value::from(text.as_str()));
        let object = |row: &Vec<String>| {
            let full = header.iter().zip(row).filter(|(_, text)| !text.is_empty());
            Value::Object(full.map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>())
        };
        let json = json!({ "metric": if self.metric == Metric::Bleu { "bleu" } else { "loss" }, "runs": rows.iter().map(object).collect::<Vec<_>>() });
        let csv: String = [&header].into_iter().chain(&rows).map(|row| row.join(",") + "\n").collect();
        for (name, text) in [("grid.json", format!("{json:#}\n")), ("grid.csv", csv)] {
            let path = self.out.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        write!(out, "{}", self.drawn(&header, &rows))?;
        Ok(out.flush()?)
    }

    /// The rows, the best first, with bars of the metric.
    fn drawn(&self, header: &[String], rows: &[Vec<String>]) -> String {
        let (column, name) = if self.metric == Metric::Bleu { (4, "bleu") } else { (2, "valid_loss") };
        let measure = |row: &Vec<String>| row[self.fields.len() + column].parse::<f64>().ok();
        let mut ordered: Vec<&Vec<String>> = rows.iter().collect();
        ordered.sort_by(|one, other| {
            let [one, other] = [one, other].map(|row| measure(row).unwrap_or(f64::INFINITY));
            if self.metric == Metric::Bleu { other.total_cmp(&one) } else { one.total_cmp(&other) }
        });
        let most = rows.iter().filter_map(measure).fold(f64::MIN_POSITIVE, f64::max);
        let bar =
            |row: &Vec<String>| measure(row).map_or_else(String::new, |value| "█".repeat((20.0 * value / most).round().max(1.0) as usize));
        let is_shown = |place: &usize| rows.iter().any(|row| !row[*place].is_empty());
        let shown: Vec<usize> = (0..header.len()).filter(is_shown).collect();
        let width = |place: usize| rows.iter().map(|row| row[place].chars().count()).fold(header[place].chars().count(), usize::max);
        let line = |row: &[String], end: String| {
            let cell = |&place: &usize| match place < self.fields.len() {
                true => format!("{:<1$}", row[place], width(place)),
                false => format!("{:>1$}", row[place], width(place)),
            };
            format!("{}  {end}", shown.iter().map(cell).collect::<Vec<_>>().join("  ")).trim_end().to_owned() + "\n"
        };
        line(header, name.into()) + &ordered.iter().map(|row| line(row, bar(row))).collect::<String>()
    }
}

/// Resumes a run that was saved; another starts again.
fn beginning(folder: &Path) -> Result<Beginning> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Beginning::Fresh) };
    let is_saved = entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"));
    if is_saved {
        return Ok(Beginning::Resume);
    }
    fs::remove_dir_all(folder).with_context(|| format!("{}: cannot be removed", folder.display()))?;
    Ok(Beginning::Fresh)
}

/// Reads a run's log.
fn results(folder: &Path) -> Result<Results> {
    let path = folder.join("log.jsonl");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (mut found, mut speeds) = (Results::default(), Vec::new());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).with_context(|| path.display().to_string())?;
        found.updates = found.updates.max(line["update"].as_u64().unwrap_or_default());
        found.seconds = found.seconds.max(line["seconds"].as_f64().unwrap_or_default());
        speeds.extend(line["tokens_per_second"].as_f64());
        if line["best"] == true {
            found.best = Some(line);
        }
    }
    speeds.sort_by(f64::total_cmp);
    found.tokens_per_second = speeds.get(speeds.len() / 2).copied().unwrap_or_default();
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read() {
        let read = |text: &str| text.parse::<GridOption>();
        let option = read("positions=rotary, alibi").unwrap();
        assert_eq!((option.field.as_str(), option.values), ("positions", vec!["rotary".to_owned(), "alibi".to_owned()]));
        for (text, expected) in [
            ("positions", "expected a field and its values, such as norm_placement=pre,post"),
            ("positions=", "expected a field and its values, such as norm_placement=pre,post"),
            ("heads=2,4,2", "2 occurs twice"),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn every_combination_is_a_run_and_the_best_is_first() {
        let mut config = TrainingConfig::default();
        let text = cognate_train::config::Text { source: Some("a".into()), target: Some("b".into()), ..Default::default() };
        (config.data.train, config.data.valid, config.schedule.max_updates) = (vec![text.clone()], vec![text], Some(9_000));
        let options: Vec<GridOption> =
            ["norm_placement=pre,post", "optimiser.learning_rate=1e-3,2e-3"].map(|text| text.parse().unwrap()).into();
        let grid = Grid::new(&options, &config, Path::new("out")).unwrap();
        let names: Vec<_> = grid.cells.iter().map(|cell| cell.folder.to_str().unwrap()).collect();
        assert_eq!(names[0], "out/norm_placement=pre,optimiser.learning_rate=1e-3");
        assert_eq!((names.len(), grid.cells[3].config.optimiser.learning_rate), (4, Some(2e-3)));
        let one = Grid { fields: vec!["norm".into()], ..grid };
        let header = ["norm", "parameters", "updates", "valid_loss", "perplexity", "bleu"].map(str::to_owned);
        let rows =
            [["layer", "10", "9", "2.0000", "7.4", ""], ["rms", "8", "9", "1.0000", "2.7", ""]].map(|row| row.map(str::to_owned).to_vec());
        let expected = "\
            norm   parameters  updates  valid_loss  perplexity  valid_loss\n\
            rms             8        9      1.0000         2.7  ██████████\n\
            layer          10        9      2.0000         7.4  ████████████████████\n";
        assert_eq!(one.drawn(&header, &rows), expected);
    }

    #[test]
    fn wrong_grids_are_refused() {
        let mut config = TrainingConfig::default();
        let refused = |config: &TrainingConfig, texts: &[&str]| {
            let options: Vec<GridOption> = texts.iter().map(|text| text.parse().unwrap()).collect();
            Grid::new(&options, config, Path::new("out")).err().map(|error| format!("{error:#}")).unwrap()
        };
        assert!(refused(&config, &["norm=rms"]).starts_with("--grid: expected validation text"));
        let text = cognate_train::config::Text { source: Some("a".into()), target: Some("b".into()), ..Default::default() };
        (config.data.train, config.data.valid, config.schedule.max_updates) = (vec![text.clone()], vec![text], Some(9_000));
        for (texts, expected) in [
            (&["norm=rms", "norm=layer"][..], "--grid: norm occurs twice; pass all its values in one option"),
            (&["norm=rms,mean"], "--grid: model.norm: found `mean`, expected `layer` or `rms`"),
            (
                &["heads=4,3"],
                "--grid: heads=3: model.heads is 3, expected a whole width for each head: d_model 128 is no multiple of 3 heads",
            ),
        ] {
            assert_eq!(refused(&config, texts), expected);
        }
    }
}
