//! `cognate classify`: texts to classes.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::sentences::Sentences;
use anyhow::Result;
use cognate::{Class, Classifier};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::num::NonZeroUsize;
use std::process::ExitCode;

/// Classify sentences
///
/// Each sentence gives one line: the likeliest class and its probability, separated by a tab. The model is a classifier such as
/// BertForSequenceClassification.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    sentences: Sentences,
    /// Write JSON Lines with all classes: {"text": ..., "classes": {LABEL: PROBABILITY, ...}}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelOptions,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
}

const EXAMPLES: &str = "\
Examples:
  cognate classify --model distilbert-sst-2 \"What a film!\"
  cognate classify --model distilbert-sst-2 --json --input reviews.txt";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let classifier = Classifier::load(options.model.source()?, &options.model.load(Some(NonZeroUsize::MIN), options.threads))?;
    messages::notices(classifier.model().notices());
    messages::status(classifier.model().source(), classifier.model().engine());
    options.sentences.for_each_window(|window| {
        for (text, classes) in window.iter().zip(classifier.classify(window)?) {
            if options.json {
                let classes: Map<String, Value> = classes.into_iter().map(|Class { label, score }| (label, score.into())).collect();
                writeln!(out, "{}", json!({ "text": text, "classes": classes }))?;
            } else if let Some(Class { label, score }) = classes.first() {
                writeln!(out, "{label}\t{score:.6}")?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
