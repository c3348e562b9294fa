//! Matches added tokens in text.
//!
//! Source: transformers 4.57.6, `Trie.split` and `PreTrainedTokenizer.tokenize`, step by step: the
//! search takes the longest of the leftmost tokens, but a token whose match has just failed is
//! searched from one character later, and hides the tokens inside that text.

use std::collections::{BTreeMap, HashMap};

use tokenizers::AddedToken;

use crate::words::is_space;

/// Tokens that are matched in text before it is split.
pub(crate) struct AddedTokens {
    tokens: BTreeMap<u32, AddedToken>,
    ids: HashMap<String, u32>,
    nodes: Vec<Node>,
}

#[derive(Default)]
struct Node {
    children: HashMap<char, usize>,
    is_end: bool,
}

impl AddedTokens {
    pub(crate) fn new(tokens: BTreeMap<u32, AddedToken>, ids: HashMap<String, u32>) -> Self {
        let mut nodes = vec![Node::default()];
        for token in tokens.values().filter(|token| !token.content.is_empty()) {
            let mut node = 0;
            for char in token.content.chars() {
                let new = nodes.len();
                node = *nodes[node].children.entry(char).or_insert(new);
                if node == new {
                    nodes.push(Node::default());
                }
            }
            nodes[node].is_end = true;
        }
        Self { tokens, ids, nodes }
    }

    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub(crate) fn token(&self, id: u32) -> Option<&AddedToken> {
        self.tokens.get(&id)
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.ids.keys().map(String::as_str)
    }

    pub(crate) fn largest_id(&self) -> u32 {
        self.tokens.keys().next_back().copied().unwrap_or(0)
    }

    /// The added tokens of a text and the text in between, in order, without the spaces that tokens
    /// strip.
    pub(crate) fn split(&self, text: &str) -> Vec<String> {
        let mut parts = self.cut(text);
        for index in 0..parts.len() {
            let Some(token) = self.id(&parts[index]).and_then(|id| self.token(id)) else {
                continue;
            };
            let (left, right) =
                (index.checked_sub(1), (index + 1 < parts.len()).then_some(index + 1));
            // Computed before spaces are stripped.
            let touches_left =
                left.is_some_and(|left| !parts[left].is_empty() && !parts[left].ends_with(' '));
            let touches_right = right
                .is_some_and(|right| !parts[right].is_empty() && !parts[right].starts_with(' '));
            if let Some(right) = right.filter(|_| token.rstrip) {
                parts[right] = parts[right].trim_start_matches(is_space).to_owned();
            }
            if let Some(left) = left.filter(|_| token.lstrip) {
                parts[left] = parts[left].trim_end_matches(is_space).to_owned();
            }
            match (left, right) {
                (Some(left), _) if token.single_word && touches_left => {
                    let word = std::mem::take(&mut parts[index]);
                    parts[left].push_str(&word);
                }
                (_, Some(right)) if token.single_word && touches_right => {
                    let word = std::mem::take(&mut parts[index]);
                    parts[right].insert_str(0, &word);
                }
                _ => {}
            }
        }
        parts.retain(|part| !part.is_empty());
        parts
    }

    /// The text split before and after every matched token.
    fn cut(&self, text: &str) -> Vec<String> {
        let chars: Vec<char> = text.chars().collect();
        let mut offsets = vec![0];
        // Partial matches: start and trie node.
        let mut states: Vec<(usize, usize)> = Vec::new();
        let mut skip = 0;
        for (current, char) in chars.iter().enumerate() {
            if current < skip {
                continue;
            }
            let mut failed = Vec::new();
            let mut found = None;
            for index in 0..states.len() {
                let (start, node) = states[index];
                if self.nodes[node].is_end {
                    found = Some(self.longest(&chars, &states, start, current));
                    break;
                }
                match self.nodes[node].children.get(char) {
                    Some(child) => states[index].1 = *child,
                    None => failed.push(start),
                }
            }
            match found {
                Some((start, end)) => {
                    skip = end;
                    offsets.extend([start, end]);
                    states.clear();
                }
                None => states.retain(|(start, _)| !failed.contains(start)),
            }
            if current >= skip
                && let Some(child) = self.nodes[0].children.get(char)
            {
                states.push((current, *child));
            }
        }
        if let Some((start, _)) = states.iter().find(|(_, node)| self.nodes[*node].is_end) {
            offsets.extend([*start, chars.len()]);
        }
        offsets.push(chars.len());
        let mut parts = Vec::new();
        let mut start = 0;
        for end in offsets {
            if end > start {
                parts.push(chars[start..end].iter().collect());
                start = end;
            }
        }
        parts
    }

    /// The longest of the tokens that begin at or before `start`, where a token is complete.
    fn longest(
        &self,
        chars: &[char],
        states: &[(usize, usize)],
        start: usize,
        current: usize,
    ) -> (usize, usize) {
        let mut best = (start, current);
        for &(begin, mut node) in states {
            if begin > best.0 {
                break;
            }
            // Earlier matches have consumed the current character.
            let mut end = current + usize::from(begin < best.0);
            if self.nodes[node].is_end {
                best = (begin, end);
            }
            while let Some(child) =
                chars.get(end).and_then(|char| self.nodes[node].children.get(char))
            {
                node = *child;
                end += 1;
                if self.nodes[node].is_end {
                    best = (begin, end);
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected parts: transformers 4.57.6, `Trie(tokens).split(text)`.
    #[test]
    fn tokens_are_found_as_transformers_finds_them() {
        let cases: &[(&[&str], &str, &[&str])] = &[
            (&["abc", "b"], "abc b", &["abc", " ", "b"]),
            (&["abc", "b"], "ab", &["a", "b"]),
            // The match of `abc` fails at `d` and continues after it.
            (&["abc", "b"], "xabdcb", &["x", "abdc", "b"]),
            (
                &["[CLS]", "extra_id_1", "extra_id_100"],
                "[CLS] an extra_id_100",
                &["[CLS]", " an ", "extra_id_100"],
            ),
            (&["extra_id_1", "extra_id_100"], "extra_id_10", &["extra_id_1", "0"]),
            (&["blowing", "lower"], "blower", &["b", "lower"]),
            (&["A", "AB", "CD"], "ABCD", &["AB", "CD"]),
            (&["ß", "ßß"], "aßßßb", &["a", "ßß", "ß", "b"]),
            (&["ß"], "", &[]),
        ];
        for (tokens, text, expected) in cases {
            let tokens: BTreeMap<u32, AddedToken> =
                (0..).zip(tokens.iter().map(|token| AddedToken::from(*token, false))).collect();
            let ids = tokens.iter().map(|(id, token)| (token.content.clone(), *id)).collect();
            assert_eq!(AddedTokens::new(tokens, ids).split(text), *expected, "{text:?}");
        }
    }
}
