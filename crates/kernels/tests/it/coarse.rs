//! Products with 16 bits of each number, compared with f64.

use crate::common::InTurn;
use cognate_kernels::{CoarseRows, Exact, Wanted, Weights, best};
use half::f16;

/// Numbers between -1 and 1, by SplitMix64 (Steele et al. 2014): rounding errors must not have a
/// pattern.
fn random(n: usize, seed: u64) -> Vec<f32> {
    let number = |index: u64| {
        let mixed = (seed << 32 | index).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n as u64).map(number).collect()
}

/// A layer `[outputs, inputs]`, its bias, and rows `[n, inputs]`.
struct Layer {
    n: usize,
    inputs: usize,
    outputs: usize,
    x: Vec<f32>,
    weights: Vec<f32>,
    bias: Vec<f32>,
}

impl Layer {
    fn new([n, inputs, outputs]: [usize; 3]) -> Self {
        let (x, weights) = (random(n * inputs, 1), random(inputs * outputs, 2));
        Self { n, inputs, outputs, x, weights, bias: random(outputs, 3) }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.x[row * self.inputs..][..self.inputs]
    }

    /// A number of the product in f64.
    fn number(&self, row: usize, output: usize) -> f64 {
        let weights = &self.weights[output * self.inputs..][..self.inputs];
        let products = self.row(row).iter().zip(weights);
        let sum: f64 = products.map(|(&x, &weight)| f64::from(x) * f64::from(weight)).sum();
        sum + f64::from(self.bias[output])
    }

    /// `None` if the processor has no such products, or they are not used.
    fn pack(&self) -> Option<(Weights, CoarseRows)> {
        let fill = |output: usize, to: &mut [f32]| {
            to.copy_from_slice(&self.weights[output * self.inputs..][..self.inputs]);
        };
        let weights = Weights::pack(self.inputs, self.outputs, fill, Some(&self.bias));
        let rows = weights.coarse_rows(&self.x)?;
        Some((weights, rows))
    }
}

#[test]
fn products_are_as_near_to_f64_as_is_said() {
    for (place, sizes) in
        [[77, 300, 461], [32, 32, 31], [64, 7, 128], [77, 300, 461]].into_iter().enumerate()
    {
        let mut layer = Layer::new(sizes);
        if place == 3 {
            let round = |weight: &mut f32| *weight = f16::from_f32(*weight).to_f32();
            layer.weights.iter_mut().for_each(round);
        }
        let Some((weights, rows)) = layer.pack() else { return };
        for (first, columns) in [(0, 0..layer.outputs), (32, 128..layer.outputs), (64, 0..128)] {
            if first >= layer.n || columns.start >= columns.end {
                continue;
            }
            let mut out = vec![f32::NAN; (layer.n - first) * columns.len()];
            weights.multiply_coarsely(&rows, (first..layer.n, columns.clone()), &mut out, &InTurn);
            for (place, &found) in out.iter().enumerate() {
                let (row, column) = (first + place / columns.len(), place % columns.len());
                let distance = (f64::from(found) - layer.number(row, columns.start + column)).abs();
                let error = f64::from(weights.coarse_error(layer.row(row)));
                assert!(distance <= error + 1e-6, "{sizes:?}, {row} {column}: {distance} {error}");
                // Not by far: most errors are much smaller.
                assert!(distance < 4e-5 * (layer.inputs as f64).sqrt(), "{distance}");
            }
        }
    }
}

/// The numbers of a product in f64, rounded.
struct Exactly<'a> {
    layer: &'a Layer,
    weights: &'a Weights,
}

impl Exact for Exactly<'_> {
    fn error_of(&self, row: usize) -> f32 {
        self.weights.coarse_error(self.layer.row(row))
    }

    fn numbers_of(&mut self, row: usize, columns: &[usize]) -> Vec<f32> {
        columns.iter().map(|&column| self.layer.number(row, column) as f32).collect()
    }
}

/// The requested columns are those of the exact product, also where their coarse numbers are in
/// another order, and the softmax is nearly exact whether one number is much larger or none.
#[test]
fn the_best_columns_of_coarse_products_are_exact() {
    best_columns_are_exact(Layer::new([600, 64, 2_100]), false);
    best_columns_are_exact(Layer::new([40, 64, 2_100]), true);
}

fn best_columns_are_exact(mut layer: Layer, is_flat: bool) {
    // Numbers that differ less than coarse ones do; or more of the largest than are corrected.
    let n_equal = if is_flat { 500 } else { 40 };
    layer.bias[0] += if is_flat { 10.0 } else { 0.0 };
    for output in 1..n_equal {
        let first: Vec<f32> = layer.weights[..layer.inputs].to_vec();
        layer.weights[output * layer.inputs..][..layer.inputs].copy_from_slice(&first);
        layer.bias[output] = layer.bias[0] + 1e-6 * ((output * 17) % 40) as f32;
    }
    let Some((weights, rows)) = layer.pack() else { return };
    for (factor, count) in [(0.1, 5), (1.0, 8), (8.0, 12), (1.0, 0)] {
        let wanted = Wanted { count, always: &[2_099, 3] };
        let mut exact = Exactly { layer: &layer, weights: &weights };
        let found = best(
            [layer.n, layer.outputs],
            wanted,
            |_| factor,
            |some, columns, out| weights.multiply_coarsely(&rows, (some, columns), out, &InTurn),
            Some(&mut exact),
        );
        for (row, found) in found.iter().enumerate() {
            let numbers: Vec<f64> =
                (0..layer.outputs).map(|output| layer.number(row, output)).collect();
            let mut order: Vec<usize> = (0..layer.outputs).collect();
            order.sort_by(|&a, &b| {
                (numbers[b] as f32).total_cmp(&(numbers[a] as f32)).then(a.cmp(&b))
            });
            let mut expected: Vec<usize> =
                order.iter().copied().take(count).chain([2_099, 3]).collect();
            expected.sort_unstable();
            expected.dedup();
            let expected: Vec<_> =
                expected.into_iter().map(|column| (column, numbers[column] as f32)).collect();
            assert_eq!(found.columns, expected, "row {row}, factor {factor}");
            let most = numbers[order[0]] * f64::from(factor);
            assert!((f64::from(found.largest) - most).abs() < 1e-5);
            let sum: f64 =
                numbers.iter().map(|number| (number * f64::from(factor) - most).exp()).sum();
            let distance = (f64::from(found.log_sum) - sum.ln()).abs();
            assert!(distance < 1e-5, "row {row}, factor {factor}: {distance}");
        }
    }
}

#[test]
fn rows_and_weights_that_are_not_finite_are_reported() {
    for odd in [f32::NAN, f32::INFINITY, f32::from_bits(0x7fff_ffff)] {
        let mut layer = Layer::new([33, 16, 1_500]);
        layer.x[32 * 16] = odd;
        let Some((weights, rows)) = layer.pack() else { return };
        let mut exact = Exactly { layer: &layer, weights: &weights };
        let found = best(
            [33, 1_500],
            Wanted { count: 2, always: &[] },
            |_| 1.0,
            |some, columns, out| weights.multiply_coarsely(&rows, (some, columns), out, &InTurn),
            Some(&mut exact),
        );
        assert!(found[32].largest.is_nan() && found[32].columns[0].1.is_nan(), "{odd}");
        assert!(found[..32].iter().all(|found| found.largest.is_finite()));
        layer.weights[7] = odd;
        assert!(layer.pack().is_none());
    }
}
