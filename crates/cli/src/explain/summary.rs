//! What each layer looks at, in a few numbers.

use anyhow::Result;
use cognate_generate::Attended;
use ndarray::{ArrayView2, ArrayView3, Axis};
use std::io::Write;

/// Tells them.
pub(super) fn tell(attended: &Attended, out: &mut dyn Write) -> Result<()> {
    for (name, layers, is_own) in [
        ("encoder, to the source", &attended.encoder, true),
        ("decoder, to what is written", &attended.decoder, true),
        ("decoder, to the source", &attended.cross, false),
    ] {
        let own = if is_own { "   itself   before    after" } else { "" };
        writeln!(out, "  {name}\n    layer{own}    first     last  words  sharpest head")?;
        for (layer_index, layer) in layers.axis_iter(Axis(0)).enumerate() {
            write!(out, "    {:>5}", layer_index + 1)?;
            if is_own {
                for offset in [0, -1, 1] {
                    write!(out, "  {:>6.1}%", 100.0 * diagonal(layer, offset))?;
                }
            }
            let last = layer.len_of(Axis(2)).saturating_sub(1);
            for column in [0, last] {
                write!(out, "  {:>6.1}%", 100.0 * layer.index_axis(Axis(2), column).mean().unwrap_or(0.0))?;
            }
            let spreads: Vec<f32> = layer.axis_iter(Axis(0)).map(spread).collect();
            let sharpest = (0..spreads.len()).min_by(|&a, &b| spreads[a].total_cmp(&spreads[b])).unwrap_or(0);
            let mean = spreads.iter().sum::<f32>() / spreads.len().max(1) as f32;
            writeln!(out, "  {mean:>5.1}  {} ({:.1} words)", sharpest + 1, spreads.get(sharpest).copied().unwrap_or(0.0))?;
        }
    }
    writeln!(
        out,
        "  Shares of attention: to the word itself, the one before and after it, the first and the last of all (of the decoder: the word that it\n  \
         has just read counts as itself). Words: over how many it spreads, e to the entropy of a row, on average."
    )?;
    Ok(())
}

/// The mean weight of the column `row + offset`, over all rows and heads; rows without it count 0.
fn diagonal(layer: ArrayView3<'_, f32>, offset: isize) -> f32 {
    let (heads, rows, columns) = layer.dim();
    let places = (0..rows).filter_map(|row| Some((row, row.checked_add_signed(offset).filter(|&column| column < columns)?)));
    let sum: f32 = places.flat_map(|(row, column)| (0..heads).map(move |head| layer[[head, row, column]])).sum();
    sum / (heads * rows).max(1) as f32
}

/// Over how many words a head spreads: the mean of `exp(entropy)` over its rows.
fn spread(head: ArrayView2<'_, f32>) -> f32 {
    let of_row = |row: ndarray::ArrayView1<'_, f32>| {
        let entropy: f32 = row.iter().filter(|&&weight| weight > 0.0).map(|&weight| -weight * weight.ln()).sum();
        entropy.exp()
    };
    head.rows().into_iter().map(of_row).sum::<f32>() / head.nrows().max(1) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn shares_and_spreads() {
        let layer = array![[[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.0, 1.0]]];
        assert!((diagonal(layer.view(), 0) - 2.0 / 3.0).abs() < 1e-6);
        assert!((diagonal(layer.view(), -1) - 0.25 / 3.0).abs() < 1e-6);
        assert!((diagonal(layer.view(), 1) - 0.75 / 3.0).abs() < 1e-6);
        // Two words, 2^1.5, one.
        assert!((spread(layer.index_axis(Axis(0), 0)) - (2.0 + 2f32.powf(1.5) + 1.0) / 3.0).abs() < 1e-6);
    }
}
