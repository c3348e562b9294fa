//! Loss and BLEU of the validation set.

use std::sync::Arc;

use cognate_folder::ModelSource;
use cognate_generate::{Decoder, Settings, generate};
use cognate_model::Model;
use cognate_pipeline::{
    BatchLimit, EncodedSource, InMemory, LoadedModel, SourceEncoder, in_batches,
};
use cognate_runtime::Options;
use cognate_text::{Tokenizer, corpus_bleu};

use super::Machine;
use super::model::Start;
use super::step::{Step, Sums};
use crate::batches::{Arrays, BatchSettings, Batches, Position, shard};
use crate::corpus::Corpus;
use crate::error::{Cause, Error, Result};
use crate::left_out::LeftOut;
use crate::ranks::gather;

/// Maximum number of source tokens that are decoded together.
const DECODED_TOKENS: usize = 2_048;

/// The validation set.
pub(super) struct ValidationSet {
    batches: Vec<Arrays>,
    /// Token ids of the sources that are not empty, with their line numbers, sorted by length.
    sources: Vec<(usize, Vec<i64>)>,
    references: Vec<String>,
    /// What is missing from it.
    pub(super) notes: Vec<String>,
}

impl ValidationSet {
    /// Reads and tokenizes the corpus into memory. Of the limits on training pairs none applies: only
    /// pairs that do not fit into the model or a batch are left out of the loss.
    pub(super) fn new(
        corpus: Corpus,
        tokenizer: &Arc<Tokenizer>,
        settings: BatchSettings,
        encoder: &SourceEncoder,
        positions: usize,
    ) -> Result<Self> {
        let corpus = Arc::new(corpus);
        let longest = positions.min(settings.max_tokens);
        let settings = BatchSettings {
            subword_sampling: None,
            max_ratio: None,
            max_source_tokens: longest,
            max_target_tokens: longest,
            ..settings
        };
        let (mut batches, mut sources, mut references) = (Vec::new(), Vec::new(), Vec::new());
        let mut left_out = LeftOut::default();
        for batch in
            Batches::new(Arc::clone(&corpus), Arc::clone(tokenizer), settings, Position::default())?
        {
            let batch = batch.map_err(|error| match error.0 {
                Cause::NothingFits(left_out) => Cause::NothingFitsInValidation(left_out).into(),
                other => Error(other),
            })?;
            if batch.position().epoch > 0 {
                break;
            }
            left_out += batch.left_out();
            batches.push(batch.arrays());
        }
        for (number, pair) in corpus.pairs()?.enumerate() {
            let pair = pair?;
            // As in `cognate translate`: truncated to the model's length; an empty text has an
            // empty translation.
            if let EncodedSource::Tokens { ids, .. } = encoder.encode(&pair.source)? {
                sources.push((number, ids));
            }
            references.push(pair.target);
        }
        sources.sort_by_key(|(_, ids)| ids.len());
        let mut notes = Vec::new();
        if corpus.n_pairs() < corpus.n_lines() {
            notes.push(format!("data.valid: dropped pairs: {}", corpus.dropped()));
        }
        if left_out != LeftOut::default() {
            notes.push(format!("data.valid: pairs that are left out of the loss: {left_out}"));
        }
        Ok(Self { batches, sources, references, notes })
    }

    /// The sums of the losses.
    pub(super) fn loss(&self, step: &mut Step<'_>) -> Result<Sums> {
        step.evaluate(&self.batches)
    }

    /// BLEU of a model's translations; ranks share the work.
    pub(super) fn bleu(
        &self,
        model: &Model,
        start: &Start,
        beams: usize,
        machine: Machine<'_>,
        options: &Options,
    ) -> Result<f64> {
        let ranks = machine.ranks;
        let share: Vec<_> = shard(self.sources.len(), ranks.rank(), ranks.size())
            .map(|index| &self.sources[index])
            .collect();
        let own = translations(&share, model, start, beams, machine, options)?;
        let own = serde_json::to_vec(&own).expect("numbers and texts are JSON");
        let mut translations = vec![String::new(); self.references.len()];
        for share in gather(ranks, &own) {
            let found: Vec<(usize, String)> =
                serde_json::from_slice(&share).expect("a rank sent what it wrote");
            found.into_iter().for_each(|(number, text)| translations[number] = text);
        }
        Ok(corpus_bleu(&translations, &self.references)?.score)
    }
}

