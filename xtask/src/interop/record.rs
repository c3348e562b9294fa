//! The committed page: a table per layout, the reasons of failures below. Read, extended by a run,
//! and compared with it: cells that ran and no longer do, and cells that run now.
//!
//! A cell that is not on the page is expected to run with PyTorch's result.

use std::collections::BTreeMap;

use clap::ValueEnum;

use super::cell::Outcome;
use super::matrix::Filled;
use super::runtime::{Layout, Runtime};
use crate::table::table;

/// A cell of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Shown {
    /// The difference from PyTorch, and whether tokens are equal.
    Ran(String),
    /// The runtime cannot run the graph, for this reason.
    No(String),
    /// The model was not exported, for this reason.
    None(String),
}

/// The cells of the page.
#[derive(Debug, Default)]
pub struct Record {
    /// By the titles of layout, family and runtime; those that were never run are absent.
    cells: BTreeMap<[String; 3], Shown>,
    /// The programs of the cells that ran.
    versions: Vec<String>,
}

/// Differences between a run and the page.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// A line for each cell that runs on the page but not in this run.
    pub worse: Vec<String>,
    /// A line for each cell that runs in this run but not on the page.
    pub better: Vec<String>,
    /// As `worse`, for graphs exported by other programs.
    pub of_others: Vec<String>,
}

const REASONS: &str = "## What cannot run or was not exported";
const VERSIONS: &str = "Ran in ";
const NOT_RUN: &str = "-";

impl Record {
    /// Reads the page.
    pub fn read(page: &str) -> Record {
        let reasons: BTreeMap<&str, &str> =
            page.lines().filter_map(|line| line.strip_suffix('`')?.split_once(". `")).collect();
        let mut record = Record::default();
        let (mut layout, mut runtimes) = (String::new(), Vec::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                layout = title.trim_end_matches(" layout").to_owned();
            }
            if let Some(versions) = line.strip_prefix(VERSIONS) {
                record.versions =
                    versions.trim_end_matches('.').split(", ").map(str::to_owned).collect();
            }
            let Some(row) = line.strip_prefix('|') else { continue };
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            match cells.split_first() {
                Some((&"family", titles)) => {
                    runtimes = titles.iter().map(|&title| title.to_owned()).collect()
                }
                Some((first, _)) if first.starts_with('-') => {}
                Some((family, cells)) => {
                    record.cells.extend(runtimes.iter().zip(cells).filter_map(|(runtime, cell)| {
                        let key = [&layout, *family, runtime].map(str::to_owned);
                        Some((key, Shown::read(cell, &reasons)?))
                    }))
                }
                None => {}
            }
        }
        record
    }

    /// Whether each cell ran with PyTorch's result, by the titles of layout, family and runtime.
    pub fn ran(&self) -> BTreeMap<[&str; 3], bool> {
        let ran = |shown: &Shown| matches!(shown, Shown::Ran(text) if !text.ends_with("DIFFER"));
        self.cells
            .iter()
            .map(|(key, shown)| (key.each_ref().map(String::as_str), ran(shown)))
            .collect()
    }

    /// Compares the cells of a run. Programs that are not installed are ignored.
    pub fn compare<'a>(&self, found: impl IntoIterator<Item = &'a Filled>) -> Changes {
        let (mut changes, known) = (Changes::default(), self.ran());
        for Filled { family, layout, runtime, outcome } in found {
            let known = known.get(&[layout.title(), family, runtime.title()]);
            let ran_before = known.copied().unwrap_or(true);
            let runs = match outcome {
                Outcome::Absent(_) => continue,
                Outcome::Ran { .. } | Outcome::CannotRun(_) | Outcome::NotExported(_) => {
                    outcome.runs_as_pytorch(runtime.bound())
                }
            };
            let cell = format!("{family}, {} layout, {}", layout.title(), runtime.title());
            match (ran_before, runs) {
                (true, true) | (false, false) => {}
                (false, true) => changes
                    .better
                    .push(format!("{cell}: did not run before: {}", outcome.summary())),
                (true, false) => {
                    let line = match known {
                        Some(_) => format!("{cell}: ran before: {}", outcome.summary()),
                        None => format!(
                            "{cell}: does not run and is not in the record: {}",
                            outcome.summary()
                        ),
                    };
                    if *layout == Layout::Optimum {
                        changes.of_others.push(line)
                    } else {
                        changes.worse.push(line)
                    }
                }
            }
        }
        changes
    }

    /// Adds the cells of a run, or replaces them.
    pub fn extend<'a>(&mut self, found: impl IntoIterator<Item = &'a Filled>) {
        for Filled { family, layout, runtime, outcome } in found {
            if let Outcome::Ran { version, .. } = outcome
                && !self.versions.contains(version)
            {
                self.versions.push(version.clone());
            }
            let shown = match outcome {
                Outcome::Ran { .. } => Shown::Ran(outcome.summary()),
                Outcome::CannotRun(reason) | Outcome::Absent(reason) => {
                    Shown::No(reason.replace('`', "'"))
                }
                Outcome::NotExported(reason) => Shown::None(reason.replace('`', "'")),
            };
            self.cells.insert([layout.title(), family, runtime.title()].map(str::to_owned), shown);
        }
    }

    /// A table per layout, then numbered reasons, then versions.
    pub fn text(&self) -> String {
        let mut reasons = Vec::new();
        let mut text = String::new();
        for layout in Layout::value_variants() {
            if let Some(table) = self.table(*layout, &mut reasons) {
                text += &format!("## {} layout\n\n{table}\n", layout.title());
            }
        }
        if !reasons.is_empty() {
            text += &format!("{REASONS}\n\n");
            for (index, reason) in reasons.iter().enumerate() {
                text += &format!("{}. `{reason}`\n", index + 1);
            }
            text += "\n";
        }
        match self.versions.is_empty() {
            true => text,
            false => format!("{text}{VERSIONS}{}.\n", self.versions.join(", ")),
        }
    }

    fn table<'a>(&'a self, layout: Layout, reasons: &mut Vec<&'a str>) -> Option<String> {
        let cell = |family: &str, runtime: Runtime| {
            self.cells.get(&[layout.title(), family, runtime.title()].map(str::to_owned))
        };
        let mut families: Vec<&str> = self
            .cells
            .keys()
            .filter(|[title, ..]| title == layout.title())
            .map(|[_, family, _]| family.as_str())
            .collect();
        families.dedup();
        let runtimes = Runtime::value_variants().iter().copied();
        let runtimes: Vec<Runtime> = runtimes
            .filter(|runtime| families.iter().any(|family| cell(family, *runtime).is_some()))
            .collect();
        let header: Vec<&str> = std::iter::once("family")
            .chain(runtimes.iter().map(|runtime| runtime.title()))
            .collect();
        let mut rows = Vec::new();
        for family in &families {
            let shown = runtimes.iter().map(|runtime| match cell(family, *runtime) {
                Some(Shown::Ran(text)) => text.clone(),
                Some(Shown::No(reason)) => format!("no ({})", numbered(reasons, reason)),
                Some(Shown::None(reason)) => format!("none ({})", numbered(reasons, reason)),
                None => NOT_RUN.to_owned(),
            });
            rows.push(std::iter::once((*family).to_owned()).chain(shown).collect());
        }
        (!rows.is_empty()).then(|| table(&header, &rows))
    }
}

