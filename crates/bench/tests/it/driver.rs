//! Unit tests of `driver`.

use anyhow::Result;
use std::path::Path;
use std::process::Command;

use cognate_bench::driver::*;

fn shell(script: &str, log: &Path) -> Result<Driver> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Driver::start(command, log)
}

#[test]
fn a_program_answers_or_fails_with_its_last_message() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = r#"echo '{"engine": "echo 1"}'; read request; echo '{"seconds": 0.5, "tokens": 7}'; read request; echo 'no more' >&2; exit 3"#;
    let mut driver = shell(script, &log).unwrap();
    assert_eq!(driver.greeting.engine, "echo 1");
    let answer = driver.ask(&serde_json::json!({})).unwrap();
    assert_eq!((answer.seconds, answer.seconds_in_graph, answer.tokens), (0.5, None, 7));
    assert_eq!(
        driver.ask(&serde_json::json!({})).unwrap_err().to_string(),
        "exit status: 3: no more"
    );
    let error = shell("echo nonsense", &log).err().unwrap().to_string();
    assert_eq!(error, "expected an answer, found \"nonsense\\n\"");
}
