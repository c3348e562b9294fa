//! `cognate evaluate`: BLEU and chrF with significance tests.

mod systems;

use self::systems::{System, references};
use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::translate::{self, Input, SpeedOptions};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use cognate::DecodingOptions;
use cognate::evaluation::Scores;
use cognate_text::{
    BleuSettings, ChrfSettings, ErrorRateSettings, ErrorUnit, Metric, Resampling, Smoothing,
    Spelling, Statistics, Words,
};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Score translations against references, as sacreBLEU does
///
/// Translations are read from files, one sentence per line, or made by a model from --source. BLEU
/// counts n-grams of words shared with the references, chrF2 n-grams of characters, chrF2++ also
/// n-grams of words; all are from 0 to 100. WER and CER are the edits of words and characters in
/// percent of the reference. Scores, signatures and significance tests equal those of sacreBLEU
/// 2.6.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Translations to score: one file per system, one sentence per line; - is standard input
    #[arg(value_name = "FILE", required_unless_present = "source")]
    translations: Vec<PathBuf>,
    /// Reference translations, one sentence per line; can be given several times
    #[arg(short, long, value_name = "FILE", required = true)]
    reference: Vec<PathBuf>,
    /// Metrics, separated by commas
    #[arg(
        long,
        visible_alias = "metric",
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "bleu,chrf"
    )]
    metrics: Vec<Name>,
    /// Tokenization of BLEU
    #[arg(long, value_name = "WAY", default_value = "13a")]
    tokenize: Cut,
    /// Ignore case
    #[arg(long, visible_alias = "lc")]
    lowercase: bool,
    /// Normaliser of WER and CER
    #[arg(long, value_name = "NAME", default_value = "none")]
    normalizer: Normalizer,
    /// Smoothing of BLEU for n-gram orders without a match
    #[arg(long, value_name = "WAY", default_value = "exp")]
    smooth: Smooth,
    /// Value of --smooth floor [default: 0.1] or add-k [default: 1]
    #[arg(long, value_name = "X", value_parser = smooth_value)]
    smooth_value: Option<f64>,
    /// Count only n-gram orders that the text is long enough for in BLEU
    #[arg(long)]
    effective_order: bool,
    /// Write the scores of each sentence, one line per sentence, metrics separated by tabs; implies
    /// --effective-order
    #[arg(long, conflicts_with_all = ["confidence", "paired_bs", "json"])]
    sentence_level: bool,
    /// Print the 95% confidence interval, by bootstrap resampling
    #[arg(long, conflicts_with = "paired_bs", group = "resampling")]
    confidence: bool,
    /// Compare systems with the first by paired bootstrap resampling
    #[arg(long, group = "resampling")]
    paired_bs: bool,
    /// Number of bootstrap samples for --confidence and --paired-bs
    #[arg(long, value_name = "N", default_value = "1000", requires = "resampling", value_parser = at_most(1_000_000))]
    samples: NonZeroUsize,
    /// Random seed of bootstrap samples
    #[arg(long, value_name = "N", default_value = "12345", requires = "resampling")]
    seed: u64,
    /// Number of digits after the decimal point
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u8).range(0..=15))]
    width: u8,
    /// Write JSON Lines in full precision: {"system": ..., "scores": {...}}
    #[arg(long)]
    json: bool,
    /// Translate FILE with a model, one sentence per line, and score the translations as one more
    /// system
    #[arg(short, long, value_name = "FILE", help_heading = "Translating by a model")]
    source: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Translating by a model")]
    model: ModelOptions,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(256), requires = "source", visible_aliases = ["num-beams", "beam-size"])]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24), requires = "source")]
    max_new_tokens: Option<NonZeroUsize>,
    #[command(flatten)]
    speed: SpeedOptions,
    /// Choose tokens among those that FILE allows, as `cognate translate --shortlist`
    #[arg(long, value_name = "FILE", requires = "source")]
    shortlist: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  cognate evaluate --reference text.de output.de
  cognate evaluate --reference text.de --source text.en --model OUT --beams 5
  cognate evaluate --reference text.de --paired-bs baseline.de better.de
  cognate evaluate -r one.de -r other.de --metrics bleu,chrf++ --confidence --json output.de
  cognate translate --beams 5 --input text.en | cognate evaluate --reference text.de -
  cognate evaluate --reference spoken.txt --metrics wer,cer --normalizer english transcript.txt
  cognate evaluate --reference text.zh --tokenize char output.zh

Report the signature with a score to make it reproducible.";

