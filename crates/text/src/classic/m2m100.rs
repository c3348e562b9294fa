//! M2M100: `sentencepiece.bpe.model` splits and joins, `vocab.json` gives the ids; the languages'
//! ids follow.
//!
//! `__en__ X </s>`
//!
//! Source: transformers 4.57.6, `M2M100Tokenizer`.

use std::path::Path;

use serde_json::Value;

use super::{Classic, Subwords, Vocabulary};
use crate::codes;
use crate::error::Result;
use crate::folder::settings::{Settings, Special, Specials};
use crate::sentencepiece::SentencePiece;
use crate::words::is_space;

pub(crate) struct M2m100 {
    sentence_piece: SentencePiece,
    vocabulary: Vocabulary,
    /// The languages' tokens; their ids begin at the vocabulary's size.
    languages: Vec<String>,
    unk: u32,
}

impl M2m100 {
    /// Reads a folder; also returns the special tokens.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let codes = Self::codes(settings)?;
        let defaults = [
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("sep_token", "</s>"),
            ("pad_token", "<pad>"),
            ("unk_token", "<unk>"),
        ];
        let specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
        let file = folder.join("vocab.json");
        let vocabulary = Vocabulary::read(&file)?;
        let unk = vocabulary.required(&file, specials.get("unk_token").unwrap_or("<unk>"))?;
        let sentence_piece = SentencePiece::open(&folder.join("sentencepiece.bpe.model"))?;
        let languages = codes.iter().map(|code| Self::token(code)).collect();
        let subwords = Self { sentence_piece, vocabulary, languages, unk };
        Ok((Classic::new(Box::new(subwords), &settings.added, &specials), specials))
    }

    pub(crate) fn codes(settings: &Settings) -> Result<&'static [&'static str]> {
        match settings.text("language_codes")? {
            None | Some("m2m100") => Ok(codes::M2M100),
            Some("wmt21") => Ok(codes::WMT21),
            Some(other) => {
                Err(settings.wrong("language_codes", &Value::from(other), "m2m100 or wmt21"))?
            }
        }
    }

    /// The token of a language.
    pub(crate) fn token(code: &str) -> String {
        format!("__{code}__")
    }
}

impl Subwords for M2m100 {
    fn cut(&self, text: &str) -> Vec<String> {
        self.sentence_piece.encode(text)
    }

    fn join(&self, pieces: &[&str]) -> String {
        self.sentence_piece.decode(pieces.iter().copied()).trim_matches(is_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        match self.languages.iter().rposition(|language| language == piece) {
            Some(index) => (self.vocabulary.len() + index) as u32,
            None => self.vocabulary.id(piece).unwrap_or(self.unk),
        }
    }

    fn piece(&self, id: u32) -> Option<&str> {
        let language = (id as usize)
            .checked_sub(self.vocabulary.len())
            .and_then(|index| self.languages.get(index));
        language.map(String::as_str).or_else(|| self.vocabulary.piece(id))
    }

    fn n_pieces(&self) -> usize {
        self.vocabulary.len()
    }

    fn largest_id(&self) -> u32 {
        self.vocabulary
            .largest_id()
            .max((self.vocabulary.len() + self.languages.len()).saturating_sub(1) as u32)
    }
}
