//! The arithmetic of scores.

/// In which type a score is computed of its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Double,
    /// Every step is rounded to f32, as in sacreBLEU's resampling. In f64 and then rounded is the same for one step.
    Single,
}

impl Arithmetic {
    pub(crate) fn round(self, number: f64) -> f64 {
        match self {
            Self::Double => number,
            Self::Single => f64::from(number as f32),
        }
    }
}
