//! Tests of `interop::matrix`.

use xtask::interop::cell::{Cell, Outcome, Tokens};
use xtask::interop::matrix::*;
use xtask::interop::record::Record;
use xtask::interop::runtime::{Layout, Runtime};
#[test]
fn reasons_are_numbered_once() {
    let mut matrix = Matrix::default();
    let ran = |error| Outcome::Ran { version: "rten 1".into(), error, tokens: Tokens::Equal };
    let refused = || Outcome::CannotRun("no `If`".into());
    let mut add =
        |family, layout, runtime, outcome| matrix.add(Cell { family, layout, runtime }, outcome);
    add("bart", Layout::Cognate, Runtime::Rten, ran(1e-5));
    add("bart", Layout::Optimum, Runtime::Rten, refused());
    add("bart", Layout::Optimum, Runtime::Optimum, refused());
    add("t5", Layout::Cognate, Runtime::Rten, ran(1.0));
    add("t5", Layout::Optimum, Runtime::Rten, ran(1.0));
    let expected = "\
        ## Cognate layout\n\n\
        | family |          rten |\n\
        | ------ | ------------: |\n\
        | bart   | 1.0e-5, equal |\n\
        | t5     |  1.0e0, equal |\n\n\
        ## Optimum's own layout\n\n\
        | family |         rten | Optimum |\n\
        | ------ | -----------: | ------: |\n\
        | bart   |       no (1) |  no (1) |\n\
        | t5     | 1.0e0, equal |       - |\n\n\
        ## What cannot run or was not exported\n\n\
        1. `no 'If'`\n\n\
        Ran in rten 1.\n";
    let mut record = Record::default();
    record.extend(matrix.cells());
    assert_eq!(record.text(), expected);
    assert_eq!(matrix.wrong(), ["t5, Cognate layout, rten: 1.0e0, equal"]);
}
