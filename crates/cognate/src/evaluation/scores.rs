//! The scores of systems on the same references, as sacreBLEU prints them and as JSON.

use cognate_pipeline::{Error, Result};
use cognate_text::{Metric, Resampled, Resampling, Score, Statistics, paired_bootstrap};
use serde_json::{Map, Value, json};
use std::iter;

/// The scores of one or more systems on the same references.
///
/// ```
/// use cognate::evaluation::{BleuSettings, Metric, Scores};
///
/// # fn main() -> cognate::Result<()> {
/// let system = ("mine".to_owned(), vec!["Zwei Hunde spielen im Schnee.".to_owned()]);
/// let reference = ["Zwei Hunde spielen im Gras.".to_owned()];
/// let metrics = [Metric::Bleu(BleuSettings::default())];
/// let scores = Scores::of(&[system], &[&reference], &metrics, None)?;
/// assert!(scores.to_text(2).starts_with("BLEU|nrefs:1|"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Scores {
    /// The names of the systems.
    pub systems: Vec<String>,
    /// The scores by metric.
    pub metrics: Vec<MetricScores>,
    /// Whether systems were compared with the first by resampling.
    is_paired: bool,
}

/// One metric's scores.
#[derive(Clone, Debug)]
pub struct MetricScores {
    /// The metric's name.
    pub name: String,
    /// sacreBLEU's signature, which makes a score reproducible.
    pub signature: String,
    /// By system.
    pub rows: Vec<SystemScore>,
}

/// One system's score.
#[derive(Clone, Debug)]
pub struct SystemScore {
    /// The score of the corpus.
    pub score: Score,
    /// Confidence interval, and p-value of the difference from the first system.
    pub resampled: Option<Resampled>,
}

/// The significance level.
const SIGNIFICANT: f64 = 0.05;

/// The maximum number of samples, of which each has a score in memory.
const MOST_SAMPLES: usize = 1_000_000;

impl Scores {
    /// Scores systems, each a name and its translations, against one or more lists of references;
    /// with `resampling` also confidence intervals and p-values.
    ///
    /// # Errors
    /// If there is no sentence, numbers of lines differ, or there are not 1 to 1,000,000 samples.
    pub fn of(
        systems: &[(String, Vec<String>)],
        references: &[&[String]],
        metrics: &[Metric],
        resampling: Option<Resampling>,
    ) -> Result<Self> {
        if let Some(Resampling { samples, .. }) = resampling
            && !(1..=MOST_SAMPLES).contains(&samples)
        {
            let message = format!("expected 1 to {MOST_SAMPLES}, found {samples}");
            return Err(Error::wrong_option("samples", message));
        }
        let scores = |metric: &Metric| {
            let counted = systems
                .iter()
                .map(|(_, lines)| metric.statistics(lines, references))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(MetricScores {
                name: metric.name(),
                signature: metric.signature(references.len(), resampling),
                rows: rows(&counted, resampling),
            })
        };
        Ok(Self {
            systems: systems.iter().map(|(name, _)| name.clone()).collect(),
            metrics: metrics.iter().map(scores).collect::<Result<_>>()?,
            is_paired: resampling.is_some(),
        })
    }

    /// The scores of one system in sacreBLEU's lines, of several as a table, with `digits` after
    /// the decimal point, at most 17.
    pub fn to_text(&self, digits: usize) -> String {
        let digits = digits.min(17);
        if self.systems.len() == 1 { self.lines(digits) } else { self.table(digits) }
    }

    /// `BLEU|SIGNATURE = 36.24 66.2/42.1/29.6/20.9 (BP = ...)`
    fn lines(&self, digits: usize) -> String {
        let heads: Vec<_> =
            self.metrics.iter().map(|one| format!("{}|{}", one.name, one.signature)).collect();
        let longest = heads.iter().map(String::len).max().unwrap_or(0);
        let line = |(head, metric): (&String, &MetricScores)| {
            let row = metric.rows.first()?;
            let interval = row.resampled.map(|Resampled { mean, confidence, .. }| {
                format!(" (μ = {mean:.digits$} ± {confidence:.digits$})")
            });
            let parts = match &row.score {
                Score::Bleu(bleu) => format!(" {}", bleu.parts()),
                Score::Chrf(_) | Score::ErrorRate(_) => String::new(),
            };
            let (score, interval) = (row.score.value(), interval.unwrap_or_default());
            Some(format!("{head:>longest$} = {score:.digits$}{interval}{parts}\n"))
        };
        heads.iter().zip(&self.metrics).filter_map(line).collect()
    }

