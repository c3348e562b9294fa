//! The best tokens of a step, which the graph finds.

use crate::ort::session::tensor::brought;
use crate::{BEST, Result, Value, Values};
use ndarray::ArrayD;

/// The request of an input [`BEST`].
pub(super) struct Best {
    pub(super) count: usize,
    softmax: bool,
    pub(super) always: Vec<i64>,
    vocab: usize,
}

impl Best {
    pub(super) fn wanted(state: &Values, vocab: Option<usize>) -> Option<Self> {
        let Some(Value::I64(wanted)) = state.get(BEST) else { return None };
        let wanted: Vec<i64> = wanted.iter().copied().collect();
        let (&[count, softmax], always) = wanted.split_first_chunk()?;
        let vocab = vocab?;
        let count = usize::try_from(count).unwrap_or(1).clamp(1, vocab);
        Some(Self { count, softmax: softmax == 1, always: always.to_vec(), vocab })
    }

    /// Tokens in ascending order and their logits, as of
    /// [`Session::finds_best`](crate::Session::finds_best), from the bytes of scores, tokens and
    /// scores of the tokens that are always wanted. They are log-probabilities, which differ from
    /// logits by a constant of each row.
    pub(super) fn logits(
        &self,
        [scores, tokens, always]: [&[u8]; 3],
        n_rows: usize,
    ) -> Result<Value> {
        let floats = |bytes: &[u8]| -> Vec<f32> {
            bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect()
        };
        let (scores, always) = (floats(scores), floats(always));
        let tokens = tokens.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes));
        let found: Vec<_> = tokens.zip(scores).collect();
        let n = self.count + self.always.len();
        let width = 2 * n + if self.softmax { 2 } else { 0 };
        let mut logits = Vec::with_capacity(n_rows * width);
        let mut row: Vec<(i64, f32)> = Vec::with_capacity(n);
        for (index, found) in found.chunks_exact(self.count).enumerate() {
            row.clear();
            row.extend(found);
            let always = &always[index * self.always.len()..];
            for (&token, &score) in self.always.iter().zip(always) {
                if row.iter().all(|(known, _)| *known != token) {
                    row.push((token, score));
                }
            }
            row.sort_unstable_by_key(|(token, _)| *token);
            row.resize(n, (self.vocab as i64, f32::NEG_INFINITY));
            logits.extend(row.iter().map(|(token, _)| *token as f32));
            logits.extend(row.iter().map(|(_, score)| *score));
            if self.softmax {
                let largest = found.first().map_or(0.0, |(_, score)| *score);
                logits.extend([largest, -largest]);
            }
        }
        let logits = ArrayD::from_shape_vec(vec![n_rows, width], logits);
        Ok(logits.map_err(brought)?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn best_tokens_are_in_ascending_order() {
        let state: Values = [(BEST, array![2i64, 1, 7, 4].into_dyn())].into_iter().collect();
        let best = Best::wanted(&state, Some(10)).expect("a request");
        let floats = |numbers: [f32; 4]| numbers.map(f32::to_ne_bytes).concat();
        let scores = floats([-0.5, -1.0, -0.25, -2.0]);
        let tokens = [8i64, 4, 1, 9].map(i64::to_ne_bytes).concat();
        let always = floats([-3.0, -1.0, -4.0, -5.0]);
        let logits = best.logits([&scores, &tokens, &always], 2).expect("logits");
        let logits = logits.to_f32().expect("floats");
        let none = f32::NEG_INFINITY;
        let expected = array![
            [4.0, 7.0, 8.0, 10.0, -1.0, -3.0, -0.5, none, -0.5, 0.5],
            [1.0, 4.0, 7.0, 9.0, -0.25, -5.0, -4.0, -2.0, -0.25, 0.25]
        ];
        assert_eq!(logits, expected.into_dyn());
        assert!(Best::wanted(&Values::new(), Some(10)).is_none());
    }
}
