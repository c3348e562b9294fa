//! Metrics of translations against references: statistics of sentences, their sums, and a score of
//! the sums.
//!
//! Names, signatures and numbers are those of sacreBLEU 2.6.

use crate::arithmetic::Arithmetic;
use crate::bleu::{Bleu, BleuSettings, MAX_ORDER};
use crate::chrf::ChrfSettings;
use crate::error::{Cause, Result};
use crate::error_rate::ErrorRateSettings;

/// The version of sacreBLEU with the same scores.
const VERSION: &str = "2.6.0";

/// A metric with its settings.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// use cognate_text::{ChrfSettings, Metric};
///
/// let metric = Metric::Chrf(ChrfSettings::plus_plus());
/// let found = metric.statistics(&["Zwei Hunde spielen im Schnee."], &[&["Zwei Hunde spielen im Gras."]])?;
/// assert_eq!(format!("{} = {:.2}", metric.name(), found.score().value()), "chrF2++ = 73.96");
/// assert_eq!(metric.signature(1, None), "nrefs:1|case:mixed|eff:yes|nc:6|nw:2|space:no|version:2.6.0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// BLEU: n-grams of words.
    Bleu(BleuSettings),
    /// chrF: n-grams of characters; chrF++: also of words.
    Chrf(ChrfSettings),
    /// Word or character error rate; lower is better.
    ErrorRate(ErrorRateSettings),
}

/// Settings of bootstrap resampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resampling {
    /// Number of samples, each as large as the corpus.
    pub samples: usize,
    /// Random seed.
    pub seed: u64,
}

impl Default for Resampling {
    /// sacreBLEU's settings.
    fn default() -> Self {
        Self { samples: 1000, seed: 12345 }
    }
}

/// A corpus's score.
#[derive(Clone, Debug, PartialEq)]
pub enum Score {
    /// BLEU with its parts; the signature is empty.
    Bleu(Bleu),
    /// chrF, `0..=100`.
    Chrf(f64),
    /// An error rate in percent, at least 0.
    ErrorRate(f64),
}

impl Score {
    /// The number itself, `0..=100`; error rates can be larger.
    pub fn value(&self) -> f64 {
        match self {
            Self::Bleu(bleu) => bleu.score,
            Self::Chrf(score) | Self::ErrorRate(score) => *score,
        }
    }
}

/// BLEU with sacreBLEU's default settings and one reference.
///
/// Fails if the numbers of sentences differ or are 0.
///
/// ```
/// # fn main() -> cognate_text::Result<()> {
/// let bleu = cognate_text::corpus_bleu(&["Zwei Hunde spielen im Schnee."], &["Zwei Hunde spielen im Gras."])?;
/// assert_eq!(format!("{:.2}", bleu.score), "53.73");
/// # Ok(())
/// # }
/// ```
pub fn corpus_bleu(hypotheses: &[impl AsRef<str>], references: &[impl AsRef<str>]) -> Result<Bleu> {
    let settings = BleuSettings::default();
    let metric = Metric::Bleu(settings);
    let statistics = metric.statistics(hypotheses, &[references])?;
    Ok(Bleu {
        signature: metric.signature(1, None),
        ..settings.bleu(&statistics.sums(), Arithmetic::Double)
    })
}

/// The statistics of a corpus's sentences for a metric.
#[derive(Clone, Debug)]
pub struct Statistics {
    metric: Metric,
    /// `[sentences, width]`
    counts: Vec<u32>,
    width: usize,
}

impl Metric {
    /// sacreBLEU's name: `BLEU`, `chrF2`, `chrF2++`.
    pub fn name(&self) -> String {
        match self {
            Self::Bleu(_) => "BLEU".into(),
            Self::Chrf(settings) => settings.name(),
            Self::ErrorRate(settings) => settings.name().into(),
        }
    }

    /// sacreBLEU's signature, which makes a score reproducible.
    pub fn signature(&self, n_references: usize, resampling: Option<Resampling>) -> String {
        let resampled = resampling.map_or(String::new(), |Resampling { samples, seed }| {
            format!("bs:{samples}|seed:{seed}|")
        });
        let settings = match self {
            Self::Bleu(settings) => settings.signature(),
            Self::Chrf(settings) => settings.signature(),
            Self::ErrorRate(settings) => {
                return format!("nrefs:{n_references}|{resampled}{}", settings.signature());
            }
        };
        format!("nrefs:{n_references}|{resampled}{settings}|version:{VERSION}")
    }

    /// The statistics of hypotheses against one or more lists of references.
    ///
    /// Fails if there is no reference, or if the numbers of lines differ or are 0.
    pub fn statistics<R: AsRef<str>>(
        &self,
        hypotheses: &[impl AsRef<str>],
        references: &[&[R]],
    ) -> Result<Statistics> {
        let n_sentences = hypotheses.len();
        if n_sentences == 0 || references.is_empty() {
            Err(Cause::NoSentences)?;
        }
        if let Some(reference) = references.iter().find(|reference| reference.len() != n_sentences)
        {
            Err(Cause::Counts { hypotheses: n_sentences, references: reference.len() })?;
        }
        let count = |(line, hypothesis): (usize, &_)| {
            let hypothesis = AsRef::<str>::as_ref(hypothesis);
            let references: Vec<&str> =
                references.iter().map(|reference| reference[line].as_ref()).collect();
            match self {
                Self::Bleu(settings) => settings.count(hypothesis, &references),
                Self::Chrf(settings) => settings.count(hypothesis, &references),
                Self::ErrorRate(settings) => settings.count(hypothesis, &references),
            }
        };
        let counts = hypotheses.iter().enumerate().flat_map(count).collect();
        Ok(Statistics { metric: *self, counts, width: self.width() })
    }

    fn width(&self) -> usize {
        match self {
            Self::Bleu(_) => 2 + 2 * MAX_ORDER,
            Self::Chrf(settings) => settings.width(),
            Self::ErrorRate(_) => 2,
        }
    }

    pub(crate) fn score(&self, sums: &[u64], arithmetic: Arithmetic) -> Score {
        match self {
            Self::Bleu(settings) => Score::Bleu(settings.bleu(sums, arithmetic)),
            Self::Chrf(settings) => Score::Chrf(settings.score(sums, arithmetic)),
            Self::ErrorRate(settings) => Score::ErrorRate(settings.score(sums)),
        }
    }
}

impl Statistics {
    /// The score of the whole corpus.
    pub fn score(&self) -> Score {
        self.metric.score(&self.sums(), Arithmetic::Double)
    }

    /// The score of each sentence.
    pub fn sentence_scores(&self) -> impl Iterator<Item = Score> {
        (0..self.len()).map(|sentence| {
            self.metric.score(&self.sums_of([sentence].into_iter()), Arithmetic::Double)
        })
    }

    /// The number of sentences.
    pub(crate) fn len(&self) -> usize {
        self.counts.len() / self.width
    }

    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// The sums over all sentences.
    pub(crate) fn sums(&self) -> Vec<u64> {
        self.sums_of(0..self.len())
    }

    /// The sums over some sentences, which can repeat.
    pub(crate) fn sums_of(&self, sentences: impl Iterator<Item = usize>) -> Vec<u64> {
        let mut sums = vec![0; self.width];
        for sentence in sentences {
            let counts = &self.counts[sentence * self.width..][..self.width];
            sums.iter_mut().zip(counts).for_each(|(sum, &count)| *sum += u64::from(count));
        }
        sums
    }
}
