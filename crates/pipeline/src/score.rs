//! The probabilities of given translations.

use crate::batches::{BatchLimit, in_batches};
use crate::error::{Error, Result};
use crate::loaded::LoadedModel;
use crate::options::LoadOptions;
use cognate_folder::ModelSource;
use cognate_generate::{Decoder, SentenceBatch, score};
use cognate_model::Attentions;

/// A sentence and its translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The sentence.
    pub source: String,
    /// Its translation.
    pub target: String,
    /// The beginning of the translation that is not scored; can be empty.
    pub prefix: String,
    /// The name of the pair in errors.
    pub place: String,
}

/// The log-probabilities of a translation under the model; natural logarithms.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredPair {
    /// That of the whole translation.
    pub total: f32,
    /// Those of each token after the prefix, and of the end token.
    pub log_probabilities: Vec<f32>,
    /// The tokens after the prefix, and the end token.
    pub tokens: Vec<String>,
}

/// A model that scores.
pub struct Scorer {
    model: LoadedModel,
}

debug_by_source!(Scorer, |it| it.model.source());

impl Scorer {
    /// Loads a model.
    ///
    /// # Errors
    /// As [`LoadedModel::open`].
    pub fn load(source: ModelSource, options: &LoadOptions) -> Result<Self> {
        Ok(Self {
            model: LoadedModel::open(source, options, Attentions::Omit, |settings, _, _| {
                Ok(settings)
            })?
            .translating()?,
        })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        &self.model
    }

    /// Scores pairs in batches of `batch_tokens`. A forced first token is not counted.
    ///
    /// # Errors
    /// If a text is empty or too long, a translation does not begin with its prefix, or the engine
    /// fails.
    pub fn score(&self, pairs: &[Pair], batch_tokens: usize) -> Result<Vec<ScoredPair>> {
        let (mut sources, mut targets, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for pair in pairs {
            let at = |error: Error| error.at(&pair.place);
            sources.push(self.model.source_ids(&pair.source).map_err(at)?);
            let target = self.model.target_ids(&pair.target).map_err(at)?;
            prefixes.push(self.prefix(pair, &target).map_err(at)?);
            targets.push(target);
        }
        let lengths: Vec<_> = sources
            .iter()
            .zip(&targets)
            .map(|(source, target)| source.len().max(target.len() + 1))
            .collect();
        let settings = self.model.settings();
        let work = |decoder: &mut dyn Decoder, chosen: &[usize]| {
            let take = |all: &[Vec<i64>]| {
                chosen.iter().map(|&index| all[index].clone()).collect::<Vec<_>>()
            };
            let (sources, targets, prefixes) = (take(&sources), take(&targets), take(&prefixes));
            let batch =
                SentenceBatch { sources: (&sources).into(), prefixes: &prefixes, numbers: &[] };
            let scored = score(decoder, &batch, &targets, settings)?;
            let piece =
                |&id: &i64| self.model.tokenizer().piece(id).unwrap_or_else(|| format!("<{id}>"));
            let found = scored.into_iter().zip(targets.iter().zip(&prefixes)).map(
                |(scored, (target, prefix))| ScoredPair {
                    total: scored.total,
                    log_probabilities: scored.log_probabilities,
                    tokens: target[prefix.len()..]
                        .iter()
                        .chain(settings.eos_tokens.first())
                        .map(piece)
                        .collect(),
                },
            );
            Ok(found.collect())
        };
        in_batches(&self.model, &lengths, BatchLimit::tokens(batch_tokens), work, |_, _| {})
    }

    /// The tokens at the beginning of a translation that are not scored: the forced first token and
    /// the prefix.
    fn prefix(&self, pair: &Pair, target: &[i64]) -> Result<Vec<i64>> {
        let ids = if pair.prefix.is_empty() {
            Vec::new()
        } else {
            self.model.tokenizer().encode_target(&pair.prefix)?
        };
        let prefix: Vec<_> =
            self.model.settings().forced_bos_token.into_iter().chain(ids).collect();
        if !target.starts_with(&prefix) {
            let message = format!(
                "the translation does not begin with the tokens of its prefix {:?}; expected a prefix of whole words",
                pair.prefix
            );
            return Err(Error::input(message));
        }
        Ok(prefix)
    }
}
