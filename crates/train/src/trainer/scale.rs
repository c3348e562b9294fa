//! The scaled loss of training in half precision.

use cognate_runtime::{Value, Values};
use ndarray::Array1;

use crate::gradients::LOSS_SCALE;

/// The factor of the loss in half precision (Micikevicius et al. 2018, section 3.2): halved when a
/// gradient overflows, doubled after many updates without that. In the state it is the tensor
/// [`LOSS_SCALE`] with both numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) factor: f32,
    /// Since the factor changed.
    n_updates: f32,
}

impl Scale {
    /// As PyTorch's for a mean over 8,192 tokens; our loss is a sum.
    const FIRST: Self = Self { factor: 8.0, n_updates: 0.0 };
    /// Number of updates without overflow after which the factor is doubled, as in PyTorch.
    const PATIENCE: f32 = 2_000.0;
    /// Below it, gradients are infinite for another reason.
    const SMALLEST: f32 = 1e-3;

    pub(super) fn after(self, is_finite: bool) -> Self {
        match (is_finite, self.n_updates + 1.0) {
            (false, _) => Self { factor: self.factor / 2.0, n_updates: 0.0 },
            (true, Self::PATIENCE..) => Self { factor: self.factor * 2.0, n_updates: 0.0 },
            (true, n_updates) => Self { n_updates, ..self },
        }
    }

    /// Whether an overflow is expected at times.
    pub(super) fn tolerates_overflow(self) -> bool {
        self.factor > Self::SMALLEST
    }

    pub(super) fn in_state(state: &Values) -> Option<Self> {
        match state.get(LOSS_SCALE)? {
            Value::F32(numbers) => Some(Self { factor: numbers[0], n_updates: numbers[1] }),
            _ => None,
        }
    }

    pub(super) fn put(self, state: &mut Values) {
        state.insert(LOSS_SCALE, Array1::from(vec![self.factor, self.n_updates]).into_dyn());
    }

    pub(super) fn first(state: &mut Values) {
        Self::FIRST.put(state);
    }
}
