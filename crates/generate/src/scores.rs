//! Arithmetic on rows of scores `[vocab]`: the only loops of decoding over the whole vocabulary.
//!
//! Unscaled logits are scaled in the same loops.

use cognate_kernels::{largest as largest_of, prefetch_behind, sum_of_exponentials};

/// Scores that are skipped together if the largest is too small; few enough to sum probabilities in
/// f32.
const CHUNK: usize = 1024;

/// The scores of the next token of one hypothesis: `scale · scores` are its logits.
#[derive(Debug)]
pub(crate) struct Row<'l> {
    pub(crate) scores: &'l mut [f32],
    pub(crate) scale: f32,
    pub(crate) columns: Columns<'l>,
    /// The softmax, if it is known, over more columns than these.
    pub(crate) softmax: Option<Normalisation>,
}

/// The tokens of a row's scores.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Columns<'l> {
    All,
    /// These, in ascending order; unused places contain minus infinity.
    Chosen(&'l [i64]),
}

impl Columns<'_> {
    /// Where a token's score is in a row.
    pub(crate) fn place(self, token: i64) -> Option<usize> {
        match self {
            Self::All => usize::try_from(token).ok(),
            Self::Chosen(tokens) => tokens.binary_search(&token).ok(),
        }
    }

    /// The token whose score is at a place.
    pub(crate) fn token(self, place: usize) -> i64 {
        match self {
            Self::All => place as i64,
            Self::Chosen(tokens) => tokens[place],
        }
    }
}

/// The reason why no token can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// A score is NaN, or plus infinity.
    NotFinite,
    /// Every score is minus infinity.
    Forbidden,
}

/// Checks the largest score of a row.
pub(crate) fn check(largest: f32) -> Result<(), Unusable> {
    match largest {
        f32::NEG_INFINITY => Err(Unusable::Forbidden),
        _ if largest.is_finite() => Ok(()),
        _ => Err(Unusable::NotFinite),
    }
}

impl<'l> Row<'l> {
    /// Checks that a token can be chosen.
    pub(crate) fn check(&self) -> Result<(), Unusable> {
        check(largest_of(self.scores) * self.scale)
    }

    /// The logits themselves.
    pub(crate) fn into_logits(self) -> &'l mut [f32] {
        if self.scale != 1.0 {
            self.scores.iter_mut().for_each(|score| *score *= self.scale);
        }
        self.scores
    }
}

/// Maps scores to log-probabilities: `(scale · score - largest) - log_sum`, in this order because
/// `largest + log_sum` would lose precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Normalisation {
    scale: f32,
    largest: f32,
    log_sum: f32,
}

impl Normalisation {
    /// For scores that are log-probabilities already.
    const NONE: Self = Self { scale: 1.0, largest: 0.0, log_sum: 0.0 };

    /// From the largest logit, and the logarithm of the sum of all others' exponentials relative to
    /// it.
    pub(crate) fn new(scale: f32, [largest, log_sum]: [f32; 2]) -> Self {
        Self { scale, largest, log_sum }
    }

    /// The softmax of a row; `maxima` are those of [`maxima`].
    fn of(scores: &[f32], scale: f32, maxima: &[f32]) -> Self {
        let largest = largest_of(if maxima.is_empty() { scores } else { maxima }) * scale;
        // A sum over the vocabulary would lose precision in f32.
        let mut sum = 0.0;
        for chunk in scores.chunks(CHUNK) {
            // Prefetches the next row.
            prefetch_behind(chunk, scores.len());
            sum += f64::from(sum_of_exponentials(chunk, scale, largest));
        }
        Self { scale, largest, log_sum: sum.ln() as f32 }
    }

    fn apply(self, score: f32) -> f32 {
        (score * self.scale - self.largest) - self.log_sum
    }
}

/// The possible next tokens of a hypothesis.
#[derive(Debug)]
pub(crate) struct Candidates<'l> {
    scores: &'l mut [f32],
    normalisation: Normalisation,
    /// An upper bound of the scores of each chunk; none for a single one.
    maxima: Vec<f32>,
    /// The score of the hypothesis.
    so_far: f32,
}

