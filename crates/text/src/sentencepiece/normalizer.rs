//! SentencePiece's normalisation of text.
//!
//! It applies the character map, merges spaces, writes them as `▁`, and adds one `▁` in front.
//! User-defined symbols are unchanged.

use super::charsmap::Charsmap;
use super::proto::{Kind, Model, Rules};
use super::trie::Trie;

/// The space of pieces.
pub(crate) const SPACE: char = '▁';

#[derive(Debug)]
pub(crate) struct Normalizer {
    charsmap: Option<Charsmap>,
    user_defined: Trie,
    rules: Rules,
    whitespace_is_suffix: bool,
}

impl Normalizer {
    /// The normalizer of a model; the error is the reason why its character map is invalid.
    pub(crate) fn new(model: &Model) -> Result<Self, String> {
        let user_defined =
            model.pieces.iter().zip(0..).filter(|(piece, _)| piece.is(Kind::UserDefined));
        Ok(Self {
            user_defined: Trie::new(user_defined.map(|(piece, id)| (piece.text.as_str(), id))),
            whitespace_is_suffix: model.whitespace_is_suffix(),
            ..Self::of_rules(model.rules())?
        })
    }

    /// A normalizer without user-defined symbols: a denormalizer.
    pub(crate) fn of_rules(mut rules: Rules) -> Result<Self, String> {
        let charsmap = std::mem::take(&mut rules.charsmap);
        let charsmap = if charsmap.is_empty() { None } else { Some(Charsmap::parse(&charsmap)?) };
        Ok(Self { charsmap, user_defined: Trie::default(), rules, whitespace_is_suffix: false })
    }

    /// The user-defined symbols, which are never split.
    pub(crate) fn user_defined(&self) -> &Trie {
        &self.user_defined
    }

    pub(crate) fn normalize(&self, mut text: &str) -> String {
        let remove = self.rules.remove_extra_whitespaces();
        while remove && !text.is_empty() {
            let (replacement, length) = self.first(text);
            if replacement != " " {
                break;
            }
            text = &text[length..];
        }
        if text.is_empty() {
            return String::new();
        }
        let space = if self.rules.escape_whitespaces() { SPACE } else { ' ' };
        let mut normalized = String::with_capacity(text.len() + text.len() / 2);
        if !self.whitespace_is_suffix && self.rules.add_dummy_prefix() {
            normalized.push(space);
        }
        let mut after_space = remove;
        while !text.is_empty() {
            let (replacement, length) = self.first(text);
            let replacement =
                if after_space { replacement.trim_start_matches(' ') } else { replacement };
            normalized
                .extend(replacement.chars().map(|char| if char == ' ' { space } else { char }));
            if !replacement.is_empty() {
                after_space = replacement.ends_with(' ');
            }
            after_space &= remove;
            text = &text[length..];
        }
        if remove {
            normalized.truncate(normalized.trim_end_matches(space).len());
        }
        if self.whitespace_is_suffix && self.rules.add_dummy_prefix() {
            normalized.push(space);
        }
        normalized
    }

    /// The replacement of the text's first part, and that part's length in bytes.
    fn first<'a>(&'a self, text: &'a str) -> (&'a str, usize) {
        if let Some(length) = self.user_defined.longest(text.as_bytes()) {
            return (&text[..length], length);
        }
        self.charsmap.as_ref().and_then(|charsmap| charsmap.replace(text)).unwrap_or_else(|| {
            let length = text.chars().next().map_or(0, char::len_utf8);
            (&text[..length], length)
        })
    }
}
