//! Tests of `fuzz::libfuzzer`.

use std::path::Path;
use xtask::fuzz::libfuzzer::*;
use xtask::workspace::Workspace;
#[test]
fn executions_are_read() {
    let said = "INFO: seed 3\nDone 12 runs in 1 second(s)\nstat::number_of_executed_units: 12\nstat::new_units_added: 0\n";
    assert_eq!(executions(said), Some(12));
    assert_eq!(executions("INFO: seed 3\n"), None);
}

#[test]
fn seeds_are_there() {
    let workspace = Workspace::find().unwrap();
    for (name, patterns) in TARGETS {
        let files = seed_files(&workspace, patterns).unwrap();
        assert!(
            files.len() >= patterns.len() && files.iter().all(|file| Path::new(file).is_file()),
            "{name}: {files:?}"
        );
    }
}
