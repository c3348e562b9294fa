//! What the command tells about itself.

use crate::run;
use insta::assert_snapshot;

#[test]
fn help_of_each_command() {
    for command in [
        "transcribe",
        "translate",
        "generate",
        "score",
        "embed",
        "classify",
        "read",
        "evaluate",
        "export",
        "train",
        "plot",
        "export-training",
        "show",
        "attend",
        "explain",
        "verify",
        "shortlist",
        "tokenize",
        "detokenize",
        "completions",
        "man",
    ] {
        assert_snapshot!(format!("help_{command}"), run(&[command, "--help"]).ok());
    }
    assert_snapshot!("help", run(&["--help"]).ok());
}

#[test]
fn version() {
    assert_snapshot!(run(&["--version"]).ok(), @"cognate 0.1.0");
}

#[test]
fn no_command_is_wrong_and_shows_the_help() {
    let err = run(&[]).failed(2);
    assert!(err.contains("Usage: cognate [OPTIONS] <COMMAND>"), "{err}");
}
