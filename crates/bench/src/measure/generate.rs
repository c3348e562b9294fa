//! `cognate-bench measure generate`: the time of decoding real sentences, from token ids to token
//! ids.

use super::decode::Loaded;
use super::print_line;
use crate::process::processor_seconds;
use anyhow::{Context, Result};
use cognate_generate::generate;
use cognate_runtime::{Engine, Options as Load};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{self, BufRead, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Instant;

/// Measure the decoding of sentences up to their end tokens, on one thread
///
/// Answers requests on standard input, one per line: {"sources": [[5, 6, 0], [7, 0]], "beams": 4,
/// "batch": 1}
#[derive(clap::Args)]
pub struct Generate {
    /// Folder of an export
    #[arg(long, value_name = "DIR")]
    pub model: PathBuf,
    /// Inference engine: auto, tract or ort
    #[arg(long, default_value = "auto")]
    pub engine: Engine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    /// Token ids, each source with its end token.
    sources: Vec<Vec<i64>>,
    beams: NonZeroUsize,
    /// The number of sentences of a call.
    batch: NonZeroUsize,
}

/// The cost of a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Answer {
    pub seconds: f64,
    /// Processor time, in steps of 10 ms.
    pub processor_seconds: f64,
    /// The tokens of each sentence; other programs add the end token and padding.
    pub found: Vec<Vec<i64>>,
}

/// Runs the command.
pub fn run(options: &Generate, out: &mut dyn Write) -> Result<()> {
    let load = {
        let mut load = Load::default();
        (load.threads, load.huge_pages) = (Some(NonZeroUsize::MIN), true);
        load
    };
    let mut model = Loaded::open(&options.model, options.engine, &load)?;
    print_line(out, &json!({ "engine": model.decoder.engine() }))?;
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line.context("standard input")?)
            .context("standard input: expected {sources, beams, batch}")?;
        let mut settings = model.settings.clone();
        settings.num_beams = request.beams.get();
        let (start, before) = (Instant::now(), processor_seconds()?.own);
        let mut found = Vec::new();
        for sources in request.sources.chunks(request.batch.get()) {
            found.extend(
                generate(model.decoder.as_mut(), sources, &settings)?
                    .into_iter()
                    .map(|sentence| sentence.tokens),
            );
        }
        let processor_seconds = processor_seconds()?.own - before;
        print_line(
            out,
            &Answer { seconds: start.elapsed().as_secs_f64(), processor_seconds, found },
        )?;
    }
    Ok(())
}