/// Translations of numbered sources.
fn translations(
    sources: &[&(usize, Vec<i64>)],
    model: &Model,
    start: &Start,
    beams: usize,
    machine: Machine<'_>,
    options: &Options,
) -> Result<Vec<(usize, String)>> {
    let mut settings = start.settings.clone();
    (settings.num_beams, settings.num_return_sequences, settings.sampling) = (beams, 1, None);
    let source = ModelSource::Checkpoint("model".into());
    let parts = InMemory { model, source, tokenizer: start.tokenizer.clone(), settings };
    let loaded = LoadedModel::in_memory(parts, machine.runtime, options)?;
    let lengths: Vec<_> = sources.iter().map(|(_, ids)| ids.len()).collect();
    let work = |decoder: &mut dyn Decoder, chosen: &[usize]| {
        let batch: Vec<_> = chosen.iter().map(|&index| sources[index].1.clone()).collect();
        let longest = batch.iter().map(Vec::len).max().unwrap_or(0);
        // Untrained models do not stop.
        let max_new_tokens = loaded.settings().max_new_tokens.min(2 * longest + 16);
        let settings = Settings { max_new_tokens, ..loaded.settings().clone() };
        Ok(generate(decoder, &batch, &settings)?)
    };
    let found = in_batches(
        &loaded,
        &lengths,
        BatchLimit::tokens(DECODED_TOKENS / beams.max(1)),
        work,
        |_, _| {},
    )?;
    sources
        .iter()
        .zip(found)
        .map(|((number, _), found)| Ok((*number, start.tokenizer.decode(&found.tokens)?)))
        .collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::batches::{Framing, IGNORED};
    use crate::corpus::{Cleaning, Files};
    use std::fs;

    /// mBART-25 ends a source in `</s> en_XX`; a source that is cut keeps both, and one without
    /// text is not decoded.
    #[test]
    fn sources_are_cut_as_the_translator_cuts_them() {
        let folder = tempfile::tempdir().unwrap();
        let tokenizer_json = cognate_testing::testdata("tokenizers/models/mbart.tokenizer.json");
        fs::copy(tokenizer_json, folder.path().join("tokenizer.json")).unwrap();
        let config =
            r#"{"tokenizer_class": "MBartTokenizer", "src_lang": "en_XX", "tgt_lang": "de_DE"}"#;
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let tokenizer = Arc::new(Tokenizer::from_folder(folder.path()).unwrap());
        let [source, target] = ["source", "target"].map(|name| folder.path().join(name));
        fs::write(&source, format!("a dog\n{}\n\u{200b}\n", "a dog runs ".repeat(20))).unwrap();
        fs::write(&target, "ein hund\nein hund\nein hund\n").unwrap();

        let mut model = cognate_model::Preset::Tiny.config();
        (model.vocab, model.source_vocab) =
            (tokenizer.required_vocab(), tokenizer.required_vocab());
        model.max_positions = Some(12);
        let settings = cognate_generate::Settings::from_json("{}", None, &model).unwrap();
        let encoder = SourceEncoder::new(&tokenizer, &model, &settings);
        let corpus =
            Corpus::open(&[Files::Parallel { source, target }], &Cleaning::default()).unwrap();
        let [start, suffix, pad] =
            ["de_DE", "</s>", "<pad>"].map(|piece| tokenizer.id(piece).unwrap());
        let framing = Framing {
            start,
            prefix: Vec::new(),
            suffix: vec![suffix],
            pad,
            label_padding: IGNORED,
        };
        let held = ValidationSet::new(
            corpus,
            &tokenizer,
            BatchSettings { framing, ..BatchSettings::default() },
            &encoder,
            12,
        )
        .unwrap();

        let around = tokenizer.encode("").unwrap();
        assert_eq!(around, [2, tokenizer.id("en_XX").unwrap()]);
        assert_eq!(held.references.len(), 3);
        assert_eq!(held.sources.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(held.sources[1].1.len(), 12);
        for (number, ids) in &held.sources {
            assert!(ids.ends_with(&around), "{number}: {ids:?}");
        }
    }
}