impl<'l> Candidates<'l> {
    /// From log-probabilities.
    pub(crate) fn of_log_probabilities(scores: &'l mut [f32], so_far: f32) -> Self {
        Self { maxima: maxima(scores), normalisation: Normalisation::NONE, scores, so_far }
    }

    /// From logits, whose log-probabilities are computed on comparison.
    pub(crate) fn of_logits(row: Row<'l>, so_far: f32) -> Self {
        let maxima = maxima(row.scores);
        let normalisation =
            row.softmax.unwrap_or_else(|| Normalisation::of(row.scores, row.scale, &maxima));
        Self { normalisation, maxima, scores: row.scores, so_far }
    }

    /// Checks that a token can be chosen.
    pub(crate) fn check(&self) -> Result<(), Unusable> {
        check(self.normalisation.largest)
    }

    /// The scores, which may be decreased.
    pub(crate) fn scores(&mut self) -> &mut [f32] {
        self.scores
    }
}

/// The largest score of each chunk; none for a single one, which has no others to skip.
fn maxima(scores: &[f32]) -> Vec<f32> {
    if scores.len() <= CHUNK {
        return Vec::new();
    }
    scores.chunks(CHUNK).map(largest_of).collect()
}

/// A hypothesis with one more token, which is the place of its score until [`Columns`] name it.
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
    let normalisation = Normalisation::of(row, 1.0, &maxima(row));
    row.iter_mut().for_each(|score| *score = normalisation.apply(*score));
}

/// `log Σ exp(x)`
pub(crate) fn log_sum_exp(row: &[f32]) -> f32 {
    let normalisation = Normalisation::of(row, 1.0, &maxima(row));
    if normalisation.largest == f32::NEG_INFINITY {
        f32::NEG_INFINITY
    } else {
        normalisation.largest + normalisation.log_sum
    }
}

/// The largest score.
pub(crate) fn maximum(row: &[f32]) -> f32 {
    largest_of(row)
}

/// The probability of a token.
pub(crate) fn probability(row: &Row<'_>, token: i64) -> Option<f32> {
    let score = *row.scores.get(row.columns.place(token)?)?;
    Some(Normalisation::of(row.scores, row.scale, &maxima(row.scores)).apply(score).exp())
}

