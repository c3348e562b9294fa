//! A subword tokenizer: text to ids and back.
//!
//! ids: `[src]` or `[tgt]`, i64, at least 0: those of transformers' `tokenizer(text).input_ids`
//! with `AutoTokenizer.from_pretrained(folder)`; text is that of
//! `tokenizer.decode(ids, skip_special_tokens=True)`.
//!
//! There are two engines, as in transformers: the `tokenizers` library, for `tokenizer.json` and
//! for the families that transformers converts to it, and Cognate's own SentencePiece for the
//! others.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::classic::Classic;
use crate::error::{Cause, Result};
use crate::language::{Languages, SourcePlace, TargetLanguage, TargetPlace, Template};
use crate::library::guarded;
use crate::tokenizer_file;

/// A tokenizer of Hugging Face's encoder-decoder models. Clones share the vocabulary.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// # let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de/tokenizer.json");
/// let tokenizer = cognate_text::Tokenizer::from_file(file)?;
/// assert_eq!(tokenizer.vocab_size(), 8000);
/// assert_eq!(tokenizer.encode("A man")?, [8, 20, 0]);
/// assert_eq!(tokenizer.piece(20).as_deref(), Some("▁man"));
/// assert_eq!(tokenizer.id("</s>"), Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tokenizer {
    pub(crate) engine: Engine,
    /// The engine of the target language, if a `tokenizer.json` gives it a separate vocabulary.
    pub(crate) target_engine: Option<Engine>,
    /// The name in errors.
    pub(crate) file: String,
    pub(crate) spaces: Spaces,
    /// The special tokens around a text; `None` leaves them to the rules of `tokenizer.json`.
    pub(crate) template: Option<Template>,
    pub(crate) languages: Option<Languages>,
    pub(crate) target: Option<TargetLanguage>,
    /// Marian's token of the target language, before all others.
    pub(crate) before: Option<u32>,
}

/// Encodes and decodes text.
#[derive(Clone)]
pub(crate) enum Engine {
    Library(Arc<tokenizers::Tokenizer>),
    Classic(Arc<Classic>),
}

/// The treatment of spaces before English punctuation in decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spaces {
    Keep,
    CleanUp,
}

impl Tokenizer {
    /// The tokenizer files that a checkpoint can have, by the names of all families and versions of
    /// transformers.
    pub const FILES: [&str; 14] = [
        "tokenizer.json",
        "target_tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "target_vocab.json",
        "merges.txt",
        "source.spm",
        "target.spm",
        "spiece.model",
        "sentencepiece.bpe.model",
        "tokenizer.model",
    ];

    /// The files of [`Tokenizer::FILES`] that contain pieces; a folder without any of them has no
    /// tokenizer.
    pub const PIECES: [&str; 7] = [
        "tokenizer.json",
        "source.spm",
        "sentencepiece.bpe.model",
        "spiece.model",
        "vocab.json",
        "target_vocab.json",
        "vocab.txt",
    ];

