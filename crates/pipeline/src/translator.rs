//! Translation of sentences.

use crate::batches::{BatchLimit, in_batches};
use crate::error::{Cause, Error, Result};
use crate::language::{Languages, TargetNaming};
use crate::loaded::LoadedModel;
use crate::notice::Notice;
use crate::options::{DecodingOptions, LoadOptions, UNKNOWN};
use crate::source::{EncodedSource, SourceEncoder};
use crate::translation::{Line, TranslatedText, Translation, Warning};
use cognate_folder::ModelSource;
use cognate_generate::{Decoder, Event, Hypothesis, SentenceBatch, Settings, decode};
use cognate_model::Parts;
use cognate_text::{StreamingText, Tokenizer};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// The default of [`TranslatorOptions::batch_tokens`]. In large models each step reads all weights,
/// for few sentences as for many.
const fn batch_tokens(n_hypotheses: usize) -> usize {
    if n_hypotheses == 1 { 2048 } else { 3072 }
}

/// Options of a translator.
#[derive(Clone, Debug, Default)]
pub struct TranslatorOptions {
    /// Options of loading.
    pub load: LoadOptions,
    /// Options of decoding.
    pub decoding: DecodingOptions,
    /// The maximum number of tokens of a batch, padding and beams and samples included; by default
    /// 2048, and 3072 if sentences have several hypotheses.
    pub batch_tokens: Option<NonZeroUsize>,
    /// The maximum number of sentences of a batch; by default any.
    pub batch_size: Option<NonZeroUsize>,
}

/// A model that translates. It can be shared between threads; clones share the model.
#[derive(Clone)]
pub struct Translator {
    shared: Arc<Shared>,
}

debug_by_source!(Translator, |it| it.model().source());

struct Shared {
    model: LoadedModel,
    sources: SourceEncoder,
    /// The default prefix of translations.
    prefix: Vec<i64>,
    /// The maximum numbers of tokens and of sentences of a batch, if set.
    batch: [Option<NonZeroUsize>; 2],
    batch_limit: BatchLimit,
    /// The unknown token of sources.
    unknown: Option<i64>,
    replaces_unknowns: bool,
}

/// The translations of a batch by index, and the index and the error of the sentence that failed.
type TranslatedBatch = (Vec<(usize, Translation)>, Option<(usize, Error)>);

