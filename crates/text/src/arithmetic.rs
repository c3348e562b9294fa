//! The arithmetic of scores.

/// The floating-point type in which a score is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Double,
    /// Every step is rounded to f32, as in sacreBLEU's resampling; one step in f64 then rounds to
    /// the same number.
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
