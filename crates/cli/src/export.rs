//! `cognate export`.

use crate::amounts::at_most;
use crate::model_options::{LanguageOptions, UnusedOption};
use crate::translate::progress::Progress;
use crate::verify::{self, Print};
use crate::{amounts, messages};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate::{
    BleuComparison, ComparisonText, Export, ExportEvent, Exported, Layout, Manifest, ModelSource,
    Origin, Precision, Quality, SentenceSettings, VerifyOptions,
};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Export a checkpoint to ONNX and verify it
///
/// Writes a folder with encoder.onnx, decoder.onnx, their shared weights, configuration and
/// tokenizer, and cognate.json, which records the source, the format and the result of the
/// verification. The folder appears complete or not at all. With --in-place the graphs are written
/// into the checkpoint's folder and refer to its weights, which are neither copied nor read.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder (config.json, model.safetensors, tokenizer files), or preset:tiny,
    /// preset:base, preset:big with seeded initial weights
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Folder to write
    #[arg(value_name = "OUT", required_unless_present = "in_place")]
    out: Option<PathBuf>,
    /// Write encoder.onnx, decoder.onnx and cognate.json into the checkpoint's folder, without
    /// verification; its weights must be f32
    #[arg(long, conflicts_with = "out")]
    in_place: bool,
    /// Part of the checkpoint to export [default: all; of a folder with the modules.json of
    /// sentence-transformers the encoder]
    #[arg(long, value_enum, value_name = "PART")]
    part: Option<Part>,
    /// Layout of the folder: cognate (encoder.onnx, decoder.onnx, one weights file), hf (for
    /// Optimum and transformers.js: onnx/encoder_model.onnx, onnx/decoder_model_merged.onnx without
    /// an If), generate (generate.onnx, which decodes a batch in one call: encoder, decoder and
    /// beam search), or triton (a model repository: encoder, decoder, and a model that translates
    /// with the Python package)
    #[arg(long, value_name = "LAYOUT", default_value = Layout::Cognate.name())]
    layout: Layout,
    /// With --layout hf: also write onnx/generate.onnx, which decodes a batch in one call, and its
    /// weights
    #[arg(long)]
    with_generate: bool,
    /// With --layout generate: also write generate_text.onnx, whose input and output are texts, for
    /// ONNX Runtime with the package onnxruntime-extensions; refused if the tokenizer is no unigram
    /// model
    #[arg(long)]
    with_tokenizer: bool,
    /// With --layout generate: constant shapes for N sentences, for compilers such as TensorRT;
    /// num_beams and num_return_sequences are those of generation_config.json
    #[arg(long, value_name = "N", requires = "max_length", value_parser = at_most(1 << 16))]
    max_batch: Option<NonZeroUsize>,
    /// With --max-batch: the number of positions of sources and targets
    #[arg(long, value_name = "N", requires = "max_batch", value_parser = at_most(1 << 24))]
    max_length: Option<NonZeroUsize>,
    /// Engines of the graphs: portable (all), or ort (ONNX Runtime only, and fastest there: joined
    /// layers, its own attention, caches written in place; in f16 for NVIDIA GPUs)
    #[arg(long, value_name = "TARGET", value_enum, default_value_t)]
    target: Target,
    /// Replace OUT, or the graphs in place, if it is an earlier export
    #[arg(long)]
    force: bool,
    /// Skip the verification, and without --data the comparison of a lower precision with f32
    #[arg(long)]
    no_verify: bool,
    /// Export weights that are infinite or not numbers; with --in-place they are never checked
    #[arg(long)]
    allow_non_finite: bool,
    /// Type of weights and activations; in the Cognate layout also of cached keys and values
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = precision())]
    precision: Precision,
    /// Number of weights that share a scale in int8-block and int4; smaller blocks are more
    /// precise, larger ones are smaller and faster [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_block_size)]
    block_size: Option<usize>,
    /// Report the BLEU lost relative to f32: translate the lines of SOURCE and score them against
    /// REFERENCE
    ///
    /// An export in a lower precision is compared with one in f32 on the same engine: ONNX Runtime
    /// if its library is found, else tract. Without --data, the share of equal greedy choices is
    /// measured on bundled sentences. With --data it is measured on the lines of SOURCE, and BLEU
    /// is computed for both, with the decoding of generation_config.json, without sampling. A loss
    /// of more than 0.3 BLEU is a warning; the exit status is still 0.
    #[arg(long, num_args = 2, value_names = ["SOURCE", "REFERENCE"])]
    data: Option<Vec<PathBuf>>,
    /// Add the outputs encoder_attentions.{layer}, decoder_attentions.{layer} (not with --target
    /// ort) and cross_attentions.{layer}, which `cognate attend` draws; with --layout generate
    /// token_scores and cross_attentions of the sequences
    #[arg(long)]
    attentions: bool,
    /// Random seed of a preset's initial weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    languages: LanguageOptions,
    #[command(flatten)]
    unused: UnusedOption,
}

