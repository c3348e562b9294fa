//! Confidence intervals and significance tests: paired bootstrap resampling (Koehn 2004).
//!
//! Samples of the sentences, drawn with replacement together with all systems' translations, are
//! scored. The interval contains the middle 95% of a system's scores. The p-value is the share of
//! samples on which the difference of two systems exceeds its mean by more than the difference on
//! the corpus (one more is counted in numerator and denominator).
//!
//! Equal to sacreBLEU 2.6, including numpy's PCG64 and scores in f32. The exception are counts
//! above 2^24, of about 200,000 sentences, which are summed exactly here.

use crate::arithmetic::Arithmetic;
use crate::metric::{Metric, Resampling, Statistics};
use crate::pcg::Generator;

/// The result of resampling for a system.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Resampled {
    /// The mean of the scores of all samples.
    pub mean: f64,
    /// Half the width of the interval of the middle 95% of the scores.
    pub confidence: f64,
    /// The p-value of the difference from the first system; `None` for the first.
    pub p_value: Option<f64>,
}

/// Resamples systems that translated the same sentences, and compares each with the first. All have
/// the same metric.
///
/// # Panics
/// If the systems do not have the same number of sentences.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// use cognate_text::{BleuSettings, Metric, Resampling, paired_bootstrap};
///
/// let references = ["Zwei Hunde spielen im Gras.", "Ein Mann fährt Fahrrad."];
/// let systems = [["Zwei Hunde spielen.", "Ein Mann fährt."], ["Zwei Hunde spielen im Gras.", "Ein Mann fährt Fahrrad."]];
/// let metric = Metric::Bleu(BleuSettings::default());
/// let systems = systems.map(|system| metric.statistics(&system, &[&references]));
/// let systems = systems.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let found = paired_bootstrap(&systems, Resampling::default());
/// assert_eq!((found[0].p_value, found[1].mean > 99.9), (None, true));
/// # Ok(())
/// # }
/// ```
pub fn paired_bootstrap(systems: &[Statistics], resampling: Resampling) -> Vec<Resampled> {
    let Some(first) = systems.first() else { return Vec::new() };
    let n_sentences = first.len();
    assert!(
        systems.iter().all(|system| system.len() == n_sentences),
        "systems have the same sentences"
    );
    let mut generator = Generator::seeded(resampling.seed);
    let mut samples = vec![Vec::with_capacity(resampling.samples); systems.len()];
    let mut drawn = vec![0; n_sentences];
    for _ in 0..resampling.samples {
        drawn
            .iter_mut()
            .for_each(|sentence| *sentence = generator.below(n_sentences as u32) as usize);
        for (system, scores) in systems.iter().zip(&mut samples) {
            let sums = system.sums_of(drawn.iter().copied());
            scores.push(system.metric().score(&sums, Arithmetic::Single).value());
        }
    }
    let (base, base_scores) = (first.score().value(), &samples[0]);
    let resampled = |(index, (system, scores)): (usize, (&Statistics, &Vec<f64>))| {
        let p_value = (index > 0).then(|| {
            let difference = (system.score().value() - base).abs();
            p_value(
                scores,
                base_scores,
                difference,
                arithmetic(system.metric(), &[scores, base_scores]),
            )
        });
        let (mean, confidence) = interval(scores, arithmetic(system.metric(), &[scores]));
        Resampled { mean, confidence, p_value }
    };
    systems.iter().zip(&samples).enumerate().map(resampled).collect()
}

/// numpy's type of an array of such scores: chrF's are f32, unless one is 0, BLEU's f64.
fn arithmetic(metric: Metric, scores: &[&[f64]]) -> Arithmetic {
    match metric {
        Metric::Chrf(_) if scores.iter().all(|scores| scores.iter().all(|&score| score != 0.0)) => {
            Arithmetic::Single
        }
        Metric::Chrf(_) | Metric::Bleu(_) | Metric::ErrorRate(_) => Arithmetic::Double,
    }
}

fn p_value(scores: &[f64], base: &[f64], difference: f64, arithmetic: Arithmetic) -> f64 {
    let round = |number: f64| arithmetic.round(number);
    let distances: Vec<f64> =
        scores.iter().zip(base).map(|(score, base)| round(score - base).abs()).collect();
    let mean = mean(&distances, arithmetic);
    let above =
        distances.iter().filter(|&&distance| round(distance - mean) > round(difference)).count();
    (above + 1) as f64 / (distances.len() + 1) as f64
}

/// The mean, and half the distance between the percentiles 2.5 and 97.5.
fn interval(scores: &[f64], arithmetic: Arithmetic) -> (f64, f64) {
    let mut ordered = scores.to_vec();
    ordered.sort_by(f64::total_cmp);
    let lowest = ordered.len() / 40;
    let width = ordered[ordered.len() - lowest - 1] - ordered[lowest];
    (mean(&ordered, arithmetic), arithmetic.round(0.5 * arithmetic.round(width)))
}

fn mean(numbers: &[f64], arithmetic: Arithmetic) -> f64 {
    arithmetic.round(sum(numbers, arithmetic) / numbers.len() as f64)
}

/// A sum in numpy's order of additions, equal to the last bit.
fn sum(numbers: &[f64], arithmetic: Arithmetic) -> f64 {
    const LANES: usize = 8;
    const BLOCK: usize = 128;
    let add = |a: f64, b: f64| arithmetic.round(a + b);
    if numbers.len() > BLOCK {
        let half = numbers.len() / 2;
        let (first, second) = numbers.split_at(half - half % LANES);
        return add(sum(first, arithmetic), sum(second, arithmetic));
    }
    let (whole, rest) = numbers.as_chunks::<LANES>();
    let Some((first, others)) = whole.split_first() else {
        return rest.iter().copied().fold(0.0, add);
    };
    let lanes = others.iter().fold(*first, |mut lanes, numbers| {
        lanes.iter_mut().zip(numbers).for_each(|(lane, &number)| *lane = add(*lane, number));
        lanes
    });
    let [a, b, c, d, e, f, g, h] = lanes;
    let total = add(add(add(a, b), add(c, d)), add(add(e, f), add(g, h)));
    rest.iter().copied().fold(total, add)
}