impl Translator {
    /// Loads the model in `folder`, a checkpoint or an export, with the settings of its files.
    ///
    /// # Errors
    /// If there is no such model, or no engine can run it.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(folder, &TranslatorOptions::default())
    }

    /// Loads the model in `folder`, a checkpoint or an export.
    ///
    /// # Errors
    /// If there is no such model, an option contradicts it, or no engine can run it.
    pub fn open_with(folder: impl AsRef<Path>, options: &TranslatorOptions) -> Result<Self> {
        Self::load(ModelSource::find(folder.as_ref())?, options)
    }

    /// Loads a model from its source.
    ///
    /// # Errors
    /// If an option contradicts the model, or no engine can run it.
    pub fn load(source: ModelSource, options: &TranslatorOptions) -> Result<Self> {
        let TranslatorOptions { load, decoding, batch_tokens, batch_size } = options;
        let adjust =
            |settings, config: &_, tokenizer: &_| decoding.apply(settings, config, tokenizer);
        let model =
            LoadedModel::open(source, load, decoding.attentions(), adjust)?.translating()?;
        Self::new(model, decoding, [*batch_tokens, *batch_size])
    }

    /// The same model with other languages, if they are set, and with other options of decoding;
    /// what is not set is as in the model's files. They share the weights.
    ///
    /// # Errors
    /// If an option contradicts the model.
    pub fn with(&self, languages: &Languages, decoding: &DecodingOptions) -> Result<Self> {
        let model = self.model().with(languages, |settings, config, tokenizer| {
            decoding.apply(settings, config, tokenizer)
        })?;
        Self::new(model, decoding, self.shared.batch)
    }

    pub(crate) fn new(
        model: LoadedModel,
        decoding: &DecodingOptions,
        batch: [Option<NonZeroUsize>; 2],
    ) -> Result<Self> {
        let text = decoding.target_prefix.as_deref().unwrap_or_default();
        let prefix = prefix(text, model.tokenizer(), model.settings());
        let prefix = prefix.map_err(|error| Error::wrong_option("target_prefix", error))?;
        let sources = SourceEncoder::new(model.tokenizer(), model.config(), model.settings());
        let [tokens, size] = batch;
        let n_hypotheses = model.settings().n_hypotheses();
        let tokens = tokens.map_or(batch_tokens(n_hypotheses), NonZeroUsize::get) / n_hypotheses;
        let batch_limit =
            BatchLimit { tokens, sentences: size.map_or(usize::MAX, NonZeroUsize::get) };
        if model.settings().alignment_layer.is_some() && !model.gives_attentions() {
            let option = if decoding.alignments { "alignments" } else { "replace_unknowns" };
            let message = format!(
                "{} gives no attention weights, by which tokens are aligned; load an export with attentions, or a checkpoint with {option}",
                model.source()
            );
            return Err(Error::wrong_option(option, message));
        }
        let unknown = UNKNOWN.into_iter().find_map(|piece| model.tokenizer().id(piece));
        let replaces_unknowns = decoding.replace_unknowns;
        Ok(Self {
            shared: Arc::new(Shared {
                model,
                sources,
                prefix,
                batch,
                batch_limit,
                unknown,
                replaces_unknowns,
            }),
        })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedModel {
        &self.shared.model
    }

    /// The engine with its version and provider.
    pub fn engine(&self) -> &str {
        self.model().engine()
    }

    /// Messages about the loaded model.
    pub fn notices(&self) -> &[Notice] {
        self.model().notices()
    }

    /// The settings of decoding.
    pub fn settings(&self) -> &Settings {
        self.model().settings()
    }

    /// Translates sentences in batches of similar length on several workers. The translations do
    /// not depend on the number of workers.
    ///
    /// # Errors
    /// If a sentence cannot be encoded, or the engine fails; the error names the first such
    /// sentence, counted from 1.
    pub fn translate(&self, sentences: &[impl AsRef<str>]) -> Result<Vec<Translation>> {
        self.translate_while(sentences, || true)
    }

    /// As [`Translator::translate`]; ends within a decoding step after `is_wanted` became false.
    ///
    /// # Errors
    /// As [`Translator::translate`], or with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn translate_while(
        &self,
        sentences: &[impl AsRef<str>],
        is_wanted: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Translation>> {
        let mut translations = Vec::with_capacity(sentences.len());
        let (mut places, mut sources, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for (place, sentence) in sentences.iter().enumerate() {
            if !is_wanted() {
                return Err(Cause::Cancelled.into());
            }
            let (translation, ids) = self
                .prepare(sentence.as_ref())
                .map_err(|error| error.at(format_args!("sentence {}", place + 1)))?;
            translations.push(translation);
            if let Some(ids) = ids {
                places.push(place);
                sources.push(ids);
                prefixes.push(self.shared.prefix.clone());
            }
        }
        let lengths: Vec<_> = sources.iter().map(Vec::len).collect();
        let work = |decoder: &mut dyn Decoder, chosen: &[usize]| {
            let take = |all: &[Vec<i64>]| {
                chosen.iter().map(|&index| all[index].clone()).collect::<Vec<_>>()
            };
            let numbers: Vec<_> = chosen.iter().map(|&index| places[index] as u64 + 1).collect();
            let (sources, prefixes) = (take(&sources), take(&prefixes));
            let batch = SentenceBatch {
                sources: (&sources).into(),
                prefixes: &prefixes,
                numbers: &numbers,
            };
            let (found, failure) = self.translate_batch(decoder, &batch, &is_wanted);
            match failure {
                _ if !is_wanted() => Err(Cause::Cancelled.into()),
                None => Ok(found.into_iter().map(|(_, translation)| translation).collect()),
                Some((index, error)) => Err(error.at(format_args!("sentence {}", numbers[index]))),
            }
        };
        let found = in_batches(self.model(), &lengths, self.shared.batch_limit, work, |_, _| {})?;
        for (place, mut found) in places.into_iter().zip(found) {
            found.begin_with(&mut translations[place]);
            self.replace_unknowns(&mut found, sentences[place].as_ref())?;
            translations[place] = found;
        }
        Ok(translations)
    }

    /// Translates one sentence and calls `write` with each part of its text as soon as it is final.
    /// `number` counts sentences from 1 and is part of the random seed. Returns the complete
    /// translation.
    ///
    /// # Errors
    /// As [`Translator::check_stream`], or if the sentence cannot be encoded, the engine fails, or
    /// `write` does.
    pub fn stream<E: From<Error>>(
        &self,
        sentence: &Line,
        number: u64,
        write: &mut dyn FnMut(&str) -> Result<(), E>,
    ) -> Result<Translation, E> {
        self.check_stream()?;
        let (mut translation, ids) = self.prepare(&sentence.text)?;
        let Some(ids) = ids else { return Ok(translation) };
        let prefix =
            self.prefix(sentence).map_err(|error| Error::wrong_option("target_prefix", error))?;
        let (mut text, mut failure) = (
            StreamingText::after(self.model().tokenizer(), self.read(&ids)).map_err(Error::from)?,
            None,
        );
        let mut hand_over =
            |words: String| if words.is_empty() { Ok(()) } else { write(&on_one_line(words)) };
        let mut observer = |event: Event<'_>| {
            // Of several samples, the first is the text.
            let Event::Token { sequence: 0, token, .. } = event else {
                return ControlFlow::Continue(());
            };
            failure = text
                .push(token)
                .map_err(|error| Error::from(error).into())
                .and_then(&mut hand_over)
                .err();
            if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let sources = [ids];
        let batch =
            SentenceBatch { sources: (&sources).into(), prefixes: &[prefix], numbers: &[number] };
        let mut decoder = self.model().decoder()?;
        let found = decode(decoder.as_mut(), &batch, self.settings(), &mut observer)
            .map_err(Error::from)?;
        if let Some(error) = failure {
            return Err(error);
        }
        hand_over(text.finish().map_err(Error::from)?)?;
        let Some(hypotheses) = found.into_iter().next() else { return Ok(translation) };
        let mut found = self.translation(hypotheses, &sources[0])?;
        found.begin_with(&mut translation);
        Ok(found)
    }

    /// Checks that translations can be streamed.
    ///
    /// # Errors
    /// With beam search, whose words are final only at the end, and with
    /// [`DecodingOptions::replace_unknowns`].
    pub fn check_stream(&self) -> Result<()> {
        match self.settings().num_beams {
            _ if self.replaces_unknowns() => {
                Err(Error::wrong_option("stream", "cannot be used with replace_unknowns"))
            }
            0 | 1 => Ok(()),
            beams => {
                let message = format!(
                    "cannot be used with beam search, found {beams} beams; set beams to 1, or sample"
                );
                Err(Error::wrong_option("stream", message))
            }
        }
    }

    /// Whether [`DecodingOptions::replace_unknowns`] is set.
    pub(crate) fn replaces_unknowns(&self) -> bool {
        self.shared.replaces_unknowns
    }

    /// Replaces the unknown tokens of the translations of `sentence` by the source words that they
    /// attend to most.
    pub(crate) fn replace_unknowns(
        &self,
        translation: &mut Translation,
        sentence: &str,
    ) -> Result<()> {
        if !self.replaces_unknowns() {
            return Ok(());
        }
        let tokenizer = self.model().tokenizer();
        let is_unknown =
            |id: &i64| tokenizer.piece(*id).is_some_and(|piece| UNKNOWN.contains(&piece.as_str()));
        for TranslatedText { text, hypothesis } in &mut translation.hypotheses {
            let Hypothesis { tokens, alignment, .. } = hypothesis;
            if !tokens.iter().any(is_unknown) {
                continue;
            }
            let mut words = tokens
                .iter()
                .zip(alignment)
                .filter(|(token, _)| is_unknown(token))
                .map(|(_, position)| *position);
            let mut replaced = String::new();
            for (index, part) in tokens.split(is_unknown).enumerate() {
                if index > 0
                    && let Some(position) = words.next()
                    && let Some(word) = tokenizer.source_word(sentence, position)?
                {
                    let bare = word.trim_matches(|c: char| c.is_ascii_punctuation());
                    push_word(&mut replaced, if bare.is_empty() { word } else { bare });
                }
                let decoded = tokenizer.decode(part)?;
                // Pieces that begin a word are marked.
                let begins_word = part
                    .first()
                    .and_then(|id| tokenizer.piece(*id))
                    .is_some_and(|piece| piece.starts_with(['▁', 'Ġ']));
                if begins_word {
                    push_word(&mut replaced, decoded.trim_start())
                } else {
                    replaced.push_str(&decoded)
                }
            }
            *text = on_one_line(replaced);
        }
        translation.text =
            translation.hypotheses.first().map(|best| best.text.clone()).unwrap_or_default();
        Ok(())
    }

    /// The maximum number of tokens of a sentence.
    pub fn max_source_tokens(&self) -> usize {
        self.shared.sources.max_tokens()
    }

    /// The maximum size of a batch without beams.
    pub(crate) fn batch_limit(&self) -> BatchLimit {
        self.shared.batch_limit
    }

    /// The tokens of a sentence, if it is not empty, and a translation with the warnings about it.
    pub(crate) fn prepare(&self, sentence: &str) -> Result<(Translation, Option<Vec<i64>>)> {
        let (warnings, ids): (_, Option<Vec<i64>>) = match self.shared.sources.encode(sentence)? {
            EncodedSource::Empty => (vec![Warning::Empty], None),
            EncodedSource::Tokens { ids, cut_from } => {
                let limit = self.max_source_tokens();
                if let (Some(tokens), true) = (cut_from, self.continues()) {
                    let message = format!(
                        "the prompt has {tokens} tokens; expected at most {limit}, the positions of the model"
                    );
                    return Err(Error::input(message));
                }
                let too_long = cut_from.map(|tokens| Warning::TooLong { tokens, limit });
                let no_language = self.lacks_language(sentence).then_some(Warning::NoLanguage);
                (no_language.into_iter().chain(too_long).collect(), Some(ids))
            }
        };
        let n_unknown = ids.iter().flatten().filter(|id| self.shared.unknown == Some(**id)).count();
        Ok((Translation { warnings, n_unknown, ..Translation::default() }, ids))
    }

    /// The tokens of the prefix of a line's translation.
    pub(crate) fn prefix(&self, line: &Line) -> Result<Vec<i64>> {
        match &line.prefix {
            None => Ok(self.shared.prefix.clone()),
            Some(text) => prefix(text, self.model().tokenizer(), self.settings()),
        }
    }

    /// Translates a batch. If that fails, translates the sentences one by one, in the order of
    /// their numbers, to find the one that fails. If `is_wanted` becomes false, decoding stops, and
    /// the translations are incomplete.
    pub(crate) fn translate_batch(
        &self,
        decoder: &mut dyn Decoder,
        batch: &SentenceBatch<'_>,
        is_wanted: impl Fn() -> bool,
    ) -> TranslatedBatch {
        let mut run = |batch: &SentenceBatch<'_>| -> Result<Vec<Translation>> {
            let mut observer = |_: Event<'_>| {
                if is_wanted() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let found = decode(decoder, batch, self.settings(), &mut observer)?;
            found
                .into_iter()
                .zip(batch.sources.tokens())
                .map(|(hypotheses, source)| self.translation(hypotheses, source))
                .collect()
        };
        let n_sentences = batch.sources.len();
        match run(batch) {
            Ok(found) => (found.into_iter().enumerate().collect(), None),
            Err(error) if n_sentences == 1 => (Vec::new(), Some((0, error))),
            Err(_) => {
                let mut order: Vec<_> = (0..n_sentences).collect();
                order.sort_by_key(|&index| batch.numbers[index]);
                let mut done = Vec::new();
                for index in order {
                    let one = index..=index;
                    let prefixes = batch.prefixes.get(one.clone()).unwrap_or_default();
                    match run(&SentenceBatch {
                        sources: (&batch.sources.tokens()[one.clone()]).into(),
                        prefixes,
                        numbers: &batch.numbers[one],
                    }) {
                        Ok(found) => {
                            done.extend(found.into_iter().map(|translation| (index, translation)))
                        }
                        Err(error) => return (done, Some((index, error))),
                    }
                }
                (done, None)
            }
        }
    }

    /// Whether texts are continued, by a decoder alone.
    fn continues(&self) -> bool {
        self.model().config().parts == Parts::Decoder
    }

    /// The tokens before a text that it continues.
    fn read<'s>(&self, source: &'s [i64]) -> &'s [i64] {
        if self.continues() { source } else { &[] }
    }

    pub(crate) fn translation(
        &self,
        hypotheses: Vec<Hypothesis>,
        source: &[i64],
    ) -> Result<Translation> {
        let limit = self.settings().max_new_tokens;
        // Texts that are continued need no end.
        let is_cut = !self.continues() && hypotheses.first().is_some_and(|best| !best.complete);
        let text = |hypothesis: Hypothesis| {
            let text = StreamingText::after(self.model().tokenizer(), self.read(source))?
                .finish_with(&hypothesis.tokens)?;
            let text = on_one_line(text);
            Ok(TranslatedText { text, hypothesis })
        };
        let hypotheses = hypotheses.into_iter().map(text).collect::<Result<Vec<_>>>()?;
        let text = hypotheses.first().map(|best| best.text.clone()).unwrap_or_default();
        let warnings = is_cut.then_some(Warning::Unfinished { limit }).into_iter().collect();
        Ok(Translation { text, hypotheses, warnings, n_unknown: 0 })
    }

    /// Whether a sentence lacks the code of a required target language.
    fn lacks_language(&self, sentence: &str) -> bool {
        // Marian's and MADLAD's.
        let between = |left, right| Some(sentence.strip_prefix(left)?.split_once(right)?.0);
        let code = || between(">>", "<<").or_else(|| between("<2", ">"));
        match self.model().target_naming() {
            TargetNaming::InSentences(codes) => {
                code().is_none_or(|code| !codes.iter().any(|known| known == code))
            }
            TargetNaming::Settled | TargetNaming::Missing { .. } => false,
        }
    }
}

/// The tokens of a prefix: the forced first token and those of the text.
fn prefix(text: &str, tokenizer: &Tokenizer, settings: &Settings) -> Result<Vec<i64>> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let ids = tokenizer.encode_target(text)?;
    let prefix: Vec<_> = settings.forced_bos_token.into_iter().chain(ids).collect();
    let room = settings.max_length.saturating_sub(2).min(settings.max_new_tokens.saturating_sub(1));
    if prefix.len() > room {
        let message = format!("has {} tokens; expected at most {room}", prefix.len());
        return Err(Error::input(message));
    }
    Ok(prefix)
}

/// Appends a word, after a space if it is not the first.
fn push_word(text: &mut String, word: &str) {
    if !text.is_empty() && !word.is_empty() && !text.ends_with(char::is_whitespace) {
        text.push(' ');
    }
    text.push_str(word);
}

/// The text on one line, whatever its tokens contain.
pub(crate) fn on_one_line(text: String) -> String {
    if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks() {
        assert_eq!(on_one_line("a\r\nb\n".into()), "a  b ");
    }
}
