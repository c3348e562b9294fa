//! Pieces and ids, and how long their embeddings are, as text.

use anyhow::Result;
use cognate_pictures::{Embeddings, Example};
use std::io::Write;

/// Tells them.
pub(super) fn tell(example: &Example, embeddings: &Embeddings, out: &mut dyn Write) -> Result<()> {
    let norms = match embeddings {
        Embeddings::Known { source, target, .. } => [Some(source), Some(target)],
        Embeddings::Unknown(_) => [None, None],
    };
    for ((name, tokens), norms) in [("source", &example.source.tokens), ("target", &example.target.read)].into_iter().zip(norms) {
        let width = tokens.iter().map(|token| token.piece.chars().count()).max().unwrap_or(0).max(5);
        if name == "target" {
            writeln!(out, "   and the decoder, one more at each step")?;
        }
        let header = if norms.is_some() { "  |token|  |position|  |what the first layer reads|" } else { "" };
        writeln!(out, "  {:>3}  {name:<width$}  {:>6}{header}", "at", "id")?;
        for (place, token) in tokens.iter().enumerate() {
            write!(out, "  {:>3}  {:<width$}  {:>6}", place + 1, token.piece, token.id)?;
            if let Some(norms) = norms.and_then(|norms| norms.get(place)) {
                let position = norms.position.map_or("-".into(), |length| format!("{length:.3}"));
                write!(out, "  {:>7.3}  {position:>10}  {:>27.3}", norms.token, norms.sum)?;
            }
            writeln!(out)?;
        }
    }
    match embeddings {
        Embeddings::Known { d_model, is_scaled, .. } => {
            let scale = if *is_scaled { format!(", times √{d_model} = {:.2}", (*d_model as f64).sqrt()) } else { String::new() };
            writeln!(out, "   |·| is the Euclidean norm over {d_model} numbers; |token| that of the row of the table{scale}.")?;
        }
        Embeddings::Unknown(why) => writeln!(out, "   Norms are told of a checkpoint, and of an export in f32: {why}")?,
    }
    Ok(())
}