    /// Reads one `tokenizer.json` of at most 256 MiB. The file's truncation and padding are
    /// ignored: they belong to the batch, and transformers resets them on every call too.
    ///
    /// Fails if the file cannot be read or is not a tokenizer. Never panics.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = path.display().to_string();
        Self::from_json(&tokenizer_file::read(path, tokenizer_file::TOKENIZER)?, &file)
    }

    /// Reads the bytes of a `tokenizer.json`; errors name it `file`.
    pub(crate) fn from_json(json: &[u8], file: &str) -> Result<Self> {
        let file = file.to_owned();
        tokenizer_file::check(&file, json)?;
        let load = || {
            let mut inner = std::str::from_utf8(json)?.parse::<tokenizers::Tokenizer>()?;
            inner.with_padding(None).with_truncation(None)?;
            // Contradictory rules (a template without its tokens, a charsmap without nodes) panic
            // on any text, so they panic here. An error is ignored: `a` may have no piece.
            let _ = inner.encode_fast("a", true);
            Ok(inner)
        };
        let inner =
            guarded(load).map_err(|reason| Cause::Refused { file: file.clone(), reason })?;
        let engine = Engine::Library(Arc::new(inner));
        Ok(Self::new(engine, file, Spaces::Keep))
    }

    /// A tokenizer without template and languages.
    pub(crate) fn new(engine: Engine, file: String, spaces: Spaces) -> Self {
        Self {
            engine,
            target_engine: None,
            file,
            spaces,
            template: None,
            languages: None,
            target: None,
            before: None,
        }
    }

    /// Sets the languages of a multilingual tokenizer; `None` keeps the present one. Codes are the
    /// family's: `en_XX` (mBART), `eng_Latn` (NLLB), `en` or `__en__` (M2M100), `java` (PLBart),
    /// `deu` or `>>deu<<` (Marian, target only).
    ///
    /// The source language changes the tokens that [`Tokenizer::encode`] puts around a text. The
    /// target language is passed to the decoder by [`Tokenizer::target_language`], and to Marian's
    /// encoder by `>>deu<<` before every text.
    ///
    /// Fails if the tokenizer has no languages, or does not have this one.
    pub fn with_languages(mut self, source: Option<&str>, target: Option<&str>) -> Result<Self> {
        let Some(languages) = &self.languages else {
            return match source.or(target) {
                Some(code) => Err(Cause::NoLanguages { file: self.file, code: code.to_owned() })?,
                None => Ok(self),
            };
        };
        if let Some(code) = source {
            if languages.source == SourcePlace::Nowhere {
                Err(Cause::NoSourceLanguage { file: self.file.clone(), code: code.to_owned() })?;
            }
            self.template = Some(languages.template(languages.find(&self.file, code)?));
        }
        if let Some(code) = target {
            let id = languages.find(&self.file, code)?;
            self.target = match languages.target {
                TargetPlace::Forced => Some(TargetLanguage::Forced(id.into())),
                TargetPlace::Start => Some(TargetLanguage::Start(id.into())),
                TargetPlace::InSource => {
                    self.before = Some(id);
                    None
                }
            };
        }
        Ok(self)
    }

    /// Uses this tokenizer for sources and `target` for targets.
    #[must_use]
    pub fn with_target(mut self, target: &Tokenizer) -> Self {
        self.target_engine = Some(target.target_engine().clone());
        self
    }

    /// The conditioning of the decoder on the target language of [`Tokenizer::with_languages`];
    /// `None` without one, and for Marian, whose source text contains it.
    pub fn target_language(&self) -> Option<TargetLanguage> {
        self.target
    }

    /// Whether a target language is set, by [`Tokenizer::with_languages`] or by the folder's files.
    pub fn has_target_language(&self) -> bool {
        self.target.is_some() || self.before.is_some()
    }

    /// The codes that [`Tokenizer::with_languages`] accepts; empty for a tokenizer without
    /// languages.
    pub fn languages(&self) -> Vec<String> {
        let known = self.languages.iter().flat_map(|languages| &languages.known);
        known.map(|(code, _)| code.clone()).collect()
    }

    /// The ids of a text, with the special tokens of the family's template (Marian: `</s>` at the
    /// end).
    ///
    /// A special token spelt out in the text becomes its id, as in transformers. Fails if the
    /// file's rules fail, for example on a character outside a vocabulary without `<unk>`.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>> {
        let ids = match &self.engine {
            Engine::Classic(classic) => classic.encode(text),
            Engine::Library(library) => self.encode_by(library, text, self.template.is_none())?,
        };
        let Template { prefix, suffix } = self.template.clone().unwrap_or_default();
        let all = self.before.into_iter().chain(prefix).chain(ids).chain(suffix);
        Ok(all.map(i64::from).collect())
    }

    /// The ids of a text of the target language, without special tokens around them: transformers'
    /// `tokenizer(text_target=text, add_special_tokens=False)`.
    ///
    /// Fails like [`Tokenizer::encode`].
    pub fn encode_target(&self, text: &str) -> Result<Vec<i64>> {
        let ids = match self.target_engine() {
            Engine::Classic(classic) => classic.encode_target(text),
            Engine::Library(library) => self.encode_by(library, text, false)?,
        };
        Ok(ids.into_iter().map(i64::from).collect())
    }

    fn encode_by(
        &self,
        library: &tokenizers::Tokenizer,
        text: &str,
        adds_special_tokens: bool,
    ) -> Result<Vec<u32>> {
        let encoding = guarded(|| library.encode_fast(text, adds_special_tokens));
        let failed =
            |reason| Cause::Encode { file: self.file.clone(), text: shortened(text), reason };
        Ok(encoding.map_err(failed)?.get_ids().to_vec())
    }

    /// The text of ids, without special tokens.
    ///
    /// Ids past the vocabulary are skipped too, as in transformers: models pad their tables (T5 has
    /// 32,128 rows for 32,100 pieces). A negative id is an error.
    pub fn decode(&self, ids: &[i64]) -> Result<String> {
        let text = self.decode_verbatim(ids)?;
        Ok(match self.spaces {
            Spaces::Keep => text,
            Spaces::CleanUp => clean_up_spaces(&text),
        })
    }

    /// As [`Tokenizer::decode`], with all spaces kept.
    pub fn decode_verbatim(&self, ids: &[i64]) -> Result<String> {
        let mut known = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            if id < 0 {
                Err(Cause::NegativeId { file: self.file.clone(), id, position })?;
            }
            known.extend(u32::try_from(id));
        }
        Ok(match self.target_engine() {
            Engine::Classic(classic) => classic.decode(&known),
            Engine::Library(library) => {
                let failed =
                    |reason| Cause::Decode { file: self.file.clone(), n_ids: ids.len(), reason };
                guarded(|| library.decode(&known, true)).map_err(failed)?
            }
        })
    }

    /// The number of pieces, special and added tokens included.
    pub fn vocab_size(&self) -> usize {
        match &self.engine {
            Engine::Library(library) => library.get_vocab_size(true),
            Engine::Classic(classic) => classic.len(),
        }
    }

    /// The minimum number of rows of a model's embedding table: the largest id plus one.
    pub fn required_vocab(&self) -> usize {
        self.source_vocab().max(self.target_vocab())
    }

    /// The minimum number of rows of the encoder's table, if source and target have separate
    /// `tokenizer.json`s.
    pub fn source_vocab(&self) -> usize {
        self.engine.required_vocab()
    }

    /// The minimum number of rows of the decoder's table, if source and target have separate
    /// `tokenizer.json`s.
    pub fn target_vocab(&self) -> usize {
        self.target_engine().required_vocab()
    }

    pub(crate) fn target_engine(&self) -> &Engine {
        self.target_engine.as_ref().unwrap_or(&self.engine)
    }

    /// The piece of an id in the target's vocabulary (`▁man`).
    pub fn piece(&self, id: i64) -> Option<String> {
        self.target_engine().piece(id)
    }

    /// The piece of an id in the source's vocabulary.
    pub fn source_piece(&self, id: i64) -> Option<String> {
        self.engine.piece(id)
    }

    /// The id of a piece or special token, spelt as in the vocabulary (`▁man`, `</s>`, `deu_Latn`).
    pub fn id(&self, piece: &str) -> Option<i64> {
        self.token_id(piece).map(i64::from)
    }

    /// The id of a piece or special token in the target's vocabulary.
    pub fn target_id(&self, piece: &str) -> Option<i64> {
        self.target_engine().token_id(piece, true).map(i64::from)
    }

    /// The word of `text`, between white space, that the token at a position of
    /// [`Tokenizer::encode`] belongs to; `None` for special tokens around the text.
    ///
    /// Fails like [`Tokenizer::encode`].
    pub fn source_word<'t>(&self, text: &'t str, position: usize) -> Result<Option<&'t str>> {
        let (ids, empty) = (self.encode(text)?, self.encode("").unwrap_or_default());
        let n_around =
            |ids: &[i64]| ids.iter().zip(&empty).take_while(|(one, other)| one == other).count();
        let n_after = ids
            .iter()
            .rev()
            .zip(empty.iter().rev())
            .take_while(|(one, other)| one == other)
            .count();
        if position < n_around(&ids) || position + n_after >= ids.len() {
            return Ok(None);
        }
        for (start, word) in text
            .split_whitespace()
            .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        {
            // Pieces do not cross spaces: the text up to a word has the first tokens of the whole.
            let part = self.encode(&text[..start + word.len()])?;
            if ids.iter().zip(&part).take_while(|(one, other)| one == other).count() > position {
                return Ok(Some(word));
            }
        }
        Ok(None)
    }

    pub(crate) fn token_id(&self, token: &str) -> Option<u32> {
        self.engine.token_id(token, false)
    }

    /// The pieces of the vocabulary for which `find` returns a result, with the results and ids.
    pub(crate) fn pieces_like(&self, find: impl Fn(&str) -> Option<String>) -> Vec<(String, u32)> {
        let found = |(piece, id): (&str, u32)| Some((find(piece)?, id));
        match &self.engine {
            Engine::Library(library) => library
                .get_vocab(true)
                .iter()
                .filter_map(|(piece, id)| found((piece, *id)))
                .collect(),
            Engine::Classic(classic) => classic.vocabulary().filter_map(found).collect(),
        }
    }
}

