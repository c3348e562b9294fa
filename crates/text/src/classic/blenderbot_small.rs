//! Blenderbot-small: lower case, words split by `merges.txt`, `@@` after every piece except a
//! word's last.
//!
//! `X`, without special tokens.
//!
//! Source: transformers 4.57.6, `BlenderbotSmallTokenizer`. For this class `AutoTokenizer` chooses
//! a byte-level tokenizer that cannot read these merges; this one can.

use std::collections::HashMap;
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;

use super::{Classic, Subwords, Vocabulary};
use crate::error::Result;
use crate::folder::merges::{self, OddLines};
use crate::folder::settings::{Settings, Special, Specials};
use crate::words::{Rules, is_space, replaced, rule};

const END_OF_WORD: &str = "</w>";

pub(crate) struct BlenderbotSmall {
    vocabulary: Vocabulary,
    ranks: HashMap<(String, String), usize>,
    unk: u32,
}

impl BlenderbotSmall {
    /// Reads a folder; also returns the special tokens.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<(Classic, Specials)> {
        let defaults = [
            ("bos_token", "__start__"),
            ("eos_token", "__end__"),
            ("unk_token", "__unk__"),
            ("pad_token", "__null__"),
        ];
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
        for token in TOKEN.find_iter(text) {
            let spaced = replaced(&SPACED, token.as_str().to_owned()).replace('\n', " __newln__");
            for word in spaced.split(' ').filter(|word| !word.is_empty()) {
                // A piece can contain white space other than spaces, but is never empty.
                pieces.extend(self.cut_word(&word.to_lowercase()));
            }
        }
        pieces
    }

    fn join(&self, pieces: &[&str]) -> String {
        pieces.join(" ").replace("@@ ", "").trim_matches(is_space).to_owned()
    }

    fn id(&self, piece: &str) -> u32 {
        self.vocabulary.id(&piece.to_lowercase()).unwrap_or(self.unk)
    }

    fn piece(&self, id: u32) -> Option<&str> {
        self.vocabulary.piece(id)
    }

    fn vocabulary(&self) -> Option<&Vocabulary> {
        Some(&self.vocabulary)
    }
}

/// Words, each with the line feed right after it.
static TOKEN: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\S+\n?").expect("the pattern is a constant that compiles"));

/// Spaces before punctuation and around apostrophes; two and more spaces become one.
static SPACED: Rules<3> =
    LazyLock::new(|| [rule(r"([.,!?()])", " ${1}"), rule("'", " ' "), rule(r"\s{2,}", " ")]);
