//! The summary of skipped tests at the end of `cargo xtask test`.
//!
//! Cargo shows the output of failed tests only. So tests that skip something
//! (`cognate_testing::skip`) append a line to the file `COGNATE_SKIPPED`: package, test and reason,
//! separated by tabs.

use fs_err as fs;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// The environment variable with the file's path.
pub const VARIABLE: &str = "COGNATE_SKIPPED";

/// What was skipped, by reason.
#[derive(Debug, Default)]
pub struct Skipped {
    tests: BTreeMap<String, Vec<String>>,
}

impl Skipped {
    /// Adds something other than a test.
    pub fn add(&mut self, what: &str, reason: impl Into<String>) {
        let tests = self.tests.entry(reason.into()).or_default();
        if !tests.iter().any(|known| known == what) {
            tests.push(what.to_owned());
        }
    }

    /// Adds the lines of the file, which is missing if no test skipped anything.
    pub fn read(&mut self, file: &Path) -> Result<()> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (Some(package), Some(test), Some(reason)) =
                (fields.next(), fields.next(), fields.next())
            else {
                anyhow::bail!(
                    "{}: expected package, test and reason, found {line:?}",
                    file.display()
                );
            };
            self.add(&format!("{package} {test}"), reason);
        }
        Ok(())
    }

    /// A paragraph per reason.
    pub fn text(&self) -> String {
        if self.tests.is_empty() {
            return "Nothing was skipped.\n".into();
        }
        let paragraph = |(reason, tests): (&String, &Vec<String>)| {
            let mut tests = tests.clone();
            tests.sort();
            format!(
                "- {reason}:\n{}",
                tests.iter().map(|test| format!("    {test}\n")).collect::<String>()
            )
        };
        format!(
            "Skipped in whole or in part:\n{}",
            self.tests.iter().map(paragraph).collect::<String>()
        )
    }
}