/// The position of the largest score, the first of equals, and its distance to the second largest.
pub(crate) fn largest(row: &[f32]) -> Result<(usize, f32), Unusable> {
    // Chunks with one of the two largest so far are searched: small ones have fewer scores.
    const CHUNK: usize = 512;
    let (mut best, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (number, chunk) in row.chunks(CHUNK).enumerate() {
        let largest = largest_of(chunk);
        if largest <= second {
            continue;
        }
        if largest.is_nan() {
            return Err(Unusable::NotFinite);
        }
        for (token, &score) in (number * CHUNK..).zip(chunk) {
            if score > first {
                (best, second, first) = (token, first, score);
            } else if score > second {
                second = score;
            }
        }
    }
    check(first).map(|()| (best, first - second))
}

/// The `count` best continuations of all hypotheses, best first; ties go to the earlier hypothesis
/// and the smaller token.
pub(crate) fn best_continuations<'r>(
    rows: impl IntoIterator<Item = Candidates<'r>>,
    count: usize,
) -> Vec<Continuation> {
    let mut best: Vec<Continuation> = Vec::new();
    // The score to exceed.
    let mut bound = None;
    for (parent, candidates) in rows.into_iter().enumerate() {
        let total = |score: f32| candidates.so_far + candidates.normalisation.apply(score);
        for (number, chunk) in candidates.scores.chunks(CHUNK).enumerate() {
            // Rounding is monotonic, so none of them is larger.
            let largest = candidates.maxima.get(number);
            if bound.zip(largest).is_some_and(|(bound, &largest)| total(largest) <= bound) {
                continue;
            }
            for (token, &score) in (number * CHUNK..).zip(chunk) {
                let score = total(score);
                if bound.is_some_and(|bound| score <= bound) {
                    continue;
                }
                let place = best.partition_point(|other| other.score >= score);
                best.insert(place, Continuation { parent, token: token as i64, score });
                best.truncate(count);
                bound = (best.len() == count).then(|| best[count - 1].score);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(scores: &mut [f32], scale: f32) -> Row<'_> {
        Row { scores, scale, columns: Columns::All, softmax: None }
    }

    #[test]
    fn the_first_of_equals_wins() {
        let (mut first, mut second) = ([0.0, 2.0, 2.0], [3.0, 1.0, 2.0]);
        let rows = [
            Candidates::of_log_probabilities(&mut first, 0.0),
            Candidates::of_log_probabilities(&mut second, -1.0),
        ];
        let found = best_continuations(rows, 4);
        let found: Vec<_> =
            found.iter().map(|found| (found.parent, found.token, found.score)).collect();
        assert_eq!(found, [(0, 1, 2.0), (0, 2, 2.0), (1, 0, 2.0), (1, 2, 1.0)]);
        assert_eq!(largest(&[1.0, 3.0, 3.0]), Ok((1, 0.0)));
        assert_eq!(largest(&[f32::NEG_INFINITY, 3.0, 1.0]), Ok((1, 2.0)));
    }

    /// At any place: in lanes, in the remainder, before and after the largest.
    #[test]
    fn rows_with_nan_or_infinity_are_refused() {
        for length in [1, 63, 64, 65, 512, 700, 2_000] {
            for place in [0, length / 2, length - 1] {
                let row = |odd: f32| {
                    let mut row: Vec<f32> = (0..length).map(|index| index as f32).collect();
                    row[place] = odd;
                    row
                };
                assert_eq!(largest(&row(f32::NAN)), Err(Unusable::NotFinite), "{length} {place}");
                assert_eq!(
                    largest(&row(f32::INFINITY)),
                    Err(Unusable::NotFinite),
                    "{length} {place}"
                );
                let candidates =
                    |mut row: Vec<f32>| Candidates::of_logits(whole(&mut row, 0.5), 0.0).check();
                assert_eq!(candidates(row(f32::NAN)), Err(Unusable::NotFinite), "{length} {place}");
                assert_eq!(candidates(row(1.0)), Ok(()), "{length} {place}");
            }
            assert_eq!(largest(&vec![f32::NEG_INFINITY; length]), Err(Unusable::Forbidden));
        }
    }

    #[test]
    fn probabilities_sum_to_one() {
        let mut row = [1e4, 1e4, f32::NEG_INFINITY, 1e4, 1e4];
        log_softmax(&mut row);
        assert_eq!(
            row,
            [0.25_f32.ln(), 0.25_f32.ln(), f32::NEG_INFINITY, 0.25_f32.ln(), 0.25_f32.ln()]
        );
    }

    /// Lanes and chunks find the same as a sort.
    #[test]
    fn long_rows_are_searched_like_short_ones() {
        let row: Vec<f32> =
            (0..2_000).map(|index: i32| ((index * 7_919 % 2_003) as f32).sin() * 5.0).collect();
        let mut order: Vec<usize> = (0..row.len()).collect();
        order.sort_by(|&a, &b| row[b].total_cmp(&row[a]).then(a.cmp(&b)));
        let (token, margin) = largest(&row).expect("finite scores");
        assert_eq!((token, margin), (order[0], row[order[0]] - row[order[1]]));
        let mut copy = row.clone();
        let found = best_continuations([Candidates::of_log_probabilities(&mut copy, 0.0)], 50);
        assert_eq!(found.iter().map(|found| found.token as usize).collect::<Vec<_>>(), order[..50]);
        let exact = row.iter().map(|&score| (f64::from(score) * 0.5).exp()).sum::<f64>().ln();
        let found =
            best_continuations([Candidates::of_logits(whole(&mut copy, 0.5), 0.0)], 1)[0].score;
        assert!(
            (f64::from(found) - (f64::from(row[order[0]]) * 0.5 - exact)).abs() < 1e-6,
            "{found}"
        );
    }
}
