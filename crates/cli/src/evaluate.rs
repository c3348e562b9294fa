//! `cognate evaluate`: how good translations are, by references, and whether one system is better than another.

mod report;
mod systems;

use self::report::{Row, Scores};
use self::systems::{System, references};
use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::unused::Unused;
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_text::{BleuSettings, ChrfSettings, Metric, Resampling, Smoothing, Statistics, Words, paired_bootstrap};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Score translations by references, as sacreBLEU does
///
/// Translations are files, one sentence a line, or those that a model gives for --source. BLEU counts n-grams of words that they
/// share with the references, chrF2 n-grams of characters, chrF2++ those of words, too; all from 0 to 100. Scores, signatures and
/// tests of significance are those of sacreBLEU 2.6.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Translations to score: a file for each system, one sentence a line; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "source")]
    translations: Vec<PathBuf>,
    /// What the translations should be, one sentence a line; given several times, each sentence has several references
    #[arg(short, long, value_name = "FILE", required = true)]
    reference: Vec<PathBuf>,
    /// Scores to tell, with commas between them
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "bleu,chrf")]
    metrics: Vec<Name>,
    /// What BLEU takes for a word
    #[arg(long, value_name = "WAY", default_value = "13a")]
    tokenize: Cut,
    /// Let case not count
    #[arg(long, visible_alias = "lc")]
    lowercase: bool,
    /// What an order of n-grams without a match counts in BLEU
    #[arg(long, value_name = "WAY", default_value = "exp")]
    smooth: Smooth,
    /// The value of --smooth floor [default: 0.1] or add-k [default: 1]
    #[arg(long, value_name = "X", value_parser = smooth_value)]
    smooth_value: Option<f64>,
    /// Let BLEU count only orders of n-grams that the text is long enough for
    #[arg(long)]
    effective_order: bool,
    /// Write the scores of each sentence, a line each with tabs between them; BLEU with --effective-order
    #[arg(long, conflicts_with_all = ["confidence", "paired_bs", "json"])]
    sentence_level: bool,
    /// Tell the interval that the score of another text of the kind would lie in, 95 times of 100: by bootstrap resampling
    #[arg(long, conflicts_with = "paired_bs")]
    confidence: bool,
    /// Compare systems with the first by paired bootstrap resampling: how likely so large a difference is by chance
    #[arg(long)]
    paired_bs: bool,
    /// Texts to draw for --confidence and --paired-bs
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_most(1_000_000))]
    samples: NonZeroUsize,
    /// What is drawn follows from this number
    #[arg(long, value_name = "N", default_value = "12345")]
    seed: u64,
    /// Digits after the point
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u8).range(0..=15))]
    width: u8,
    /// Write JSON, in full precision
    #[arg(long)]
    json: bool,
    /// Score a model's translations of FILE, one sentence a line; after those of the files, if there are any
    #[arg(short, long, value_name = "FILE", help_heading = "Translating by a model")]
    source: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Translating by a model")]
    model: ModelOptions,
    #[command(flatten)]
    translating: Translating,
    #[command(flatten)]
    unused: Unused,
}

/// How a model translates; other ways go by `cognate translate` and a file.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Translating {
    /// Hypotheses kept in beam search; 1 is greedy [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(256), requires = "source")]
    pub(crate) beams: Option<NonZeroUsize>,
    /// The most tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24), requires = "source")]
    pub(crate) max_new_tokens: Option<NonZeroUsize>,
    /// Batches to translate at the same time [default: the cores of this machine; 1 for a file below 4 KiB, or a GPU]
    #[arg(long, value_name = "N", value_parser = at_most(1024), requires = "source")]
    pub(crate) workers: Option<NonZeroUsize>,
    /// Threads that ONNX Runtime uses for each worker [default: 1; its own choice where workers are 1 by default]
    #[arg(long, value_name = "N", value_parser = at_most(1024), requires = "source")]
    pub(crate) threads: Option<NonZeroUsize>,
    /// Translate together as many sentences as fill this many tokens, padding and beams included
    #[arg(long, value_name = "N", default_value = "2048", value_parser = at_most(1 << 24))]
    pub(crate) batch_tokens: NonZeroUsize,
}

const EXAMPLES: &str = "\
Examples:
  cognate evaluate --reference text.de output.de
  cognate evaluate --reference text.de --source text.en --model OUT --beams 5
  cognate evaluate --reference text.de --paired-bs baseline.de better.de
  cognate evaluate -r one.de -r other.de --metrics bleu,chrf++ --confidence --json output.de
  cognate translate --beams 5 --input text.en | cognate evaluate --reference text.de -
  cognate evaluate --reference text.zh --tokenize char output.zh

Tell the signature with a score: with it anyone can compute the same.";

/// A score's name in the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Bleu,
    Chrf,
    #[value(name = "chrf++")]
    ChrfPlusPlus,
}

/// A way to find words.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Cut {
    /// mteval-v13a's, for European languages
    #[value(name = "13a")]
    V13a,
    /// mteval-v14's, by Unicode's punctuation and symbols
    Intl,
    /// Each character is a word
    Char,
    /// What stands between spaces
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Smooth {
    /// The first as half a match, the next as a quarter, and so on
    Exp,
    /// As --smooth-value matches
    Floor,
    /// All but the first order have --smooth-value matches and n-grams more
    AddK,
    /// Nothing; then BLEU is 0
    None,
}

