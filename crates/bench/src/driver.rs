//! A program that stays loaded: requests and answers are lines of JSON.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use xtask::workspace::shown;

/// What a call took.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Answer {
    pub(crate) seconds: f64,
    /// Of these within the engine; only ours tell.
    pub(crate) seconds_in_graph: Option<f64>,
    pub(crate) tokens: usize,
    /// The most memory that was resident so far; only trainings tell.
    #[serde(default)]
    pub(crate) peak_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
struct Greeting {
    engine: String,
    /// Of trainings: learned values.
    #[serde(default)]
    parameters: u64,
    /// And memory that was resident before there was a model.
    #[serde(default)]
    base_bytes: u64,
}

/// A running program.
pub(crate) struct Driver {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    greeting: Greeting,
    /// What it says to people.
    log: PathBuf,
}

impl Driver {
    /// Starts the program and waits until its model is loaded.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Driver> {
        let errors = File::create(log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let shown = shown(&command);
        let mut child = command.spawn().with_context(|| format!("{shown}: cannot be started"))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the standard output is a pipe")?);
        let mut driver = Driver { child, requests, answers, greeting: Greeting::default(), log: log.to_owned() };
        driver.greeting = driver.read()?;
        Ok(driver)
    }

    /// What computes, with its version.
    pub(crate) fn engine(&self) -> &str {
        &self.greeting.engine
    }

    /// Learned values of a model that is trained.
    pub(crate) fn parameters(&self) -> u64 {
        self.greeting.parameters
    }

    /// The memory of the program before it had a model.
    pub(crate) fn base_bytes(&self) -> u64 {
        self.greeting.base_bytes
    }

    /// One call.
    pub(crate) fn ask(&mut self, request: &serde_json::Value) -> Result<Answer> {
        let requests = self.requests.as_mut().context("requests end with the program")?;
        // Where it has ended, what it said of that is told below.
        let _ = writeln!(requests, "{request}").and_then(|()| requests.flush());
        self.read()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            let log = fs::read(&self.log).unwrap_or_default();
            let said = String::from_utf8_lossy(&log);
            bail!("{status}: {}", said.trim().lines().next_back().unwrap_or("it said nothing"));
        }
        serde_json::from_str(&line).with_context(|| format!("expected an answer, found {line:?}"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Without requests it ends by itself.
        self.requests = None;
        let _ = self.child.wait();
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, log: &Path) -> Result<Driver> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Driver::start(command, log)
    }

    #[test]
    fn a_program_answers_or_its_last_words_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let script =
            r#"echo '{"engine": "echo 1"}'; read request; echo '{"seconds": 0.5, "tokens": 7}'; read request; echo 'no more' >&2; exit 3"#;
        let mut driver = shell(script, &log).unwrap();
        assert_eq!(driver.engine(), "echo 1");
        let answer = driver.ask(&serde_json::json!({})).unwrap();
        assert_eq!((answer.seconds, answer.seconds_in_graph, answer.tokens), (0.5, None, 7));
        assert_eq!(driver.ask(&serde_json::json!({})).unwrap_err().to_string(), "exit status: 3: no more");
        let error = shell("echo nonsense", &log).err().unwrap().to_string();
        assert_eq!(error, "expected an answer, found \"nonsense\\n\"");
    }
}
