//! How `cognate translate` decodes where the model's own settings are not wanted, and what it writes beside translations.

use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate_generate::{EarlyStopping, Hypothesis, Sampling, Settings, alignment_layer};
use cognate_model::{Attentions, Config};
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

/// How to decode.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Decoding, in place of what the model's generation_config.json says")]
pub(crate) struct Decoding {
    /// Write the N best translations of each sentence, a line each, after the sentence's number and a tab
    #[arg(long, value_name = "N", visible_alias = "num-return-sequences", value_parser = at_most_1024)]
    n_best: Option<NonZeroUsize>,
    /// Write after each translation a tab and its score: its log-probability divided by its length to the power of the length
    /// penalty
    #[arg(long)]
    scores: bool,
    /// Write after each translation a tab and, for each of its tokens, the source token that it comes from: 0-0 1-2 for the first
    /// from the first and the second from the third; needs an export with --attentions, or a checkpoint
    #[arg(long)]
    alignments: bool,
    /// Power of the length by which beam search divides log-probabilities: above 0 favours long translations, below 0 short ones
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = finite)]
    length_penalty: Option<f32>,
    /// When beam search stops
    #[arg(long, value_name = "WHEN", value_parser = early_stopping())]
    early_stopping: Option<EarlyStopping>,
    /// Above 1, tokens that a translation has already are less likely to come again
    #[arg(long, value_name = "X", value_parser = positive)]
    repetition_penalty: Option<f32>,
    /// Let no N tokens come twice in a translation; 0 lets them
    #[arg(long, value_name = "N")]
    no_repeat_ngram_size: Option<usize>,
    /// The fewest tokens of a translation
    #[arg(long, value_name = "N")]
    min_new_tokens: Option<usize>,
    /// Let every translation begin with TEXT
    #[arg(long, value_name = "TEXT")]
    target_prefix: Option<String>,
    /// Let each translation begin with a line of FILE, which has as many as there are sentences; an empty one forces nothing
    #[arg(long, value_name = "FILE", conflicts_with = "target_prefix")]
    target_prefixes: Option<PathBuf>,
    /// Draw each token from its distribution instead of taking the likeliest; with --beams draw what the beams go on with
    #[arg(long)]
    sample: bool,
    /// Divide scores before drawing: below 1 likely tokens become likelier
    #[arg(long, value_name = "X", requires = "sample", value_parser = positive)]
    temperature: Option<f32>,
    /// Draw from the N likeliest tokens; 0 takes all [default: the model's, or 50]
    #[arg(long, value_name = "N", requires = "sample")]
    top_k: Option<usize>,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", requires = "sample", value_parser = share)]
    top_p: Option<f32>,
    /// What is drawn follows from this number and the number of the sentence [default: 0]
    #[arg(long, value_name = "N", requires = "sample")]
    seed: Option<u64>,
}

fn at_most_1024(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= 1024);
    number.ok_or_else(|| "expected a number from 1 to 1024".into())
}

