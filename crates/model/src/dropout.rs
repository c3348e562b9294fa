//! Dropout (Srivastava et al. 2014), where the paper (section 5.4) and its descendants have it.
//!
//! `y = x ⊙ m / (1 - p)`, `m` zero with probability `p`
//!
//! Which elements are left out depends on the input `dropout_seed`, the place in the model and the place in the tensor, and on
//! nothing else: a run that goes on from a saved state leaves out the same ones. ONNX's own Dropout and random operators keep
//! states that cannot be saved.
//!
//! The number of the element in row `r` and column `c` of a tensor is `⟨A_r, B_c⟩ mod 509`, with `A_r` and `B_c` four random
//! residues each: uniform, independent for any two elements, and for any number of elements of one column whose `A_r` are
//! linearly independent. The `A` belong to a number of rows, the `B` to a place in the model. Only they are hashed, in integers;
//! the product is one `Gemm` whose sums are below 2048, so that single precision tells all residues apart and every engine leaves out the
//! same elements.

use crate::Error;
use cognate_graph::{Builder, DType, Dim, Tensor, Unary};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// The input that dropout depends on: i64 `[]`, of which 31 bits count. Every batch wants another.
pub(crate) const SEED: &str = "dropout_seed";

/// With which probability elements are left out, `0 <= p < 1`. They are rounded to a 509th; at 0 the graph is without dropout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutRates {
    /// Of the sum of embeddings and positions.
    pub embedding: f32,
    /// Of what each sublayer adds.
    pub sublayer: f32,
    /// Of attention weights.
    pub attention: f32,
    /// Inside the feed-forward.
    pub activation: f32,
}

impl DropoutRates {
    /// The paper's: embeddings and sublayers.
    pub fn paper(rate: f32) -> Self {
        Self { embedding: rate, sublayer: rate, ..Self::default() }
    }

    fn named(&self) -> [(&'static str, f32); 4] {
        let Self { embedding, sublayer, attention, activation } = *self;
        [("embedding", embedding), ("sublayer", sublayer), ("attention", attention), ("activation", activation)]
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.named().into_iter().find(|(_, rate)| !(0.0..=LARGEST).contains(rate)) {
            Some((name, rate)) => {
                Err(Error::new(crate::ErrorKind::Config, "dropout", format!("{name} wants 0 to {LARGEST}, found {rate}")))
            }
            None => Ok(()),
        }
    }
}

/// Beyond it, what is left of a tensor says little, and scales grow without bound.
const LARGEST: f32 = 0.95;

/// A prime: residues are its numbers.
const RESIDUES: i64 = 509;
/// Residues of a row, and of a column.
const KEYS: i64 = 4;
/// A prime whose squares fit into 64 bits twice.
const PRIME: i64 = (1 << 31) - 1;
/// What tells places apart, and rounds of the hash.
const STEPS: [i64; 3] = [1_640_531_527, 1_013_904_223, 1_779_033_703];
const SHIFT: i64 = 40_503;

/// The elements that a graph leaves out.
pub(crate) struct Dropout<'g>(Option<Active<'g>>);

struct Active<'g> {
    rates: DropoutRates,
    /// i64 `[]`
    seed: Tensor<'g>,
    /// How many tensors have been through.
    places: Cell<i64>,
    /// `[rows, 4]`, a 509th of residues, by the number of rows.
    rows: RefCell<HashMap<Dim, Tensor<'g>>>,
}

impl<'g> Dropout<'g> {
    /// Nothing is left out.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// With these rates; declares the input for the seed if one of them is not zero.
    pub(crate) fn new(builder: &'g Builder, rates: DropoutRates) -> Self {
        let is_active = rates.named().iter().any(|(_, rate)| dropped_residues(*rate) > 0);
        Self(is_active.then(|| Active {
            rates,
            seed: builder.input(SEED, DType::I64, [] as [i64; 0]),
            places: Cell::new(0),
            rows: RefCell::default(),
        }))
    }

    pub(crate) fn embedding(&self, x: Tensor<'g>) -> Tensor<'g> {
        self.apply(x, |rates| rates.embedding)
    }

    pub(crate) fn sublayer(&self, x: Tensor<'g>) -> Tensor<'g> {
        self.apply(x, |rates| rates.sublayer)
    }

    pub(crate) fn attention(&self, x: Tensor<'g>) -> Tensor<'g> {
        self.apply(x, |rates| rates.attention)
    }

    pub(crate) fn activation(&self, x: Tensor<'g>) -> Tensor<'g> {
        self.apply(x, |rates| rates.activation)
    }

    fn apply(&self, x: Tensor<'g>, rate: impl Fn(&DropoutRates) -> f32) -> Tensor<'g> {
        let Some(active) = &self.0 else { return x };
        match dropped_residues(rate(&active.rates)) {
            0 => x,
            dropped => x * active.factors(x, dropped),
        }
    }
}

fn dropped_residues(rate: f32) -> i64 {
    (rate * RESIDUES as f32).round() as i64
}

impl<'g> Active<'g> {
    /// 0 for what is left out, `1 / (1 - p)` for the rest, shaped as `x`.
    fn factors(&self, x: Tensor<'g>, dropped: i64) -> Tensor<'g> {
        let builder = x.builder();
        let _scope = builder.root().at("dropout").enter();
        let shape = x.ty().shape;
        let [leading @ .., width] = shape.dims() else { return builder.scalar(1.0) };
        let count = leading.iter().fold(Dim::from(1), |count, dim| count * dim);
        let place = self.places.replace(self.places.get() + 1);
        let rows = *self.rows.borrow_mut().entry(count.clone()).or_insert_with_key(|count| self.residues(count, -1) / RESIDUES as f32);
        let columns = self.residues(width, place);
        // Halves between the residues, so that rounding never crosses an integer.
        let half = builder.scalar(0.5 / RESIDUES as f32).expand([width]);
        let numbers = rows.linear(columns, Some(half));
        let kept = (RESIDUES - dropped) as f32 / RESIDUES as f32;
        // One more for residues from `dropped` on: their fraction and the share kept pass 1.
        let is_kept = (numbers + kept).map(Unary::Floor) - numbers.map(Unary::Floor);
        (is_kept * (1.0 / kept)).reshape(shape)
    }

    /// Random residues `[count, 4]`, others at every place.
    fn residues(&self, count: &Dim, place: i64) -> Tensor<'g> {
        let builder = self.seed.builder();
        let integer = |value| builder.integer(value);
        let remainder = |x: Tensor<'g>, divisor| x % integer(divisor);
        // Not a range: tract 0.23.9 follows the formula of a range's elements through all that is done to them, until it overflows.
        let indices = integer(1).expand([count * KEYS]).cumulative_sum();
        let key = remainder(remainder(self.seed, PRIME) * integer(STEPS[0]) + integer((place + 2) * STEPS[1] % PRIME), PRIME);
        // Almost squares modulo a prime (tract 0.23.9 has no squares of integers), with a step for each element beside, so that no
        // two stay equal.
        let steps = indices * integer(STEPS[2]) + key;
        let hashed = (0..3).fold(remainder(steps, PRIME), |x, _| remainder(x * (x + integer(SHIFT)) + steps, PRIME));
        remainder(hashed, RESIDUES).cast(DType::F32).reshape([count, &KEYS.into()])
    }
}
