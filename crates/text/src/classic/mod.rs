//! Tokenizers that transformers runs piece by piece in Python: BertGeneration, Marian, M2M100,
//! PLBart, Blenderbot-small, ByT5.
//!
//! Added tokens are matched first, the text between them is split into the family's subwords, and
//! every piece is looked up in the family's vocabulary.
//!
//! Source: transformers 4.57.6, `PreTrainedTokenizer`.

mod added;
mod bert_generation;
mod blenderbot_small;
mod byt5;
mod m2m100;
mod marian;
mod plbart;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use tokenizers::AddedToken;

use crate::error::{Cause, Result};
use crate::folder::settings::{self, Special, Specials};

use added::AddedTokens;

pub(crate) use bert_generation::BertGeneration;
pub(crate) use blenderbot_small::BlenderbotSmall;
pub(crate) use byt5::ByT5;
pub(crate) use m2m100::M2m100;
pub(crate) use marian::Marian;
pub(crate) use plbart::PlBart;

/// A family's splitting of text, and the ids of its pieces.
pub(crate) trait Subwords: Send + Sync {
    /// The pieces of a text without added tokens.
    fn cut(&self, text: &str) -> Vec<String>;
    /// The same for a text of the target language.
    fn cut_target(&self, text: &str) -> Vec<String> {
        self.cut(text)
    }
    /// The text of pieces.
    fn join(&self, pieces: &[&str]) -> String;
    /// The id of a piece; otherwise that of the unknown token.
    fn id(&self, piece: &str) -> u32;
    /// The id of a piece of the target language.
    fn target_id(&self, piece: &str) -> u32 {
        self.id(piece)
    }
    /// The piece of an id.
    fn piece(&self, id: u32) -> Option<&str>;
    /// The size of the vocabulary without added tokens.
    fn n_pieces(&self) -> usize {
        self.vocabulary().map_or(0, Vocabulary::len)
    }
    /// The vocabulary if it is a file; otherwise it is the pieces of the ids below
    /// [`Subwords::n_pieces`].
    fn vocabulary(&self) -> Option<&Vocabulary> {
        None
    }
    /// The largest id.
    fn largest_id(&self) -> u32 {
        self.vocabulary()
            .map_or_else(|| (self.n_pieces() as u32).saturating_sub(1), Vocabulary::largest_id)
    }
}

/// A tokenizer of added tokens and subwords.
pub(crate) struct Classic {
    subwords: Box<dyn Subwords>,
    added: AddedTokens,
    special: HashSet<String>,
    special_ids: HashSet<u32>,
    /// Tokens that decoding separates by spaces: added ones, and additional special ones past the
    /// vocabulary.
    apart: HashSet<String>,
}

impl Classic {
    /// A tokenizer with the folder's added tokens and its special tokens, which are added to the
    /// vocabulary if missing.
    pub(crate) fn new(
        subwords: Box<dyn Subwords>,
        added: &[(u32, AddedToken)],
        specials: &Specials,
    ) -> Self {
        let mut tokens: BTreeMap<u32, AddedToken> = added.iter().cloned().collect();
        let mut ids: HashMap<String, u32> =
            added.iter().map(|(id, token)| (token.content.clone(), *id)).collect();
        let mut vocabulary = match subwords.vocabulary() {
            Some(vocabulary) => vocabulary.ids.clone(),
            None => (0..subwords.n_pieces() as u32)
                .filter_map(|id| {
                    let piece = tokens
                        .get(&id)
                        .map(|token| token.content.as_str())
                        .or_else(|| subwords.piece(id));
                    Some((piece?.to_owned(), id))
                })
                .collect(),
        };
        vocabulary.extend(ids.clone());
        let mut next = vocabulary.len() as u32;
        for special in specials.unique() {
            let token = match special {
                Special::Text(text) if ids.contains_key(text) => continue,
                Special::Text(text) => AddedToken::from(text.clone(), true),
                Special::Token(token) => AddedToken { special: true, ..token.clone() },
            };
            if token.content.is_empty() {
                continue;
            }
            let id = *vocabulary.entry(token.content.clone()).or_insert_with(|| {
                next += 1;
                next - 1
            });
            ids.insert(token.content.clone(), id);
            tokens.insert(id, token);
        }
        let added = AddedTokens::new(tokens, ids);
        let special: HashSet<String> =
            specials.unique().into_iter().map(|special| special.text().to_owned()).collect();
        let id_of = |text: &str| added.id(text).unwrap_or_else(|| subwords.id(text));
        let special_ids = special.iter().map(|text| id_of(text)).collect();
        let past_the_vocabulary = |text: &&str| id_of(text) as usize >= subwords.n_pieces();
        let additional = specials.additional.iter().map(Special::text).filter(past_the_vocabulary);
        let apart = added
            .texts()
            .filter(|text| !special.contains(*text))
            .chain(additional)
            .map(str::to_owned)
            .collect();
        Self { subwords, added, special, special_ids, apart }
    }