fn number(text: &str, expected: &str, is_good: impl Fn(f32) -> bool) -> Result<f32, String> {
    text.parse().ok().filter(|&number: &f32| number.is_finite() && is_good(number)).ok_or_else(|| format!("expected {expected}"))
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

fn early_stopping() -> impl TypedValueParser<Value = EarlyStopping> {
    let values = [
        PossibleValue::new("false").help("when the best running translation is worse, as long as it is, than all that are kept"),
        PossibleValue::new("true").help("as soon as as many translations as beams have ended"),
        PossibleValue::new("never").help("when no running translation, however long it gets, can be better than those that are kept"),
    ];
    PossibleValuesParser::new(values).map(|name| match name.as_str() {
        "true" => EarlyStopping::Full,
        "never" => EarlyStopping::Never,
        _ => EarlyStopping::Heuristic,
    })
}

impl Decoding {
    /// Puts these in place of the model's settings; `beams` are those of the command line.
    ///
    /// # Errors
    /// If they do not agree with each other or with the model.
    pub(crate) fn apply(&self, settings: &mut Settings, beams: Option<NonZeroUsize>, config: &Config) -> Result<()> {
        let many = beams.map(NonZeroUsize::get).filter(|&beams| beams > 1);
        if self.sample {
            settings.num_beams = many.unwrap_or(1);
            let model = settings.sampling.unwrap_or_default();
            settings.sampling = Some(Sampling {
                temperature: self.temperature.unwrap_or(model.temperature),
                top_k: self.top_k.unwrap_or(model.top_k),
                top_p: self.top_p.unwrap_or(model.top_p),
                seed: self.seed.unwrap_or(model.seed),
                ..model
            });
        } else if many.is_some() {
            settings.sampling = None;
        }
        // Without the option there is a line for a line, whatever a checkpoint asks for.
        settings.num_return_sequences = self.n_best.map_or(1, NonZeroUsize::get);
        let is_bounded = settings.sampling.is_none() || settings.num_beams > 1;
        if is_bounded && settings.num_return_sequences > settings.num_beams {
            let (n_best, beams) = (settings.num_return_sequences, settings.num_beams);
            let remedy = if self.sample { "or leave --beams out" } else { "or --sample" };
            bail!("--n-best {n_best}: expected at most {beams}, the beams; add --beams {n_best}, {remedy}");
        }
        settings.length_penalty = self.length_penalty.unwrap_or(settings.length_penalty);
        settings.early_stopping = self.early_stopping.unwrap_or(settings.early_stopping);
        settings.repetition_penalty = self.repetition_penalty.unwrap_or(settings.repetition_penalty);
        settings.no_repeat_ngram_size = self.no_repeat_ngram_size.unwrap_or(settings.no_repeat_ngram_size);
        if let Some(fewest) = self.min_new_tokens {
            if fewest > settings.max_new_tokens {
                bail!("--min-new-tokens {fewest}: expected at most {}, the most tokens (--max-new-tokens)", settings.max_new_tokens);
            }
            (settings.min_new_tokens, settings.min_length) = (fewest, 0);
        }
        settings.scores = self.scores;
        settings.alignment_layer = self.alignments.then(|| alignment_layer(config));
        Ok(settings.check()?)
    }

    /// What the graphs must give.
    pub(crate) fn attentions(&self) -> Attentions {
        if self.alignments { Attentions::Cross } else { Attentions::Omit }
    }

    /// What every translation begins with.
    pub(crate) fn target_prefix(&self) -> Option<&str> {
        self.target_prefix.as_deref()
    }

    /// The file with what each translation begins with.
    pub(crate) fn target_prefixes(&self) -> Option<&Path> {
        self.target_prefixes.as_deref()
    }

    /// A translation's text as it stands in its line.
    pub(crate) fn text_column(&self, text: String) -> String {
        let has_columns = self.n_best.is_some() || self.scores || self.alignments;
        // Tabs divide the columns.
        if has_columns { text.replace('\t', " ") } else { text }
    }

    /// A translation's line, with what is asked for beside it.
    pub(crate) fn line(&self, number: u64, text: String, hypothesis: &Hypothesis) -> String {
        let mut line = self.n_best.map_or(String::new(), |_| format!("{number}\t"));
        line.push_str(&self.text_column(text));
        line + &self.columns(hypothesis)
    }

    /// What is asked for after a translation's text.
    pub(crate) fn columns(&self, hypothesis: &Hypothesis) -> String {
        let mut columns = String::new();
        if self.scores {
            let _ = write!(columns, "\t{:.6}", hypothesis.score);
        }
        if self.alignments {
            let pairs = hypothesis.alignment.iter().enumerate().map(|(target, source)| format!("{source}-{target}"));
            let _ = write!(columns, "\t{}", pairs.collect::<Vec<_>>().join(" "));
        }
        columns
    }
}
