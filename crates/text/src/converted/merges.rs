//! The merges of a SentencePiece BPE model, which has only pieces with scores.
//!
//! Every split of a piece into two pieces is a merge, ranked by its piece's score.
//!
//! Source: transformers 4.57.6, `generate_merges`.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::sentencepiece::{Model, Trie};

/// The maximum size of all merges. Those of a model of 256,000 pieces have about 10 MB; those of a
/// model of increasingly long runs of one letter would have gigabytes.
const MAX_BYTES: usize = 256 << 20;

/// The merges of `vocabulary` (pieces with scores), best first, of pieces in the model.
pub(super) fn of(
    vocabulary: &[(String, f64)],
    model: &Model,
) -> Result<Vec<(String, String)>, String> {
    let ids: HashMap<&str, u32> =
        model.pieces.iter().map(|piece| piece.text.as_str()).zip(0..).collect();
    let trie = Trie::new(ids.iter().map(|(piece, id)| (*piece, *id)));
    let last: HashMap<&str, f64> =
        vocabulary.iter().map(|(piece, score)| (piece.as_str(), *score)).collect();
    let (mut merges, mut n_bytes) = (Vec::new(), 0);
    let mut seen = HashSet::new();
    for (piece, _) in vocabulary.iter().filter(|(piece, _)| seen.insert(piece.as_str())) {
        let begin = merges.len();
        for (length, left_id) in trie.prefixes(piece.as_bytes()) {
            let Some((left, right)) = piece.split_at_checked(length) else { continue };
            if let Some(right_id) = ids.get(right) {
                n_bytes += piece.len();
                if n_bytes > MAX_BYTES {
                    return Err(format!(
                        "its pieces merge in too many ways: more than {MAX_BYTES} bytes of merges"
                    ));
                }
                merges.push(Merge {
                    left,
                    right,
                    ids: (left_id, *right_id),
                    score: last[piece.as_str()],
                });
            }
        }
        merges[begin..].sort_by_key(|merge| merge.ids);
    }
    merges.sort_by(|one, other| {
        let lengths =
            |merge: &Merge<'_>| Reverse((merge.left.chars().count(), merge.right.chars().count()));
        other.score.total_cmp(&one.score).then_with(|| lengths(one).cmp(&lengths(other)))
    });
    Ok(merges.into_iter().map(|merge| (merge.left.to_owned(), merge.right.to_owned())).collect())
}

struct Merge<'a> {
    left: &'a str,
    right: &'a str,
    ids: (u32, u32),
    score: f64,
}
