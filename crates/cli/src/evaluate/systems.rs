//! The translations of each system, and the references.

use anyhow::{Context, Result, bail};
use cognate_text::{Lines, read_lines};
use std::io;
use std::path::Path;

/// One system's translations.
pub(super) struct System {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
}

/// The references, by file.
///
/// # Errors
/// If one cannot be read, is empty, or has a different number of lines than the first.
pub(super) fn references(paths: &[impl AsRef<Path>]) -> Result<Vec<(String, Vec<String>)>> {
    let mut references: Vec<(String, Vec<String>)> = Vec::new();
    for path in paths {
        let system = System::read(path.as_ref()).context("--reference")?;
        system.check(&references).context("--reference")?;
        references.push((system.name, system.lines));
    }
    Ok(references)
}

impl System {
    /// Reads a file, or standard input.
    ///
    /// # Errors
    /// If it cannot be read, or is empty.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let (name, lines) = match path == Path::new("-") {
            true => {
                ("stdin".into(), Lines::new(io::stdin().lock(), "stdin").collect::<Result<_, _>>()?)
            }
            false => (path.display().to_string(), read_lines(path)?),
        };
        let system = Self { name, lines };
        if system.lines.is_empty() {
            bail!("{}: is empty; expected one sentence a line", system.name);
        }
        Ok(system)
    }

    /// # Errors
    /// If the number of lines differs from the references'.
    pub(super) fn check(&self, references: &[(String, Vec<String>)]) -> Result<()> {
        match references.first() {
            Some((reference, lines)) if lines.len() != self.lines.len() => {
                bail!(
                    "{}: has {} lines, expected {} as in {reference}",
                    self.name,
                    self.lines.len(),
                    lines.len()
                )
            }
            Some(_) | None => Ok(()),
        }
    }
}