fn smooth_value(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| *value >= 0.0 && value.is_finite()).ok_or_else(|| "expected a number from 0 on".into())
}

/// So many lines that end like tokenised ones are no accident.
const TOKENISED: usize = 100;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let metrics = options.metrics()?;
    let references = references(&options.reference)?;
    let systems = options.systems(&references)?;
    if options.sentence_level && systems.len() > 1 {
        bail!("--sentence-level: expected one system, found {}; score them one after another", systems.len());
    }
    if options.paired_bs && systems.len() == 1 {
        bail!("--paired-bs: expected two systems or more, found 1; --confidence tells how sure the score of one is");
    }
    if options.confidence && systems.len() > 1 {
        bail!("--confidence: expected one system, found {}; --paired-bs compares several", systems.len());
    }
    options.warn_of_tokenised(&systems);
    let lines: Vec<&[String]> = references.iter().map(|(_, lines)| lines.as_slice()).collect();
    let count = |metric: &Metric| systems.iter().map(|system| metric.statistics(&system.lines, &lines)).collect::<Result<Vec<_>, _>>();
    let counted = metrics.iter().map(count).collect::<Result<Vec<_>, _>>()?;
    if options.sentence_level {
        report::sentences(&counted, usize::from(options.width), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let resampling = options.resampling();
    let scores = metrics.iter().zip(&counted).map(|(metric, counted)| Scores {
        name: metric.name(),
        signature: metric.signature(references.len(), resampling),
        rows: rows(counted, resampling),
    });
    let (names, scores): (Vec<_>, Vec<_>) = (systems.into_iter().map(|system| system.name).collect(), scores.collect());
    match (options.json, names.as_slice()) {
        (true, _) => report::json(&names, &scores, out)?,
        (false, [_]) => report::single(&scores, usize::from(options.width), out)?,
        (false, _) => report::table(&names, &scores, options.paired_bs, usize::from(options.width), out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Each system's score, and what resampling finds.
fn rows(counted: &[Statistics], resampling: Option<Resampling>) -> Vec<Row> {
    let resampled = resampling.map_or_else(Vec::new, |resampling| paired_bootstrap(counted, resampling));
    let row = |(index, counted): (usize, &Statistics)| Row { score: counted.score(), resampled: resampled.get(index).copied() };
    counted.iter().enumerate().map(row).collect()
}

impl Options {
    fn metrics(&self) -> Result<Vec<Metric>> {
        let value = |default| self.smooth_value.unwrap_or(default);
        let smoothing = match self.smooth {
            Smooth::Floor => Smoothing::Floor(value(0.1)),
            Smooth::AddK => Smoothing::AddK(value(1.0)),
            Smooth::Exp | Smooth::None if self.smooth_value.is_some() => bail!("--smooth-value: expected --smooth floor or add-k with it"),
            Smooth::Exp => Smoothing::Exponential,
            Smooth::None => Smoothing::None,
        };
        let words = match self.tokenize {
            Cut::V13a => Words::V13a,
            Cut::Intl => Words::International,
            Cut::Char => Words::Characters,
            Cut::None => Words::Given,
        };
        let (lowercase, effective_order) = (self.lowercase, self.effective_order || self.sentence_level);
        let metric = |name: &Name| match name {
            Name::Bleu => Metric::Bleu(BleuSettings { words, lowercase, smoothing, effective_order }),
            Name::Chrf => Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::default() }),
            Name::ChrfPlusPlus => Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::plus_plus() }),
        };
        let is_first = |(index, name): &(usize, &Name)| !self.metrics[..*index].contains(name);
        Ok(self.metrics.iter().enumerate().filter(is_first).map(|(_, name)| metric(name)).collect())
    }

    fn systems(&self, references: &[(String, Vec<String>)]) -> Result<Vec<System>> {
        if self.source.is_none() && self.model.is_named() {
            bail!("--model: expected --source FILE with it, the sentences to translate");
        }
        let mut systems = self.translations.iter().map(|path| System::read(path)).collect::<Result<Vec<_>>>()?;
        for system in &systems {
            system.check(references)?;
        }
        if let Some(source) = &self.source {
            systems.push(System::translate(source, &self.model, self.translating, self.unused, references)?);
        }
        for (index, system) in systems.iter().enumerate() {
            if systems[..index].iter().any(|other| other.name == system.name) {
                bail!("{}: is given twice; expected files of different names", system.name);
            }
        }
        Ok(systems)
    }

    fn resampling(&self) -> Option<Resampling> {
        let resampling = Resampling { samples: self.samples.get(), seed: self.seed };
        (self.confidence || self.paired_bs).then_some(resampling)
    }

    fn warn_of_tokenised(&self, systems: &[System]) {
        let divides = self.metrics.contains(&Name::Bleu) && !matches!(self.tokenize, Cut::None | Cut::Char);
        for system in systems.iter().filter(|_| divides) {
            let n_lines = system.lines.iter().filter(|line| line.ends_with(" .")).count();
            if n_lines >= TOKENISED {
                messages::warning(format_args!(
                    "{}: {n_lines} lines end in a period after a space, as in tokenised text, whose BLEU is not to be compared with \
                     others; detokenise it, or count its words as they are with --tokenize none",
                    system.name
                ));
            }
        }
    }
}
