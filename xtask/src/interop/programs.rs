//! Installs the languages and packages of the drivers under `target/interop` with each language's
//! package manager.

use fs_err as fs;
use std::env::consts::EXE_SUFFIX;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::runtime::{Language, Layout, Runtime};
use crate::python;
use crate::workspace::{Workspace, capture, files};

pub const REQUIREMENTS: &str = include_str!("../../interop/python/requirements.txt");
pub const PACKAGES: &str = include_str!("../../interop/node/package.json");

/// Where each language's drivers run, or why they cannot.
pub struct Programs {
    /// A Python with the packages of requirements.txt.
    pub python: Result<PathBuf, String>,
    /// The folder with the JavaScript drivers and their `node_modules`.
    node: Result<PathBuf, String>,
    rten: Result<PathBuf, String>,
    /// The folder of the Python drivers.
    drivers: PathBuf,
}

impl Programs {
    /// Installs what the chosen runtimes need, unless it is installed.
    pub fn bring(
        workspace: &Workspace,
        home: &Path,
        runtimes: &[Runtime],
        layouts: &[Layout],
    ) -> Result<Programs> {
        let source = workspace.root().join("xtask/interop");
        fs::create_dir_all(home)?;
        let needed = |language| {
            let is_python = language == Language::Python;
            runtimes.iter().any(|runtime| {
                runtime.language() == language
                    || (is_python && runtime.language() == Language::Rust)
            }) || (is_python && layouts.contains(&Layout::Optimum))
        };
        let bring = |language, bring: &dyn Fn() -> Result<PathBuf>| match needed(language) {
            true => bring().map_err(|error| {
                eprintln!("{error:#}");
                shortened(&format!("{error:#}"))
            }),
            false => Err("not requested".to_owned()),
        };
        Ok(Programs {
            python: bring(Language::Python, &|| bring_python(home)),
            node: bring(Language::Node, &|| bring_node(&source.join("node"), &home.join("node"))),
            rten: bring(Language::Rust, &|| {
                bring_rten(workspace, &source.join("rten"), &home.join("rten"))
            }),
            drivers: source.join("python"),
        })
    }

    /// The error of the first missing language of the chosen runtimes.
    pub fn missing(&self, runtimes: &[Runtime]) -> Option<String> {
        runtimes.iter().find_map(|runtime| self.command(*runtime).err())
    }

    /// The command of the runtime's driver, without its question.
    pub fn command(&self, runtime: Runtime) -> Result<Command, String> {
        let driver = runtime.driver();
        match runtime.language() {
            language @ (Language::Python | Language::Rust) => {
                let mut command = Command::new(self.python.as_ref().map_err(Clone::clone)?);
                // Do not write into the source tree.
                command
                    .arg(self.drivers.join(format!("{driver}.py")))
                    .env("PYTHONDONTWRITEBYTECODE", "1");
                if language == Language::Rust {
                    command.env("RTEN_DRIVER", self.rten.as_ref().map_err(Clone::clone)?);
                }
                Ok(command)
            }
            Language::Node => {
                let folder = self.node.as_ref().map_err(Clone::clone)?;
                let mut command = Command::new("node");
                // The optimising compiler of WebAssembly would keep the process busy for minutes
                // after its answer.
                command.arg("--liftoff-only").arg(folder.join(format!("{driver}.mjs")));
                Ok(command)
            }
        }
    }
}

/// Installs a Python with the packages of requirements.txt in a folder of `home`.
fn bring_python(home: &Path) -> Result<PathBuf> {
    let requirements: Vec<&str> = REQUIREMENTS.lines().collect();
    python::environment(&home.join("python"), &requirements)
}

/// Node finds packages relative to the importing file, so the drivers are copied to the
/// installation's folder.
pub fn bring_node(source: &Path, folder: &Path) -> Result<PathBuf> {
    capture(Command::new("node").arg("--version"))
        .context("Node.js is missing: install node (20 or newer) and npm")?;
    fs::create_dir_all(folder)?;
    for path in files(source)? {
        let name = path.file_name().context("a file has a name")?;
        fs::copy(&path, folder.join(name))?;
    }
    // Written last: without it the installation is incomplete.
    let marker = folder.join("installed.json");
    if !fs::read_to_string(&marker).is_ok_and(|present| present == PACKAGES) {
        eprintln!("installing npm packages into {}", folder.display());
        // Install scripts would download libraries for other devices; those for the CPU are
        // in the packages.
        let arguments =
            ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
        capture(Command::new("npm").current_dir(folder).args(arguments))
            .context("npm install failed; is the registry reachable?")?;
        fs::write(&marker, PACKAGES)?;
    }
    Ok(folder.to_owned())
}

fn bring_rten(workspace: &Workspace, source: &Path, target: &Path) -> Result<PathBuf> {
    let mut build = workspace.cargo();
    build
        .current_dir(source)
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(target);
    capture(&mut build).context("the build of rten failed")?;
    Ok(target.join("release").join(format!("interop-rten{EXE_SUFFIX}")))
}

/// An error of another program, shortened to one line.
pub fn shortened(message: &str) -> String {
    const LENGTH: usize = 240;
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}...", line[..end].trim_end()),
        None => line,
    }
}
