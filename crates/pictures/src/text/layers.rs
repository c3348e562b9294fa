//! A summary of each layer's attention, as text.

use crate::Summary;
use std::io::{Result, Write};

/// Prints the summaries of the encoder's and the decoder's self-attention and of cross-attention.
pub(super) fn print(layers: &[Vec<Summary>; 3], out: &mut dyn Write) -> Result<()> {
    let names = ["encoder self-attention", "decoder self-attention", "cross-attention"];
    for (name, layers) in names.into_iter().zip(layers).filter(|(_, layers)| !layers.is_empty()) {
        let has_own = layers.iter().any(|layer| layer.own.is_some());
        let own = if has_own { "     self previous     next" } else { "" };
        writeln!(out, "  {name}\n    layer{own}    first     last  spread  sharpest head")?;
        for (layer_index, layer) in layers.iter().enumerate() {
            let Summary { own, first, last, words, sharpest, sharpest_words } = layer;
            write!(out, "    {:>5}", layer_index + 1)?;
            for share in own.iter().flatten().chain([first, last]) {
                write!(out, "  {:>6.1}%", 100.0 * share)?;
            }
            writeln!(out, "  {words:>6.1}  {} ({sharpest_words:.1})", sharpest + 1)?;
        }
    }
    writeln!(
        out,
        "  Shares of attention: to the token itself, the previous and the next one, the first and the last of all; for the decoder the input\n  \
         token is the token itself. Spread: exp(entropy) of a row, a number of tokens, on average."
    )?;
    Ok(())
}
