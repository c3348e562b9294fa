//! `cognate explain`: a translation step by step, as text.

mod beams;
mod embeddings;
mod layers;

use crate::amounts::at_most;
use crate::observe::{ObserveOptions, SentenceOptions};
use anyhow::{Context, Result};
use cognate::Details;
use cognate_pictures::{Example, Explained, Likely};
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
    let explained = example.explained.as_ref().context("details were asked for")?;
    writeln!(
        out,
        "{}\n→ {}\n{} on {}",
        example.source.text,
        example.target.text,
        model.source(),
        model.engine()
    )?;

    writeln!(out, "\n1. Input of the encoder")?;
    embeddings::print(&example, &explained.embeddings, out)?;
    writeln!(out, "\n2. Attention of the layers, mean over tokens and heads")?;
    layers::print(&explained.layers, out)?;
    writeln!(out, "\n3. Decoding step by step")?;
    steps(&example, explained, out)?;
    if let Some(beams) = &explained.beams {
        writeln!(out, "\n4. Beam search with {} beams", beams.width)?;
        beams::print(beams, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the most probable next tokens at each step, and the source tokens attended to.
fn steps(example: &Example, explained: &Explained, out: &mut dyn Write) -> Result<()> {
    let target = &example.target;
    let width = target.written.iter().map(|token| token.piece.chars().count()).max().unwrap_or(0);
    for (number, ((read, written), step)) in
        target.read.iter().zip(&target.written).zip(&explained.steps).enumerate()
    {
        let is_written = |likely: &Likely| likely.token.id == written.id;
        let likely: Vec<_> = step
            .likeliest
            .iter()
            .map(|likely| {
                format!(
                    "{} {:.3}",
                    marked(&likely.token.piece, is_written(likely)),
                    likely.probability
                )
            })
            .collect();
        let own = step.written.filter(|_| !step.likeliest.iter().any(is_written));
        let own = own
            .map(|probability| format!("; chosen {} {probability:.1e}", written.piece))
            .unwrap_or_default();
        let looks = step
            .looks_at
            .iter()
            .map(|&(place, weight)| format!("{} {weight:.2}", example.source.tokens[place].piece));
        writeln!(
            out,
            "  {:>3}  after {:<width$}  {}{own}",
            number + 1,
            read.piece,
            likely.join("  ")
        )?;
        writeln!(out, "       attends to  {}", looks.collect::<Vec<_>>().join("  "))?;
    }
    writeln!(
        out,
        "  Probabilities are the model's; [ ] is the chosen token. Attention: cross-attention of layer {}, mean of the heads.",
        explained.alignment_layer + 1
    )?;
    Ok(())
}

fn marked(piece: &str, is_chosen: bool) -> String {
    if is_chosen { format!("[{piece}]") } else { piece.to_owned() }
}
