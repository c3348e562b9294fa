//! `cognate-bench measure text`: sentences one at a time through a warm translator, text in and
//! text out.

use super::{Single, print_line};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use crate::process::processor_seconds;

/// Time sentences one at a time: text in, text out
///
/// Answers requests of standard input, one a line: {"lines": ["A dog runs."]}
#[derive(clap::Args)]
pub struct Text {
    #[command(flatten)]
    pub translator: Single,
    /// A shortlist of tokens
    #[arg(long, value_name = "FILE")]
    pub shortlist: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Request {
    lines: Vec<String>,
}

/// What a request took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// Of each line, wall time.
    pub seconds: Vec<f64>,
    /// Of all lines, on processors.
    pub processor_seconds: f64,
    pub texts: Vec<String>,
}

/// Runs the command.
pub fn run(options: &Text, out: &mut dyn Write) -> Result<()> {
    let translator = options.translator.open(options.shortlist.clone(), None)?;
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
