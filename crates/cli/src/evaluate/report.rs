//! The output of scores: sacreBLEU's lines for one system, a table for several, JSON Lines.

use anyhow::Result;
use cognate_text::{Resampled, Score, Statistics};
use serde_json::{Value, json};
use std::io::Write;

/// One metric's scores.
pub(super) struct Scores {
    pub(super) name: String,
    pub(super) signature: String,
    /// By system.
    pub(super) rows: Vec<Row>,
}

/// One system's score.
pub(super) struct Row {
    pub(super) score: Score,
    pub(super) resampled: Option<Resampled>,
}

/// The significance level.
const SIGNIFICANT: f64 = 0.05;

/// Writes one line per sentence and one column per metric.
pub(super) fn sentences(
    counted: &[Vec<Statistics>],
    width: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let mut columns: Vec<_> = counted.iter().flatten().map(Statistics::sentence_scores).collect();
    loop {
        let line: Vec<_> = columns
            .iter_mut()
            .filter_map(|column| column.next())
            .map(|score| format!("{:.width$}", score.value()))
            .collect();
        if line.is_empty() {
            return Ok(());
        }
        writeln!(out, "{}", line.join("\t"))?;
    }
}

/// Writes sacreBLEU's lines for one system:
/// `BLEU|SIGNATURE = 36.24 66.2/42.1/29.6/20.9 (BP = ...)`.
pub(super) fn single(scores: &[Scores], width: usize, out: &mut dyn Write) -> Result<()> {
    let heads: Vec<_> =
        scores.iter().map(|scores| format!("{}|{}", scores.name, scores.signature)).collect();
    let longest = heads.iter().map(String::len).max().unwrap_or(0);
    for (head, row) in
        heads.iter().zip(scores).filter_map(|(head, scores)| Some((head, scores.rows.first()?)))
    {
        let interval = row.resampled.map(|Resampled { mean, confidence, .. }| {
            format!(" (μ = {mean:.width$} ± {confidence:.width$})")
        });
        let parts = match &row.score {
            Score::Bleu(bleu) => format!(" {}", bleu.parts()),
            Score::Chrf(_) | Score::ErrorRate(_) => String::new(),
        };
        writeln!(
            out,
            "{head:>longest$} = {:.width$}{}{parts}",
            row.score.value(),
            interval.unwrap_or_default()
        )?;
    }
    Ok(())
}

/// Writes one row per system and one column per metric, then the signatures.
pub(super) fn table(
    names: &[String],
    scores: &[Scores],
    is_paired: bool,
    width: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let header = |scores: &Scores| {
        if is_paired { format!("{} (μ ± 95% CI)", scores.name) } else { scores.name.clone() }
    };
    let mut rows = vec![
        std::iter::once("System".to_owned()).chain(scores.iter().map(header)).collect::<Vec<_>>(),
    ];
    for (index, name) in names.iter().enumerate() {
        let name = if is_paired && index == 0 { format!("Baseline: {name}") } else { name.clone() };
        rows.push(
            std::iter::once(name)
                .chain(scores.iter().map(|scores| cell(&scores.rows[index], width)))
                .collect(),
        );
    }
    let columns = 0..=scores.len();
    let widths: Vec<_> = columns
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        writeln!(out, "{}", cells.join("  ").trim_end())?;
    }
    writeln!(out)?;
    if is_paired {
        writeln!(out, "p: p-value of the difference from the baseline; *: p <= {SIGNIFICANT}")?;
    }
    let longest = scores.iter().map(|scores| scores.name.len()).max().unwrap_or(0);
    for Scores { name, signature, .. } in scores {
        writeln!(out, "{name:<longest$}  {signature}")?;
    }
    Ok(())
}

/// `36.24 (36.25 ± 1.05) (p = 0.0010)*`
fn cell(row: &Row, width: usize) -> String {
    let score = format!("{:.width$}", row.score.value());
    let Some(Resampled { mean, confidence, p_value }) = row.resampled else { return score };
    let mark = |p: f64| if p <= SIGNIFICANT { "*" } else { "" };
    let p_value = p_value.map_or(String::new(), |p| format!(" (p = {p:.4}){}", mark(p)));
    format!("{score} ({mean:.width$} ± {confidence:.width$}){p_value}")
}

/// Writes one line of JSON per system, with its scores by name.
pub(super) fn json(names: &[String], scores: &[Scores], out: &mut dyn Write) -> Result<()> {
    for (index, name) in names.iter().enumerate() {
        let scores = scores
            .iter()
            .map(|scores| (scores.name.clone(), score(&scores.rows[index], &scores.signature)));
        writeln!(
            out,
            "{}",
            json!({ "system": name, "scores": scores.collect::<serde_json::Map<_, _>>() })
        )?;
    }
    Ok(())
}

fn score(row: &Row, signature: &str) -> Value {
    let mut value = json!({ "score": row.score.value(), "signature": signature });
    if let Score::Bleu(bleu) = &row.score {
        value["precisions"] = json!(bleu.precisions);
        value["brevity_penalty"] = json!(bleu.brevity_penalty);
        (value["sys_len"], value["ref_len"]) = (json!(bleu.sys_len), json!(bleu.ref_len));
    }
    if let Some(Resampled { mean, confidence, p_value }) = row.resampled {
        (value["mean"], value["ci"]) = (json!(mean), json!(confidence));
        // The baseline has none.
        if let Some(p_value) = p_value {
            value["p_value"] = json!(p_value);
        }
    }
    value
}
