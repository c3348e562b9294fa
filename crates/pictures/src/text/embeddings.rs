//! Pieces, ids and norms of embeddings, as text.

use crate::{Embeddings, Example};
use std::io::{Result, Write};

/// Prints them.
pub(super) fn print(example: &Example, embeddings: &Embeddings, out: &mut dyn Write) -> Result<()> {
    let norms = match embeddings {
        Embeddings::Known { source, target, .. } => [Some(source), Some(target)],
        Embeddings::Unknown(_) => [None, None],
    };
    for ((name, tokens), norms) in
        [("source", &example.source.tokens), ("target", &example.target.read)]
            .into_iter()
            .zip(norms)
    {
        if let (Some(picture), "source") = (&example.source.picture, name) {
            let [rows, columns] = picture.cells;
            writeln!(
                out,
                "  a picture of {rows} x {columns} cells, {} tokens before and {} after them",
                picture.leading, picture.trailing
            )?;
            continue;
        }
        let width =
            tokens.iter().map(|token| token.piece.chars().count()).max().unwrap_or(0).max(5);
        if name == "target" {
            writeln!(out, "   Input of the decoder, one more token at each step")?;
        }
        let header =
            if norms.is_some() { "  |token|  |position|  |input of the first layer|" } else { "" };
        writeln!(out, "  {:>3}  {name:<width$}  {:>6}{header}", "at", "id")?;
        for (place, token) in tokens.iter().enumerate() {
            write!(out, "  {:>3}  {:<width$}  {:>6}", place + 1, token.piece, token.id)?;
            if let Some(norms) = norms.and_then(|norms| norms.get(place)) {
                let position = norms.position.map_or("-".into(), |length| format!("{length:.3}"));
                write!(out, "  {:>7.3}  {position:>10}  {:>26.3}", norms.token, norms.sum)?;
            }
            writeln!(out)?;
        }
    }
    match embeddings {
        Embeddings::Known { d_model, is_scaled, .. } => {
            let scale = if *is_scaled {
                format!(", times √{d_model} = {:.2}", (*d_model as f64).sqrt())
            } else {
                String::new()
            };
            writeln!(
                out,
                "   |·| is the Euclidean norm over {d_model} values; |token| is that of the row of the embedding table{scale}."
            )?;
        }
        Embeddings::Unknown(why) => {
            writeln!(out, "   Norms are available for checkpoints and exports in f32: {why}")?
        }
    }
    Ok(())
}