/// A normaliser of transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Normalizer {
    /// Words as they are
    None,
    /// Whisper's basic normaliser: lower case, without punctuation and words in brackets
    Basic,
    /// Whisper's English normaliser: also numbers in digits, contractions written out, American
    /// spelling
    English,
}

/// The name of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    Bleu,
    Chrf,
    #[value(name = "chrf++")]
    ChrfPlusPlus,
    /// Word error rate
    Wer,
    /// Character error rate
    Cer,
}

/// A tokenization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Cut {
    /// mteval-v13a, for European languages
    #[value(name = "13a")]
    V13a,
    /// mteval-v14, by Unicode punctuation and symbols
    Intl,
    /// Each character is a word
    Char,
    /// Words between spaces
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Smooth {
    /// Half a match for the first such order, a quarter for the next, and so on
    Exp,
    /// --smooth-value matches
    Floor,
    /// --smooth-value added to matches and n-grams of all orders but the first
    AddK,
    /// No smoothing; BLEU is 0
    None,
}

fn smooth_value(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| *value >= 0.0 && value.is_finite())
        .ok_or_else(|| "expected a number of at least 0".into())
}

/// The number of lines ending as in tokenised text from which a warning is printed.
const TOKENISED: usize = 100;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let metrics = options.metrics()?;
    options.check_inputs()?;
    let references = references(&options.reference)?;
    let systems = options.systems(&references)?;
    if options.sentence_level && systems.len() > 1 {
        bail!(
            "--sentence-level: expected one system, found {}; score them one after another",
            systems.len()
        );
    }
    if options.paired_bs && systems.len() == 1 {
        bail!(
            "--paired-bs: expected two systems or more, found 1; --confidence prints the confidence interval of one"
        );
    }
    if options.confidence && systems.len() > 1 {
        bail!(
            "--confidence: expected one system, found {}; --paired-bs compares several",
            systems.len()
        );
    }
    options.warn_of_tokenised(&systems);
    let lines: Vec<&[String]> = references.iter().map(|(_, lines)| lines.as_slice()).collect();
    if let (true, [system]) = (options.sentence_level, systems.as_slice()) {
        write_sentences(&metrics, system, &lines, usize::from(options.width), out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let systems: Vec<_> = systems.into_iter().map(|system| (system.name, system.lines)).collect();
    let scores = Scores::of(&systems, &lines, &metrics, options.resampling())?;
    if options.json {
        for system in scores.to_json() {
            writeln!(out, "{system}")?;
        }
    } else {
        write!(out, "{}", scores.to_text(usize::from(options.width)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes one line per sentence and one column per metric.
fn write_sentences(
    metrics: &[Metric],
    system: &System,
    references: &[&[String]],
    width: usize,
    out: &mut dyn Write,
) -> Result<()> {
    let counted = metrics
        .iter()
        .map(|metric| metric.statistics(&system.lines, references))
        .collect::<Result<Vec<_>, _>>()?;
    let mut columns: Vec<_> = counted.iter().map(Statistics::sentence_scores).collect();
    for _ in &system.lines {
        let scores = columns.iter_mut().filter_map(Iterator::next);
        let line: Vec<_> = scores.map(|score| format!("{:.width$}", score.value())).collect();
        writeln!(out, "{}", line.join("\t"))?;
    }
    Ok(())
}

impl Options {
    fn metrics(&self) -> Result<Vec<Metric>> {
        self.check_metrics()?;
        let value = |default| self.smooth_value.unwrap_or(default);
        let smoothing = match self.smooth {
            Smooth::Floor => Smoothing::Floor(value(0.1)),
            Smooth::AddK => Smoothing::AddK(value(1.0)),
            Smooth::Exp | Smooth::None if self.smooth_value.is_some() => {
                bail!("--smooth-value: expected --smooth floor or add-k with it")
            }
            Smooth::Exp => Smoothing::Exponential,
            Smooth::None => Smoothing::None,
        };
        let words = match self.tokenize {
            Cut::V13a => Words::V13a,
            Cut::Intl => Words::International,
            Cut::Char => Words::Characters,
            Cut::None => Words::Given,
        };
        let (lowercase, effective_order) =
            (self.lowercase, self.effective_order || self.sentence_level);
        let spelling = match self.normalizer {
            Normalizer::None => Spelling::Given,
            Normalizer::Basic => Spelling::Basic,
            Normalizer::English => Spelling::English,
        };
        let error_rate = |unit| Metric::ErrorRate(ErrorRateSettings { unit, spelling, lowercase });
        let metric = |name: &Name| match name {
            Name::Bleu => {
                Metric::Bleu(BleuSettings { words, lowercase, smoothing, effective_order })
            }
            Name::Chrf => Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::default() }),
            Name::Wer => error_rate(ErrorUnit::Words),
            Name::Cer => error_rate(ErrorUnit::Characters),
            Name::ChrfPlusPlus => {
                Metric::Chrf(ChrfSettings { lowercase, ..ChrfSettings::plus_plus() })
            }
        };
        let is_first = |(index, name): &(usize, &Name)| !self.metrics[..*index].contains(name);
        Ok(self.metrics.iter().enumerate().filter(is_first).map(|(_, name)| metric(name)).collect())
    }

    /// Refuses options of metrics that are not chosen.
    fn check_metrics(&self) -> Result<()> {
        let has = |names: &[Name]| names.iter().any(|name| self.metrics.contains(name));
        let (bleu, rates) = (has(&[Name::Bleu]), has(&[Name::Wer, Name::Cer]));
        let unused = [
            ("--tokenize", "bleu", self.tokenize != Cut::V13a && !bleu),
            ("--smooth", "bleu", self.smooth != Smooth::Exp && !bleu),
            ("--effective-order", "bleu", self.effective_order && !bleu),
            ("--normalizer", "wer or cer", self.normalizer != Normalizer::None && !rates),
        ];
        match unused.into_iter().find(|(.., is_unused)| *is_unused) {
            Some((option, metric, _)) => bail!("{option}: expected {metric} among --metrics"),
            None => Ok(()),
        }
    }

    /// Refuses to read standard input twice.
    fn check_inputs(&self) -> Result<()> {
        let files = self.reference.iter().chain(&self.translations);
        match files.filter(|file| *file == Path::new("-")).count() {
            0 | 1 => Ok(()),
            _ => bail!("-: standard input is another text already; pass a file"),
        }
    }

    fn systems(&self, references: &[(String, Vec<String>)]) -> Result<Vec<System>> {
        if self.source.is_none() && self.model.is_named() {
            bail!("--model: expected --source FILE with it, the sentences to translate");
        }
        let mut systems =
            self.translations.iter().map(|path| System::read(path)).collect::<Result<Vec<_>>>()?;
        for system in &systems {
            system.check(references)?;
        }
        if let Some(source) = &self.source {
            systems.push(self.translate(source, references)?);
        }
        for (index, system) in systems.iter().enumerate() {
            if systems[..index].iter().any(|other| other.name == system.name) {
                bail!("{}: occurs twice; expected files of different names", system.name);
            }
        }
        Ok(systems)
    }

    /// The model's translations of the lines of `source`.
    fn translate(&self, source: &Path, references: &[(String, Vec<String>)]) -> Result<System> {
        if source == Path::new("-") {
            bail!("--source: expected a file, found standard input");
        }
        // The number of lines is checked before translating.
        System::read(source).and_then(|lines| lines.check(references)).context("--source")?;
        let model = self.model.source()?;
        let name = model.to_string();
        let input = Input::open(Vec::new(), Some(source), None)?;
        let decoding = DecodingOptions {
            beams: self.beams,
            max_new_tokens: self.max_new_tokens,
            ..DecodingOptions::default()
        };
        let mut loading = self.speed.options(&self.model, decoding, input.is_long);
        loading.load.shortlist.clone_from(&self.shortlist);
        let translator = translate::translator(model, &loading)?;
        let mut lines = Vec::new();
        translate::lines(&translator, input, |_, translations| {
            lines.extend(translations.iter().map(|translation| translation.text.clone()));
            Ok(())
        })?;
        let system = System { name, lines };
        system.check(references)?;
        Ok(system)
    }

    fn resampling(&self) -> Option<Resampling> {
        let resampling = Resampling { samples: self.samples.get(), seed: self.seed };
        (self.confidence || self.paired_bs).then_some(resampling)
    }

    fn warn_of_tokenised(&self, systems: &[System]) {
        let divides =
            self.metrics.contains(&Name::Bleu) && !matches!(self.tokenize, Cut::None | Cut::Char);
        for system in systems.iter().filter(|_| divides) {
            let n_lines = system.lines.iter().filter(|line| line.ends_with(" .")).count();
            if n_lines >= TOKENISED {
                messages::warning(format_args!(
                    "{}: {n_lines} lines end in a period after a space, as in tokenised text, whose BLEU is not comparable; \
                     detokenise it, or pass --tokenize none",
                    system.name
                ));
            }
        }
    }
}
