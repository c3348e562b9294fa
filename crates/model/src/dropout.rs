//! Dropout (Srivastava et al. 2014), where the paper (section 5.4) and its descendants apply it.
//!
//! `y = x ⊙ m / (1 - p)`, `m` zero with probability `p`
//!
//! The mask depends only on the input `dropout_seed`, the position in the model and the position in
//! the tensor, so a resumed run has the same masks. ONNX's Dropout and random operators have states
//! that cannot be saved.
//!
//! The number of the element in row `r` and column `c` of a tensor is `⟨A_r, B_c⟩ mod 509`, with
//! four random residues each in `A_r` and `B_c`: uniform, independent for any two elements, and
//! for any number of elements of one column whose `A_r` are linearly independent. `A` depends on
//! the number of rows, `B` on the position in the model. Only they are hashed, in integers. The
//! product is one `Gemm` with sums below 2048, exact in single precision, so every engine drops
//! the same elements.

use crate::Error;
use cognate_graph::{Builder, DType, Dim, Tensor, Unary};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// Name of the input that dropout depends on: i64 `[]`, of which 31 bits are used. Every batch
/// needs a different value.
pub(crate) const SEED: &str = "dropout_seed";

/// Probabilities of dropout, `0 <= p < 1`, rounded to multiples of 1/509. At 0 the graph
/// contains no dropout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutRates {
    /// For the sum of embeddings and positions.
    pub embedding: f32,
    /// For the output of each sublayer.
    pub sublayer: f32,
    /// For attention weights.
    pub attention: f32,
    /// Inside the feed-forward, after the activation.
    pub activation: f32,
}

impl DropoutRates {
    /// The maximum rate. Above it little of a tensor is left, and scales grow without bound.
    pub const LARGEST: f32 = 0.95;

    /// The paper's dropout: embeddings and sublayers.
    pub fn paper(rate: f32) -> Self {
        Self { embedding: rate, sublayer: rate, ..Self::default() }
    }

    fn named(&self) -> [(&'static str, f32); 4] {
        let Self { embedding, sublayer, attention, activation } = *self;
        [
            ("embedding", embedding),
            ("sublayer", sublayer),
            ("attention", attention),
            ("activation", activation),
        ]
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.named().into_iter().find(|(_, rate)| !(0.0..=Self::LARGEST).contains(rate)) {
            Some((name, rate)) => Err(Error::new(
                crate::ErrorKind::Config,
                "dropout",
                format!("{name}: expected 0 to {}, found {rate}", Self::LARGEST),
            )),
            None => Ok(()),
        }
    }
}

/// The modulus, a prime.
const RESIDUES: i64 = 509;
/// The number of residues of a row or column.
const KEYS: i64 = 4;
/// A prime; twice its square fits into 64 bits.
const PRIME: i64 = (1 << 31) - 1;
/// Multipliers of seed, position and index in the hash.
const STEPS: [i64; 3] = [1_640_531_527, 1_013_904_223, 1_779_033_703];
const SHIFT: i64 = 40_503;

/// The dropout of a graph.
pub(crate) struct Dropout<'g>(Option<Active<'g>>);

struct Active<'g> {
    rates: DropoutRates,
    /// i64 `[]`
    seed: Tensor<'g>,
    /// The number of tensors processed.
    places: Cell<i64>,
    /// Residues over 509, `[rows, 4]`, by number of rows.
    rows: RefCell<HashMap<Dim, Tensor<'g>>>,
    /// Residues `[places, columns, 4]` of [`TOGETHER`] places, by number of columns and the first
    /// place.
    columns: RefCell<HashMap<(Dim, i64), Tensor<'g>>>,
}

/// The number of places whose columns are hashed together: a GPU takes longer to start an
/// operation than to hash a few thousand integers.
const TOGETHER: i64 = 16;

impl<'g> Dropout<'g> {
    /// No dropout.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Dropout with these rates. Declares the input for the seed if one of them is not zero.
    pub(crate) fn new(builder: &'g Builder, rates: DropoutRates) -> Self {
        let is_active = rates.named().iter().any(|(_, rate)| dropped_residues(*rate) > 0);
        Self(is_active.then(|| Active {
            rates,
            seed: builder.input(SEED, DType::I64, [] as [i64; 0]),
            places: Cell::new(0),
            rows: RefCell::default(),
            columns: RefCell::default(),
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
    /// The factors of `x`, in its shape: 0 for dropped elements, `1 / (1 - p)` for others.
    fn factors(&self, x: Tensor<'g>, dropped: i64) -> Tensor<'g> {
        let builder = x.builder();
        let _scope = builder.root().at("dropout").enter();
        let shape = x.ty().shape;
        let [leading @ .., width] = shape.dims() else { return builder.scalar(1.0) };
        let count = leading.iter().fold(Dim::from(1), |count, dim| count * dim);
        let place = self.places.replace(self.places.get() + 1);
        let rows = *self.rows.borrow_mut().entry(count.clone()).or_insert_with_key(|count| {
            self.residues(count, &[-1]).reshape([count.clone(), KEYS.into()]) / RESIDUES as f32
        });
        let first = place - place % TOGETHER;
        let places: Vec<i64> = (first..first + TOGETHER).collect();
        let columns = *self
            .columns
            .borrow_mut()
            .entry((width.clone(), first))
            .or_insert_with(|| self.residues(width, &places));
        let columns = columns
            .slice(0, place - first, place - first + 1)
            .reshape([width.clone(), KEYS.into()]);
        let numbers = rows.linear(columns, None).reshape(shape);
        // Offset by half a residue, so that rounding never crosses an integer.
        let half = 0.5 / RESIDUES as f32;
        let kept = (RESIDUES - dropped) as f32 / RESIDUES as f32;
        // 1 for residues from `dropped` on, where the fraction plus the share kept reaches 1.
        let [above, below] = [half + kept, half].map(|from| (numbers + from).map(Unary::Floor));
        (above - below) * (1.0 / kept)
    }

    /// Random residues `[places, count, 4]`, different at every position.
    fn residues(&self, count: &Dim, places: &[i64]) -> Tensor<'g> {
        let builder = self.seed.builder();
        let integer = |value| builder.integer(value);
        let remainder = |x: Tensor<'g>, divisor| x % integer(divisor);
        // Not a range: tract 0.23.9 propagates the formula of a range's elements through later
        // operations until it overflows.
        let indices = integer(1).expand([count * KEYS]).cumulative_sum();
        let offsets = places.iter().map(|place| (place + 2) * STEPS[1] % PRIME).collect();
        let offsets = builder.integers(offsets).reshape([places.len() as i64, 1]);
        let keys = remainder(remainder(self.seed, PRIME) * integer(STEPS[0]) + offsets, PRIME);
        // Almost squares modulo a prime (tract 0.23.9 has no squares of integers), plus a different
        // step per element, so that no two remain equal.
        let steps = indices * integer(STEPS[2]) + keys;
        let hashed = (0..3).fold(remainder(steps, PRIME), |x, _| {
            remainder(x * (x + integer(SHIFT)) + steps, PRIME)
        });
        let places = Dim::from(places.len() as i64);
        remainder(hashed, RESIDUES).cast(DType::F32).reshape([places, count.clone(), KEYS.into()])
    }
}
