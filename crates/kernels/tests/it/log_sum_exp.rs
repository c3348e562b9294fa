//! Logarithms of sums and their gradients, compared with f64.

use crate::common::{InTurn, numbers};
use cognate_kernels::{Gradients, LogSumExp, Parallel, Serial, Softmax};

#[test]
fn gradients_are_as_in_f64() {
    for (n, width, vocab) in [(3, 5, 7), (40, 33, 70), (300, 40, 1_100), (33, 64, 2_500)] {
        let scaled = |n, seed, scale: f32| -> Vec<f32> {
            numbers(n, seed).into_iter().map(|number| number * scale).collect()
        };
        let (hidden, weight) = (scaled(n * width, 1, 0.5), scaled(vocab * width, 2, 1.0));
        let (bias, mut factors) = (scaled(vocab, 3, 1.0), numbers(n, 4));
        factors[n / 2] = 0.0;
        for (bias, threads, in_bf16) in [
            (None, &Serial as &dyn Parallel, false),
            (Some(&*bias), &Serial, false),
            (Some(&*bias), &InTurn, false),
            (Some(&*bias), &InTurn, true),
        ] {
            let given = LogSumExp { hidden: &hidden, weight: &weight, bias, width, in_bf16 };
            let exact = exact(&given, &factors);
            let nan = |n: usize| vec![f32::NAN; n];
            let mut found = [nan(n), nan(n * width), nan(vocab * width), nan(vocab)];
            let [logarithms, to_hidden, to_weight, to_bias] = &mut found;
            given.logarithms(logarithms, threads);
            let of = Softmax { logarithms, factors: &factors };
            let to = Gradients {
                hidden: to_hidden,
                weight: to_weight,
                bias: bias.map(|_| &mut **to_bias),
            };
            given.differentiate(of, to, threads);
            let what = format!("{n} {width} {vocab} {in_bf16}");
            check(&found, &exact, &what, &given);
            let mut found = [nan(n), nan(n * width), nan(vocab * width), nan(vocab)];
            let [logarithms, to_hidden, to_weight, to_bias] = &mut found;
            let to = Gradients {
                hidden: to_hidden,
                weight: to_weight,
                bias: bias.map(|_| &mut **to_bias),
            };
            given.logarithms_and_gradients(&factors, logarithms, to, threads);
            check(&found, &exact, &format!("together, {what}"), &given);
        }
    }
}

/// Compares `l, dH, dW, db` with what they are exactly.
fn check(found: &[Vec<f32>; 4], exact: &[Vec<Sum>; 4], what: &str, given: &LogSumExp<'_>) {
    // The numbers of terms: `width`, `vocab`, `n` and `n`.
    let [n, width] = [found[0].len(), found[1].len() / found[0].len()];
    let terms = [("l", width), ("dH", found[3].len()), ("dW", n), ("db", n)];
    let n_found = 3 + usize::from(given.bias.is_some());
    for ((name, terms), (found, exact)) in terms.iter().zip(found.iter().zip(exact)).take(n_found) {
        let norm = |number: &dyn Fn(usize) -> f64| {
            (0..found.len()).map(|place| number(place).powi(2)).sum::<f64>().sqrt()
        };
        let error = norm(&|place| f64::from(found[place]) - exact[place].sum)
            / norm(&|place| exact[place].size);
        // Rounding errors of many sums grow with the root of the number of terms.
        let limit = (*terms as f64).sqrt() * f64::from(f32::EPSILON) / 2.0;
        // Of bfloat16, each operand is wrong by up to 2^-9 of itself.
        let limit = if given.in_bf16 { 2.0_f64.powi(-8) } else { limit.max(1e-6) };
        assert!(error < limit, "{what}: {name} differs by {error:e}");
    }
}

/// A sum, and that of the magnitudes.
#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    size: f64,
}

impl std::ops::AddAssign<f64> for Sum {
    fn add_assign(&mut self, number: f64) {
        self.sum += number;
        self.size += number.abs();
    }
}

/// `l, dH, dW, db`
fn exact(given: &LogSumExp<'_>, factors: &[f32]) -> [Vec<Sum>; 4] {
    let width = given.width;
    let [n, vocab] = [given.hidden, given.weight].map(|rows| rows.len() / width);
    let zeros = |n| vec![Sum::default(); n];
    let [mut logarithms, mut bias] = [zeros(n), zeros(vocab)];
    let [mut hidden, mut weight] = [zeros(n * width), zeros(vocab * width)];
    let number = |numbers: &[f32], place: usize| f64::from(numbers[place]);
    for (row, to_logarithm) in logarithms.iter_mut().enumerate() {
        let logit = |column: usize| {
            let products = (0..width).map(|input| {
                number(given.hidden, row * width + input)
                    * number(given.weight, column * width + input)
            });
            products.sum::<f64>() + given.bias.map_or(0.0, |bias| number(bias, column))
        };
        let logits: Vec<f64> = (0..vocab).map(logit).collect();
        let logarithm = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        *to_logarithm += logarithm;
        for (column, logit) in logits.iter().enumerate() {
            let share = number(factors, row) * (logit - logarithm).exp();
            bias[column] += share;
            for input in 0..width {
                let (place, of_weight) = (row * width + input, column * width + input);
                hidden[place] += share * number(given.weight, of_weight);
                weight[of_weight] += share * number(given.hidden, place);
            }
        }
    }
    [logarithms, hidden, weight, bias]
}
