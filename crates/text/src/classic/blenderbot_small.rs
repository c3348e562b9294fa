//! Blenderbot-small: lower case, words cut by `merges.txt`, `@@` after every piece but a word's last.
//!
//! `X`, without special tokens.
//!
//! Source: transformers 4.57.6, `BlenderbotSmallTokenizer`. Where a folder names that class, transformers' automatic
//! choice is a byte-level tokenizer that cannot read these merges; this is the one that works.

use std::collections::HashMap;
use std::path::Path;

use super::{Classic, Subwords, Vocabulary, is_python_space};
use crate::error::Result;
use crate::folder::merges::{self, OddLines};
use crate::folder::settings::{Settings, Special, Specials};

const END_OF_WORD: &str = "</w>";

pub(crate) struct BlenderbotSmall {
    vocabulary: Vocabulary,
    ranks: HashMap<(String, String), usize>,
    unk: u32,
}

impl BlenderbotSmall {
    /// Reads a folder; gives the special tokens too.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let defaults = [("bos_token", "__start__"), ("eos_token", "__end__"), ("unk_token", "__unk__"), ("pad_token", "__null__")];
        let specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
        let file = folder.join("vocab.json");
        let vocabulary = Vocabulary::read(&file)?;
        let unk = vocabulary.required(&file, specials.get("unk_token").unwrap_or("__unk__"))?;
        let merges = merges::read(&folder.join("merges.txt"), OddLines::Skip)?;
        let ranks = merges.into_iter().zip(0..).collect();
        let subwords = Self { vocabulary, ranks, unk };
        Ok((Classic::new(Box::new(subwords), &settings.added, &specials), specials))
    }

    /// The pieces of a word in lower case.
    fn cut_word(&self, word: &str) -> Vec<String> {
        let mut pieces: Vec<String> = word.chars().map(String::from).collect();
        if pieces.len() < 2 {
            return pieces;
        }
        pieces.last_mut().expect("there are two").push_str(END_OF_WORD);
        let rank = |pair: &[String]| self.ranks.get(&(pair[0].clone(), pair[1].clone())).copied();
        while let Some(best) = pieces.windows(2).filter_map(rank).min() {
            let mut merged: Vec<String> = Vec::with_capacity(pieces.len());
            let mut rest = pieces.as_slice();
            while let [first, tail @ ..] = rest {
                let merges = rest.len() > 1 && rank(&rest[..2]) == Some(best);
                merged.push(if merges { first.clone() + &tail[0] } else { first.clone() });
                rest = if merges { &tail[1..] } else { tail };
            }
            pieces = merged;
        }
        let (last, others) = pieces.split_last_mut().expect("a word keeps a piece");
        last.truncate(last.len() - END_OF_WORD.len());
        others.iter_mut().for_each(|piece| piece.push_str("@@"));
        pieces
    }
}

impl Subwords for BlenderbotSmall {
    fn cut(&self, text: &str) -> Vec<String> {
        let mut pieces = Vec::new();
        for token in tokens(text) {
            let spaced = spaced(&token).replace('\n', " __newln__");
            for word in spaced.split(' ').filter(|word| !word.is_empty()) {
                // A piece may hold white space other than spaces, but is never empty.
                pieces.extend(self.cut_word(&word.to_lowercase()));
            }
        }
        pieces
    }

    fn join(&self, pieces: &[&str]) -> String {
        pieces.join(" ").replace("@@ ", "").trim_matches(is_python_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        self.vocabulary.id(&piece.to_lowercase()).unwrap_or(self.unk)
    }

    fn piece(&self, id: u32) -> Option<&str> {
        self.vocabulary.piece(id)
    }

    fn n_pieces(&self) -> usize {
        self.vocabulary.len()
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }

    fn largest_id(&self) -> u32 {
        self.vocabulary.largest_id()
    }
}

/// Stretches without white space, each with the line feed right after it. (Unicode's white space: not ASCII's separators.)
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(char::is_whitespace);
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let end = end + usize::from(rest[end..].starts_with('\n'));
        tokens.push(rest[..end].to_owned());
        rest = rest[end..].trim_start_matches(char::is_whitespace);
    }
    tokens
}

/// A token with spaces before punctuation and around apostrophes; two and more spaces become one.
fn spaced(token: &str) -> String {
    let mut spaced = String::with_capacity(token.len() + 8);
    for char in token.chars() {
        match char {
            '.' | ',' | '!' | '?' | '(' | ')' => spaced.extend([' ', char]),
            '\'' => spaced.push_str(" ' "),
            _ => spaced.push(char),
        }
    }
    let mut single = String::with_capacity(spaced.len());
    let mut rest = spaced.as_str();
    while !rest.is_empty() {
        let after = rest.trim_start_matches(char::is_whitespace);
        let spaces = &rest[..rest.len() - after.len()];
        single.push_str(if spaces.chars().nth(1).is_some() { " " } else { spaces });
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        single.push_str(&after[..end]);
        rest = &after[end..];
    }
    single
}