    /// The ids of a text, without a template.
    pub(crate) fn encode(&self, text: &str) -> Vec<u32> {
        self.ids(text, |part| self.subwords.cut(part), |piece| self.subwords.id(piece))
    }

    /// The ids of a text of the target language, without a template.
    pub(crate) fn encode_target(&self, text: &str) -> Vec<u32> {
        self.ids(
            text,
            |part| self.subwords.cut_target(part),
            |piece| self.subwords.target_id(piece),
        )
    }

    fn ids(
        &self,
        text: &str,
        cut: impl Fn(&str) -> Vec<String>,
        id: impl Fn(&str) -> u32,
    ) -> Vec<u32> {
        let ids = self.added.split(text).into_iter().flat_map(|part| match self.added.id(&part) {
            Some(id) => vec![id],
            None => cut(&part)
                .iter()
                .map(|piece| self.added.id(piece).unwrap_or_else(|| id(piece)))
                .collect(),
        });
        ids.collect()
    }

    /// The text of ids, without special tokens.
    pub(crate) fn decode(&self, ids: &[u32]) -> String {
        let mut texts: Vec<String> = Vec::new();
        let mut pieces = Vec::new();
        for id in ids.iter().filter(|id| !self.special_ids.contains(id)) {
            let Some(piece) = self.piece(*id).filter(|piece| !self.special.contains(*piece)) else {
                continue;
            };
            if !self.apart.contains(piece) {
                pieces.push(piece);
                continue;
            }
            let before =
                if pieces.is_empty() { String::new() } else { self.subwords.join(&pieces) };
            pieces.clear();
            texts.extend([before, piece.to_owned()].into_iter().filter(|text| !text.is_empty()));
        }
        if !pieces.is_empty() {
            texts.push(self.subwords.join(&pieces));
        }
        texts.join(" ")
    }

    /// The id of a token; otherwise that of the unknown token.
    pub(crate) fn id(&self, token: &str) -> u32 {
        self.added.id(token).unwrap_or_else(|| self.subwords.id(token))
    }

    /// The id of a token of the source or the target language.
    pub(crate) fn known_id(&self, token: &str, is_target: bool) -> Option<u32> {
        let id = if is_target {
            self.added.id(token).unwrap_or_else(|| self.subwords.target_id(token))
        } else {
            self.id(token)
        };
        Some(id).filter(|id| self.piece(*id) == Some(token))
    }

    /// The token of an id.
    pub(crate) fn piece(&self, id: u32) -> Option<&str> {
        self.added.token(id).map(|token| token.content.as_str()).or_else(|| self.subwords.piece(id))
    }

    /// The pieces and ids of a vocabulary that is a file.
    pub(crate) fn vocabulary(&self) -> impl Iterator<Item = (&str, u32)> {
        self.subwords.vocabulary().into_iter().flat_map(Vocabulary::iter)
    }

    pub(crate) fn largest_id(&self) -> u32 {
        self.subwords.largest_id().max(self.added.largest_id())
    }

    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        let outside = |text: &&str| match self.subwords.vocabulary() {
            Some(vocabulary) => vocabulary.id(text).is_none(),
            None => self.added.id(text).is_some_and(|id| id as usize >= self.subwords.n_pieces()),
        };
        self.subwords.n_pieces() + self.added.texts().filter(outside).count()
    }
}

/// A `vocab.json`: pieces with their ids.
pub(crate) struct Vocabulary {
    ids: HashMap<String, u32>,
    pieces: HashMap<u32, String>,
    largest_id: u32,
}

impl Vocabulary {
    const EXPECTED: &str = "a vocabulary: an object of ids by piece";

    /// Reads the file. Fails unless every value is an id.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = path.display().to_string();
        let Some(object) = settings::read_object(path, Self::EXPECTED)? else {
            Err(Cause::MissingFile { file, expected: Self::EXPECTED })?
        };
        let (mut ids, mut pieces) =
            (HashMap::with_capacity(object.len()), HashMap::with_capacity(object.len()));
        for (piece, id) in object {
            let id = settings::id_of(&file, &piece, &id)?;
            pieces.insert(id, piece.clone());
            ids.insert(piece, id);
        }
        let largest_id = pieces.keys().copied().max().unwrap_or(0);
        Ok(Self { ids, pieces, largest_id })
    }

    pub(crate) fn id(&self, piece: &str) -> Option<u32> {
        self.ids.get(piece).copied()
    }

    /// The id of a required token.
    pub(crate) fn required(&self, file: &Path, token: &str) -> Result<u32> {
        let missing =
            || Cause::MissingToken { file: file.display().to_string(), token: token.to_owned() };
        Ok(self.id(token).ok_or_else(missing)?)
    }

    pub(crate) fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(&id).map(String::as_str)
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn largest_id(&self) -> u32 {
        self.largest_id
    }

    /// Every piece with its id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u32)> {
        self.ids.iter().map(|(piece, id)| (piece.as_str(), *id))
    }

    /// The ids by piece.
    pub(crate) fn into_ids(self) -> HashMap<String, u32> {
        self.ids
    }
}
