//! `cognate explain`: one sentence through the model, step by step, as text.

mod beams;
mod embeddings;
mod summary;

use crate::amounts::at_most;
use crate::model_options::ModelOptions;
use crate::observed::{Given, Observed, Observing, Seen};
use crate::unused::Unused;
use anyhow::{Context, Result};
use cognate_generate::Attended;
use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// Tell step by step what the model does with a sentence
///
/// The pieces and ids that the encoder reads, with the sizes of their embeddings and positions; what each layer's attention looks at;
/// for each word of the translation the likeliest next words with their probabilities, and which source words it looked at; and with
/// --beams the tree of the search. `cognate attend` draws the same attention.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    given: Given,
    /// How many likely next words to tell at each step
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_most(100))]
    likeliest: NonZeroUsize,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    observing: Observing,
    #[command(flatten)]
    unused: Unused,
}

const EXAMPLES: &str = "\
Examples:
  cognate explain \"A man is riding a bicycle.\"
  cognate explain \"A man is riding a bicycle.\" --beams 4
  cognate explain \"Two dogs.\" --target \"Zwei Katzen.\" | less
  echo \"Two dogs.\" | cognate explain --model OUT";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let sentence = options.given.sentence()?;
    let observed = Observed::load(&options.model, options.unused, &options.observing)?;
    let seen = observed.seen(&sentence, options.given.target.as_deref())?;
    let attended = observed.attended(&seen, options.likeliest.get())?;
    writeln!(out, "{sentence}\n→ {}\n{} on {}", seen.text, observed.source(), observed.engine())?;

    writeln!(out, "\n1. What the encoder reads")?;
    embeddings::tell(&observed, &seen, options.unused, out)?;
    writeln!(out, "\n2. What the layers look at, on average over words and heads")?;
    summary::tell(&attended, out)?;
    writeln!(out, "\n3. What comes next, step by step")?;
    steps(&observed, &seen, &attended, out)?;
    if observed.settings().num_beams > 1 && options.given.target.is_none() {
        writeln!(out, "\n4. Beam search with {} beams", observed.settings().num_beams)?;
        beams::tell(&observed, &seen, out)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The likeliest next words at each step, and what the step looked at.
fn steps(observed: &Observed, seen: &Seen, attended: &Attended, out: &mut dyn Write) -> Result<()> {
    /// Source words that are told of each step.
    const TOLD: usize = 3;
    let layer_index = cognate_generate::alignment_layer(observed.config());
    let layer = attended.cross.index_axis(ndarray::Axis(0), layer_index);
    let mean = layer.mean_axis(ndarray::Axis(0)).context("the model has no heads")?;
    let width = seen.written.iter().map(|&id| observed.piece(id).chars().count()).max().unwrap_or(0);
    for (step, ((&read, &written), next)) in seen.read.iter().zip(&seen.written).zip(&attended.next).enumerate() {
        let likely: Vec<_> =
            next.iter().map(|&(id, log)| format!("{} {:.3}", marked(observed.piece(id), id == written), log.exp())).collect();
        let is_likely = next.iter().any(|&(id, _)| id == written);
        let own =
            attended.followed.get(step).filter(|_| !is_likely).map(|log| format!("; here {} {:.1e}", observed.piece(written), log.exp()));
        let row = mean.row(step);
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
        let looked: Vec<_> =
            order.iter().take(TOLD).map(|&place| format!("{} {:.2}", observed.source_piece(seen.source[place]), row[place])).collect();
        writeln!(out, "  {:>3}  after {:<width$}  {}{}", step + 1, observed.piece(read), likely.join("  "), own.unwrap_or_default())?;
        writeln!(out, "       looks at  {}", looked.join("  "))?;
    }
    writeln!(
        out,
        "  Probabilities of the model alone; [ ] is what comes next. Looks: cross-attention, layer {}, mean of the heads.",
        layer_index + 1
    )?;
    Ok(())
}

fn marked(piece: String, is_chosen: bool) -> String {
    if is_chosen { format!("[{piece}]") } else { piece }
}
