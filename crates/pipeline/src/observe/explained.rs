//! Explanations of a sentence: norms of embeddings, probable next tokens, and the tree of beam
//! search.

use super::{Observer, Search, Sentence, Source};
use crate::error::Result;
use cognate_folder::{Manifest, ModelSource, open_exported};
use cognate_generate::{alignment_layer, beam_tree};
use cognate_model::interface::ATTENTION_MASK;
use cognate_model::{EmbeddingNames, Model};
use cognate_pictures::{
    Attention, Beams, Embeddings, Example, Explained, Finished, Likely, Node, Norms, Step, Summary,
};
use cognate_runtime::{Options, Reference, Runtime, Value, Values};
use ndarray::{Array2, ArrayD, Axis};

/// Number of source tokens of each step.
const LOOKS: usize = 3;

impl Observer {
    /// The explanation of an example: `next` are the most probable tokens at each step with their
    /// log-probabilities, `followed` the log-probabilities of the target's tokens.
    pub(super) fn explained(
        &self,
        sentence: &Sentence,
        example: &Example,
        next: &[Vec<(i64, f32)>],
        followed: &[f32],
    ) -> Result<Explained> {
        let embeddings = match &sentence.source {
            Source::Tokens(ids) => match self
                .weights()
                .and_then(|weights| weights.map(|model| norms(&model, ids, sentence)).transpose())
            {
                Ok(Some(embeddings)) => embeddings,
                Ok(None) => Embeddings::Unknown(format!(
                    "{}: its weights are rounded to integers",
                    self.model.source()
                )),
                Err(error) => Embeddings::Unknown(error.to_string()),
            },
            Source::Features(_) => {
                Embeddings::Unknown(format!("the model reads {}", self.input.name()))
            }
        };
        let layers = Attention::ALL.map(|attention| {
            Summary::of(example.weights(attention), attention != Attention::Cross)
        });
        let alignment_layer = alignment_layer(self.model.config());
        let mean = example.cross_attentions.mean(alignment_layer);
        let steps =
            mean.chunks(example.source.tokens.len()).zip(&sentence.written).zip(next).enumerate();
        let steps = steps.map(|(step, ((row, &written), next))| {
            let mut order: Vec<usize> = (0..row.len()).collect();
            order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
            let likely = next.iter().find(|&&(id, _)| id == written).map(|&(_, log)| log);
            let likeliest = next
                .iter()
                .map(|&(id, log)| Likely { token: self.token(id), probability: log.exp() });
            Step {
                likeliest: likeliest.collect(),
                written: likely.or_else(|| followed.get(step).copied()).map(f32::exp),
                looks_at: order.iter().take(LOOKS).map(|&place| (place, row[place])).collect(),
            }
        });
        let steps = steps.collect();
        let has_search = sentence.search.settings.num_beams > 1 && !sentence.is_given;
        let beams = has_search.then(|| self.beams(sentence)).transpose()?;
        Ok(Explained { embeddings, layers, alignment_layer, steps, beams })
    }

    /// The model with its original weights; `None` if an export is quantised.
    fn weights(&self) -> Result<Option<Model>> {
        let source = self.model.source();
        Ok(match source {
            ModelSource::Exported(folder) if Manifest::precision_of(folder)?.is_quantised() => None,
            ModelSource::Exported(folder) => Some(open_exported(folder, self.model.layout())?),
            ModelSource::Checkpoint(_) | ModelSource::File(_) | ModelSource::Preset(_) => {
                Some(source.open(0, self.ignore_unused)?.0)
            }
        })
    }

    /// The beam search of the translation.
    fn beams(&self, sentence: &Sentence) -> Result<Beams> {
        let Search { settings, prefix } = &sentence.search;
        let (hypotheses, tree) = beam_tree(
            self.model.decoder()?.as_mut(),
            sentence.source.as_sources(),
            prefix,
            settings,
        )?;
        let nodes = tree.nodes.iter().map(|node| Node {
            token: self.token(node.token),
            parent: node.parent,
            log_probability: node.log_probability,
            rank: node.finished.map(|(rank, _)| rank),
        });
        let finished = hypotheses.iter().map(|found| {
            let text = self.model.tokenizer().decode(&found.tokens)?;
            Ok(Finished { text, score: found.score })
        });
        Ok(Beams {
            width: settings.num_beams,
            nodes: nodes.collect(),
            finished: finished.collect::<Result<_>>()?,
        })
    }
}

/// The norms of the inputs of the first layers.
fn norms(model: &Model, source_ids: &[i64], sentence: &Sentence) -> Result<Embeddings> {
    let mut session = Reference::F32
        .load(&cognate_runtime::Source::Graph(model.embeddings()?), &Options::default())?;
    let ids = |ids: &[i64]| {
        Array2::from_shape_vec((1, ids.len()), ids.to_vec()).expect("a row of ids").into_dyn()
    };
    let [source, target] = EmbeddingNames::IDS;
    let mask = Array2::ones((1, source_ids.len())).into_dyn();
    let inputs: Values =
        [(source, ids(source_ids)), (ATTENTION_MASK, mask), (target, ids(&sentence.read))]
            .into_iter()
            .collect();
    let outputs = session.run(&inputs)?;
    let lengths = |name: &str| outputs.get(name).map(row_norms).transpose();
    let side = |index: usize| -> Result<Vec<Norms>> {
        let known = "an output of the graph of embeddings";
        let tokens = lengths(EmbeddingNames::TOKENS[index])?.expect(known);
        let sums = lengths(EmbeddingNames::SUMS[index])?.expect(known);
        let positions = lengths(EmbeddingNames::POSITIONS[index])?;
        let at = |(place, (token, sum))| {
            let position = positions.as_ref().and_then(|lengths| lengths.get(place).copied());
            Norms { token, position, sum }
        };
        Ok(tokens.into_iter().zip(sums).enumerate().map(at).collect())
    };
    let config = model.config();
    Ok(Embeddings::Known {
        d_model: config.d_model,
        is_scaled: config.scale_embedding,
        source: side(0)?,
        target: side(1)?,
    })
}

/// The Euclidean norms of the rows of `[..., len, d_model]`.
fn row_norms(value: &Value) -> Result<Vec<f32>> {
    let values: ArrayD<f32> = value.to_f32()?;
    let width = values.shape().last().copied().unwrap_or(1);
    let n_rows = values.len() / width.max(1);
    let rows = values.to_shape((n_rows, width)).expect("rows of one width");
    Ok(rows
        .map_axis(Axis(1), |row| row.iter().map(|value| value * value).sum::<f32>().sqrt())
        .to_vec())
}
