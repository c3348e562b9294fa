//! All cells of a run.

use super::cell::{Cell, Outcome};
use super::runtime::{Layout, Runtime};

/// The cells of a run.
#[derive(Default)]
pub struct Matrix {
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
    pub fn add(&mut self, cell: Cell<'_>, outcome: Outcome) {
        let Cell { family, layout, runtime } = cell;
        self.cells.push(Filled { family: family.to_owned(), layout, runtime, outcome });
    }

    pub fn cells(&self) -> &[Filled] {
        &self.cells
    }

    /// A line for each cell whose result is not PyTorch's, except in Optimum's own exports.
    pub fn wrong(&self) -> Vec<String> {
        let wrong = self.cells.iter().filter(|cell| {
            cell.layout != Layout::Optimum && cell.outcome.is_wrong(cell.runtime.bound())
        });
        let line = |cell: &Filled| {
            format!(
                "{}, {} layout, {}: {}",
                cell.family,
                cell.layout.title(),
                cell.runtime.title(),
                cell.outcome.summary()
            )
        };
        wrong.map(line).collect()
    }
}
