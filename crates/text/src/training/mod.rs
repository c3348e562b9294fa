//! Training of tokenizers: unigram (Kudo 2018) or BPE (Sennrich et al. 2016).
//!
//! text -> words (NMT's rules, NFKC, single spaces; `▁` before each word) -> pieces ->
//! `tokenizer.json`
//!
//! The trainers are those of the `tokenizers` library. It counts in hash maps and sums in parallel,
//! so its results vary; here words are sorted, one thread computes the sums, and ties are broken by
//! the pieces. The same text and settings give the same bytes.

mod bpe;
mod files;
mod unigram;
mod words;

use std::path::Path;

use crate::error::{Cause, Result};
use crate::library::guarded;
use crate::tokenizer::Tokenizer;
use crate::tokenizer_file::TARGET_TOKENIZER;

use files::SPECIAL;
use words::Words;

/// The maximum number of characters of a training text: the library counts in 31 bits.
const MAX_CHARACTERS: u64 = i32::MAX as u64;

/// The algorithm of a trained tokenizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// A unigram language model, pruned from all frequent substrings (Kudo 2018).
    Unigram,
    /// Byte pair encoding: the most frequent pairs are merged first (Sennrich et al. 2016).
    Bpe,
}

/// The settings of a tokenizer's training.
///
/// ```
/// use cognate_text::{TokenizerTrainer, TrainingSettings};
///
/// # fn main() -> cognate_text::Result<()> {
/// let mut trainer = TokenizerTrainer::new(TrainingSettings { vocab_size: 30, ..Default::default() })?;
/// for line in ["a man and a woman", "a woman and a dog"] {
///     trainer.add(line)?;
/// }
/// let trained = trainer.train()?;
/// let tokenizer = trained.tokenizer();
/// let ids = tokenizer.encode("a man")?;
/// assert_eq!(ids.last(), Some(&0), "</s>");
/// assert_eq!(tokenizer.decode(&ids)?, "a man");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingSettings {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Maximum number of pieces, special tokens included. A small text can have fewer.
    pub vocab_size: usize,
    /// The share of the text's characters that have pieces, in (0, 1]; the rarest ones become
    /// `<unk>`. The default leaves out one character in 100,000: stray characters of web text, but
    /// no alphabet.
    pub coverage: f64,
    /// Special tokens besides `</s>`, `<unk>` and `<pad>`, which are never split; their ids follow
    /// those.
    pub additional_special_tokens: Vec<String>,
}

impl Default for TrainingSettings {
    fn default() -> Self {
        Self {
            algorithm: Algorithm::Unigram,
            vocab_size: 8_000,
            coverage: 0.99999,
            additional_special_tokens: Vec::new(),
        }
    }
}

impl TrainingSettings {
    /// All special tokens in the order of their ids.
    fn special_tokens(&self) -> Vec<String> {
        SPECIAL
            .iter()
            .map(|token| (*token).to_owned())
            .chain(self.additional_special_tokens.iter().cloned())
            .collect()
    }

    fn check(&self) -> Result<()> {
        let wrong = |name: &'static str, found: String, expected: &'static str| {
            Err(Cause::BadTraining { name, found, expected }.into())
        };
        if !(self.coverage > 0.0 && self.coverage <= 1.0) {
            return wrong("coverage", self.coverage.to_string(), "a share above 0 and at most 1");
        }
        if u32::try_from(self.vocab_size).is_err() {
            return wrong("vocab_size", self.vocab_size.to_string(), "at most 4294967295");
        }
        for (index, token) in self.additional_special_tokens.iter().enumerate() {
            let before = &self.additional_special_tokens[..index];
            if token.trim().is_empty()
                || SPECIAL.contains(&token.as_str())
                || before.contains(token)
            {
                return wrong(
                    "additional_special_tokens",
                    format!("{token:?}"),
                    "tokens that are not empty and differ from all others",
                );
            }
        }
        Ok(())
    }
}

/// Counts the words of a text, then trains. Memory grows with the number of distinct words, not
/// with the text.
#[derive(Debug)]
pub struct TokenizerTrainer {
    settings: TrainingSettings,
    words: Words,
}

