//! What a model does with a sentence beside attending: norms, likely next words, and the tree of its search.

use super::{Observed, Seen};
use crate::unused::Unused;
use anyhow::{Context, Result};
use cognate_generate::{Attended, alignment_layer};
use cognate_model::{EmbeddingNames, Model};
use cognate_pictures::{Attention, Beams, Embeddings, Example, Explained, Finished, Likely, Node, Norms, Step, Summary, Token};
use cognate_runtime::{Options as Load, Reference, Runtime, Source, Values};
use ndarray::{Array2, ArrayD, Axis};

/// Source words that are told of each step.
const LOOKS: usize = 3;

impl Observed {
    /// What else the model does with the sentence of an example.
    ///
    /// # Errors
    /// If the engine fails, or the weights cannot be read.
    pub(super) fn explained(&self, seen: &Seen, example: &Example, attended: Likelihoods, unused: Unused) -> Result<Explained> {
        let embeddings = match self.model(unused) {
            Ok(model) => norms(&model, seen)?,
            Err(error) => Embeddings::Unknown(format!("{error}")),
        };
        let layers = Attention::ALL.map(|attention| Summary::of(example.weights(attention), attention != Attention::Cross));
        let alignment_layer = alignment_layer(self.config());
        let mean = example.cross_attentions.mean(alignment_layer);
        let steps = mean.chunks(seen.source.len()).zip(&seen.written).zip(&attended.next).enumerate();
        let steps = steps.map(|(step, ((row, &written), next))| {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            let likely = next.iter().find(|&&(id, _)| id == written).map(|&(_, log)| log);
            let likeliest = next.iter().map(|&(id, log)| Likely { token: self.token(id), probability: log.exp() });
            Step {
                likeliest: likeliest.collect(),
                written: likely.or_else(|| attended.followed.get(step).copied()).map(f32::exp),
                looks_at: order.iter().take(LOOKS).map(|&place| (place, row[place])).collect(),
            }
        });
        let steps = steps.collect();
        let beams = if self.settings().num_beams > 1 && !seen.is_given { Some(self.beams(seen)?) } else { None };
        Ok(Explained { embeddings, layers, alignment_layer, steps, beams })
    }

    /// The search that found the translation.
    fn beams(&self, seen: &Seen) -> Result<Beams> {
        let (hypotheses, tree) = self.beam_tree(&seen.source)?;
        let nodes = tree.nodes.iter().map(|node| Node {
            token: self.token(node.token),
            parent: node.parent,
            log_probability: node.log_probability,
            rank: node.finished.map(|(rank, _)| rank),
        });
        let finished = hypotheses.iter().map(|found| Ok(Finished { text: self.text(&found.tokens)?, score: found.score }));
        Ok(Beams { width: self.settings().num_beams, nodes: nodes.collect(), finished: finished.collect::<Result<_>>()? })
    }

    fn token(&self, id: i64) -> Token {
        Token { piece: self.piece(id), id }
    }
}

/// What a run of the decoder says of next words.
pub(super) struct Likelihoods {
    next: Vec<Vec<(i64, f32)>>,
    followed: Vec<f32>,
}

impl Likelihoods {
    /// Takes them out of a run.
    pub(super) fn take(attended: &mut Attended) -> Self {
        Self { next: std::mem::take(&mut attended.next), followed: std::mem::take(&mut attended.followed) }
    }
}

/// The norms of what the first layers read.
fn norms(model: &Model, seen: &Seen) -> Result<Embeddings> {
    let mut session = Reference::F32.load(&Source::Graph(model.embeddings()?), &Load::default())?;
    let ids = |ids: &[i64]| Array2::from_shape_vec((1, ids.len()), ids.to_vec()).map(Array2::into_dyn);
    let [source, target] = EmbeddingNames::IDS;
    let inputs: Values = [(source, ids(&seen.source)?), (target, ids(&seen.read)?)].into_iter().collect();
    let outputs = session.run(&inputs)?;
    let lengths = |name: &str| -> Result<Option<Vec<f32>>> {
        let Some(value) = outputs.get(name) else { return Ok(None) };
        let values: ArrayD<f32> = value.to_f32()?;
        let width = values.shape().last().copied().unwrap_or(1);
        let rows = values.as_standard_layout().into_owned().into_shape_with_order((values.len() / width.max(1), width))?;
        Ok(Some(rows.map_axis(Axis(1), |row| row.iter().map(|value| value * value).sum::<f32>().sqrt()).to_vec()))
    };
    let side = |index: usize| -> Result<Vec<Norms>> {
        let lacks = "the graph of embeddings has them";
        let (tokens, sums) = (EmbeddingNames::TOKENS[index], EmbeddingNames::SUMS[index]);
        let (tokens, sums) = (lengths(tokens)?.context(lacks)?, lengths(sums)?.context(lacks)?);
        let positions = lengths(EmbeddingNames::POSITIONS[index])?;
        let at = |(place, (token, sum))| {
            let position = positions.as_ref().and_then(|lengths| lengths.get(place).copied());
            Norms { token, position, sum }
        };
        Ok(tokens.into_iter().zip(sums).enumerate().map(at).collect())
    };
    let config = model.config();
    Ok(Embeddings::Known { d_model: config.d_model, is_scaled: config.scale_embedding, source: side(0)?, target: side(1)? })
}
