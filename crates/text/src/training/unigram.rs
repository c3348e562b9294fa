//! The library's unigram trainer, made deterministic.

use serde_json::Value;
use tokenizers::AddedToken;
use tokenizers::models::unigram::{Unigram, UnigramTrainer};

use super::files::SPECIAL;
use crate::library::guarded;

/// The difference between the scores of successive characters that the trainer pruned and restores.
const STEP: f64 = 0.0001;

/// The maximum number of orders of the words that are tried.
const ATTEMPTS: usize = 8;

/// The model in the form of `tokenizer.json`. `words` are sorted.
pub(super) fn train(
    mut words: Vec<(String, u32)>,
    special: &[String],
    vocab_size: u32,
) -> Result<Value, String> {
    let trainer = UnigramTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .special_tokens(
            special.iter().map(|token| AddedToken::from(token.as_str(), true)).collect(),
        )
        .unk_token(Some(SPECIAL[1].to_owned()))
        .build()
        .map_err(|error| error.to_string())?;
    // The library's suffix array without C++ (esaxx-rs 0.1.10) indexes past the end on one of 100
    // random texts of two to five letters, though on none of 160 real texts, and not on the same
    // words in another order.
    let mut failure = String::new();
    for _ in 0..ATTEMPTS {
        let attempt = || {
            let mut model = Unigram::default();
            trainer.do_train(words.clone(), &mut model)?;
            finished(&model, special.len())
        };
        match guarded(attempt) {
            Ok(model) => return Ok(model),
            Err(reason) => failure = reason,
        }
        let quarter = words.len() / 4;
        words.rotate_left(quarter);
        words.reverse();
    }
    Err(failure)
}

fn finished(model: &Unigram, n_special: usize) -> tokenizers::Result<Value> {
    let mut vocabulary: Vec<(String, f64)> = model.iter().cloned().collect();
    order(&mut vocabulary[n_special..]);
    Ok(serde_json::to_value(Unigram::from(vocabulary, Some(1), false)?)?)
}

/// Sorts pieces deterministically.
///
/// The trainer restores pruned characters with the scores `least`, `least + STEP`, ..., in the
/// order of a hash map. These scores are reassigned in alphabetical order, best first, also to a
/// character that was never pruned but has one of them. Equal scores are ordered by piece.
fn order(pieces: &mut [(String, f64)]) {
    let least = pieces.iter().map(|(_, score)| *score).fold(f64::INFINITY, f64::min);
    let (mut returned, mut penalty): (Vec<usize>, f64) = (Vec::new(), 0.0);
    loop {
        let is_returned = |(piece, score): &(String, f64)| {
            *score == least + penalty && piece.chars().nth(1).is_none()
        };
        let before = returned.len();
        returned.extend(
            pieces
                .iter()
                .enumerate()
                .filter(|(_, piece)| is_returned(piece))
                .map(|(index, _)| index),
        );
        if returned.len() == before {
            break;
        }
        penalty += STEP;
    }
    let mut scores: Vec<f64> = returned.iter().map(|index| pieces[*index].1).collect();
    scores.sort_by(|a, b| b.total_cmp(a));
    returned.sort_by(|a, b| pieces[*a].0.cmp(&pieces[*b].0));
    for (index, score) in returned.into_iter().zip(scores) {
        pieces[index].1 = score;
    }
    pieces.sort_by(|(left, a), (right, b)| b.total_cmp(a).then_with(|| left.cmp(right)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(pieces: &[(&str, f64)]) -> Vec<(String, f64)> {
        let mut pieces: Vec<(String, f64)> =
            pieces.iter().map(|(piece, score)| ((*piece).to_owned(), *score)).collect();
        order(&mut pieces);
        pieces
    }

    #[test]
    fn the_order_is_independent_of_the_input_order() {
        let scores: Vec<f64> = (0..3)
            .scan(0.0, |sum, _| Some(std::mem::replace(sum, *sum + STEP)))
            .map(|step| -9.0 + step)
            .collect();
        let one = ordered(&[
            ("▁a", -2.0),
            ("b", -2.0),
            ("z", scores[2]),
            ("x", scores[1]),
            ("y", scores[0]),
        ]);
        let other = ordered(&[
            ("b", -2.0),
            ("▁a", -2.0),
            ("x", scores[2]),
            ("y", scores[1]),
            ("z", scores[0]),
        ]);
        assert_eq!(one, other);
        let pieces: Vec<&str> = one.iter().map(|(piece, _)| piece.as_str()).collect();
        assert_eq!(pieces, ["b", "▁a", "x", "y", "z"]);
        assert_eq!(one[4].1, -9.0);
        // `r` was never pruned and has the lowest score, which is also that of the first restored
        // character.
        let one = ordered(&[("r", -9.0), ("z", scores[0]), ("q", scores[1])]);
        let other = ordered(&[("q", scores[0]), ("r", -9.0), ("z", scores[1])]);
        assert_eq!(one, other);
    }

    #[test]
    fn a_model_that_kept_its_characters_is_sorted_only() {
        assert_eq!(
            ordered(&[("b", -3.0), ("ab", -4.0), ("a", -1.0)])
                .iter()
                .map(|(_, score)| *score)
                .collect::<Vec<_>>(),
            [-1.0, -3.0, -4.0]
        );
    }
}
