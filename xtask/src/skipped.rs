//! The summary of skipped tests at the end of `cargo xtask test`.
//!
//! Cargo shows the output of failed tests only. So tests that skip something
//! (`cognate_testing::skip`) append a line to the file `COGNATE_SKIPPED`: package, test and reason,
//! separated by tabs.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// The environment variable with the file's path.
pub(crate) const VARIABLE: &str = "COGNATE_SKIPPED";

/// What was skipped, by reason.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    tests: BTreeMap<String, Vec<String>>,
}

impl Skipped {
    /// Adds something other than a test.
    pub(crate) fn add(&mut self, what: &str, reason: impl Into<String>) {
        let tests = self.tests.entry(reason.into()).or_default();
        if !tests.iter().any(|known| known == what) {
            tests.push(what.to_owned());
        }
    }

    /// Adds the lines of the file, which is missing if no test skipped anything.
    pub(crate) fn read(&mut self, file: &Path) -> Result<()> {
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t');
            let (Some(package), Some(test), Some(reason)) = (fields.next(), fields.next(), fields.next()) else {
                anyhow::bail!("{}: expected package, test and reason, found {line:?}", file.display());
            };
            self.add(&format!("{package} {test}"), reason);
        }
        Ok(())
    }

    /// A paragraph per reason.
    pub(crate) fn text(&self) -> String {
        if self.tests.is_empty() {
            return "Nothing was skipped.\n".into();
        }
        let paragraph = |(reason, tests): (&String, &Vec<String>)| {
            let mut tests = tests.clone();
            tests.sort();
            format!("- {reason}:\n{}", tests.iter().map(|test| format!("    {test}\n")).collect::<String>())
        };
        format!("Skipped in whole or in part:\n{}", self.tests.iter().map(paragraph).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_listed_by_reason() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skipped");
        let mut skipped = Skipped::default();
        skipped.read(&file).unwrap();
        assert_eq!(skipped.text(), "Nothing was skipped.\n");
        fs::write(&file, "cognate-runtime\tcuda::placement\tno GPU\ncognate\tdecoding::cuda\tno GPU\ncognate\tdecoding::cuda\tno GPU\n")
            .unwrap();
        skipped.read(&file).unwrap();
        skipped.add("the step \"dependencies\"", "cargo deny is not installed");
        let expected = "Skipped in whole or in part:\n\
                        - cargo deny is not installed:\n    the step \"dependencies\"\n\
                        - no GPU:\n    cognate decoding::cuda\n    cognate-runtime cuda::placement\n";
        assert_eq!(skipped.text(), expected);
        fs::write(&file, "nonsense\n").unwrap();
        assert!(skipped.read(&file).unwrap_err().to_string().contains("found \"nonsense\""));
    }
}
