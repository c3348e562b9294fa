//! Splitting text by a unigram language model: the pieces with the largest sum of scores.
//!
//! `best(end) = max over pieces [start, end) of best(start) + score(piece)`   (Kudo 2018, section
//! 3.1; Viterbi)
//!
//! Sums are f32 in SentencePiece's order, so that ties are broken alike.

use super::Cut;
use super::proto::{Kind, Model};
use super::trie::Trie;

/// How far the unknown piece's score is below the worst.
const UNKNOWN_PENALTY: f32 = 10.0;
/// Larger sums are reset to 0: f32 lacks the precision to distinguish pieces there.
const RESET_THRESHOLD: f32 = 100_000.0;

#[derive(Debug)]
pub(crate) struct Unigram {
    /// Every piece that text can contain, without unused ones.
    pieces: Trie,
    scores: Vec<Score>,
    unknown_score: f32,
}

#[derive(Clone, Copy, Debug)]
enum Score {
    Known(f32),
    /// By length in bytes, so that the symbol always wins.
    ByLength,
}

/// The last piece of the best split up to some byte.
#[derive(Clone, Copy)]
struct Best {
    score: f32,
    start: usize,
    id: Option<u32>,
}

impl Unigram {
    pub(crate) fn new(model: &Model) -> Self {
        let pieces = model
            .pieces
            .iter()
            .zip(0..)
            .filter(|(piece, _)| piece.is_in_text() && !piece.is(Kind::Unused));
        let scores = model.pieces.iter().map(|piece| match piece.kind() {
            Kind::UserDefined => Score::ByLength,
            Kind::Normal | Kind::Unknown | Kind::Control | Kind::Unused | Kind::Byte => {
                Score::Known(piece.score)
            }
        });
        let normal = model.pieces.iter().filter(|piece| piece.is(Kind::Normal));
        Self {
            pieces: Trie::new(pieces.map(|(piece, id)| (piece.text.as_str(), id))),
            scores: scores.collect(),
            unknown_score: normal.fold(f32::MAX, |least, piece| least.min(piece.score))
                - UNKNOWN_PENALTY,
        }
    }

    /// Splits normalised text; characters without a piece have no id.
    pub(crate) fn cut<'a>(&self, text: &'a str) -> Vec<Cut<'a>> {
        let mut best: Vec<Option<Best>> = vec![None; text.len() + 1];
        // The end of the furthest piece.
        let mut frontier = 0;
        for (start, char) in text.char_indices() {
            let mut so_far = best[start].map_or(0.0, |best| best.score);
            if so_far.abs() > RESET_THRESHOLD {
                for best in best[start..=frontier].iter_mut().flatten() {
                    best.score -= so_far;
                }
                so_far = 0.0;
            }
            let mut offer = |end: usize, score: f32, id| {
                frontier = frontier.max(end);
                let score = score + so_far;
                if best[end].is_none_or(|best| score > best.score) {
                    best[end] = Some(Best { score, start, id });
                }
            };
            let mut has_character = false;
            for (length, id) in self.pieces.prefixes(&text.as_bytes()[start..]) {
                let score = match self.scores[id as usize] {
                    Score::Known(score) => score,
                    Score::ByLength => (0.1 * (length as f64 - 1.0)) as f32,
                };
                offer(start + length, score, Some(id));
                has_character |= length == char.len_utf8();
            }
            if !has_character {
                offer(start + char.len_utf8(), self.unknown_score, None);
            }
        }
        let mut cuts = Vec::with_capacity(text.len() / 4 + 1);
        let mut end = text.len();
        while let Some(last) = best[end] {
            cuts.push(Cut { text: &text[last.start..end], id: last.id });
            end = last.start;
        }
        cuts.reverse();
        cuts
    }
}
