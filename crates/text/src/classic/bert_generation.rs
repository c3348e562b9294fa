//! BertGeneration: `spiece.model` splits and joins, and gives the ids; texts get no other token.
//!
//! `X`
//!
//! Source: transformers 4.57.6, `BertGenerationTokenizer`.

use std::path::Path;

use super::{Classic, Subwords};
use crate::error::Result;
use crate::folder::settings::{Settings, Special, Specials};
use crate::sentencepiece::SentencePiece;
use crate::words::is_space;

pub(crate) struct BertGeneration {
    sentence_piece: SentencePiece,
}

impl BertGeneration {
    /// Reads a folder; also returns the special tokens.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let defaults = [
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("sep_token", "<::::>"),
        ];
        let specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
        let sentence_piece = SentencePiece::open(&folder.join("spiece.model"))?;
        let subwords = Box::new(Self { sentence_piece });
        Ok((Classic::new(subwords, &settings.added, &specials), specials))
    }
}

impl Subwords for BertGeneration {
    fn cut(&self, text: &str) -> Vec<String> {
        self.sentence_piece.encode(text)
    }

    fn join(&self, pieces: &[&str]) -> String {
        self.sentence_piece.decode(pieces.iter().copied()).trim_matches(is_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        self.sentence_piece.id(piece).unwrap_or_default()
    }

    fn piece(&self, id: u32) -> Option<&str> {
        self.sentence_piece.piece(id)
    }

    fn n_pieces(&self) -> usize {
        self.sentence_piece.len()
    }
}