impl Engine {
    /// The id of a token, in a vocabulary file of the source or the target language.
    fn token_id(&self, token: &str, is_target: bool) -> Option<u32> {
        match self {
            Engine::Library(library) => library.token_to_id(token),
            Engine::Classic(classic) => classic.known_id(token, is_target),
        }
    }

    /// The largest id plus one.
    fn required_vocab(&self) -> usize {
        match self {
            Engine::Library(library) => {
                library.get_vocab(true).into_values().max().map_or(0, |id| id as usize + 1)
            }
            Engine::Classic(classic) => classic.largest_id() as usize + 1,
        }
    }

    fn piece(&self, id: i64) -> Option<String> {
        let id = u32::try_from(id).ok()?;
        match self {
            Engine::Library(library) => library.id_to_token(id),
            Engine::Classic(classic) => classic.piece(id).map(str::to_owned),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Tokenizer")
            .field("file", &self.file)
            .field("vocab_size", &self.vocab_size())
            .finish_non_exhaustive()
    }
}

/// The first 40 characters, for messages.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `clean_up_tokenization` of transformers: these replacements in this order.
fn clean_up_spaces(text: &str) -> String {
    let pairs = [
        (" .", "."),
        (" ?", "?"),
        (" !", "!"),
        (" ,", ","),
        (" ' ", "'"),
        (" n't", "n't"),
        (" 'm", "'m"),
        (" 's", "'s"),
        (" 've", "'ve"),
        (" 're", "'re"),
    ];
    pairs.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts: transformers 4.57.6, `PreTrainedTokenizerBase.clean_up_tokenization`.
    #[test]
    fn spaces_before_punctuation_go() {
        let text =
            "I do n't know , it 's the dogs ' ball . Is n't it ? We 've ! You 're , I 'm . . .";
        let clean = "I don't know, it's the dogs'ball. Isn't it? We've! You're, I'm...";
        assert_eq!(clean_up_spaces(text), clean);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened(&"ß".repeat(40)), "ß".repeat(40));
        assert_eq!(shortened(&"ß".repeat(41)), format!("{}...", "ß".repeat(40)));
    }
}
