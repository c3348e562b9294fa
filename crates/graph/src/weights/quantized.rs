//! Weights of 8 bits with a step size for each column of a layer's matrix.
//!
//! `W[j, i] ≈ q[i, j] · s[j]`, `s[j] = max_i |W[j, i]| / 127`, `q` rounded to nearest, ties to even
//!
//! `W: [out, in]` as in PyTorch, `q: i8 [in, out]` as ONNX multiplies it, `s: [out]`; for a table,
//! whose rows are gathered, `q: i8 [rows, width]`, `s: [rows, 1]`.

use super::{Element, Generator, Recipe};
use std::sync::{Arc, OnceLock};

/// The number of steps on either side of zero.
const STEPS: f32 = 127.0;

/// A layer's weight in 8 bits: recipes of its integers and of their step sizes.
#[derive(Clone, Debug)]
pub struct Quantized {
    /// `q: i8 [in, out]`
    pub values: Recipe,
    /// `s: [out]`
    pub scales: Recipe,
}

impl Quantized {
    /// Quantises `weight: [out, in]`; the weight is read only when one of the recipes is.
    ///
    /// # Panics
    /// If the weight is not a matrix.
    pub fn new(weight: &Recipe) -> Self {
        let &[outputs, inputs] = weight.shape() else {
            panic!("a layer's weight is a matrix, found {:?}", weight.shape())
        };
        let scales = Arc::new(Scales {
            weight: weight.to(Element::F32),
            outputs,
            inputs,
            values: OnceLock::new(),
        });
        Self {
            values: Recipe::generated(
                Arc::new(Values { scales: scales.clone() }),
                &[inputs, outputs],
            )
            .to(Element::I8),
            scales: Recipe::generated(scales, &[outputs]),
        }
    }
}

/// A table in 8 bits with a step size for each row.
#[derive(Clone, Debug)]
pub struct QuantizedTable {
    /// `q: i8 [rows, width]`
    pub values: Recipe,
    /// `s: [rows, 1]`
    pub scales: Recipe,
}

impl QuantizedTable {
    /// Quantises `table: [rows, width]`; the table is read only when one of the recipes is.
    ///
    /// # Panics
    /// If the table is not a matrix.
    pub fn new(table: &Recipe) -> Self {
        let &[rows, width] = table.shape() else {
            panic!("a table is a matrix, found {:?}", table.shape())
        };
        let scales = Arc::new(Scales {
            weight: table.to(Element::F32),
            outputs: rows,
            inputs: width,
            values: OnceLock::new(),
        });
        Self {
            values: Recipe::generated(Arc::new(Rows { scales: scales.clone() }), &[rows, width])
                .to(Element::I8),
            scales: Recipe::generated(scales, &[rows, 1]),
        }
    }
}

#[derive(Debug)]
struct Scales {
    weight: Recipe,
    outputs: usize,
    inputs: usize,
    values: OnceLock<Vec<f32>>,
}

impl Scales {
    fn get(&self) -> &[f32] {
        self.values.get_or_init(|| {
            let mut row = vec![0f32; self.inputs];
            let scale = |output: usize| {
                self.weight.read(output * self.inputs, &mut row);
                let largest = row.iter().fold(0f32, |largest, value| largest.max(value.abs()));
                if largest > 0.0 { largest / STEPS } else { 1.0 }
            };
            (0..self.outputs).map(scale).collect()
        })
    }
}

impl Generator for Scales {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.get()[first..first + values.len()]);
    }
}

#[derive(Debug)]
struct Values {
    scales: Arc<Scales>,
}

impl Generator for Values {
    fn fill(&self, first: usize, values: &mut [f32]) {
        if values.is_empty() {
            return;
        }
        let Scales { weight, outputs, inputs, .. } = &*self.scales;
        let scales = self.scales.get();
        // The rows `i` of `[in, out]` that overlap the range: a short piece of each row `j` of the
        // weight.
        let (from, to) = (first / outputs, (first + values.len() - 1) / outputs);
        let mut piece = vec![0f32; to + 1 - from];
        for (output, scale) in scales.iter().enumerate() {
            weight.read(output * inputs + from, &mut piece);
            for (value, input) in piece.iter().zip(from..) {
                if let Some(place) = (input * outputs + output)
                    .checked_sub(first)
                    .and_then(|place| values.get_mut(place))
                {
                    *place = (value / scale).round_ties_even();
                }
            }
        }
    }
}

#[derive(Debug)]
struct Rows {
    scales: Arc<Scales>,
}

impl Generator for Rows {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let Scales { weight, inputs, .. } = &*self.scales;
        weight.read(first, values);
        let scales = self.scales.get();
        values.iter_mut().zip(first..).for_each(|(value, place)| {
            *value = (*value / scales[place / inputs]).round_ties_even()
        });
    }
}
