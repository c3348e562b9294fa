//! Compares a run with the committed page: cells that ran and no longer do, and cells that run now.
//!
//! A cell that is not on the page is expected to run with PyTorch's result.

use std::collections::BTreeMap;

use super::cell::Outcome;
use super::matrix::Filled;
use super::runtime::Layout;

/// The cells of the page.
#[derive(Debug, Default)]
pub struct Record {
    /// Whether each cell ran with PyTorch's result, by the titles of layout, family and runtime.
    pub cells: BTreeMap<[String; 3], bool>,
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

impl Record {
    /// Reads the tables of the page.
    pub fn read(page: &str) -> Record {
        let mut record = Record::default();
        let (mut layout, mut runtimes) = (String::new(), Vec::new());
        for line in page.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                layout = title.trim_end_matches(" layout").to_owned();
            }
            let Some(row) = line.strip_prefix('|') else { continue };
            let cells: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
            match cells.split_first() {
                Some((&"family", titles)) => runtimes = titles.iter().map(|&title| title.to_owned()).collect(),
                Some((first, _)) if first.starts_with('-') => {}
                Some((family, cells)) => record.cells.extend(
                    (runtimes.iter().zip(cells))
                        .map(|(runtime, cell)| ([&layout, *family, runtime].map(str::to_owned), cell.ends_with(", equal"))),
                ),
                None => {}
            }
        }
        record
    }

    /// Compares the cells of a run. Programs that are not installed are ignored.
    pub fn compare<'a>(&self, found: impl IntoIterator<Item = &'a Filled>) -> Changes {
        let mut changes = Changes::default();
        for Filled { family, layout, runtime, outcome } in found {
            let known = self.cells.get(&[layout.title(), family, runtime.title()].map(str::to_owned));
            let ran_before = known.copied().unwrap_or(true);
            let runs = match outcome {
                Outcome::Absent(_) => continue,
                Outcome::Ran { .. } | Outcome::CannotRun(_) | Outcome::NotExported(_) => outcome.runs_as_pytorch(runtime.bound()),
            };
            let cell = format!("{family}, {} layout, {}", layout.title(), runtime.title());
            match (ran_before, runs) {
                (true, true) | (false, false) => {}
                (false, true) => changes.better.push(format!("{cell}: did not run before: {}", outcome.summary())),
                (true, false) => {
                    let line = match known {
                        Some(_) => format!("{cell}: ran before: {}", outcome.summary()),
                        None => format!("{cell}: does not run and is not in the record: {}", outcome.summary()),
                    };
                    if *layout == Layout::Optimum { changes.of_others.push(line) } else { changes.worse.push(line) }
                }
            }
        }
        changes
    }
}