impl Shown {
    /// Reads a cell; `None` if it was not run.
    fn read(cell: &str, reasons: &BTreeMap<&str, &str>) -> Option<Shown> {
        let reason = |number: &str| {
            reasons.get(number.trim_end_matches(')')).copied().unwrap_or_default().to_owned()
        };
        Some(match cell.split_once(" (") {
            _ if cell == NOT_RUN => return None,
            Some(("no", number)) => Shown::No(reason(number)),
            Some(("none", number)) => Shown::None(reason(number)),
            _ => Shown::Ran(cell.to_owned()),
        })
    }
}

/// The number of a reason, from 1; a new one is appended.
fn numbered<'a>(reasons: &mut Vec<&'a str>, reason: &'a str) -> usize {
    let index = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    index + 1
}

/// The text of the committed page.
pub fn page(tables: &str) -> String {
    format!(
        "# Interoperability\n\n\
         Exported models in other programs. Each golden model of `testdata/golden`, `testdata/encoders` and `testdata/decoders` in\n\
         the tables is exported and run on its inputs: texts, images (`vit`, `trocr`) or log-mel frames (`whisper`); MADLAD-400\n\
         has the architecture of `t5-gated`. A number is the maximum absolute difference from PyTorch in encoder states and\n\
         teacher-forced logits (in `marian` PyTorch's f32 and f64 differ by 1.5e-4), of encoders and decoders alone in every\n\
         output. `equal`: greedy decoding of 24 tokens from an empty past, of 12 after prompts padded on the left, gives PyTorch's\n\
         tokens; in Optimum by its `generate`, also with 3 or 4 beams; in transformers.js by its `generate`, up to each row's\n\
         end, and the pipelines `translation` and `text2text-generation` return the same text; in its browser build (web) in\n\
         WebAssembly, with files fetched over HTTP. In the Generate layout the graph itself decodes: greedily, and with 4 beams,\n\
         the difference of whose scores is shown. `-`: not run.\n\n\
         MNN replaces GELU by its tanh form, which differs by 5e-4. `whisper` in PyTorch with this form differs by 6.3e-2,\n\
         as in MNN, which is therefore not run with audio.\n\n\
         `cargo xtask interop` regenerates this page, and fails if a cell gets worse; the last digits differ between machines.\n\n{tables}"
    )
}
