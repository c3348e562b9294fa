//! A subword tokenizer: text to ids and back.
//!
//! Hugging Face's `tokenizer.json` describes the whole way: normalizer, pre-tokenizer, model (unigram, BPE, ...),
//! template of special tokens, decoder. The `tokenizers` library runs it; the results are those of transformers'
//! `tokenizer(text).input_ids` and `tokenizer.decode(ids, skip_special_tokens=True)`.
//!
//! ids: `[src]` or `[tgt]`, i64, from 0 on.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::error::{Cause, Result};
use crate::tokenizer_file;

/// A tokenizer read from Hugging Face's `tokenizer.json`.
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
    inner: tokenizers::Tokenizer,
    file: String,
    spaces: Spaces,
}

/// What becomes of the spaces that a decoder leaves before English punctuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spaces {
    Keep,
    CleanUp,
}

impl Tokenizer {
    /// Reads one `tokenizer.json` of at most 256 MiB. Truncation and padding that the file asks for are dropped:
    /// they belong to the batch, and transformers resets them on every call too.
    ///
    /// Fails if the file cannot be read or is not a tokenizer, never panics.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = path.display().to_string();
        let json = tokenizer_file::read(path, tokenizer_file::TOKENIZER)?;
        tokenizer_file::check(&file, &json)?;
        let load = || {
            let mut inner = tokenizers::Tokenizer::from_bytes(&json)?;
            inner.with_padding(None).with_truncation(None)?;
            // Rules that contradict each other (a template without its tokens, a charsmap without nodes) panic on any
            // text, so they do here. An error is no verdict: `a` may have no piece.
            let _ = inner.encode_fast("a", true);
            Ok(inner)
        };
        let inner = guarded(load).map_err(|reason| Cause::Refused { file: file.clone(), reason })?;
        Ok(Self { inner, file, spaces: Spaces::Keep })
    }

    /// Reads `tokenizer.json` of a checkpoint's folder, and `clean_up_tokenization_spaces` of `tokenizer_config.json`
    /// if that file exists.
    ///
    /// Fails as [`Tokenizer::from_file`] does, and if `tokenizer_config.json` is not JSON.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref();
        let tokenizer = Self::from_file(folder.join("tokenizer.json"))?;
        let spaces = tokenizer_file::read_spaces(&folder.join("tokenizer_config.json"))?;
        Ok(Self { spaces, ..tokenizer })
    }

    /// The ids of a text, with the special tokens of the file's template (Marian: `</s>` at the end).
    ///
    /// A special token spelt out in the text becomes its id, as in transformers. Fails where the file's rules do,
    /// for example on a character outside a vocabulary without `<unk>`.
    pub fn encode(&self, text: &str) -> Result<Vec<i64>> {
        let encoding = guarded(|| self.inner.encode_fast(text, true)).map_err(|reason| {
            let text = shortened(text);
            Cause::Encode { file: self.file.clone(), text, reason }
        })?;
        Ok(encoding.get_ids().iter().map(|&id| i64::from(id)).collect())
    }

    /// The text of ids, special tokens left out.
    ///
    /// Ids past the vocabulary are left out too, as in transformers: models pad their tables (T5 has 32,128 rows for
    /// 32,100 pieces). A negative id fails.
    pub fn decode(&self, ids: &[i64]) -> Result<String> {
        let mut known = Vec::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            if id < 0 {
                Err(Cause::NegativeId { file: self.file.clone(), id, position })?;
            }
            known.extend(u32::try_from(id));
        }
        let text = guarded(|| self.inner.decode(&known, true)).map_err(|reason| Cause::Decode {
            file: self.file.clone(),
            n_ids: ids.len(),
            reason,
        })?;
        Ok(match self.spaces {
            Spaces::Keep => text,
            Spaces::CleanUp => clean_up_spaces(&text),
        })
    }

    /// The number of pieces, special and added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The piece of an id as the vocabulary spells it (`▁man`), if there is one.
    pub fn piece(&self, id: i64) -> Option<String> {
        self.inner.id_to_token(u32::try_from(id).ok()?)
    }

    /// The id of a piece or special token as the vocabulary spells it (`▁man`, `</s>`, `deu_Latn`), if there is one.
    pub fn id(&self, piece: &str) -> Option<i64> {
        self.inner.token_to_id(piece).map(i64::from)
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tokenizer").field("file", &self.file).field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

/// Runs the library and gives its errors, and its panics too, as text. What it shares between calls is a cache of
/// whole entries behind a lock that it only ever tries, so nothing half-done outlives a panic.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(payload) => Err(panic_message(payload.as_ref())),
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a message"))
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
        let text = "I do n't know , it 's the dogs ' ball . Is n't it ? We 've ! You 're , I 'm . . .";
        let clean = "I don't know, it's the dogs'ball. Isn't it? We've! You're, I'm...";
        assert_eq!(clean_up_spaces(text), clean);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened(&"ß".repeat(40)), "ß".repeat(40));
        assert_eq!(shortened(&"ß".repeat(41)), format!("{}...", "ß".repeat(40)));
    }

    #[test]
    fn a_panic_becomes_a_message() {
        let failure = guarded(|| -> tokenizers::Result<()> { panic!("at {}", 3) });
        assert_eq!(failure, Err("it panicked: at 3".to_owned()));
    }
}
