//! A program that stays loaded. Requests and answers are lines of JSON.

use fs_err::{self as fs, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use xtask::workspace::shown;

/// The cost of a call.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
pub struct Answer {
    pub seconds: f64,
    /// Seconds within the engine's sessions, which only Cognate reports.
    pub seconds_in_graph: Option<f64>,
    pub tokens: usize,
    /// The highest resident memory so far; 0 if it is not reported.
    #[serde(default)]
    pub peak_bytes: u64,
    /// The loss per label of the last update of a training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
}

/// The first line of a program.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Greeting {
    /// The engine and its version.
    pub engine: String,
    /// Number of parameters of a training.
    #[serde(default)]
    pub parameters: u64,
    /// Resident memory before the model was loaded.
    #[serde(default)]
    pub base_bytes: u64,
}

/// A running program.
pub struct Driver {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub greeting: Greeting,
    /// The file of its standard error.
    log: PathBuf,
}

impl Driver {
    /// Starts the program and waits until its model is loaded.
    pub fn start(mut command: Command, log: &Path) -> Result<Driver> {
        let errors = File::create(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors.into_file());
        let shown = shown(&command);
        let mut child = command.spawn().with_context(|| format!("{shown}: cannot start"))?;
        let requests = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().context("the standard output is a pipe")?);
        let mut driver =
            Driver { child, requests, answers, greeting: Greeting::default(), log: log.to_owned() };
        driver.greeting = driver.read()?;
        Ok(driver)
    }

    /// One call.
    pub fn ask(&mut self, request: &serde_json::Value) -> Result<Answer> {
        self.request(request)
    }

    /// One call with an answer of another kind.
    pub fn request<T: DeserializeOwned>(&mut self, request: &serde_json::Value) -> Result<T> {
        let requests = self.requests.as_mut().context("requests end with the program")?;
        // The error of a program that has ended is read below.
        let _ = writeln!(requests, "{request}").and_then(|()| requests.flush());
        self.read()
    }

    fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            let log = fs::read(&self.log).unwrap_or_default();
            let said = String::from_utf8_lossy(&log);
            bail!("{status}: {}", said.trim().lines().next_back().unwrap_or("no message"));
        }
        serde_json::from_str(&line).with_context(|| format!("expected an answer, found {line:?}"))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The program ends when its input ends.
        self.requests = None;
        let _ = self.child.wait();
    }
}