impl TokenizerTrainer {
    /// A trainer without text.
    ///
    /// Fails if a setting is invalid.
    pub fn new(settings: TrainingSettings) -> Result<Self> {
        settings.check()?;
        let words = Words::new(settings.special_tokens())?;
        Ok(Self { settings, words })
    }

    /// Counts the words of a line.
    ///
    /// Fails if the text has more than 2,147,483,647 characters.
    pub fn add(&mut self, line: &str) -> Result<()> {
        self.words.add(line)?;
        if self.words.n_characters() > MAX_CHARACTERS {
            Err(Cause::MuchText { limit: MAX_CHARACTERS })?;
        }
        Ok(())
    }

    /// Trains on the lines added.
    ///
    /// Fails if there is no text, or if it has more distinct characters than `vocab_size`.
    pub fn train(self) -> Result<TrainedTokenizer> {
        let special = self.settings.special_tokens();
        let (words, alphabet) = self.words.covered(self.settings.coverage);
        if words.is_empty() {
            Err(Cause::NoText)?;
        }
        let needed = alphabet.len() + special.len();
        if self.settings.vocab_size <= needed {
            let (n_characters, n_special) = (alphabet.len(), special.len());
            Err(Cause::SmallVocabulary {
                vocab_size: self.settings.vocab_size,
                n_characters,
                n_special,
                needed: needed + 1,
            })?;
        }
        let vocab_size = self.settings.vocab_size as u32;
        let train = || match self.settings.algorithm {
            Algorithm::Unigram => unigram::train(words, &special, vocab_size),
            Algorithm::Bpe => guarded(|| bpe::train(&words, &special, vocab_size)),
        };
        // One thread: sums have one order.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let failed = |reason: String| Cause::Training { reason };
        let model =
            pool.map_err(|error| failed(error.to_string()))?.install(train).map_err(failed)?;
        TrainedTokenizer::assemble(&special, model)
    }
}

/// A trained tokenizer.
#[derive(Clone, Debug)]
pub struct TrainedTokenizer {
    json: String,
    special: Vec<String>,
    tokenizer: Tokenizer,
}

impl TrainedTokenizer {
    fn assemble(special: &[String], model: serde_json::Value) -> Result<Self> {
        let json = files::tokenizer(special, model).map_err(|reason| Cause::Training { reason })?;
        let tokenizer = Tokenizer::from_json(json.as_bytes(), "the trained tokenizer.json")?;
        Ok(Self { json, special: special.to_vec(), tokenizer })
    }

    /// The tokenizer; it is the same as one read from the saved files.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The text of `tokenizer.json`.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The names and texts of the files that transformers' `AutoTokenizer` and
    /// [`Tokenizer::from_folder`] read: `tokenizer.json`, `tokenizer_config.json`,
    /// `special_tokens_map.json`. `max_length` is the model's maximum input length in tokens.
    ///
    /// A separate `target` tokenizer becomes `target_tokenizer.json`. transformers has no class for
    /// two vocabularies in this form; `PreTrainedTokenizerFast(tokenizer_file=...)` reads each.
    pub fn files(
        &self,
        target: Option<&TrainedTokenizer>,
        max_length: usize,
    ) -> Vec<(&'static str, String)> {
        let mut files = vec![
            ("tokenizer.json", self.json.clone()),
            ("tokenizer_config.json", files::config(&self.special, max_length)),
            ("special_tokens_map.json", files::special_tokens_map(&self.special)),
        ];
        files.extend(target.map(|target| (TARGET_TOKENIZER, target.json.clone())));
        files
    }

    /// Writes [`TrainedTokenizer::files`] into an existing folder.
    ///
    /// Fails if a file cannot be written.
    pub fn save(
        &self,
        folder: impl AsRef<Path>,
        target: Option<&TrainedTokenizer>,
        max_length: usize,
    ) -> Result<()> {
        for (name, text) in self.files(target, max_length) {
            let path = folder.as_ref().join(name);
            let unwritable = |error: std::io::Error| Cause::Unwritable {
                file: path.display().to_string(),
                reason: error.to_string(),
            };
            std::fs::write(&path, text).map_err(unwritable)?;
        }
        Ok(())
    }
}
