//! `cognate-bench measure text`: sentences one at a time through a warm translator, from text to
//! text.

use super::{Single, print_line};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use crate::process::processor_seconds;

/// Measure the translation of single sentences, from text to text
///
/// Answers requests on standard input, one per line: {"lines": ["A dog runs."]}
#[derive(clap::Args)]
pub struct Text {
    #[command(flatten)]
    pub translator: Single,
    /// File of a shortlist of tokens
    #[arg(long, value_name = "FILE")]
    pub shortlist: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Request {
    lines: Vec<String>,
}

/// The cost of a request.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// Wall seconds of each line.
    pub seconds: Vec<f64>,
    /// Processor seconds of all lines.
    pub processor_seconds: f64,
    pub texts: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Text, out: &mut dyn Write) -> Result<()> {
    let translator = options.translator.open(options.shortlist.clone())?;
    print_line(out, &json!({ "engine": translator.engine() }))?;
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line.context("standard input")?)
            .context("standard input: expected {lines}")?;
        let (mut answer, before) = (Answer::default(), processor_seconds()?.own);
        for line in &request.lines {
            let start = Instant::now();
            let found = translator.translate(&[line])?;
            answer.seconds.push(start.elapsed().as_secs_f64());
            answer.texts.extend(found.into_iter().map(|translation| translation.text));
        }
        answer.processor_seconds = processor_seconds()?.own - before;
        print_line(out, &answer)?;
    }
    Ok(())
}
