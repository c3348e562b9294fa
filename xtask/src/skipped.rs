//! What was not tested here, and why: the last lines of `cargo xtask test`.
//!
//! Cargo shows what a test prints only where it fails. So tests that skip something (`cognate_testing::skip`) add a line to the file
//! that `COGNATE_SKIPPED` names: package, test and reason, with tabs between.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "COGNATE_SKIPPED";

/// By reason, what is skipped for it.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    tests: BTreeMap<String, Vec<String>>,
}

impl Skipped {
    /// Adds something that is no test of a crate.
    pub(crate) fn add(&mut self, what: &str, reason: impl Into<String>) {
        let tests = self.tests.entry(reason.into()).or_default();
        if !tests.iter().any(|known| known == what) {
            tests.push(what.to_owned());
        }
    }

    /// Adds the lines of the file, which is not there if no test skipped anything.
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

    /// A paragraph for each reason.
    pub(crate) fn text(&self) -> String {
        if self.tests.is_empty() {
            return "Nothing was skipped.\n".into();
        }
        let paragraph = |(reason, tests): (&String, &Vec<String>)| {
            let mut tests = tests.clone();
            tests.sort();
            format!("- {reason}:\n{}", tests.iter().map(|test| format!("    {test}\n")).collect::<String>())
        };
        format!("Skipped, all or a part of it:\n{}", self.tests.iter().map(paragraph).collect::<String>())
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
        skipped.add("the step \"dependencies\"", "cargo deny is not there");
        let expected = "Skipped, all or a part of it:\n\
                        - cargo deny is not there:\n    the step \"dependencies\"\n\
                        - no GPU:\n    cognate decoding::cuda\n    cognate-runtime cuda::placement\n";
        assert_eq!(skipped.text(), expected);
        fs::write(&file, "nonsense\n").unwrap();
        assert!(skipped.read(&file).unwrap_err().to_string().contains("found \"nonsense\""));
    }
}
