//! The protobuf message of a SentencePiece model: the fields that affect pieces, ids or text.
//!
//! Source: `sentencepiece_model.proto`, SentencePiece 0.2; field numbers and defaults are that
//! file's.

use std::collections::HashSet;

use prost::Message;

use crate::error::{Cause, Result};

/// The maximum number of pieces. The largest models in use have 256,000.
const MAX_PIECES: usize = 1 << 20;
/// The maximum length of a piece in bytes, exclusive.
const MAX_PIECE_BYTES: usize = 8000;

pub(crate) const SENTENCE_PIECE: &str = "a SentencePiece model";

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    #[prost(message, repeated, tag = "1")]
    pub(crate) pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    pub(crate) normalizer: Option<Rules>,
    #[prost(message, optional, tag = "5")]
    pub(crate) denormalizer: Option<Rules>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Piece {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
    #[prost(float, tag = "2")]
    pub(crate) score: f32,
    #[prost(enumeration = "Kind", tag = "3", default = "Normal")]
    pub(crate) kind: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, optional, tag = "24")]
    whitespace_as_suffix: Option<bool>,
    #[prost(bool, optional, tag = "35")]
    byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "40")]
    unk_id: Option<i32>,
    #[prost(string, optional, tag = "44")]
    unk_surface: Option<String>,
    #[prost(string, optional, tag = "45")]
    unk_piece: Option<String>,
}

/// Normalisation of text before splitting, or after joining.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rules {
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) charsmap: Vec<u8>,
    #[prost(bool, optional, tag = "3", default = "true")]
    pub(crate) add_dummy_prefix: Option<bool>,
    #[prost(bool, optional, tag = "4", default = "true")]
    pub(crate) remove_extra_whitespaces: Option<bool>,
    #[prost(bool, optional, tag = "5", default = "true")]
    pub(crate) escape_whitespaces: Option<bool>,
}

/// The algorithm that splits text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Unigram,
    Bpe,
}

impl Piece {
    pub(crate) fn new(text: String, score: f32, kind: Kind) -> Self {
        Self { text, score, kind: kind.into() }
    }

    pub(crate) fn is(&self, kind: Kind) -> bool {
        self.kind() == kind
    }

    /// Whether text can contain this piece.
    pub(crate) fn is_in_text(&self) -> bool {
        match self.kind() {
            Kind::Normal | Kind::UserDefined | Kind::Unused => true,
            Kind::Unknown | Kind::Control | Kind::Byte => false,
        }
    }
}

impl Model {
    /// A unigram model with one space before each text; `removes_spaces` makes all other spaces
    /// single.
    pub(crate) fn unigram(pieces: Vec<Piece>, charsmap: Vec<u8>, removes_spaces: bool) -> Self {
        let rules = Rules {
            charsmap,
            add_dummy_prefix: Some(true),
            remove_extra_whitespaces: Some(removes_spaces),
            escape_whitespaces: Some(true),
        };
        let trainer = Trainer { model_type: Some(1), ..Trainer::default() };
        Self { pieces, trainer: Some(trainer), normalizer: Some(rules), denormalizer: None }
    }

    /// Reads and checks the bytes of `file`.
    ///
    /// Fails on anything except a unigram or BPE model that SentencePiece itself would load.
    pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Self> {
        let refuse = |reason: String| Cause::NotSentencePiece { file: file.to_owned(), reason };
        if bytes.starts_with(b"version https://git-lfs.") {
            Err(Cause::LfsPointer { file: file.to_owned() })?;
        }
        let n_pieces = count_pieces(bytes);
        if n_pieces > MAX_PIECES {
            Err(refuse(format!("it has {n_pieces} pieces, expected at most {MAX_PIECES}")))?;
        }
        let model = Model::decode(bytes).map_err(|error| refuse(error.to_string()))?;
        model.check().map_err(refuse)?;
        Ok(model)
    }

    /// The algorithm; [`Model::parse`] has rejected all others.
    pub(crate) fn algorithm(&self) -> Algorithm {
        match self.trainer().model_type {
            Some(2) => Algorithm::Bpe,
            _ => Algorithm::Unigram,
        }
    }

    pub(crate) fn byte_fallback(&self) -> bool {
        self.trainer().byte_fallback()
    }

    pub(crate) fn whitespace_is_suffix(&self) -> bool {
        self.trainer().whitespace_as_suffix()
    }

    /// The text of the unknown piece in decoded text.
    pub(crate) fn unk_surface(&self) -> &str {
        self.trainer
            .as_ref()
            .and_then(|trainer| trainer.unk_surface.as_deref())
            .unwrap_or(" \u{2047} ")
    }

