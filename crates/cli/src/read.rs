//! `cognate read`: images to text.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::MediaModelOptions;
use anyhow::Result;
use cognate::{DecodingOptions, ImageReader};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Read the text of images
///
/// Each image gives one line of text. The model is an encoder of images with a decoder, such as
/// TrOCR, or a model that describes images.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  cognate read --model trocr-base-handwritten line-1.png line-2.jpg"
)]
pub(crate) struct Options {
    /// PNG or JPEG files
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<PathBuf>,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, visible_alias = "num-beams", value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens of a text [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    #[command(flatten)]
    model: MediaModelOptions,
    /// Number of batches to read in parallel [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    workers: Option<NonZeroUsize>,
    /// Number of threads of ONNX Runtime for each worker [default: 1]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let decoding = DecodingOptions {
        beams: options.beams,
        max_new_tokens: options.max_new_tokens,
        ..DecodingOptions::default()
    };
    let reader = ImageReader::load(
        options.model.source()?,
        &options.model.load(options.workers, options.threads),
        &decoding,
    )?;
    messages::status(reader.model().source(), reader.model().engine());
    for texts in reader.read_files(&options.images)? {
        writeln!(out, "{}", texts.first().map_or("", |best| best.text.as_str()))?;
    }
    Ok(ExitCode::SUCCESS)
}
