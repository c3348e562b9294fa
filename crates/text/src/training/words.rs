//! The words of a training text and their counts.
//!
//! `A man  has` -> `▁A`, `▁man`, `▁has`

use std::collections::{BTreeMap, HashMap, HashSet};

use tokenizers::{NormalizedString, Normalizer};

use super::files;
use crate::error::{Cause, Result};
use crate::library::{self, guarded};
use crate::sentencepiece::SPACE;

/// The maximum length of a word in bytes, as in SentencePiece; longer words are ignored.
const MAX_WORD_BYTES: usize = 4192;

/// It has no piece: the library separates words by it.
const NUL: char = '\0';

/// Counts of words.
#[derive(Debug)]
pub(super) struct Words {
    normalizer: tokenizers::NormalizerWrapper,
    special: Vec<String>,
    counts: HashMap<String, u64>,
    n_characters: u64,
}

impl Words {
    pub(super) fn new(special: Vec<String>) -> Result<Self> {
        let normalizer = library::normalizer(&files::normalizer())
            .expect("the normalizer is written as the library reads it");
        Ok(Self { normalizer, special, counts: HashMap::new(), n_characters: 0 })
    }

    /// Counts the words of a line. Special tokens in it are not words.
    pub(super) fn add(&mut self, line: &str) -> Result<()> {
        for part in split_at(line, &self.special) {
            // Normalisation does not change ASCII.
            if part.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                self.count(part);
                continue;
            }
            let mut text = NormalizedString::from(part);
            guarded(|| self.normalizer.normalize(&mut text))
                .map_err(|reason| Cause::Training { reason })?;
            let text = text.get().to_owned();
            // Normalised full-width letters may spell a special token.
            let parts: Vec<&str> = split_at(&text, &self.special);
            parts.into_iter().for_each(|part| self.count(part));
        }
        Ok(())
    }

    fn count(&mut self, text: &str) {
        for word in text.split(' ').filter(|word| !word.is_empty() && word.len() <= MAX_WORD_BYTES)
        {
            let word = format!("{SPACE}{word}");
            self.n_characters += word.chars().count() as u64;
            *self.counts.entry(word).or_default() += 1;
        }
    }

    /// The number of characters of all words, including repetitions.
    pub(super) fn n_characters(&self) -> u64 {
        self.n_characters
    }

    /// The sorted words, split at characters outside the covered share, and the characters inside
    /// it.
    pub(super) fn covered(self, coverage: f64) -> (Vec<(String, u32)>, HashSet<char>) {
        let mut characters: BTreeMap<char, u64> = BTreeMap::new();
        for (word, count) in &self.counts {
            for character in word.chars().filter(|character| *character != NUL) {
                *characters.entry(character).or_default() += count;
            }
        }
        let total: u64 = characters.values().sum();
        let mut by_count: Vec<(char, u64)> = characters.into_iter().collect();
        // Stable: equal counts stay in alphabetical order.
        by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let (mut kept, mut sum) = (HashSet::new(), 0);
        for (character, count) in by_count {
            if sum as f64 >= coverage * total as f64 {
                break;
            }
            sum += count;
            kept.insert(character);
        }
        let mut words: BTreeMap<String, u64> = BTreeMap::new();
        for (word, count) in &self.counts {
            for part in
                word.split(|character| !kept.contains(&character)).filter(|part| !part.is_empty())
            {
                *words.entry(part.to_owned()).or_default() += count;
            }
        }
        let narrow = |count: u64| {
            u32::try_from(count)
                .expect("there are fewer words than characters, and those were counted")
        };
        (words.into_iter().map(|(word, count)| (word, narrow(count))).collect(), kept)
    }
}

/// The parts of a text between special tokens.
fn split_at<'t>(text: &'t str, special: &[String]) -> Vec<&'t str> {
    let mut parts = vec![text];
    for token in special {
        parts = parts.into_iter().flat_map(|part| part.split(token.as_str())).collect();
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn words(lines: &[&str], coverage: f64) -> Vec<(String, u32)> {
        let mut words = Words::new(vec!["</s>".to_owned()]).unwrap();
        lines.iter().for_each(|line| words.add(line).unwrap());
        words.covered(coverage).0
    }

    #[test]
    fn words_are_normalized_and_counted() {
        let cases: &[(&[&str], &str)] = &[
            (&["a  b a", " b"], "▁a 2, ▁b 2"),
            (&["ﬁne\tＡ²\u{a0}x\u{200b}y"], "▁A2 1, ▁fine 1, ▁x 1, ▁y 1"),
            (&["a</s>b", "＜/s＞c"], "▁a 1, ▁b 1, ▁c 1"),
            (&["", "   ", "\u{3000}"], ""),
            (&["a\0b"], "b 1, ▁a 1"),
            (&["▁a"], "▁a 1"),
        ];
        for (lines, expected) in cases {
            let found: Vec<String> = words(lines, 1.0)
                .into_iter()
                .map(|(word, count)| format!("{word} {count}"))
                .collect();
            assert_eq!(found.join(", "), *expected, "{lines:?}");
        }
    }

    #[test]
    fn rare_characters_split_words() {
        // ▁ 4, a 4, b 1, c 1: nine of ten characters are enough, and b comes before c.
        let lines = ["a a", "aba c"];
        let texts = |coverage| {
            words(&lines, coverage).into_iter().map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(texts(1.0), ["▁a", "▁aba", "▁c"]);
        assert_eq!(texts(0.9), ["▁", "▁a", "▁aba"]);
        assert_eq!(texts(0.8), ["a", "▁", "▁a"]);
    }

    #[test]
    fn too_long_words_are_ignored() {
        let long = "x".repeat(MAX_WORD_BYTES);
        assert_eq!(words(&[&long, &format!("{long}x b")], 1.0).len(), 2);
    }
}
