//! Tests of `workspace`.

use std::process::Stdio;
use xtask::workspace::*;
#[test]
fn a_failing_command_shows_how_it_was_called() {
    let error = call(
        Workspace::find().unwrap().cargo().args(["no-such-command", "a\nb"]).stderr(Stdio::null()),
    );
    let message = error.unwrap_err().to_string();
    assert!(message.contains("no-such-command 'a ...': exit status: 101"), "{message}");
}

#[test]
fn files_are_sorted_and_target_is_passed_over() {
    let workspace = Workspace::find().unwrap();
    let all = files(workspace.root()).unwrap();
    assert!(all.is_sorted());
    assert!(all.contains(&workspace.root().join("Cargo.toml")));
    assert!(!all.iter().any(|path| path.starts_with(workspace.target(""))));
}
