//! A translation step by step, as text.

mod beams;
mod embeddings;
mod layers;

use crate::{Example, Explained, Likely};
use std::io::{Result, Write};

/// Writes the explanation of an example: the input of the encoder, a summary of each layer's
/// attention, the steps of decoding, and the tree of beam search. Nothing, if it has none.
///
/// # Errors
/// If `out` cannot be written.
pub fn explain(example: &Example, out: &mut dyn Write) -> Result<()> {
    let Some(explained) = &example.explained else { return Ok(()) };
    writeln!(out, "1. Input of the encoder")?;
    embeddings::print(example, &explained.embeddings, out)?;
    writeln!(out, "\n2. Attention of the layers, mean over tokens and heads")?;
    layers::print(&explained.layers, out)?;
    writeln!(out, "\n3. Decoding step by step")?;
    steps(example, explained, out)?;
    if let Some(beams) = &explained.beams {
        writeln!(out, "\n4. Beam search with {} beams", beams.width)?;
        beams::print(beams, out)?;
    }
    Ok(())
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
