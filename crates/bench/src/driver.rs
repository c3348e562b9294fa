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
pub struct Answer {
    pub seconds: f64,
    /// Of these within the engine; only ours tell.
    pub seconds_in_graph: Option<f64>,
    pub tokens: usize,
    /// The most memory that was resident so far; only trainings tell.
    #[serde(default)]
    pub peak_bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
pub struct Greeting {
    pub engine: String,
    /// Of trainings: learned values.
    #[serde(default)]
    pub parameters: u64,
    /// And memory that was resident before there was a model.
    #[serde(default)]
    pub base_bytes: u64,
}

/// A running program.
pub struct Driver {
    pub child: Child,
    pub requests: Option<ChildStdin>,
    pub answers: BufReader<ChildStdout>,
    pub greeting: Greeting,
    /// What it says to people.
    pub log: PathBuf,
}

impl Driver {
    /// Starts the program and waits until its model is loaded.
    pub fn start(mut command: Command, log: &Path) -> Result<Driver> {
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
    pub fn engine(&self) -> &str {
        &self.greeting.engine
    }

    /// Learned values of a model that is trained.
    pub fn parameters(&self) -> u64 {
        self.greeting.parameters
    }

    /// The memory of the program before it had a model.
    pub fn base_bytes(&self) -> u64 {
        self.greeting.base_bytes
    }

    /// One call.
    pub fn ask(&mut self, request: &serde_json::Value) -> Result<Answer> {
        let requests = self.requests.as_mut().context("requests end with the program")?;
        // Where it has ended, what it said of that is told below.
        let _ = writeln!(requests, "{request}").and_then(|()| requests.flush());
        self.read()
    }

    pub fn read<T: DeserializeOwned>(&mut self) -> Result<T> {
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
