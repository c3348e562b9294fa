//! SentencePiece (Kudo and Richardson 2018): text to pieces and back.
//!
//! The results are those of PyPI's `sentencepiece` 0.2: `encode(text, out_type=str)` and
//! `decode(pieces)`. Ids are the model's, not a family's.

mod bpe;
mod charsmap;
mod normalizer;
mod proto;
mod rules;
mod trie;
mod unigram;

use std::collections::HashMap;
use std::path::Path;

use crate::error::{Cause, Result};
use crate::tokenizer_file;

use bpe::Bpe;
use normalizer::Normalizer;
use unigram::Unigram;

pub(crate) use normalizer::SPACE;
pub(crate) use proto::{Algorithm, Kind, Model, Piece};
pub(crate) use rules::compile;
pub(crate) use trie::Trie;

/// Reads the message of a model's file.
pub(crate) fn read(path: &Path) -> Result<Model> {
    let bytes = tokenizer_file::read(path, proto::SENTENCE_PIECE)?;
    let file = path.display().to_string();
    let model = Model::parse(&file, &bytes)?;
    if let Err(reason) = Normalizer::new(&model) {
        Err(Cause::BadCharsmap { file, reason })?;
    }
    Ok(model)
}

/// A model ready to encode and decode text.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    model: Model,
    ids: HashMap<String, u32>,
    unk: Option<u32>,
    normalizer: Normalizer,
    denormalizer: Option<Normalizer>,
    cutter: Cutter,
    first_spaces: FirstSpaces,
}

/// The treatment of leading spaces in decoded text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstSpaces {
    Keep,
    /// Removes the one that normalisation adds.
    TakeOne,
    TakeAll,
}

#[derive(Debug)]
enum Cutter {
    Unigram(Unigram),
    Bpe(Bpe),
}

/// A part of normalised text and its piece, if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut<'a> {
    text: &'a str,
    id: Option<u32>,
}

impl SentencePiece {
    /// Reads a model's file.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let bytes = tokenizer_file::read(path, proto::SENTENCE_PIECE)?;
        Self::from_bytes(&path.display().to_string(), &bytes)
    }

    /// Reads a model; `file` is its name in errors.
    pub(crate) fn from_bytes(file: &str, bytes: &[u8]) -> Result<Self> {
        let mut model = Model::parse(file, bytes)?;
        let bad = |reason| Cause::BadCharsmap { file: file.to_owned(), reason };
        let normalizer = Normalizer::new(&model).map_err(bad)?;
        let denormalizer = model.denormalizer.clone().filter(|rules| !rules.charsmap.is_empty());
        let denormalizer = denormalizer.map(Normalizer::of_rules).transpose().map_err(bad)?;
        let cutter = match model.algorithm() {
            Algorithm::Unigram => Cutter::Unigram(Unigram::new(&model)),
            Algorithm::Bpe => Cutter::Bpe(Bpe::new(&model)),
        };
        // A control symbol has precedence over a piece of the same spelling.
        let in_text =
            |wanted| move |(piece, _): &(&proto::Piece, u32)| piece.is_in_text() == wanted;
        let ids = model
            .pieces
            .iter()
            .zip(0..)
            .filter(in_text(true))
            .chain(model.pieces.iter().zip(0..).filter(in_text(false)));
        let ids = ids.map(|(piece, id)| (piece.text.clone(), id)).collect();
        let unk = model
            .pieces
            .iter()
            .zip(0..)
            .find(|(piece, _)| piece.is(Kind::Unknown))
            .map(|(_, id)| id);
        let rules = model.rules();
        let first_spaces = match (rules.remove_extra_whitespaces(), rules.add_dummy_prefix()) {
            (true, _) => FirstSpaces::TakeAll,
            (false, true) => FirstSpaces::TakeOne,
            (false, false) => FirstSpaces::Keep,
        };
        // Their character maps are unpacked.
        (model.normalizer, model.denormalizer) = (None, None);
        Ok(Self { ids, unk, normalizer, denormalizer, cutter, first_spaces, model })
    }

    /// The number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.model.pieces.len()
    }

    /// The piece of an id.
    pub(crate) fn piece(&self, id: u32) -> Option<&str> {
        self.model.pieces.get(id as usize).map(|piece| piece.text.as_str())
    }

    /// The id of a piece; that of the unknown piece for any other text, `None` if there is no
    /// unknown piece.
    pub(crate) fn id(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied().or(self.unk)
    }

    /// The pieces of a text. A run of characters without a piece becomes one piece, or pieces of
    /// its bytes (`<0xE6>`).
    pub(crate) fn encode(&self, text: &str) -> Vec<String> {
        let normalized = self.normalizer.normalize(text);
        let cuts = match &self.cutter {
            Cutter::Unigram(unigram) => unigram.cut(&normalized),
            Cutter::Bpe(bpe) => bpe.cut(&normalized, &self.normalizer),
        };
        let mut pieces: Vec<String> = Vec::with_capacity(cuts.len());
        let mut after_unknown = false;
        for cut in cuts {
            let unknown = cut.id.is_none();
            match pieces.last_mut() {
                _ if unknown && self.model.byte_fallback() => {
                    pieces.extend(cut.text.bytes().map(proto::piece_of))
                }
                Some(last) if unknown && after_unknown => last.push_str(cut.text),
                _ => pieces.push(cut.text.to_owned()),
            }
            after_unknown = unknown;
        }
        pieces
    }

    /// The text of pieces. Pieces outside the model are kept unchanged.
    pub(crate) fn decode<'a>(&self, pieces: impl IntoIterator<Item = &'a str>) -> String {
        let (mut text, mut bytes) = (String::new(), Vec::new());
        let mut at_start = true;
        for piece in pieces {
            let id = self.id(piece);
            let kind = id.map_or(Kind::Unknown, |id| self.model.pieces[id as usize].kind());
            if let (Kind::Byte, Some(byte)) = (kind, proto::byte_of(piece)) {
                bytes.push(byte);
                continue;
            }
            push_bytes(&mut text, &mut bytes);
            at_start &= text.is_empty();
            let stripped = piece
                .strip_prefix(SPACE)
                .filter(|_| at_start && self.first_spaces != FirstSpaces::Keep);
            match kind {
                Kind::Control => continue,
                Kind::Unknown if id.is_some_and(|id| self.piece(id) == Some(piece)) => {
                    text.push_str(self.model.unk_surface())
                }
                Kind::Unknown => text.push_str(piece),
                Kind::Normal | Kind::UserDefined | Kind::Unused | Kind::Byte => {
                    text.push_str(&stripped.unwrap_or(piece).replace(SPACE, " "));
                }
            }
            at_start &= text.is_empty()
                && (stripped.is_none() || self.first_spaces == FirstSpaces::TakeAll);
        }
        push_bytes(&mut text, &mut bytes);
        match &self.denormalizer {
            Some(denormalizer) => denormalizer.normalize(&text),
            None => text,
        }
    }
}

/// Appends bytes to the text; each invalid byte becomes U+FFFD.
fn push_bytes(text: &mut String, bytes: &mut Vec<u8>) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    bytes.clear();
}