    /// A row per system and a column per metric, then the signatures.
    fn table(&self, digits: usize) -> String {
        let header = |metric: &MetricScores| {
            let interval = if self.is_paired { " (μ ± 95% CI)" } else { "" };
            format!("{}{interval}", metric.name)
        };
        let mut rows: Vec<Vec<String>> =
            vec![iter::once("System".into()).chain(self.metrics.iter().map(header)).collect()];
        for (index, name) in self.systems.iter().enumerate() {
            let baseline = if self.is_paired && index == 0 { "Baseline: " } else { "" };
            let cells = self.metrics.iter().map(|metric| metric.rows[index].cell(digits));
            rows.push(iter::once(format!("{baseline}{name}")).chain(cells).collect());
        }
        let width =
            |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..=self.metrics.len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells: Vec<_> =
                row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
            text += &format!("{}\n", cells.join("  ").trim_end());
        }
        text.push('\n');
        if self.is_paired {
            text +=
                &format!("p: p-value of the difference from the baseline; *: p <= {SIGNIFICANT}\n");
        }
        let longest = self.metrics.iter().map(|metric| metric.name.len()).max().unwrap_or(0);
        for MetricScores { name, signature, .. } in &self.metrics {
            text += &format!("{name:<longest$}  {signature}\n");
        }
        text
    }

    /// An object for each system, with its scores by name.
    pub fn to_json(&self) -> Vec<Value> {
        let system = |(index, name): (usize, &String)| {
            let score = |metric: &MetricScores| {
                (metric.name.clone(), metric.rows[index].to_json(&metric.signature))
            };
            json!({ "system": name, "scores": self.metrics.iter().map(score).collect::<Map<_, _>>() })
        };
        self.systems.iter().enumerate().map(system).collect()
    }
}

/// The score of each system, with the results of resampling.
fn rows(counted: &[Statistics], resampling: Option<Resampling>) -> Vec<SystemScore> {
    let resampled =
        resampling.map_or_else(Vec::new, |resampling| paired_bootstrap(counted, resampling));
    let row = |(index, counted): (usize, &Statistics)| SystemScore {
        score: counted.score(),
        resampled: resampled.get(index).copied(),
    };
    counted.iter().enumerate().map(row).collect()
}

impl SystemScore {
    /// `36.24 (36.25 ± 1.05) (p = 0.0010)*`
    fn cell(&self, digits: usize) -> String {
        let score = format!("{:.digits$}", self.score.value());
        let Some(Resampled { mean, confidence, p_value }) = self.resampled else { return score };
        let mark = |p: f64| if p <= SIGNIFICANT { "*" } else { "" };
        let p_value = p_value.map_or(String::new(), |p| format!(" (p = {p:.4}){}", mark(p)));
        format!("{score} ({mean:.digits$} ± {confidence:.digits$}){p_value}")
    }

    fn to_json(&self, signature: &str) -> Value {
        let mut value = json!({ "score": self.score.value(), "signature": signature });
        if let Score::Bleu(bleu) = &self.score {
            value["precisions"] = json!(bleu.precisions);
            value["brevity_penalty"] = json!(bleu.brevity_penalty);
            (value["sys_len"], value["ref_len"]) = (json!(bleu.sys_len), json!(bleu.ref_len));
        }
        if let Some(Resampled { mean, confidence, p_value }) = self.resampled {
            (value["mean"], value["ci"]) = (json!(mean), json!(confidence));
            // The baseline has none.
            if let Some(p_value) = p_value {
                value["p_value"] = json!(p_value);
            }
        }
        value
    }
}
