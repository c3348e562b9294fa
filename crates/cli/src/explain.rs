//! `cognate explain`: a translation step by step, as text.

use crate::amounts::at_most;
use crate::observe::{ObserveOptions, SentenceOptions};
use anyhow::Result;
use cognate::Details;
use cognate_pictures::explain;
use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// Explain a translation step by step
///
/// Prints the pieces and ids of the source with the norms of their embeddings and positions; a
/// summary of the attention of each layer; for each step of decoding the most probable next tokens
/// and the source tokens attended to; and with --beams the search tree. The page of
/// `cognate attend` contains the same, with all attention weights.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    sentence: SentenceOptions,
    /// Write one line of JSON: tokens, all attention weights and the explanation
    #[arg(long)]
    json: bool,
    /// Number of probable next tokens to print at each step
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_most(100))]
    likeliest: NonZeroUsize,
    #[command(flatten)]
    observe: ObserveOptions,
}

const EXAMPLES: &str = "\
Examples:
  cognate explain \"A man is riding a bicycle.\"
  cognate explain \"A man is riding a bicycle.\" --beams 4
  cognate explain \"Two dogs.\" --target \"Zwei Katzen.\" | less
  cognate attend \"A man is riding a bicycle.\" --beams 4 --out page.html
  cognate explain --model whisper-tiny --audio speech.wav --task translate
  echo \"Two dogs.\" | cognate explain --model OUT";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let input = options.sentence.input()?;
    let observer = options.observe.load(&options.sentence)?;
    let model = observer.model();
    let details = Details::Likeliest(options.likeliest.get());
    let example = input.example(&observer, options.sentence.target.as_deref(), details)?;
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&example)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(
        out,
        "{}\n→ {}\n{} on {}\n",
        example.source.text,
        example.target.text,
        model.source(),
        model.engine()
    )?;
    explain(&example, out)?;
    Ok(ExitCode::SUCCESS)
}
