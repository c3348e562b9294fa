//! The sentences of commands that read each by itself.

use crate::translate::Input;
use anyhow::Result;
use std::path::{Path, PathBuf};

/// Lines of a window: memory does not grow with the input.
const WINDOW: usize = 2000;

/// Arguments or the lines of a file.
#[derive(clap::Args)]
pub(crate) struct Sentences {
    /// Sentences [default: the lines of --input]
    #[arg(value_name = "TEXT", conflicts_with = "input")]
    text: Vec<String>,
    /// Read lines from FILE; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
}

impl Sentences {
    /// The file that is read, by the option that names it.
    pub(crate) fn file(&self) -> Option<(&'static str, &Path)> {
        self.input.as_deref().map(|file| ("--input", file))
    }

    /// Passes the sentences to `work`, window by window.
    pub(crate) fn for_each_window(
        &self,
        mut work: impl FnMut(&[String]) -> Result<()>,
    ) -> Result<()> {
        let mut input = Input::open(self.text.clone(), self.input.as_deref(), Some(WINDOW))?;
        loop {
            let window = input
                .by_ref()
                .take(WINDOW)
                .map(|line| Ok(line?.text))
                .collect::<Result<Vec<_>>>()?;
            work(&window)?;
            if window.len() < WINDOW {
                return Ok(());
            }
        }
    }
}
