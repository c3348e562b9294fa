//! The results of a grid of trainings, as a table for people, CSV and JSON.

use cognate_pipeline::{Error, ErrorKind, Result};
use cognate_train::config::Metric;
use cognate_train::{GridRun, LogLine, Validation, read_log};
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// The results of the runs of a grid, read from their logs. It is displayed with the best run
/// first and bars of the metric.
#[derive(Clone, Debug)]
pub struct GridTable {
    metric: Metric,
    n_fields: usize,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The columns after the varied settings.
const COLUMNS: [&str; 7] =
    ["parameters", "updates", "valid_loss", "perplexity", "bleu", "tokens_per_second", "minutes"];

/// The results of a run.
#[derive(Default)]
struct Results {
    updates: u64,
    /// Of the best model, or of the average if that is the result.
    model: Option<Validation>,
    tokens_per_second: f64,
    seconds: f64,
}

impl GridTable {
    /// Reads the results of runs, each with its number of parameters; `fields` are the names of
    /// the varied settings.
    ///
    /// # Errors
    /// If a log cannot be read.
    pub fn read<'r>(
        fields: &[String],
        runs: impl IntoIterator<Item = (&'r GridRun, usize)>,
        metric: Metric,
    ) -> Result<Self> {
        let row = |(run, parameters): (&GridRun, usize)| {
            let averages = run.config.schedule.average_checkpoints > 1;
            let Results { updates, model, tokens_per_second, seconds } =
                results(&run.folder, averages)?;
            let digits = |number: Option<f64>, digits: usize| {
                number.map_or_else(String::new, |number| format!("{number:.digits$}"))
            };
            let numbers = [
                parameters.to_string(),
                updates.to_string(),
                digits(model.map(|model| model.valid_loss), 4),
                digits(model.map(|model| model.perplexity), 3),
                digits(model.and_then(|model| model.bleu), 2),
                format!("{tokens_per_second:.0}"),
                format!("{:.1}", seconds / 60.0),
            ];
            Ok(run.values.iter().cloned().chain(numbers).collect())
        };
        Ok(Self {
            metric,
            n_fields: fields.len(),
            header: fields.iter().cloned().chain(COLUMNS.map(str::to_owned)).collect(),
            rows: runs.into_iter().map(row).collect::<Result<_>>()?,
        })
    }

    /// The table with a header.
    pub fn to_csv(&self) -> String {
        let line = |row: &Vec<String>| row.join(",") + "\n";
        line(&self.header) + &self.rows.iter().map(line).collect::<String>()
    }

    /// The metric, and an object for each run without its empty cells.
    pub fn to_json(&self) -> Value {
        let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let object = |row: &Vec<String>| {
            let full = self.header.iter().zip(row).filter(|(_, text)| !text.is_empty());
            Value::Object(
                full.map(|(name, text)| (name.clone(), value(text))).collect::<Map<_, _>>(),
            )
        };
        let runs: Vec<_> = self.rows.iter().map(object).collect();
        json!({ "metric": if self.metric == Metric::Bleu { "bleu" } else { "loss" }, "runs": runs })
    }
}

impl fmt::Display for GridTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (column, name) =
            if self.metric == Metric::Bleu { (4, "bleu") } else { (2, "valid_loss") };
        let measure = |row: &Vec<String>| row[self.n_fields + column].parse::<f64>().ok();
        let (header, rows) = (&self.header, &self.rows);
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
            let cell = |&place: &usize| match place < self.n_fields {
                true => format!("{:<1$}", row[place], width(place)),
                false => format!("{:>1$}", row[place], width(place)),
            };
            format!("{}  {end}", shown.iter().map(cell).collect::<Vec<_>>().join("  "))
                .trim_end()
                .to_owned()
                + "\n"
        };
        f.write_str(&line(header, name.into()))?;
        ordered.iter().try_for_each(|row| f.write_str(&line(row, bar(row))))
    }
}

/// Reads a run's log. An average of checkpoints is the second validation after an update.
fn results(folder: &Path, averages: bool) -> Result<Results> {
    let (mut found, mut speeds) = (Results::default(), Vec::new());
    let (mut best, mut average, mut validated) = (None, None, None);
    let failed = |error| Error::new(ErrorKind::Input, error);
    for line in read_log(folder).map_err(failed)? {
        let (update, seconds) = match line {
            LogLine::Stretch(stretch) => {
                speeds.push(stretch.tokens_per_second);
                (stretch.update, stretch.seconds)
            }
            LogLine::Validation(validation) => {
                let is_average = averages && validated == Some(validation.update);
                average = is_average.then_some(validation);
                best = Some(validation).filter(|validation| validation.best).or(best);
                validated = Some(validation.update);
                (validation.update, validation.seconds)
            }
        };
        (found.updates, found.seconds) = (found.updates.max(update), found.seconds.max(seconds));
    }
    found.model = average.or(best);
    speeds.sort_by(f64::total_cmp);
    found.tokens_per_second = speeds.get(speeds.len() / 2).copied().unwrap_or_default();
    Ok(found)
}
