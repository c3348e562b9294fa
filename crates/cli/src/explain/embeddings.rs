//! Pieces and ids, and how long their embeddings are.

use crate::observed::{Observed, Seen};
use crate::unused::Unused;
use anyhow::{Context, Result};
use cognate_model::{EmbeddingNames, Model};
use cognate_runtime::{Options as Load, Reference, Runtime, Source, Values};
use ndarray::{Array1, Array2, ArrayD, Axis};
use std::io::Write;

/// Tells them.
pub(super) fn tell(observed: &Observed, seen: &Seen, unused: Unused, out: &mut dyn Write) -> Result<()> {
    let (model, lack) = match observed.model(unused) {
        Ok(model) => (Some(model), None),
        Err(error) => (None, Some(error)),
    };
    let sides = model.as_ref().map(|model| norms(model, seen)).transpose()?;
    let texts = ["source", "target"];
    let pieces = [
        seen.source.iter().map(|&id| (id, observed.source_piece(id))).collect::<Vec<_>>(),
        seen.read.iter().map(|&id| (id, observed.piece(id))).collect(),
    ];
    for (index, pieces) in pieces.iter().enumerate() {
        let width = pieces.iter().map(|(_, piece)| piece.chars().count()).max().unwrap_or(0).max(5);
        if index == 1 {
            writeln!(out, "   and the decoder, one more at each step")?;
        }
        let norms = sides.as_ref().map(|sides| &sides[index]);
        let header = if norms.is_some() { "  |token|  |position|  |what the first layer reads|" } else { "" };
        writeln!(out, "  {:>3}  {:<width$}  {:>6}{header}", "at", texts[index], "id")?;
        for (place, (id, piece)) in pieces.iter().enumerate() {
            write!(out, "  {:>3}  {piece:<width$}  {id:>6}", place + 1)?;
            if let Some(norms) = norms {
                let position = norms.positions.as_ref().map_or("-".into(), |lengths| format!("{:.3}", lengths[place]));
                write!(out, "  {:>7.3}  {position:>10}  {:>27.3}", norms.tokens[place], norms.sums[place])?;
            }
            writeln!(out)?;
        }
    }
    match (model, lack) {
        (Some(model), _) => {
            let config = model.config();
            let scale = if config.scale_embedding {
                format!(", times √{} = {:.2}", config.d_model, (config.d_model as f64).sqrt())
            } else {
                String::new()
            };
            writeln!(out, "   |·| is the Euclidean norm over {} numbers; |token| that of the row of the table{scale}.", config.d_model)?;
        }
        (None, Some(error)) => writeln!(out, "   Norms are told of a checkpoint, and of an export in f32: {error}")?,
        (None, None) => {}
    }
    Ok(())
}

/// The norms of one side, each `[len]`.
struct Norms {
    tokens: Array1<f32>,
    positions: Option<Array1<f32>>,
    sums: Array1<f32>,
}

fn norms(model: &Model, seen: &Seen) -> Result<[Norms; 2]> {
    let mut session = Reference::F32.load(&Source::Graph(model.embeddings()?), &Load::default())?;
    let ids = |ids: &[i64]| Array2::from_shape_vec((1, ids.len()), ids.to_vec()).map(Array2::into_dyn);
    let [source, target] = EmbeddingNames::IDS;
    let inputs: Values = [(source, ids(&seen.source)?), (target, ids(&seen.read)?)].into_iter().collect();
    let outputs = session.run(&inputs)?;
    let lengths = |name: &str| -> Result<Option<Array1<f32>>> {
        let Some(value) = outputs.get(name) else { return Ok(None) };
        let values: ArrayD<f32> = value.to_f32()?;
        let width = values.shape().last().copied().unwrap_or(1);
        let rows = values.as_standard_layout().into_owned().into_shape_with_order((values.len() / width.max(1), width))?;
        Ok(Some(rows.map_axis(Axis(1), |row| row.iter().map(|value| value * value).sum::<f32>().sqrt())))
    };
    let side = |index: usize| -> Result<Norms> {
        let lacks = "the graph of embeddings has them";
        Ok(Norms {
            tokens: lengths(EmbeddingNames::TOKENS[index])?.context(lacks)?,
            positions: lengths(EmbeddingNames::POSITIONS[index])?,
            sums: lengths(EmbeddingNames::SUMS[index])?.context(lacks)?,
        })
    };
    Ok([side(0)?, side(1)?])
}
