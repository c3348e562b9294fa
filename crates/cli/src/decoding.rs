//! The decoding options of `cognate translate`, and the columns of its output.

use crate::amounts::at_most;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate::{DecodingOptions, EarlyStopping, Hypothesis, TranslatedText, Translation};
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// Decoding options.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Decoding [default: the model's generation_config.json]")]
pub(crate) struct Decoding {
    /// Write the N best translations of each sentence, one per line, after the number of the
    /// sentence and a tab [default: the best one, without a number]
    #[arg(long, value_name = "N", visible_alias = "num-return-sequences", value_parser = at_most(1024))]
    n_best: Option<NonZeroUsize>,
    /// Write a tab and the score after each translation: its log-probability divided by its length
    /// to the power of the length penalty
    #[arg(long)]
    scores: bool,
    /// Write a tab and the alignment after each translation: 0-0 2-1 aligns the first source token
    /// with the first target token, and the third with the second; needs an export with
    /// --attentions, or a checkpoint
    #[arg(long)]
    alignments: bool,
    /// Exponent of the length by which beam search divides log-probabilities; values above 0 favour
    /// long translations, values below 0 short ones
    #[arg(long, value_name = "X", value_parser = finite)]
    length_penalty: Option<f32>,
    /// Stopping condition of beam search
    #[arg(long, value_name = "WHEN", value_parser = early_stopping())]
    early_stopping: Option<EarlyStopping>,
    /// Penalty for repeated tokens; values above 1 make them less likely
    #[arg(long, value_name = "X", value_parser = positive)]
    repetition_penalty: Option<f32>,
    /// Size of n-grams that must not repeat in a translation; 0 for none
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// Size of n-grams of the sentence that must not occur in its translation; 0 for none
    #[arg(long, value_name = "N")]
    encoder_no_repeat_ngram_size: Option<usize>,
    /// Forbid TEXT in translations; can be given several times
    #[arg(long, value_name = "TEXT")]
    bad_words: Vec<String>,
    /// Forbid tokens with these ids, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    suppress_tokens: Vec<i64>,
    /// Forbid the unknown token
    #[arg(long)]
    disable_unk: bool,
    /// Replace each unknown token by the source word that it attends to most; needs an export with
    /// --attentions, or a checkpoint
    #[arg(long, visible_alias = "replace-unk", conflicts_with = "stream")]
    replace_unknowns: bool,
    /// Minimum number of tokens of a translation
    #[arg(long, value_name = "N")]
    min_new_tokens: Option<usize>,
    /// Minimum number of tokens of a translation, the start token included
    #[arg(long, value_name = "N")]
    min_length: Option<usize>,
    /// Beginning of every translation
    #[arg(long, value_name = "TEXT")]
    target_prefix: Option<String>,
    /// Read the beginning of each translation from FILE, one line per sentence, which can be empty
    #[arg(long, value_name = "FILE", conflicts_with = "target_prefix")]
    target_prefixes: Option<PathBuf>,
    /// Sample each token instead of taking the most probable one; with --beams, sample the
    /// continuations of beams
    #[arg(long)]
    sample: bool,
    /// Divisor of logits before sampling; values below 1 sharpen the distribution
    #[arg(long, value_name = "X", requires = "sample", value_parser = positive)]
    temperature: Option<f32>,
    /// Sample from the N most probable tokens; 0 for all [default: the model's, or 50]
    #[arg(long, value_name = "N", requires = "sample")]
    top_k: Option<usize>,
    /// Sample from the most probable tokens with this total probability (nucleus sampling)
    #[arg(long, value_name = "P", requires = "sample", value_parser = share)]
    top_p: Option<f32>,
    /// Sample from tokens with at least this share of the highest probability
    #[arg(long, value_name = "P", requires = "sample", value_parser = from_zero_to_one)]
    min_p: Option<f32>,
    /// Sample from the tokens closest to the expected information with this total probability
    /// (typical sampling)
    #[arg(long, value_name = "P", requires = "sample", value_parser = share)]
    typical_p: Option<f32>,
    /// Sample from tokens of at least this probability; 0 for all
    #[arg(long, value_name = "P", requires = "sample", value_parser = from_zero_to_one)]
    epsilon_cutoff: Option<f32>,
    /// Sample from tokens above a probability that depends on the entropy (eta sampling); 0 for all
    #[arg(long, value_name = "P", requires = "sample", value_parser = from_zero_to_one)]
    eta_cutoff: Option<f32>,
    /// Random seed of sampling [default: 0]
    #[arg(long, value_name = "N", requires = "sample")]
    seed: Option<u64>,
}

