//! Python as a tool: it downloads packages from PyPI and runs ONNX's checker. Cognate itself
//! does not need it.
//!
//! Environments are created without pip and filled by the system's pip, which also works where
//! Python was packaged without `ensurepip`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::workspace::{capture, succeeds};

/// Packages for the tests: ONNX's checker and reference evaluator, numpy, ONNX Runtime for Python,
/// its operators for text, and transformers for its tokenizers, which do not need PyTorch.
pub const TESTS: &[&str] = &[
    "onnx==1.23.2",
    "numpy",
    "onnxruntime==1.31.1",
    "onnxruntime-extensions==0.15.2",
    "transformers==4.57.6",
];

const NAMES: [&str; 2] = ["python3", "python"];

/// A system Python 3 with pip.
pub struct Python {
    program: &'static str,
}

impl Python {
    /// Returns the first of `python3` and `python` that is a Python 3 with pip.
    pub fn find() -> Result<Python> {
        let mut found = None;
        for program in NAMES {
            if !succeeds(
                Command::new(program)
                    .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]),
            ) {
                continue;
            }
            if succeeds(Command::new(program).args(["-m", "pip", "--version"])) {
                return Ok(Python { program });
            }
            found = Some(program);
        }
        match found {
            Some(program) => {
                bail!(
                    "{program} has no pip; install it (`{program} -m ensurepip`, or the package python3-pip of your system)"
                )
            }
            None => {
                bail!("no Python 3.9 or newer: `python3` is not on the PATH; install it with pip")
            }
        }
    }

    /// This Python with arguments.
    pub fn command<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// pip with arguments, non-interactive; its output is shown only if it fails.
    pub fn pip<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(["-m", "pip", "--disable-pip-version-check", "--no-input"]);
        command.args(arguments).env("PIP_USER", "0");
        command
    }
}

/// Returns the Python of a virtual environment in `folder` with `requirements`, and creates
/// it if necessary.
pub fn environment(folder: &Path, requirements: &[&str]) -> Result<PathBuf> {
    let program = match cfg!(windows) {
        true => folder.join("Scripts/python.exe"),
        false => folder.join("bin/python"),
    };
    // Written last: without it the environment is incomplete.
    let marker = folder.join("requirements.txt");
    let wanted = requirements.join("\n") + "\n";
    let ready = fs_err::read_to_string(&marker).is_ok_and(|present| present == wanted);
    if ready && succeeds(Command::new(&program).arg("--version")) {
        return Ok(program);
    }
    let python = Python::find()?;
    eprintln!("installing {} into {}", requirements.join(", "), folder.display());
    if folder.exists() {
        fs_err::remove_dir_all(folder)
            .with_context(|| format!("{}: cannot replace", folder.display()))?;
    }
    capture(python.command(["-m", "venv", "--without-pip"]).arg(folder))?;
    let packages = "import sysconfig; print(sysconfig.get_path('purelib'))";
    let packages = capture(Command::new(&program).args(["-c", packages]))?;
    capture(python.pip(["install", "--quiet", "--target", packages.trim()]).args(requirements))
        .with_context(|| {
            format!("pip cannot install {}; is PyPI reachable?", requirements.join(", "))
        })?;
    fs_err::write(&marker, wanted)?;
    Ok(program)
}