    /// The trainer's id of the unknown piece.
    pub(crate) fn trained_unk_id(&self) -> i32 {
        self.trainer().unk_id()
    }

    /// The trainer's name of the unknown piece.
    pub(crate) fn trained_unk_piece(&self) -> String {
        self.trainer()
            .unk_piece
            .filter(|piece| !piece.is_empty())
            .unwrap_or_else(|| "<unk>".to_owned())
    }

    pub(crate) fn rules(&self) -> Rules {
        self.normalizer.clone().unwrap_or_default()
    }

    fn trainer(&self) -> Trainer {
        self.trainer.clone().unwrap_or_default()
    }

    fn check(&self) -> Result<(), String> {
        match self.trainer().model_type {
            None | Some(1 | 2) => {}
            Some(3) => return Err("it is a word model, expected a unigram or BPE model".to_owned()),
            Some(4) => {
                return Err("it is a character model, expected a unigram or BPE model".to_owned());
            }
            Some(other) => {
                return Err(format!("its model_type is {other}, expected 1 (unigram) or 2 (BPE)"));
            }
        }
        if self.pieces.is_empty() {
            return Err("it has no pieces".to_owned());
        }
        // The unknown piece of a unigram model can have the same spelling as another piece.
        let mut seen = HashSet::new();
        let mut bytes = [false; 256];
        let mut unk = None;
        for (id, piece) in self.pieces.iter().enumerate() {
            let text = piece.text.as_str();
            if text.is_empty() {
                return Err(format!("piece {id} is empty"));
            }
            if text == "\0" && piece.is(Kind::Unused) {
                continue;
            }
            if text.len() >= MAX_PIECE_BYTES {
                return Err(format!(
                    "piece {id} has {} bytes, expected fewer than {MAX_PIECE_BYTES}",
                    text.len()
                ));
            }
            if text.contains('\0') {
                return Err(format!("piece {id} contains NUL"));
            }
            if !piece.score.is_finite() {
                return Err(format!("piece {id} ({text:?}): its score is {}", piece.score));
            }
            if !seen.insert((text, self.algorithm() == Algorithm::Unigram && piece.is_in_text())) {
                return Err(format!("piece {id} ({text:?}) occurs twice"));
            }
            if piece.is(Kind::Unknown)
                && let Some(first) = unk.replace(id)
            {
                return Err(format!("pieces {first} and {id} are both the unknown piece"));
            }
            if piece.is(Kind::Byte) {
                let byte = byte_of(text).ok_or_else(|| {
                    format!("piece {id} ({text:?}) is not a byte, expected <0x00> to <0xFF>")
                })?;
                bytes[usize::from(byte)] = true;
            }
        }
        let n_bytes = bytes.iter().filter(|found| **found).count();
        match (self.byte_fallback(), n_bytes, unk) {
            (true, 256, _) | (false, 0, Some(_)) => Ok(()),
            (true, _, _) => {
                Err(format!("it falls back to bytes but has {n_bytes} byte pieces, expected 256"))
            }
            (false, 0, None) => Err("it has no unknown piece".to_owned()),
            (false, _, _) => Err("it has byte pieces but does not fall back to bytes".to_owned()),
        }
    }
}

/// The byte of a piece such as `<0x0A>`.
pub(crate) fn byte_of(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    let upper =
        digits.len() == 2 && digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'A'..=b'F'));
    if upper { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// The piece of a byte: `<0x0A>`.
pub(crate) fn piece_of(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// An upper bound on the pieces of an encoded model, without allocating: two bytes of a file can
/// become a piece of a hundred bytes of memory. Counting ends at invalid encoding, which decoding
/// reports.
fn count_pieces(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(tag) = varint(&mut bytes) {
        count += usize::from(tag >> 3 == 1);
        let skip = match tag & 7 {
            0 => varint(&mut bytes).map(|_| 0),
            1 => Some(8),
            2 => varint(&mut bytes),
            5 => Some(4),
            _ => Some(0),
        };
        let skipped = skip
            .and_then(|skip| usize::try_from(skip).ok())
            .and_then(|skip| bytes.split_at_checked(skip));
        let Some((_, rest)) = skipped else { break };
        bytes = rest;
    }
    count
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_their_pieces_meet() {
        for byte in 0..=u8::MAX {
            assert_eq!(byte_of(&piece_of(byte)), Some(byte));
        }
        for piece in ["<0x0a>", "<0x+A>", "<0xA>", "<0x0A", "0x0A", ""] {
            assert_eq!(byte_of(piece), None, "{piece:?}");
        }
    }
}
