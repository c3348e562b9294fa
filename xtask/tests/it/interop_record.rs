//! Tests of `interop::record`.

use clap::ValueEnum;
use xtask::interop::RECORD;
use xtask::interop::cell::Cell;
use xtask::interop::cell::Outcome;
use xtask::interop::matrix::Matrix;
use xtask::interop::record::*;
use xtask::interop::runtime::Layout;
use xtask::interop::runtime::Runtime;
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
    for layout in Layout::value_variants() {
        for runtime in Runtime::value_variants().iter().filter(|runtime| runtime.runs(*layout)) {
            for family in &families {
                let key = [layout.title(), family, runtime.title()].map(str::to_owned);
                assert!(record.cells.contains_key(&key), "{key:?}");
            }
        }
    }
    let runs = |layout: &str, runtime: &str| record.cells[&[layout, "marian", runtime].map(str::to_owned)];
    assert!(runs("Cognate", "rten") && !runs("In-place", "rten") && !runs("Hugging Face", "OpenCV"));
}
