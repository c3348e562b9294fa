//! Compares a run with the committed page: cells that ran and no longer do, and cells that run now.
//!
//! A cell that is not on the page is expected to run with PyTorch's result.

use std::collections::BTreeMap;

use super::cell::Outcome;
use super::matrix::Filled;
use super::runtime::Layout;

/// The cells of the page.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Whether each cell ran with PyTorch's result, by the titles of layout, family and runtime.
    cells: BTreeMap<[String; 3], bool>,
}

/// Differences between a run and the page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// A line for each cell that runs on the page but not in this run.
    pub(crate) worse: Vec<String>,
    /// A line for each cell that runs in this run but not on the page.
    pub(crate) better: Vec<String>,
    /// As `worse`, for graphs exported by other programs.
    pub(crate) of_others: Vec<String>,
}

impl Record {
    /// Reads the tables of the page.
    pub(crate) fn read(page: &str) -> Record {
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
    pub(crate) fn compare<'a>(&self, found: impl IntoIterator<Item = &'a Filled>) -> Changes {
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

#[cfg(test)]
mod tests {
    use super::super::RECORD;
    use super::super::cell::Cell;
    use super::super::matrix::Matrix;
    use super::super::runtime::Runtime;
    use super::*;
    use xtask::workspace::Workspace;

    const PAGE: &str = "\
        # Interoperability\n\n\
        ## Cognate layout\n\n\
        | family |          rten |    MNN |\n\
        | ------ | ------------: | -----: |\n\
        | bart   | 1.0e-5, equal | no (1) |\n\
        | t5     | 1.0e-5, equal | no (1) |\n\n\
        ## Optimum's own layout\n\n\
        | family |          rten |\n\
        | ------ | ------------: |\n\
        | bart   | 1.0e-5, equal |\n";

    fn ran(error: f64) -> Outcome {
        Outcome::Ran { version: "rten 1".into(), error, differing: None }
    }

    #[test]
    fn a_cell_that_gets_worse_is_told_apart_from_one_that_gets_better() {
        let mut matrix = Matrix::new(&[Runtime::Rten, Runtime::Mnn], &[Layout::Cognate, Layout::Optimum]);
        let refused = || Outcome::CannotRun("no such op".into());
        let mut add = |family, layout, runtime, outcome| matrix.add(Cell { family, layout, runtime }, outcome);
        add("bart", Layout::Cognate, Runtime::Rten, refused());
        add("bart", Layout::Cognate, Runtime::Mnn, refused());
        // Only the digits differ.
        add("t5", Layout::Cognate, Runtime::Rten, ran(2e-5));
        add("t5", Layout::Cognate, Runtime::Mnn, ran(1e-5));
        add("bart", Layout::Optimum, Runtime::Rten, refused());
        add("marian", Layout::Cognate, Runtime::Rten, refused());
        add("marian", Layout::Cognate, Runtime::Mnn, Outcome::Absent("no Python".into()));
        let changes = Record::read(PAGE).compare(matrix.cells());
        let expected = Changes {
            worse: vec![
                "bart, Cognate layout, rten: ran before: no such op".into(),
                "marian, Cognate layout, rten: does not run and is not in the record: no such op".into(),
            ],
            better: vec!["t5, Cognate layout, MNN: did not run before: 1.0e-5, equal".into()],
            of_others: vec!["bart, Optimum's own layout, rten: ran before: no such op".into()],
        };
        assert_eq!(changes, expected);
    }

    #[test]
    fn the_committed_page_is_read_whole() {
        let page = std::fs::read_to_string(Workspace::find().unwrap().root().join("onnx").join(RECORD)).unwrap();
        let record = Record::read(&page);
        let families: Vec<&String> = record.cells.keys().map(|[_, family, _]| family).collect();
        for layout in Layout::ALL {
            for runtime in Runtime::ALL.iter().filter(|runtime| runtime.runs(*layout)) {
                for family in &families {
                    let key = [layout.title(), family, runtime.title()].map(str::to_owned);
                    assert!(record.cells.contains_key(&key), "{key:?}");
                }
            }
        }
        let runs = |layout: &str, runtime: &str| record.cells[&[layout, "marian", runtime].map(str::to_owned)];
        assert!(runs("Cognate", "rten") && !runs("In-place", "rten") && !runs("Hugging Face", "OpenCV"));
    }
}
