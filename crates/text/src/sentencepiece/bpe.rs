//! Splitting text by byte pair encoding (Sennrich et al. 2016, section 3.2): the neighbours with
//! the best score merge first, until no pair is a piece. SentencePiece's scores replace the list of
//! merges.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::Cut;
use super::normalizer::Normalizer;
use super::proto::{Kind, Model};

/// The maximum depth of splitting an unused piece.
const MAX_DEPTH: usize = 100;

#[derive(Debug)]
pub(crate) struct Bpe {
    /// The pieces that text can contain.
    pieces: HashMap<String, Merge>,
}

#[derive(Clone, Copy, Debug)]
struct Merge {
    id: u32,
    score: f32,
    unused: bool,
}

/// A part of the text; empty after it was merged into the one before it.
struct Symbol<'a> {
    previous: Option<usize>,
    next: Option<usize>,
    start: usize,
    text: &'a str,
    /// User-defined symbols never merge.
    frozen: bool,
}

/// Two neighbours that can merge.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Detects a pair that has changed since.
    n_bytes: usize,
}

impl Bpe {
    pub(crate) fn new(model: &Model) -> Self {
        let pieces = model.pieces.iter().zip(0..).filter(|(piece, _)| piece.is_in_text());
        let merge = |id, score, unused| Merge { id, score, unused };
        Self {
            pieces: pieces
                .map(|(piece, id)| {
                    (piece.text.clone(), merge(id, piece.score, piece.is(Kind::Unused)))
                })
                .collect(),
        }
    }

    /// Splits normalised text; characters without a piece have no id.
    pub(crate) fn cut<'a>(&self, text: &'a str, normalizer: &Normalizer) -> Vec<Cut<'a>> {
        let mut symbols = symbols(text, normalizer);
        // The parts of unused pieces, to split them again.
        let mut parts = HashMap::new();
        let mut pairs = BinaryHeap::new();
        for left in 1..symbols.len() {
            pairs.extend(self.pair(text, &symbols, Some(left - 1), Some(left), &mut parts));
        }
        while let Some(Pair { left, right, n_bytes, .. }) = pairs.pop() {
            let (left_bytes, right_bytes) = (symbols[left].text.len(), symbols[right].text.len());
            if left_bytes == 0 || right_bytes == 0 || left_bytes + right_bytes != n_bytes {
                continue;
            }
            let start = symbols[left].start;
            symbols[left].text = &text[start..start + n_bytes];
            symbols[right].text = "";
            let next = symbols[right].next;
            symbols[left].next = next;
            if let Some(next) = next {
                symbols[next].previous = Some(left);
            }
            pairs.extend(self.pair(text, &symbols, symbols[left].previous, Some(left), &mut parts));
            pairs.extend(self.pair(text, &symbols, Some(left), next, &mut parts));
        }
        let mut cuts = Vec::with_capacity(text.len() / 4 + 1);
        let mut index = (!symbols.is_empty()).then_some(0);
        while let Some(symbol) = index.map(|index| &symbols[index]) {
            self.take_apart(symbol.text, &parts, &mut cuts);
            index = symbol.next;
        }
        cuts
    }

    fn pair<'a>(
        &self,
        text: &'a str,
        symbols: &[Symbol<'a>],
        left: Option<usize>,
        right: Option<usize>,
        parts: &mut HashMap<&'a str, (&'a str, &'a str)>,
    ) -> Option<Pair> {
        let (left, right) = (left?, right?);
        let (first, second) = (&symbols[left], &symbols[right]);
        if first.frozen || second.frozen {
            return None;
        }
        let n_bytes = first.text.len() + second.text.len();
        let merged = &text[first.start..first.start + n_bytes];
        let merge = self.pieces.get(merged)?;
        if merge.unused {
            parts.insert(merged, (first.text, second.text));
        }
        Some(Pair { score: merge.score, left, right, n_bytes })
    }

    /// Appends a symbol's piece, or the parts of an unused piece.
    fn take_apart<'a>(
        &self,
        symbol: &'a str,
        parts: &HashMap<&'a str, (&'a str, &'a str)>,
        cuts: &mut Vec<Cut<'a>>,
    ) {
        let mut pending = vec![(symbol, 0)];
        while let Some((text, depth)) = pending.pop() {
            let merge = self.pieces.get(text);
            match (merge, parts.get(text)) {
                (Some(merge), _) if !merge.unused || depth > MAX_DEPTH => {
                    cuts.push(Cut { text, id: Some(merge.id) })
                }
                (Some(_), Some((left, right))) => {
                    pending.extend([(*right, depth + 1), (*left, depth + 1)])
                }
                (Some(_) | None, _) => cuts.push(Cut { text, id: None }),
            }
        }
    }
}

/// The text's characters and user-defined symbols.
fn symbols<'a>(text: &'a str, normalizer: &Normalizer) -> Vec<Symbol<'a>> {
    let mut symbols: Vec<Symbol<'a>> = Vec::with_capacity(text.len());
    let mut start = 0;
    while let Some(char) = text[start..].chars().next() {
        let user_defined = normalizer.user_defined().longest(&text.as_bytes()[start..]);
        let end = start + user_defined.unwrap_or(char.len_utf8());
        let index = symbols.len();
        symbols.push(Symbol {
            previous: index.checked_sub(1),
            next: (end < text.len()).then_some(index + 1),
            start,
            text: &text[start..end],
            frozen: user_defined.is_some(),
        });
        start = end;
    }
    symbols
}

impl Ord for Pair {
    /// The best score first, then the leftmost pair.
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}
