//! Tests of `interop::record`.

use xtask::interop::cell::Cell;
use xtask::interop::cell::{Outcome, Tokens};
use xtask::interop::matrix::Matrix;
use xtask::interop::record::*;
use xtask::interop::runtime::Layout;
use xtask::interop::runtime::Runtime;
use xtask::interop::{RECORD, chosen_families};
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
    Outcome::Ran { version: "rten 1".into(), error, tokens: Tokens::Equal }
}

#[test]
fn a_cell_that_gets_worse_is_told_apart_from_one_that_gets_better() {
    let mut matrix = Matrix::default();
    let refused = || Outcome::CannotRun("no such op".into());
    let mut add =
        |family, layout, runtime, outcome| matrix.add(Cell { family, layout, runtime }, outcome);
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
            "marian, Cognate layout, rten: does not run and is not in the record: no such op"
                .into(),
        ],
        better: vec!["t5, Cognate layout, MNN: did not run before: 1.0e-5, equal".into()],
        of_others: vec!["bart, Optimum's own layout, rten: ran before: no such op".into()],
    };
    assert_eq!(changes, expected);
}

#[test]
fn a_part_of_the_page_is_replaced() {
    let page = "\
        ## Cognate layout\n\n\
        | family |          rten |    MNN |\n\
        | ------ | ------------: | -----: |\n\
        | bart   | 1.0e-5, equal | no (1) |\n\
        | t5     |             - | no (2) |\n\n\
        ## What cannot run or was not exported\n\n\
        1. `no such op`\n\
        2. `crashed: (3)`\n\n\
        Ran in rten 1.\n";
    let mut record = Record::read(page);
    assert_eq!(record.text(), page);
    let mut matrix = Matrix::default();
    let mut add =
        |family, layout, runtime, outcome| matrix.add(Cell { family, layout, runtime }, outcome);
    let encoder = Outcome::Ran { version: "MNN 2".into(), error: 2e-6, tokens: Tokens::None };
    add("bart", Layout::Cognate, Runtime::Mnn, encoder.clone());
    add("bert", Layout::Hf, Runtime::Rten, Outcome::NotExported("no weights".into()));
    record.extend(matrix.cells());
    let expected = "\
        ## Cognate layout\n\n\
        | family |          rten |    MNN |\n\
        | ------ | ------------: | -----: |\n\
        | bart   | 1.0e-5, equal | 2.0e-6 |\n\
        | t5     |             - | no (1) |\n\n\
        ## Hugging Face layout\n\n\
        | family |     rten |\n\
        | ------ | -------: |\n\
        | bert   | none (2) |\n\n\
        ## What cannot run or was not exported\n\n\
        1. `crashed: (3)`\n\
        2. `no weights`\n\n\
        Ran in rten 1, MNN 2.\n";
    assert_eq!(record.text(), expected);
    assert!(Record::read(expected).ran()[&["Cognate", "bart", "MNN"]]);
}

#[test]
fn the_committed_page_is_read_whole() {
    let workspace = Workspace::find().unwrap();
    let page = std::fs::read_to_string(workspace.root().join("onnx").join(RECORD)).unwrap();
    let record = Record::read(&page);
    let ran = record.ran();
    for family in chosen_families(&workspace.root().join("testdata/golden"), &[]).unwrap() {
        assert!(ran.keys().any(|[_, known, _]| *known == family), "{family}");
    }
    assert!(page.ends_with(&record.text()), "read and written again, the page differs");
    let runs = |layout: &str, runtime: &str| ran[&[layout, "marian", runtime]];
    assert!(
        runs("Cognate", "rten") && !runs("In-place", "rten") && !runs("Hugging Face", "OpenCV")
    );
}
