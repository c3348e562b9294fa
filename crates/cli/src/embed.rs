//! `cognate embed`: texts to vectors.

use crate::amounts::at_most;
use crate::model_options::ModelOptions;
use crate::sentences::Sentences;
use crate::{messages, whole_file};
use anyhow::Result;
use clap::ValueEnum;
use cognate::{EmbedOptions, Embedder, Pooling};
use serde_json::Value;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Compute embeddings of sentences
///
/// Each sentence gives one vector, by the encoder of a checkpoint (BERT, RoBERTa, DistilBERT,
/// MPNet, or the encoder of a model with a decoder) or by an exported encoder. The files of
/// sentence-transformers (modules.json) are followed where they are there.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    #[command(flatten)]
    sentences: Sentences,
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Format of the output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// How the states of tokens become one vector [default: that of modules.json, else mean]
    #[arg(long, value_enum, value_name = "POOLING")]
    pooling: Option<PoolingName>,
    /// Divide each vector by its length [default: as modules.json says, else not]
    #[arg(long, conflicts_with = "no_normalize")]
    normalize: bool,
    /// Do not divide vectors by their lengths
    #[arg(long)]
    no_normalize: bool,
    /// Maximum number of tokens of a sentence; longer ones are truncated, with a warning [default:
    /// that of the model]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 20))]
    max_tokens: Option<NonZeroUsize>,
    /// Text to put before each sentence, such as an instruction [default: the model's default
    /// prompt, if it has one]
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_name")]
    prompt: Option<String>,
    /// Name of a prompt of the model, such as query
    #[arg(long, value_name = "NAME")]
    prompt_name: Option<String>,
    #[command(flatten)]
    model: ModelOptions,
    /// Number of batches at the same time [default: number of cores]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    workers: Option<NonZeroUsize>,
    /// Number of threads of ONNX Runtime for each worker [default: 1]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Number of tokens to read together, padding included
    #[arg(long, value_name = "N", default_value = "4096", value_parser = at_most(1 << 24))]
    batch_tokens: NonZeroUsize,
}

const EXAMPLES: &str = "\
Examples:
  cognate embed --model all-MiniLM-L6-v2 \"A man is riding a bicycle.\"
  cognate embed --model all-MiniLM-L6-v2 --input text.en --format npy --output text.npy
  cognate embed --model bert-base-uncased --pooling first --normalize --input text.en";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON Lines: {"text": ..., "embedding": [...]}
    #[default]
    Jsonl,
    /// A NumPy array of single precision, a row for each sentence
    Npy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PoolingName {
    /// The mean over the tokens
    Mean,
    /// The state of the first token
    #[value(alias = "cls")]
    First,
    /// What the model's pooler makes of the state of the first token
    Pooler,
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let file = options.output.as_deref();
    if let Some(file) = file {
        whole_file::check_beside("--output", file, options.sentences.file())?;
    }
    let embedder = Embedder::load(options.model.source()?, &options.embedding())?;
    messages::status(embedder.model().source(), embedder.model().engine());
    let (mut written, mut rows, mut bytes) = (Vec::new(), 0, Vec::new());
    options.sentences.for_each_window(|window| {
        for (text, embedding) in
            window.iter().zip(embedder.embed_in(window, options.batch_tokens.get())?)
        {
            rows += 1;
            match options.format {
                // Numbers in the digits of single precision.
                Format::Jsonl => {
                    let embedding = serde_json::to_string(&embedding)?;
                    writeln!(
                        written,
                        "{{\"text\":{},\"embedding\":{embedding}}}",
                        Value::from(text.as_str())
                    )?;
                }
                Format::Npy => {
                    embedding.iter().for_each(|number| bytes.extend(number.to_le_bytes()))
                }
            }
        }
        if options.format == Format::Jsonl && file.is_none() {
            out.write_all(&written)?;
            written.clear();
        }
        Ok(())
    })?;
    if options.format == Format::Npy {
        written = npy_header(rows, embedder.width());
        written.extend(bytes);
    }
    match file {
        Some(file) => whole_file::write("--output", file, &written, out)?,
        None => out.write_all(&written)?,
    }
    messages::truncated(embedder.model());
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn embedding(&self) -> EmbedOptions {
        EmbedOptions {
            pooling: self.pooling.map(|name| match name {
                PoolingName::Mean => Pooling::Mean,
                PoolingName::First => Pooling::First,
                PoolingName::Pooler => Pooling::Pooler,
            }),
            normalize: (self.normalize || self.no_normalize).then_some(self.normalize),
            max_tokens: self.max_tokens.map(NonZeroUsize::get),
            prompt: self.prompt.clone(),
            prompt_name: self.prompt_name.clone(),
            load: self.model.load(self.workers, self.threads),
        }
    }
}

/// The header of a NumPy file, version 1.0: its length is a multiple of 64.
fn npy_header(rows: usize, width: usize) -> Vec<u8> {
    let fields =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
    // The magic number, the version and the length take 10 bytes, the line's end one.
    let padding = (64 - (10 + fields.len() + 1) % 64) % 64;
    let header = format!("{fields}{:padding$}\n", "");
    let length = u16::try_from(header.len()).unwrap_or(u16::MAX);
    [b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::npy_header;

    #[test]
    fn headers_are_those_of_numpy() {
        // numpy 2.2: numpy.lib.format.header_data_from_array_1_0 of zeros((12, 384), float32),
        // written by numpy.save.
        let expected = "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 384), }";
        let header = npy_header(12, 384);
        assert_eq!(header.len(), 128);
        assert_eq!(&header[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(std::str::from_utf8(&header[10..]).map(str::trim_end), Ok(expected));
        assert_eq!(header.last(), Some(&b'\n'));
    }
}
