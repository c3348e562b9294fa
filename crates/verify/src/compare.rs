//! Named tolerances, and the comparison of tensors.

use cognate_folder::Precision;
use ndarray::ArrayD;
use std::fmt;

/// The maximum distance of a runtime from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// The name in reports.
    pub name: &'static str,
    /// Maximum relative L2 error, `|out - ref| / |ref|`.
    pub relative_l2: f64,
    /// Minimum share of equal choices in steps of greedy decoding, each after the reference's own
    /// tokens; below 1, a step may differ, however few they are.
    pub equal_steps: f64,
    /// Minimum mean cosine with the reference's vectors: those of texts by an encoder-only model,
    /// or the states of an encoder that reads audio. If set, it replaces the bound on that
    /// encoder's outputs.
    pub least_cosine: Option<f64>,
}

impl Tolerance {
    /// The bound on the errors of an export in this precision.
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::F32 => CLOSE,
            Precision::F16 => HALF,
            Precision::Bf16 => BFLOAT16,
            Precision::Int8 | Precision::Int8Tensor | Precision::Int8Block => QUANTISED,
            Precision::Int4 => QUANTISED_4,
        }
    }

    /// The bound for values that amplify rounding, if another implementation's own rounding moves
    /// its float64 by `rounding`: at least twice that, because two programs may round in opposite
    /// directions.
    ///
    /// ```
    /// use cognate_verify::CLOSE;
    /// assert_eq!(CLOSE.beside(4e-6).relative_l2, CLOSE.relative_l2);
    /// assert_eq!(CLOSE.beside(2e-5).relative_l2, 4e-5);
    /// ```
    #[must_use]
    pub fn beside(self, rounding: f64) -> Self {
        Self { relative_l2: self.relative_l2.max(2.0 * rounding), ..self }
    }
}

/// Bit for bit.
pub const EXACT: Tolerance =
    Tolerance { name: "EXACT", relative_l2: 0.0, equal_steps: 1.0, least_cosine: None };

/// f32 on any runtime against the f64 reference.
pub const CLOSE: Tolerance =
    Tolerance { name: "CLOSE", relative_l2: 1e-5, equal_steps: 1.0, least_cosine: None };

/// f16 on any runtime against the f64 reference of the f32 model: an f16 is accurate to 5e-4, and a
/// chain of a few dozen roundings to 40 times that.
pub const HALF: Tolerance =
    Tolerance { name: "HALF", relative_l2: 2e-2, equal_steps: 0.99, least_cosine: None };

/// bfloat16 on any runtime against the f64 reference of the f32 model: a number is accurate to
/// 2e-3, with four times the error of an f16.
pub const BFLOAT16: Tolerance =
    Tolerance { name: "BFLOAT16", relative_l2: 8e-2, equal_steps: 0.95, least_cosine: None };

/// 8-bit integers on any runtime against the f64 reference of the f32 model: weights and
/// activations are rounded to a 254th of their range, which moves each product by a few
/// thousandths, and a chain of layers by a few hundredths. With a real model 0.996 of the choices
/// were equal with a step size for each row, 0.980 with a step size for each batch; a verification
/// compares a few dozen of them. The vectors of 20 sentences by all-MiniLM-L6-v2 had a mean cosine
/// of 0.9956 with those of f32; its states, a few of which are far larger than the others, moved by
/// 1.3e-1.
pub const QUANTISED: Tolerance =
    Tolerance { name: "QUANTISED", relative_l2: 1e-1, equal_steps: 0.9, least_cosine: Some(0.98) };

/// 4-bit integers in blocks on any runtime against the f64 reference of the f32 model: weights are
/// rounded to a fifteenth of their block's range, 16 times as coarsely as in 8 bits. With a real
/// model logits moved by 5e-2 and 0.957 of 15,591 choices were equal; of the few dozen in a
/// verification, 0.82. The vectors of 20 sentences by all-MiniLM-L6-v2 had a mean cosine of 0.968.
pub const QUANTISED_4: Tolerance = Tolerance {
    name: "QUANTISED_4",
    relative_l2: 2e-1,
    equal_steps: 0.7,
    least_cosine: Some(0.94),
};

/// The distance between two tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Measured {
    /// The largest `|out - ref|` of all elements.
    pub max_absolute: f64,
    /// `|out - ref| / |ref|`, both L2 norms over all elements; 0 if the tensors are equal.
    pub relative_l2: f64,
}

impl Measured {
    /// Whether the distance is within `tolerance`; false if it is NaN.
    pub fn within(self, tolerance: Tolerance) -> bool {
        self.relative_l2 <= tolerance.relative_l2
    }

    /// The maximum of each measure; NaN if one is NaN.
    pub fn or_worse(self, other: Measured) -> Measured {
        let larger = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
        Measured {
            max_absolute: larger(self.max_absolute, other.max_absolute),
            relative_l2: larger(self.relative_l2, other.relative_l2),
        }
    }
}

/// The distance of `found` from `expected`; `None` if their shapes differ.
///
/// ```
/// use cognate_verify::{CLOSE, compare};
/// use ndarray::array;
/// let (expected, found) = (array![3.0, 4.0].into_dyn(), array![3.0, 4.5].into_dyn());
/// let measured = compare(&found, &expected).unwrap();
/// assert_eq!((measured.max_absolute, measured.relative_l2), (0.5, 0.1));
/// assert!(!measured.within(CLOSE));
/// ```
pub fn compare(found: &ArrayD<f64>, expected: &ArrayD<f64>) -> Option<Measured> {
    let mut total = Total::default();
    total.add(found, expected).then(|| total.measured())
}

/// The distance between the tensors of several batches, as if each were a part of one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    max_absolute: f64,
    difference: f64,
    norm: f64,
}

impl Total {
    /// Adds the tensors of a batch; false if their shapes differ.
    pub(crate) fn add(&mut self, found: &ArrayD<f64>, expected: &ArrayD<f64>) -> bool {
        if found.shape() != expected.shape() {
            return false;
        }
        for (&found, &expected) in found.iter().zip(expected) {
            let error = (found - expected).abs();
            if error.is_nan() || error > self.max_absolute {
                self.max_absolute = error;
            }
            self.difference += error * error;
            self.norm += expected * expected;
        }
        true
    }

    pub(crate) fn measured(self) -> Measured {
        let Self { max_absolute, difference, norm } = self;
        let relative_l2 = if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() };
        Measured { max_absolute, relative_l2 }
    }
}

/// A tensor in one line, for snapshots: shape, norm and some values, with four digits.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    shape: Vec<usize>,
    norm: f64,
    first: Vec<f64>,
}

impl Summary {
    /// The summary of `tensor`.
    pub fn of(tensor: &ArrayD<f64>) -> Self {
        let norm = tensor.iter().map(|value| value * value).sum::<f64>().sqrt();
        Self {
            shape: tensor.shape().to_vec(),
            norm,
            first: tensor.iter().copied().take(4).collect(),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} norm {:.3e} first", self.shape, self.norm)?;
        self.first.iter().try_for_each(|value| write!(f, " {value:.3e}"))
    }
}
