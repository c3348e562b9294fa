//! Middle and extremes of a few measurements.

/// What a handful of rounds gave, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// The median of an even number of samples lies between the middle two.
    ///
    /// # Panics
    /// When there are no samples.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Summary {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        assert!(count > 0, "a bench has at least one round");
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Summary { median, min: sorted[0], max: sorted[count - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        for (samples, median) in [(&[3.0][..], 3.0), (&[9.0, 1.0, 2.0], 2.0), (&[4.0, 1.0, 2.0, 9.0], 3.0)] {
            let summary = Summary::of(samples.iter().copied());
            assert_eq!(summary.median, median, "{samples:?}");
            assert!(summary.min <= median && median <= summary.max);
        }
    }
}
