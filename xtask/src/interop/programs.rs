//! Installs the languages and packages of the drivers under `target/interop` with each language's
//! package manager.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::runtime::{Language, Layout, Runtime};
use xtask::python;
use xtask::workspace::{Workspace, capture, files};

const REQUIREMENTS: &str = include_str!("../../interop/python/requirements.txt");
const PACKAGES: &str = include_str!("../../interop/node/package.json");

/// Where each language's drivers run, or why they cannot.
pub(crate) struct Programs {
    /// A Python with the packages of requirements.txt.
    pub(crate) python: Result<PathBuf, String>,
    /// The folder with the JavaScript drivers and their `node_modules`.
    node: Result<PathBuf, String>,
    rten: Result<PathBuf, String>,
    /// The folder of the Python drivers.
    drivers: PathBuf,
}

impl Programs {
    /// Installs what the chosen runtimes need, unless it is installed.
    pub(crate) fn bring(workspace: &Workspace, home: &Path, runtimes: &[Runtime], layouts: &[Layout]) -> Result<Programs> {
        let source = workspace.root().join("xtask/interop");
        fs::create_dir_all(home).with_context(|| home.display().to_string())?;
        let needed = |language| {
            runtimes.iter().any(|runtime| runtime.language() == language)
                || (language == Language::Python && layouts.contains(&Layout::Optimum))
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
            rten: bring(Language::Rust, &|| bring_rten(workspace, &source.join("rten"), &home.join("rten"))),
            drivers: source.join("python"),
        })
    }

    /// The error of the first missing language of the chosen runtimes.
    pub(crate) fn missing(&self, runtimes: &[Runtime]) -> Option<String> {
        runtimes.iter().find_map(|runtime| self.command(*runtime).err())
    }

    /// The command of the runtime's driver, without its question.
    pub(crate) fn command(&self, runtime: Runtime) -> Result<Command, String> {
        let driver = runtime.driver();
        match runtime.language() {
            Language::Python => {
                let mut command = Command::new(self.python.as_ref().map_err(Clone::clone)?);
                // Do not write into the source tree.
                command.arg(self.drivers.join(format!("{driver}.py"))).env("PYTHONDONTWRITEBYTECODE", "1");
                Ok(command)
            }
            Language::Node => {
                let folder = self.node.as_ref().map_err(Clone::clone)?;
                let mut command = Command::new("node");
                command.arg(folder.join(format!("{driver}.mjs")));
                Ok(command)
            }
            Language::Rust => Ok(Command::new(self.rten.as_ref().map_err(Clone::clone)?)),
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
fn bring_node(source: &Path, folder: &Path) -> Result<PathBuf> {
    capture(Command::new("node").arg("--version")).context("Node.js is missing: install node (20 or newer) and npm")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for path in files(source)? {
        let name = path.file_name().context("a file has a name")?;
        fs::copy(&path, folder.join(name)).with_context(|| path.display().to_string())?;
    }
    // Written last: without it the installation is incomplete.
    let marker = folder.join("installed.json");
    if !fs::read_to_string(&marker).is_ok_and(|present| present == PACKAGES) {
        eprintln!("installing npm packages into {}", folder.display());
        // Install scripts would download libraries for other devices; those for the CPU are
        // in the packages.
        let arguments = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"];
        capture(Command::new("npm").current_dir(folder).args(arguments)).context("npm install failed; is the registry reachable?")?;
        fs::write(&marker, PACKAGES).with_context(|| marker.display().to_string())?;
    }
    Ok(folder.to_owned())
}

fn bring_rten(workspace: &Workspace, source: &Path, target: &Path) -> Result<PathBuf> {
    let mut build = workspace.cargo();
    build.current_dir(source).args(["build", "--release", "--locked", "--quiet", "--target-dir"]).arg(target);
    capture(&mut build).context("the build of rten failed")?;
    Ok(target.join("release").join(format!("{}{EXE_SUFFIX}", Runtime::Rten.driver())))
}

/// An error of another program, shortened to one line.
pub(crate) fn shortened(message: &str) -> String {
    const LENGTH: usize = 240;
    let words: Vec<&str> = message.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LENGTH) {
        Some((end, _)) => format!("{}...", line[..end].trim_end()),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_fit_into_a_line() {
        assert_eq!(shortened("RuntimeError: no\n  such  op\n"), "RuntimeError: no such op");
        let long = shortened(&"é".repeat(1000));
        assert_eq!(long.chars().count(), 243);
    }

    #[test]
    fn every_driver_is_there_and_every_package_is_pinned() {
        let source = Workspace::find().unwrap().root().join("xtask/interop");
        for runtime in Runtime::ALL {
            let driver = match runtime.language() {
                Language::Python => source.join("python").join(format!("{}.py", runtime.driver())),
                Language::Node => source.join("node").join(format!("{}.mjs", runtime.driver())),
                Language::Rust => source.join("rten/Cargo.toml"),
            };
            assert!(driver.is_file(), "{}", driver.display());
        }
        let loose: Vec<_> = REQUIREMENTS.lines().filter(|line| !line.contains("==")).collect();
        assert!(loose.is_empty(), "without a version: {loose:?}");
        let packages: serde_json::Value = serde_json::from_str(PACKAGES).unwrap();
        for (name, version) in packages["dependencies"].as_object().unwrap() {
            assert!(version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()), "{name}: {version}");
        }
    }
}