const EXAMPLES: &str = "\
Examples:
  cognate export testdata/multi30k-en-de out
  cognate export my-checkpoint --in-place
  cognate export my-checkpoint out --layout hf
  cognate export my-checkpoint models --layout triton
  cognate export my-checkpoint out16 --precision f16
  cognate export my-checkpoint fast --target ort --precision int8
  cognate export my-checkpoint out8 --precision int8 --data test.en test.de
  cognate export t5-small out --part encoder
  cognate export preset:base base --no-verify
  cognate export nllb out --source-language eng_Latn --target-language deu_Latn
  cognate export my-checkpoint out --force && cognate translate --model out \"Hello.\"";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let start = Instant::now();
    let source = ModelSource::find(&options.model)?.into_checkpoint();
    if options.data.is_some() && options.precision == Precision::F32 {
        bail!("--data: expected a lower precision with it, found f32; add --precision");
    }
    let opened = match options.part.map_or_else(|| default_part(&source), Ok)? {
        Part::All => Export::open_with(&source, options.seed, options.unused.ignore_unused)?,
        Part::Encoder => Export::open_encoder(&source)?,
    };
    let export = opened
        .layout(options.layout)
        .target(options.target.into())
        .precision(options.precision)
        .block_size(options.block_size)
        .attentions(options.attentions)
        .with_generate(options.with_generate)
        .with_tokenizer(options.with_tokenizer)
        .max_batch(options.max_batch.map(NonZeroUsize::get))
        .max_length(options.max_length.map(NonZeroUsize::get))
        .languages(options.languages.languages())
        .force(options.force)
        .allow_non_finite(options.allow_non_finite);
    match &options.out {
        Some(folder) => write_folder(options, &export, &source, folder, start, out),
        None => write_in_place(&export, &source, start, out),
    }
}

/// What is exported of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The whole model
    All,
    /// The encoder, without a decoder and without what reads its states
    Encoder,
}

fn default_part(source: &ModelSource) -> Result<Part> {
    let ModelSource::Checkpoint(folder) = source else { return Ok(Part::All) };
    Ok(if SentenceSettings::read(folder)?.is_some() { Part::Encoder } else { Part::All })
}

