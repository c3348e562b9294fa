//! Median and extremes of a few measurements, and bounds of ratios.

use xtask::table::table;

/// The result of some rounds, in the unit of the samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// The median of an even number of samples is the mean of the middle two.
    ///
    /// # Panics
    /// If there are no samples.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Summary {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len();
        assert!(count > 0, "a bench has at least one round");
        let median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0;
        Summary { median, min: sorted[0], max: sorted[count - 1] }
    }
}

/// A table of summaries with their numbers of digits after the point.
pub fn figures(title: &str, rows: impl IntoIterator<Item = (String, Summary, usize)>) -> String {
    let row = |(name, Summary { median, min, max }, digits): (String, Summary, usize)| {
        [&[name][..], &[median, min, max].map(|number| format!("{number:.digits$}"))].concat()
    };
    table(&[title, "median", "min", "max"], &rows.into_iter().map(row).collect::<Vec<_>>())
}

/// The bound of a ratio; a number with two digits after the point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    /// Whether the unrounded ratio is within the bound.
    pub fn is_kept(self, ratio: f64) -> bool {
        match self {
            Bound::AtLeast(bound) => ratio >= bound,
            Bound::AtMost(bound) => ratio <= bound,
        }
    }

    /// The ratio with two digits after the point, rounded so that it stays on the same side of the
    /// bound.
    pub fn shown(self, ratio: f64) -> String {
        const DIGIT: f64 = 0.01;
        let nearest = format!("{ratio:.2}");
        let is_beside =
            nearest.parse().is_ok_and(|nearest| self.is_kept(nearest) == self.is_kept(ratio));
        match self {
            _ if is_beside || ratio.is_nan() => nearest,
            // Only a ratio that misses the bound could be rounded to it: the bound also has two
            // digits.
            Bound::AtLeast(bound) => format!("{:.2}", bound - DIGIT),
            Bound::AtMost(bound) => format!("{:.2}", bound + DIGIT),
        }
    }

    /// `at least 1.2`
    pub fn words(self) -> String {
        match self {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        }
    }

    /// A cell of a table: the ratio, and the bound if it is missed.
    pub fn cell(self, ratio: f64) -> String {
        let shown = self.shown(ratio);
        match self {
            _ if self.is_kept(ratio) => shown,
            Bound::AtLeast(bound) => format!("**{shown} < {bound}**"),
            Bound::AtMost(bound) => format!("**{shown} > {bound}**"),
        }
    }
}
