//! `cognate classify`: texts and images to classes.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::sentences::Sentences;
use anyhow::{Result, bail};
use cognate::{Class, Classifier};
use serde_json::{Map, Value, json};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

/// Classify sentences or images
///
/// Each sentence gives one line: the likeliest class and its probability, separated by a tab. The
/// model is a classifier such as BertForSequenceClassification, or of images such as
/// ViTForImageClassification; then the arguments, or lines, are paths of PNG and JPEG files. Texts
/// that are longer than the model's positions are truncated, with a warning.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    sentences: Sentences,
    /// Write JSON Lines with all classes: {"text": ..., "classes": {LABEL: PROBABILITY, ...}}; of
    /// images with "image"
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
  cognate classify --model distilbert-sst-2 --json --input reviews.txt
  cognate classify --model vit-base-patch16-224 dog.jpg cat.png";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let classifier = Classifier::load(
        options.model.source()?,
        &options.model.load(Some(NonZeroUsize::MIN), options.threads),
    )?;
    messages::status(classifier.model().source(), classifier.model().engine());
    let mut n_read = 0;
    options.sentences.for_each_window(|window| {
        let reads_images = classifier.model().reads_images();
        let classes = if reads_images {
            if let Some(place) = window.iter().position(|path| path.is_empty()) {
                let number = n_read + place + 1;
                bail!("image {number}: expected the path of a PNG or JPEG file, found nothing");
            }
            classifier.classify_files(window)?
        } else {
            if let Some(picture) = window.iter().find(|text| is_picture(text)) {
                bail!("{picture} is a picture; {} classifies texts", classifier.model().source());
            }
            classifier.classify(window)?
        };
        for (text, classes) in window.iter().zip(classes) {
            if options.json {
                let classes: Map<String, Value> = classes
                    .into_iter()
                    .map(|Class { label, score }| (label, score.into()))
                    .collect();
                writeln!(
                    out,
                    "{}",
                    json!({ if reads_images { "image" } else { "text" }: text, "classes": classes })
                )?;
            } else if let Some(Class { label, score }) = classes.first() {
                writeln!(out, "{label}\t{score:.6}")?;
            }
        }
        n_read += window.len();
        Ok(())
    })?;
    messages::truncated(classifier.model());
    Ok(ExitCode::SUCCESS)
}

/// Whether the argument is the path of a picture.
fn is_picture(text: &str) -> bool {
    let extension = Path::new(text).extension().is_some_and(|kind| {
        ["png", "jpg", "jpeg"].iter().any(|known| kind.eq_ignore_ascii_case(known))
    });
    extension && Path::new(text).is_file()
}
