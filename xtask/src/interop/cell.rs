//! One cell of the matrix: a runtime asked about one exported model, as a process of its own.
//!
//! `interop/python/cell.py` says what is asked (a JSON file) and answered (a JSON object on the last line).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::checkpoint::Checkpoint;
use super::programs::shortened;
use super::runtime::{Layout, Runtime};
use xtask::workspace::shown;

/// The slowest, Optimum, imports PyTorch and takes some seconds.
const LIMIT: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(20);

/// Where in the matrix.
pub(crate) struct Cell<'a> {
    pub(crate) family: &'a str,
    pub(crate) layout: Layout,
    pub(crate) runtime: Runtime,
}

/// What a driver answers.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Answer {
    version: String,
    error: Option<String>,
    encoder: Option<f64>,
    logits: Option<f64>,
    greedy: Option<bool>,
    beam: Option<bool>,
    texts: Option<bool>,
}

/// What a cell says.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Ran {
        version: String,
        /// Largest absolute difference.
        error: f64,
        /// What is not PyTorch's: `TOKENS`, `BEAMS` or `TEXTS`.
        differing: Option<&'static str>,
    },
    /// In the other side's words, or ours where it was not reached.
    CannotRun(String),
    /// There was nothing to run.
    NotExported(String),
    /// The program, or the language that it is driven in, is not installed here.
    Absent(String),
}

impl Cell<'_> {
    /// Asks the driver that `command` starts.
    pub(crate) fn measure(&self, home: &Path, checkpoint: &Checkpoint, exported: &Path, mut command: Command) -> Result<Outcome> {
        let folder = home.join("cells");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = |ending| folder.join(format!("{}-{}-{}.{ending}", self.family, self.layout.slug(), self.runtime.driver()));
        let (question, output, log) = (path("json"), path("out"), path("log"));
        fs::write(&question, checkpoint.question(self.layout, exported)?.to_string())?;
        command.arg(&question).stdin(Stdio::null()).stdout(File::create(&output)?).stderr(File::create(&log)?);
        let status = match wait(&mut command)? {
            Ok(status) => status,
            Err(reason) => return Ok(Outcome::CannotRun(reason)),
        };
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let answer = read(&output)?.lines().next_back().and_then(|line| serde_json::from_str::<Answer>(line).ok());
        Ok(match answer {
            Some(answer) => answer.into(),
            None => {
                let log = read(&log)?;
                Outcome::CannotRun(shortened(&format!("{status}: {}", log.trim().lines().next_back().unwrap_or_default())))
            }
        })
    }
}

/// Waits for the end of a program; one that takes too long is ended.
fn wait(command: &mut Command) -> Result<Result<ExitStatus, String>> {
    let shown = shown(command);
    let mut child = command.spawn().with_context(|| format!("{shown}: cannot be started"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(Err(format!("ended after {} s without an answer", LIMIT.as_secs())));
        }
        std::thread::sleep(INTERVAL);
    }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Outcome {
        match answer {
            Answer { version, error: None, encoder: Some(encoder), logits: Some(logits), greedy: Some(greedy), beam, texts } => {
                let compared = [(Some(greedy), "TOKENS"), (beam, "BEAMS"), (texts, "TEXTS")];
                let differing = compared.into_iter().find(|(equal, _)| *equal == Some(false)).map(|(_, name)| name);
                Outcome::Ran { version, error: encoder.max(logits), differing }
            }
            Answer { error, .. } => Outcome::CannotRun(shortened(&error.unwrap_or_else(|| "the answer is not whole".into()))),
        }
    }
}

impl Outcome {
    /// A few words.
    pub(crate) fn summary(&self) -> String {
        match self {
            Outcome::Ran { error, differing: None, .. } => format!("{error:.1e}, equal"),
            Outcome::Ran { error, differing: Some(name), .. } => format!("{error:.1e}, {name} DIFFER"),
            Outcome::CannotRun(reason) | Outcome::NotExported(reason) | Outcome::Absent(reason) => reason.clone(),
        }
    }

    /// Whether it ran and gave something else than PyTorch, or was never made.
    pub(crate) fn is_wrong(&self, bound: f64) -> bool {
        match self {
            Outcome::Ran { error, differing, .. } => *error > bound || differing.is_some(),
            Outcome::CannotRun(_) | Outcome::Absent(_) => false,
            Outcome::NotExported(_) => true,
        }
    }

    /// Whether it ran and gave what PyTorch gives.
    pub(crate) fn runs_as_pytorch(&self, bound: f64) -> bool {
        matches!(self, Outcome::Ran { .. }) && !self.is_wrong(bound)
    }
}

#[cfg(test)]
mod tests {
    use super::super::runtime::BOUND;
    use super::*;

    fn outcome(json: &str) -> Outcome {
        serde_json::from_str::<Answer>(json).unwrap().into()
    }

    #[test]
    fn answers_are_judged() {
        for (json, summary, wrong) in [
            (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true}"#, "7.1e-5, equal", false),
            (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true, "beam": true}"#, "7.1e-5, equal", false),
            (r#"{"version": "a 1", "encoder": 2e-5, "logits": 7.1e-5, "greedy": true, "beam": false}"#, "7.1e-5, BEAMS DIFFER", true),
            (r#"{"version": "a 1", "encoder": 0, "logits": 1e-6, "greedy": true, "texts": false}"#, "1.0e-6, TEXTS DIFFER", true),
            (r#"{"version": "a 1", "encoder": 0.2, "logits": 7.1e-5, "greedy": true}"#, "2.0e-1, equal", true),
            (r#"{"version": "a 1", "encoder": 0, "logits": 0, "greedy": false, "beam": true}"#, "0.0e0, TOKENS DIFFER", true),
            (r#"{"version": "a 1", "error": "no\nsuch op"}"#, "no such op", false),
            (r#"{"version": "a 1", "encoder": 2e-5}"#, "the answer is not whole", false),
        ] {
            let outcome = outcome(json);
            assert_eq!((outcome.summary().as_str(), outcome.is_wrong(BOUND)), (summary, wrong), "{json}");
        }
    }
}
