//! Marian: `source.spm` splits, `vocab.json` gives the ids, `target.spm` joins.
//!
//! `X </s>`; with several target languages a text begins with `>>deu<<`, which is one piece.
//!
//! Source: transformers 4.57.6, `MarianTokenizer`.

use std::path::Path;

use super::{Classic, Subwords, Vocabulary};
use crate::error::Result;
use crate::folder::settings::{Settings, Special, Specials};
use crate::sentencepiece::{SPACE, SentencePiece};
use crate::words::is_space;

pub(crate) struct Marian {
    source: SentencePiece,
    target: SentencePiece,
    vocabulary: Vocabulary,
    /// The target language's ids, if it has a separate vocabulary.
    target_vocabulary: Option<Vocabulary>,
    unk: u32,
    target_unk: u32,
}

impl Marian {
    /// Reads a folder; also returns the special tokens.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let defaults = [("unk_token", "<unk>"), ("eos_token", "</s>"), ("pad_token", "<pad>")];
        let specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
        let file = folder.join("vocab.json");
        let vocabulary = Vocabulary::read(&file)?;
        let unk = vocabulary.required(&file, specials.get("unk_token").unwrap_or("<unk>"))?;
        vocabulary.required(&file, specials.get("pad_token").unwrap_or("<pad>"))?;
        let separate = settings.flag("separate_vocabs")?.unwrap_or(false);
        let target_vocabulary =
            separate.then(|| Vocabulary::read(&folder.join("target_vocab.json"))).transpose()?;
        let source = SentencePiece::open(&folder.join("source.spm"))?;
        let target = SentencePiece::open(&folder.join("target.spm"))?;
        let in_target = target_vocabulary
            .as_ref()
            .and_then(|target| target.id(specials.get("unk_token").unwrap_or("<unk>")));
        let target_unk = in_target.unwrap_or(unk);
        let subwords = Self { source, target, vocabulary, target_vocabulary, unk, target_unk };
        Ok((Classic::new(Box::new(subwords), &settings.added, &specials), specials))
    }

    /// The language of a piece such as `>>deu<<`.
    pub(crate) fn language(piece: &str) -> Option<&str> {
        piece.strip_prefix(">>")?.strip_suffix("<<")
    }
}

impl Subwords for Marian {
    fn cut(&self, text: &str) -> Vec<String> {
        cut(&self.source, text)
    }

    fn cut_target(&self, text: &str) -> Vec<String> {
        cut(&self.target, text)
    }

    fn join(&self, pieces: &[&str]) -> String {
        let text = self.target.decode(pieces.iter().copied()).replace(SPACE, " ");
        text.trim_matches(is_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        self.vocabulary.id(piece).unwrap_or(self.unk)
    }

    fn target_id(&self, piece: &str) -> u32 {
        self.target_vocabulary
            .as_ref()
            .map_or_else(|| self.id(piece), |target| target.id(piece).unwrap_or(self.target_unk))
    }

    fn piece(&self, id: u32) -> Option<&str> {
        self.target_vocabulary.as_ref().unwrap_or(&self.vocabulary).piece(id)
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }

    fn largest_id(&self) -> u32 {
        let target = self.target_vocabulary.as_ref().map_or(0, Vocabulary::largest_id);
        self.vocabulary.largest_id().max(target)
    }
}

/// The pieces of a text, which may begin with a language's code.
fn cut(model: &SentencePiece, text: &str) -> Vec<String> {
    let end =
        text.starts_with(">>").then(|| text.find("<<")).flatten().map_or(0, |start| start + 2);
    let (code, text) = text.split_at(end);
    let mut pieces = model.encode(text);
    if !code.is_empty() {
        pieces.insert(0, code.to_owned());
    }
    pieces
}
