//! A cell of the matrix: a runtime on one exported model, in its own process.
//!
//! `interop/python/cell.py` documents the question (a JSON file) and the answer (a JSON object on
//! the last line).

use fs_err::{self as fs, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;

use super::checkpoint::Checkpoint;
use super::programs::shortened;
use super::runtime::{Layout, Runtime};
use super::task::Kind;
use crate::workspace::shown;

/// Time limit. The slowest runtime, Optimum, imports PyTorch and takes some seconds.
const LIMIT: Duration = Duration::from_secs(300);
const INTERVAL: Duration = Duration::from_millis(20);

/// The position in the matrix.
pub struct Cell<'a> {
    pub family: &'a str,
    pub layout: Layout,
    pub runtime: Runtime,
}

/// The answer of a driver.
#[derive(Debug, Clone, Deserialize)]
pub struct Answer {
    version: String,
    error: Option<String>,
    numbers: Option<f64>,
    greedy: Option<bool>,
    beam: Option<bool>,
    texts: Option<bool>,
}

/// What a model generated, compared with PyTorch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tokens {
    /// The model does not generate.
    None,
    Equal,
    /// What differs: `TOKENS`, `BEAMS` or `TEXTS`.
    Differ(&'static str),
}

/// The content of a cell.
#[derive(Debug, Clone)]
pub enum Outcome {
    Ran {
        version: String,
        /// Largest absolute difference.
        error: f64,
        tokens: Tokens,
    },
    /// The runtime's error, or ours if it did not start.
    CannotRun(String),
    /// The model was not exported.
    NotExported(String),
    /// The program or its language is not installed.
    Absent(String),
}

impl Cell<'_> {
    /// Runs the driver `command` on this cell.
    pub fn measure(
        &self,
        home: &Path,
        checkpoint: &Checkpoint,
        exported: &Path,
        mut command: Command,
    ) -> Result<Outcome> {
        let folder = home.join("cells");
        fs::create_dir_all(&folder)?;
        let path = |ending| {
            folder.join(format!(
                "{}-{}-{}.{ending}",
                self.family,
                self.layout.slug(),
                self.runtime.driver()
            ))
        };
        let (question, output, log) = (path("json"), path("out"), path("log"));
        fs::write(&question, checkpoint.question(self.layout, exported)?.to_string())?;
        command
            .arg(&question)
            .stdin(Stdio::null())
            .stdout(File::create(&output)?.into_file())
            .stderr(File::create(&log)?.into_file());
        let status = match wait(&mut command)? {
            Ok(status) => status,
            Err(reason) => return Ok(Outcome::CannotRun(reason)),
        };
        let read =
            |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let answer = read(&output)?
            .lines()
            .next_back()
            .and_then(|line| serde_json::from_str::<Answer>(line).ok());
        Ok(match answer {
            Some(answer) => answer.judged(checkpoint.task.kind),
            None => {
                let log = read(&log)?;
                Outcome::CannotRun(shortened(&format!(
                    "{status}: {}",
                    log.trim().lines().next_back().unwrap_or_default()
                )))
            }
        })
    }
}

/// Waits for a process, and ends it at the time limit.
fn wait(command: &mut Command) -> Result<Result<ExitStatus, String>> {
    let shown = shown(command);
    let mut child = command.spawn().with_context(|| format!("{shown}: cannot start"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ok(status));
        }
        if start.elapsed() > LIMIT {
            child.kill()?;
            child.wait()?;
            return Ok(Err(format!("no answer within {} s", LIMIT.as_secs())));
        }
        std::thread::sleep(INTERVAL);
    }
}

impl Answer {
    /// The outcome for a model of this kind: encoders generate nothing.
    pub fn judged(self, kind: Kind) -> Outcome {
        match self {
            Answer { version, error: None, numbers: Some(error), greedy: None, .. }
                if kind == Kind::Encoder =>
            {
                Outcome::Ran { version, error, tokens: Tokens::None }
            }
            Answer {
                version,
                error: None,
                numbers: Some(error),
                greedy: Some(greedy),
                beam,
                texts,
            } => {
                let compared = [(Some(greedy), "TOKENS"), (beam, "BEAMS"), (texts, "TEXTS")];
                let differing = compared.into_iter().find(|(equal, _)| *equal == Some(false));
                Outcome::Ran {
                    version,
                    error,
                    tokens: differing.map_or(Tokens::Equal, |(_, name)| Tokens::Differ(name)),
                }
            }
            Answer { error, .. } => Outcome::CannotRun(shortened(
                &error.unwrap_or_else(|| "the answer is incomplete".into()),
            )),
        }
    }
}

impl Outcome {
    /// The text of the cell.
    pub fn summary(&self) -> String {
        match self {
            Outcome::Ran { error, tokens: Tokens::None, .. } => format!("{error:.1e}"),
            Outcome::Ran { error, tokens: Tokens::Equal, .. } => format!("{error:.1e}, equal"),
            Outcome::Ran { error, tokens: Tokens::Differ(name), .. } => {
                format!("{error:.1e}, {name} DIFFER")
            }
            Outcome::CannotRun(reason) | Outcome::NotExported(reason) | Outcome::Absent(reason) => {
                reason.clone()
            }
        }
    }

    /// Whether it ran with a result other than PyTorch's, or was not exported.
    pub fn is_wrong(&self, bound: f64) -> bool {
        match self {
            Outcome::Ran { error, tokens, .. } => {
                *error > bound || matches!(tokens, Tokens::Differ(_))
            }
            Outcome::CannotRun(_) | Outcome::Absent(_) => false,
            Outcome::NotExported(_) => true,
        }
    }

    /// Whether it ran with PyTorch's result.
    pub fn runs_as_pytorch(&self, bound: f64) -> bool {
        matches!(self, Outcome::Ran { .. }) && !self.is_wrong(bound)
    }
}
