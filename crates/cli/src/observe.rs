//! The options that `attend` and `explain` share.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use anyhow::{Context, Result, bail};
use cognate::{DecodingOptions, Observer};
use std::io::{self, Read};
use std::num::NonZeroUsize;

/// The sentence and its translation.
#[derive(clap::Args)]
pub(crate) struct SentenceOptions {
    /// Sentence to translate [default: the line on standard input]
    #[arg(value_name = "SENTENCE")]
    sentence: Option<String>,
    /// Use this translation instead of the model's
    #[arg(long, value_name = "TEXT")]
    pub(crate) target: Option<String>,
}

impl SentenceOptions {
    /// The sentence, from the command line or standard input.
    pub(crate) fn sentence(&self) -> Result<String> {
        self.sentence.clone().map_or_else(line, Ok)
    }
}

/// The options of the model and of decoding.
#[derive(clap::Args)]
pub(crate) struct ObserveOptions {
    #[command(flatten)]
    model: ModelOptions,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, visible_aliases = ["num-beams", "beam-size"], value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
}

impl ObserveOptions {
    /// Loads the model.
    pub(crate) fn load(&self) -> Result<Observer> {
        let decoding = DecodingOptions { beams: self.beams, max_new_tokens: self.max_new_tokens, ..DecodingOptions::default() };
        let load = self.model.load(Some(NonZeroUsize::MIN), self.threads);
        let observer = Observer::load(self.model.source()?, &load, &decoding)?;
        messages::notices(observer.model().notices());
        Ok(observer)
    }
}

/// The single line on standard input.
fn line() -> Result<String> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("stdin: expected a sentence in UTF-8")?;
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match (lines.next(), lines.count()) {
        (Some(line), 0) => Ok(line.to_owned()),
        (None, _) => bail!("stdin: expected a sentence, found none; pass it as the argument, or through a pipe"),
        (Some(_), more) => bail!("stdin: expected one sentence, found {} lines", more + 1),
    }
}
