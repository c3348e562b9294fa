//! PLBart: `sentencepiece.bpe.model` splits, its ids are shifted by one, the languages' ids follow.
//!
//! `X </s> __java__`
//!
//! Source: transformers 4.57.6, `PLBartTokenizer`.

use std::path::Path;

use serde_json::Value;
use tokenizers::AddedToken;

use super::{Classic, M2m100, Subwords};
use crate::codes;
use crate::error::Result;
use crate::folder::settings::{BART_SPECIALS, Settings, Special, Specials};
use crate::sentencepiece::{SPACE, SentencePiece};
use crate::words::is_space;

/// fairseq's first tokens; the model's own first three are `<unk> <s> </s>`.
const FIRST: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];
/// The offset of fairseq's ids from the model's.
const OFFSET: usize = 1;

pub(crate) struct PlBart {
    sentence_piece: SentencePiece,
    /// The tokens after the model's pieces: languages, and `<mask>` in the base vocabulary.
    last: Vec<String>,
    unk: u32,
}

impl PlBart {
    /// Reads a folder; also returns the special tokens.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let codes = Self::codes(settings)?;
        let languages: Vec<String> = codes.iter().map(|code| M2m100::token(code)).collect();
        let mut specials = settings.specials(&BART_SPECIALS, |name, text| match name {
            "mask_token" => Special::Token(AddedToken::from(text, false).lstrip(true)),
            _ => Special::Text(text),
        })?;
        let others = std::mem::take(&mut specials.additional);
        specials.additional = languages.iter().cloned().map(Special::Text).collect();
        let new: Vec<Special> =
            others.into_iter().filter(|other| !specials.additional.contains(other)).collect();
        specials.additional.extend(new);
        let mut last = languages;
        if codes.len() == codes::PLBART_BASE.len() {
            last.push("<mask>".to_owned());
        }
        let sentence_piece = SentencePiece::open(&folder.join("sentencepiece.bpe.model"))?;
        let mut subwords = Self { sentence_piece, last, unk: 3 };
        let unk = specials.get("unk_token").unwrap_or("<unk>");
        let added =
            settings.added.iter().find(|(_, token)| token.content == unk).map(|(id, _)| *id);
        subwords.unk = added.unwrap_or_else(|| subwords.id(unk));
        Ok((Classic::new(Box::new(subwords), &settings.added, &specials), specials))
    }

    pub(crate) fn codes(settings: &Settings) -> Result<&'static [&'static str]> {
        match settings.text("language_codes")? {
            None | Some("base") => Ok(codes::PLBART_BASE),
            Some("multi") => Ok(codes::PLBART),
            Some(other) => {
                Err(settings.wrong("language_codes", &Value::from(other), "base or multi"))?
            }
        }
    }
}

impl Subwords for PlBart {
    fn cut(&self, text: &str) -> Vec<String> {
        self.sentence_piece.encode(text)
    }

    fn join(&self, pieces: &[&str]) -> String {
        pieces.concat().replace(SPACE, " ").trim_matches(is_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        if let Some(index) = self.last.iter().position(|last| last == piece) {
            return (self.sentence_piece.len() + OFFSET + index) as u32;
        }
        if let Some(index) = FIRST.iter().position(|first| *first == piece) {
            return index as u32;
        }
        match self.sentence_piece.id(piece) {
            None | Some(0) => self.unk,
            Some(id) => id + OFFSET as u32,
        }
    }

    fn piece(&self, id: u32) -> Option<&str> {
        let id = id as usize;
        if let Some(first) = FIRST.get(id) {
            return Some(first);
        }
        match id.checked_sub(self.sentence_piece.len() + OFFSET) {
            Some(index) => self.last.get(index).map(String::as_str),
            None => self.sentence_piece.piece((id - OFFSET) as u32),
        }
    }

    fn n_pieces(&self) -> usize {
        self.sentence_piece.len() + OFFSET + self.last.len()
    }
}
