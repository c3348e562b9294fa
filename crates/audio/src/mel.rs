//! The mel scale and its filters, in Slaney's form.

/// Filters over the bins of a spectrum, each a range of bins with weights.
#[derive(Clone, Debug)]
pub(crate) struct MelFilters(Vec<(usize, Vec<f64>)>);

impl MelFilters {
    /// `n_mels` triangular filters from 0 Hz to half of `rate` over `n_bins` bins, each of unit
    /// area (Slaney, Auditory Toolbox, 1998).
    pub(crate) fn slaney(n_mels: usize, n_bins: usize, rate: f64) -> Self {
        let highest = rate / 2.0;
        let edge = |index: usize| hertz(mels(highest) * index as f64 / (n_mels + 1) as f64);
        let frequency = |bin: usize| highest * bin as f64 / (n_bins - 1) as f64;
        let filter = |mel: usize| {
            let [low, centre, high] = [edge(mel), edge(mel + 1), edge(mel + 2)];
            let weight = |bin: usize| {
                let rising = (frequency(bin) - low) / (centre - low);
                let falling = (high - frequency(bin)) / (high - centre);
                rising.min(falling).max(0.0) * 2.0 / (high - low)
            };
            let first = (0..n_bins).find(|&bin| weight(bin) > 0.0).unwrap_or(0);
            (first, (first..n_bins).map(weight).take_while(|&weight| weight > 0.0).collect())
        };
        Self((0..n_mels).map(filter).collect())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The energy in each filter.
    pub(crate) fn energies(&self, power: &[f64]) -> impl Iterator<Item = f64> {
        let sum = |(first, weights): &(usize, Vec<f64>)| {
            weights.iter().zip(&power[*first..]).map(|(weight, power)| weight * power).sum()
        };
        self.0.iter().map(sum)
    }
}

/// Below 1,000 Hz the scale is linear, above logarithmic.
const BREAK_HERTZ: f64 = 1000.0;
const BREAK_MELS: f64 = 15.0;
const HERTZ_PER_MEL: f64 = 200.0 / 3.0;

/// Mels for a factor of e, in the logarithmic part.
fn mels_per_e() -> f64 {
    27.0 / 6.4f64.ln()
}

fn mels(hertz: f64) -> f64 {
    if hertz < BREAK_HERTZ {
        hertz / HERTZ_PER_MEL
    } else {
        BREAK_MELS + (hertz / BREAK_HERTZ).ln() * mels_per_e()
    }
}

fn hertz(mels: f64) -> f64 {
    if mels < BREAK_MELS {
        mels * HERTZ_PER_MEL
    } else {
        BREAK_HERTZ * ((mels - BREAK_MELS) / mels_per_e()).exp()
    }
}