fn number(text: &str, expected: &str, is_good: impl Fn(f32) -> bool) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|&number: &f32| number.is_finite() && is_good(number))
        .ok_or_else(|| format!("expected {expected}"))
}

fn finite(text: &str) -> Result<f32, String> {
    number(text, "a number", |_| true)
}

fn positive(text: &str) -> Result<f32, String> {
    number(text, "a number above 0", |number| number > 0.0)
}

fn share(text: &str) -> Result<f32, String> {
    number(text, "a number above 0 and at most 1", |number| number > 0.0 && number <= 1.0)
}

fn from_zero_to_one(text: &str) -> Result<f32, String> {
    number(text, "a number from 0 to 1", |number| (0.0..=1.0).contains(&number))
}

fn early_stopping() -> impl TypedValueParser<Value = EarlyStopping> {
    let values = [
        PossibleValue::new("false").help("when no unfinished hypothesis, scored at its current length, beats the worst finished one"),
        PossibleValue::new("true").help("when as many hypotheses as beams are finished"),
        PossibleValue::new("never").help("when no unfinished hypothesis of any length can beat the worst finished one"),
    ];
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "true" => EarlyStopping::Full,
        "never" => EarlyStopping::Never,
        _ => EarlyStopping::Heuristic,
    })
}

impl Decoding {
    /// The library's options; `beams` and `max_new_tokens` are options of the command, and JSON has
    /// scores.
    pub(crate) fn options(
        &self,
        beams: Option<NonZeroUsize>,
        max_new_tokens: Option<NonZeroUsize>,
        is_json: bool,
    ) -> DecodingOptions {
        DecodingOptions {
            beams,
            max_new_tokens,
            min_new_tokens: self.min_new_tokens,
            min_length: self.min_length,
            n_best: self.n_best,
            scores: self.scores || is_json,
            alignments: self.alignments,
            length_penalty: self.length_penalty,
            early_stopping: self.early_stopping,
            repetition_penalty: self.repetition_penalty,
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            encoder_no_repeat_ngram_size: self.encoder_no_repeat_ngram_size,
            bad_words: self.bad_words.clone(),
            suppress_tokens: self.suppress_tokens.clone(),
            disable_unk: self.disable_unk,
            replace_unknowns: self.replace_unknowns,
            target_prefix: self.target_prefix.clone(),
            sample: self.sample,
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            epsilon_cutoff: self.epsilon_cutoff,
            eta_cutoff: self.eta_cutoff,
            seed: self.seed,
        }
    }

    /// The file with the beginning of each translation.
    pub(crate) fn target_prefixes(&self) -> Option<&Path> {
        self.target_prefixes.as_deref()
    }

    /// The column of a translation's text.
    pub(crate) fn text_column(&self, text: &str) -> String {
        let has_columns = self.n_best.is_some() || self.scores || self.alignments;
        // Tabs separate columns.
        if has_columns { text.replace('\t', " ") } else { text.to_owned() }
    }

    /// The lines of a sentence's translations.
    pub(crate) fn lines(&self, number: usize, translation: &Translation) -> String {
        let line = |TranslatedText { text, hypothesis }: &TranslatedText| {
            let number = self.n_best.map_or(String::new(), |_| format!("{number}\t"));
            number + &self.text_column(text) + &self.columns(hypothesis)
        };
        translation.hypotheses.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The columns after the text of a translation.
    pub(crate) fn columns(&self, hypothesis: &Hypothesis) -> String {
        let mut columns = String::new();
        if self.scores {
            let _ = write!(columns, "\t{:.6}", hypothesis.score);
        }
        if self.alignments {
            let pairs = hypothesis
                .alignment
                .iter()
                .enumerate()
                .map(|(target, source)| format!("{source}-{target}"));
            let _ = write!(columns, "\t{}", pairs.collect::<Vec<_>>().join(" "));
        }
        columns
    }
}
