//! What each layer looks at, in a few numbers, as text.

use anyhow::Result;
use cognate_pictures::Summary;
use std::io::Write;

/// Tells them, of the encoder's attention, of the decoder's own and of its cross-attention.
pub(super) fn tell(layers: &[Vec<Summary>; 3], out: &mut dyn Write) -> Result<()> {
    for (name, layers) in ["encoder, to the source", "decoder, to what is written", "decoder, to the source"].into_iter().zip(layers) {
        let has_own = layers.iter().any(|layer| layer.own.is_some());
        let own = if has_own { "   itself   before    after" } else { "" };
        writeln!(out, "  {name}\n    layer{own}    first     last  words  sharpest head")?;
        for (layer_index, layer) in layers.iter().enumerate() {
            let Summary { own, first, last, words, sharpest, sharpest_words } = layer;
            write!(out, "    {:>5}", layer_index + 1)?;
            for share in own.iter().flatten().chain([first, last]) {
                write!(out, "  {:>6.1}%", 100.0 * share)?;
            }
            writeln!(out, "  {words:>5.1}  {} ({sharpest_words:.1} words)", sharpest + 1)?;
        }
    }
    writeln!(
        out,
        "  Shares of attention: to the word itself, the one before and after it, the first and the last of all (of the decoder: the word that it\n  \
         has just read counts as itself). Words: over how many it spreads, e to the entropy of a row, on average."
    )?;
    Ok(())
}
