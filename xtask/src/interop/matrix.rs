//! The cells as tables, one per layout, with the reasons of failures below.

use super::cell::{Cell, Outcome};
use super::runtime::{Layout, Runtime};
use crate::table::table;

/// All cells of a run.
pub struct Matrix {
    runtimes: Vec<Runtime>,
    layouts: Vec<Layout>,
    cells: Vec<Filled>,
}

/// A cell and its outcome.
pub struct Filled {
    pub family: String,
    pub layout: Layout,
    pub runtime: Runtime,
    pub outcome: Outcome,
}

impl Matrix {
    pub fn new(runtimes: &[Runtime], layouts: &[Layout]) -> Matrix {
        Matrix { runtimes: runtimes.to_vec(), layouts: layouts.to_vec(), cells: Vec::new() }
    }

    pub fn add(&mut self, cell: Cell<'_>, outcome: Outcome) {
        let Cell { family, layout, runtime } = cell;
        self.cells.push(Filled { family: family.to_owned(), layout, runtime, outcome });
    }

    pub fn cells(&self) -> &[Filled] {
        &self.cells
    }

    /// A line for each cell whose result is not PyTorch's, except in Optimum's own exports.
    pub fn wrong(&self) -> Vec<String> {
        let wrong = self.cells.iter().filter(|cell| cell.layout != Layout::Optimum && cell.outcome.is_wrong(cell.runtime.bound()));
        let line = |cell: &Filled| {
            format!("{}, {} layout, {}: {}", cell.family, cell.layout.title(), cell.runtime.title(), cell.outcome.summary())
        };
        wrong.map(line).collect()
    }

    /// A table per layout, then numbered reasons, then versions.
    pub fn text(&self) -> String {
        let mut reasons = Vec::new();
        let mut text = String::new();
        for &layout in &self.layouts {
            text += &format!("## {} layout\n\n{}\n", layout.title(), self.table(layout, &mut reasons));
        }
        if !reasons.is_empty() {
            text += "## What cannot run or was not exported\n\n";
            for (index, reason) in reasons.iter().enumerate() {
                text += &format!("{}. `{}`\n", index + 1, reason.replace('`', "'"));
            }
            text += "\n";
        }
        text + &self.versions()
    }

    fn table(&self, layout: Layout, reasons: &mut Vec<String>) -> String {
        let runtimes: Vec<Runtime> = self.runtimes.iter().copied().filter(|runtime| runtime.runs(layout)).collect();
        let header: Vec<&str> = std::iter::once("family").chain(runtimes.iter().map(|runtime| runtime.title())).collect();
        let mut families: Vec<&str> = self.cells.iter().map(|cell| cell.family.as_str()).collect();
        families.dedup();
        let rows: Vec<Vec<String>> = families
            .iter()
            .map(|family| {
                let cell = |runtime: &Runtime| {
                    let mut here = self.cells.iter().filter(|cell| cell.layout == layout && cell.runtime == *runtime);
                    match here.find(|cell| cell.family == *family).map(|cell| &cell.outcome) {
                        Some(Outcome::CannotRun(reason) | Outcome::Absent(reason)) => format!("no ({})", numbered(reasons, reason)),
                        Some(Outcome::NotExported(reason)) => format!("none ({})", numbered(reasons, reason)),
                        Some(outcome) => outcome.summary(),
                        None => "-".to_owned(),
                    }
                };
                std::iter::once((*family).to_owned()).chain(runtimes.iter().map(cell)).collect()
            })
            .collect();
        table(&header, &rows)
    }

    fn versions(&self) -> String {
        let mut versions: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if let Outcome::Ran { version, .. } = &cell.outcome
                && !versions.contains(&version.as_str())
            {
                versions.push(version);
            }
        }
        match versions.is_empty() {
            true => String::new(),
            false => format!("Ran in {}.\n", versions.join(", ")),
        }
    }
}

/// The number of a reason, from 1; a new one is appended.
fn numbered(reasons: &mut Vec<String>, reason: &str) -> usize {
    let index = reasons.iter().position(|known| known == reason).unwrap_or_else(|| {
        reasons.push(reason.to_owned());
        reasons.len() - 1
    });
    index + 1
}

/// The text of the committed page.
pub fn record(tables: &str) -> String {
    format!(
        "# Interoperability\n\n\
         Exported models in other programs. Each golden model of `testdata/golden` is exported and run on its three sources. A\n\
         number is the maximum absolute difference from PyTorch's f32 in encoder states and teacher-forced logits (in `marian`\n\
         PyTorch's f32 and f64 differ by 1.5e-4). `equal`: greedy decoding of 24 tokens from an empty past gives PyTorch's\n\
         tokens; in Optimum by its `generate`, also with 4 beams; in transformers.js by its `generate`, up to each row's end,\n\
         and the pipelines `translation` and `text2text-generation` return the same text; in its browser build (web) in\n\
         WebAssembly, with files fetched over HTTP. MNN replaces GELU by its tanh form, which differs by 5e-4.\n\n\
         `cargo xtask interop` regenerates this page, and fails if a cell gets worse; the last digits differ between machines.\n\n{tables}"
    )
}