/// Writes a folder, verifies it, and compares a lower precision with f32.
fn write_folder(
    options: &Options,
    export: &Export,
    source: &ModelSource,
    folder: &Path,
    start: Instant,
    out: &mut dyn Write,
) -> Result<ExitCode> {
    let text = match options.data.as_deref() {
        Some([sources, references]) => {
            export.check_comparison().context("--data")?;
            Some(ComparisonText::read(sources, references).context("--data")?)
        }
        _ => (!options.no_verify).then(ComparisonText::own),
    };
    let mut events = Events::default();
    let exported = export.write_with(folder, &mut |event| events.print(event))?;
    messages::notices(&exported.notices);
    let elapsed = amounts::duration(start.elapsed());
    writeln!(out, "{source} to {} in {elapsed}\n{}", folder.display(), sizes(&exported))?;
    if options.precision == Precision::F16 {
        report_half(&exported.manifest, out)?;
    }
    out.flush()?;
    if exported.manifest.needs_gpu() {
        messages::warning(format_args!(
            "not verified, because only a GPU runs it; `cognate verify {} --checkpoint {source} --device cuda` verifies it",
            folder.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let compared = VerifyOptions { model: Some(export.model()), ..VerifyOptions::default() };
    let passed = options.no_verify || verify::verify(folder, &compared, Print::Text, out)?;
    if let Some(text) = text {
        let (quality, notices) = export
            .compare(folder, &text, &mut |event| events.print(event))
            .context(data(options))?;
        messages::notices(&notices);
        if let Some(quality) = quality {
            write!(out, "{quality}")?;
            out.flush()?;
            warn_of_loss(&quality, options.precision);
        }
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The context of a comparison's errors.
fn data(options: &Options) -> &'static str {
    if options.data.is_some() { "--data" } else { "comparison with f32" }
}

/// Writes graphs into the checkpoint's folder.
fn write_in_place(
    export: &Export,
    source: &ModelSource,
    start: Instant,
    out: &mut dyn Write,
) -> Result<ExitCode> {
    let exported = export.write_in_place()?;
    messages::notices(&exported.notices);
    let elapsed = amounts::duration(start.elapsed());
    writeln!(out, "{source} in place in {elapsed}\n{}", sizes(&exported))?;
    let Origin::CheckpointInPlace { files, .. } = &exported.manifest.source else {
        return Ok(ExitCode::SUCCESS);
    };
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    let bytes = amounts::bytes(files.values().map(|stamp| stamp.bytes).sum());
    let weights = if let [one] = names.as_slice() {
        (*one).to_owned()
    } else {
        format!("{} files", names.len())
    };
    writeln!(
        out,
        "weights: {weights}, {bytes}; not read and not verified; run `cognate verify {source}`"
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the progress of an export on a terminal.
#[derive(Default)]
struct Events {
    progress: Option<Progress>,
}

impl Events {
    fn print(&mut self, event: ExportEvent<'_>) {
        let shows_progress = messages::shows_progress();
        match event {
            ExportEvent::Stage(stage) if shows_progress => {
                messages::note(format_args!("measuring: {stage}"))
            }
            ExportEvent::Stage(_) => {}
            ExportEvent::Translating { precision, engine, bytes } => {
                if shows_progress {
                    messages::note(format_args!("measuring: {precision} on {engine}"));
                }
                self.progress.insert(Progress::new(Some(bytes as u64))).show();
            }
            ExportEvent::Translated { sentences, tokens, bytes } => {
                if let Some(progress) = &mut self.progress {
                    progress.add(sentences, tokens, bytes);
                }
            }
            ExportEvent::Finished => {
                if let Some(progress) = self.progress.take() {
                    progress.finish();
                }
            }
        }
    }
}

/// Warns if an export loses too much BLEU.
fn warn_of_loss(quality: &Quality, precision: Precision) {
    let Some(bleu) = quality.bleu.as_ref().filter(|bleu| bleu.is_low()) else { return };
    let advice = match precision {
        Precision::Int8Tensor => "--precision int8 usually loses less",
        Precision::Int8 | Precision::Int8Block => {
            "--precision f16, for the portable target, usually loses less"
        }
        Precision::Int4 => "--block-size 16 or --precision int8-block usually loses less",
        Precision::F16 | Precision::Bf16 | Precision::F32 => "f32 loses nothing",
    };
    let (loss, limit) = (bleu.loss(), BleuComparison::LOSS_LIMIT);
    messages::warning(format_args!(
        "{precision} loses {loss:.2} BLEU on {}, more than {limit}; {advice}",
        bleu.source
    ));
}

/// Maximum number of printed kinds of operations; `cognate show` prints all.
const SHOWN: usize = 6;

/// Prints what stayed f32 in an export in f16, and its calibration.
fn report_half(manifest: &Manifest, out: &mut dyn Write) -> Result<()> {
    let kept = &manifest.kept_in_f32;
    let places: usize = kept.iter().map(|kept| kept.places).sum();
    writeln!(out, "in f16, with {places} operations and weights in f32:")?;
    for kept in kept.iter().take(SHOWN) {
        writeln!(out, "  {kept}")?;
    }
    if let Some(more @ 1..) = kept.len().checked_sub(SHOWN) {
        writeln!(out, "  and {more} more kinds; `cognate show` lists them")?;
    }
    let Some(calibration) = &manifest.calibration else { return Ok(()) };
    writeln!(out, "  {calibration}")?;
    if let Some(warning) = calibration.warning() {
        messages::warning(warning);
    }
    Ok(())
}

/// The engines of the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Target {
    /// All: standard operators only
    #[default]
    Portable,
    /// ONNX Runtime alone
    Ort,
}

impl From<Target> for cognate::Target {
    fn from(target: Target) -> Self {
        match target {
            Target::Portable => Self::Portable,
            Target::Ort => Self::Ort,
        }
    }
}

fn precision() -> impl TypedValueParser<Value = Precision> {
    let values = Precision::ALL.map(|precision| {
        let help = match precision {
            Precision::F32 => "single precision",
            Precision::F16 => "half precision where values are in range, measured on translations and random batches; the rest is f32",
            Precision::Bf16 => "linear layers and tables of tokens in bfloat16, sums in f32, for --target ort: half the size, and faster where the processor multiplies it",
            Precision::Int8 => "linear layers in 8-bit integers, activations quantised per row: translations do not depend on their batch",
            Precision::Int8Tensor => {
                "linear layers in 8-bit integers, activations quantised per tensor: faster, but translations depend on their batch"
            }
            Precision::Int8Block => {
                "linear layers in 8-bit integers, quantised per block, for --target ort: closer to f32 than int8, slower on batches"
            }
            Precision::Int4 => {
                "like int8-block with 4-bit weights, except in the output layer: smallest, fastest on single sentences, slow on batches"
            }
        };
        PossibleValue::new(precision.name()).help(help)
    });
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Precision>())
}

fn parse_block_size(text: &str) -> Result<usize, String> {
    const SIZES: [usize; 4] = [16, 32, 64, 128];
    SIZES
        .into_iter()
        .find(|size| size.to_string() == text)
        .ok_or_else(|| "expected 16, 32, 64 or 128".into())
}

fn sizes(exported: &Exported) -> String {
    let written = &exported.files;
    let files = written.files.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    let lines = files
        .chain([("total", written.bytes())])
        .map(|(name, bytes)| format!("  {name:<24} {:>8}", amounts::bytes(bytes)));
    lines.collect::<Vec<_>>().join("\n")
}
