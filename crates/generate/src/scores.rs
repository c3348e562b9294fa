//! Arithmetic on rows of scores, each `[vocab]`: the only loops of decoding that touch every token of the vocabulary.

/// A hypothesis with one more token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Continuation {
    /// The row that it continues.
    pub(crate) parent: usize,
    pub(crate) token: i64,
    /// The sum of its parent's score and its token's.
    pub(crate) score: f32,
}

/// `x - log Σ exp(x)`, in place.
pub(crate) fn log_softmax(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = row.iter().map(|x| (x - largest).exp()).sum();
    let log_sum = sum.ln();
    // In this order: `largest + log_sum` would round at the size of the logits.
    row.iter_mut().for_each(|x| *x = (*x - largest) - log_sum);
}

/// The position of the largest score, the first of equals, and its distance to the second largest.
pub(crate) fn largest(row: &[f32]) -> (i64, f32) {
    let (mut best, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (token, &score) in row.iter().enumerate() {
        if score > first {
            (best, second, first) = (token, first, score);
        } else if score > second {
            second = score;
        }
    }
    (best as i64, first - second)
}

/// The `count` best continuations of all rows, best first; of equals the one of the earlier row and the smaller token.
/// `rows: [so_far.len() · vocab]` are the tokens' scores, `so_far` those of what they continue.
pub(crate) fn best_continuations(rows: &[f32], so_far: &[f32], count: usize) -> Vec<Continuation> {
    let mut best: Vec<Continuation> = Vec::with_capacity(count + 1);
    // What a score must exceed to be among the best.
    let mut bound = None;
    for (parent, (row, &so_far)) in rows.chunks_exact(rows.len() / so_far.len()).zip(so_far).enumerate() {
        for (token, &score) in row.iter().enumerate() {
            let score = so_far + score;
            if bound.is_some_and(|bound| score <= bound) {
                continue;
            }
            let place = best.partition_point(|other| other.score >= score);
            best.insert(place, Continuation { parent, token: token as i64, score });
            best.truncate(count);
            bound = (best.len() == count).then(|| best[count - 1].score);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_equals_wins() {
        let found = best_continuations(&[0.0, 2.0, 2.0, 3.0, 1.0, 2.0], &[0.0, -1.0], 4);
        let found: Vec<_> = found.iter().map(|found| (found.parent, found.token, found.score)).collect();
        assert_eq!(found, [(0, 1, 2.0), (0, 2, 2.0), (1, 0, 2.0), (1, 2, 1.0)]);
        assert_eq!(largest(&[1.0, 3.0, 3.0]), (1, 0.0));
        assert_eq!(largest(&[f32::NEG_INFINITY, 3.0, 1.0]), (1, 2.0));
    }

    #[test]
    fn probabilities_sum_to_one() {
        let mut row = [1e4, 1e4, f32::NEG_INFINITY, 1e4, 1e4];
        log_softmax(&mut row);
        assert_eq!(row, [0.25_f32.ln(), 0.25_f32.ln(), f32::NEG_INFINITY, 0.25_f32.ln(), 0.25_f32.ln()]);
    }
}
