//! `cognate export`: a checkpoint becomes a folder of ONNX graphs.
//!
//! Weights go from the mapped checkpoint to the disk piece by piece, while other threads hash the checkpoint and what is written:
//! time and memory are those of copying a file. In place they are not copied at all.

mod gate;
mod in_place;
mod precision;
mod tokenizer;

pub(crate) use precision::Precision;

use self::gate::Gate;
use crate::account::{self, Account, FileAccount, GraphAccount, Hashes, Origin, hash};
use crate::languages::Languages;
use crate::source::ModelSource;
use crate::unused::Unused;
use crate::{amounts, layout, messages, verify};
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_export::{Existing, Folder, Listing, Report};
use cognate_model::{Attentions, Layout, Model};
use cognate_text::Tokenizer;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

/// Export a checkpoint to ONNX and verify it
///
/// Writes a folder in the Cognate layout: encoder.onnx, decoder.onnx, their shared weights, configuration and tokenizer, and
/// cognate.json, which says what this is, from which checkpoint, and what the verification found. The folder appears whole or
/// not at all. With --in-place the graphs come to lie beside the checkpoint instead and point into its weights, which are neither
/// copied nor read.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder (config.json, model.safetensors, tokenizer files), or preset:tiny, preset:base, preset:big with
    /// seeded initial weights
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The folder to write
    #[arg(value_name = "OUT", required_unless_present = "in_place")]
    out: Option<PathBuf>,
    /// Write encoder.onnx, decoder.onnx and cognate.json into the checkpoint's folder, without verification; its weights, which
    /// must be f32, stay where they are
    #[arg(long, conflicts_with = "out")]
    in_place: bool,
    /// How the graphs divide the work: cognate (encoder.onnx, decoder.onnx, one weights file), or hf (as Optimum and
    /// transformers.js want it: onnx/encoder_model.onnx, onnx/decoder_model_merged.onnx without an If)
    #[arg(long, value_name = "LAYOUT", value_parser = parse_layout, default_value = Layout::Cognate.name())]
    layout: Layout,
    /// The engines that the graphs are for: portable (all), or ort (ONNX Runtime alone, the fastest there: layers joined, its own
    /// attention, caches that a step writes into)
    #[arg(long, value_name = "TARGET", value_enum, default_value_t)]
    target: Target,
    /// Replace OUT, or the graphs in place, if it is an earlier export
    #[arg(long)]
    force: bool,
    /// Skip the comparison of every runtime with the f64 reference, and that of a lower precision with f32 unless --data is given
    #[arg(long)]
    no_verify: bool,
    /// Export weights that are infinite or no numbers, too; in place they are not looked at
    #[arg(long)]
    allow_non_finite: bool,
    /// The type of weights and values, and of keys and values between steps in the Cognate layout; f16 leaves in f32 what comes
    /// near its limit on translations and random batches, and what has to be precise
    #[arg(long, value_enum, default_value_t, value_name = "TYPE")]
    precision: Precision,
    /// Weights of int8-block and int4 that share a scale: fewer are more precise, more are smaller and faster [default: 32]
    #[arg(long, value_name = "N", value_parser = parse_block_size)]
    block_size: Option<usize>,
    /// Translate the lines of SOURCE in f32 and in the lower precision, and tell BLEU against the lines of REFERENCE
    ///
    /// An export of a precision below f32 is compared with one of f32 on the same engine, ONNX Runtime if its library is found, else
    /// tract: how many choices of greedy decoding are equal along the translations of f32, and with --data also BLEU of both, which
    /// translate as the model's generation_config.json says (its beams; nothing is drawn). Without it the sentences are Cognate's
    /// own. A loss of more than 0.3 BLEU gives a warning, and the status is still 0.
    #[arg(long, num_args = 2, value_names = ["SOURCE", "REFERENCE"])]
    data: Option<Vec<PathBuf>>,
    /// Give outputs encoder_attentions.{layer}, decoder_attentions.{layer} (not with --target ort) and cross_attentions.{layer}, which
    /// `cognate attend` draws
    #[arg(long)]
    attentions: bool,
    /// The seed of a preset's initial weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    languages: Languages,
    #[command(flatten)]
    unused: Unused,
}

const EXAMPLES: &str = "\
Examples:
  cognate export testdata/multi30k-en-de out
  cognate export my-checkpoint --in-place
  cognate export my-checkpoint out --layout hf
  cognate export my-checkpoint out16 --precision f16
  cognate export my-checkpoint fast --target ort --precision int8
  cognate export my-checkpoint out8 --precision int8 --data test.en test.de
  cognate export preset:base base --no-verify
  cognate export nllb out --source-language eng_Latn --target-language deu_Latn
  cognate export my-checkpoint out --force && cognate translate --model out \"Hello.\"";

const DEFAULT_SEED: u64 = 1;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let start = Instant::now();
    let source = ModelSource::find(&options.model)?.into_checkpoint();
    if let (ModelSource::Checkpoint(_), Some(_)) = (&source, options.seed) {
        bail!("--seed: {source} is a checkpoint, whose weights are given; leave it out, or export preset:tiny, preset:base or preset:big");
    }
    if options.data.is_some() && options.precision == Precision::F32 {
        bail!("--data: compares a lower precision with f32, and this export is in f32; add --precision, or leave it out");
    }
    options.check_blocks()?;
    match &options.out {
        None if options.precision != Precision::F32 => {
            bail!(
                "--precision {}: graphs in place read weights in the type in which they are stored, f32; leave out --in-place and name a folder \
                 to write",
                options.precision.name()
            )
        }
        Some(destination) => packed(options, &source, destination, start, out),
        None => in_place::run(options, &source, start, out),
    }
}

/// Writes a folder with weights of its own.
fn packed(options: &Options, source: &ModelSource, destination: &Path, start: Instant, out: &mut dyn Write) -> Result<ExitCode> {
    let (seed, layout) = (options.seed.unwrap_or(DEFAULT_SEED), options.layout()?);
    let model = source.open(seed, options.unused)?;
    let chosen = tokenizer::check(source, &model, &options.languages)?;
    let gate = Gate::open(options, source, &model, layout, &chosen)?;
    let mut folder = Folder::create(destination, existing(options))?;
    folder.replaces(&Tokenizer::FILES);
    let graphs = precision::graphs(options, source, &model, layout, attentions(options))?;
    let origin = thread::scope(|scope| {
        let hashes = match source {
            ModelSource::Checkpoint(_) => Some(scope.spawn(|| hashes(&model))),
            ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => None,
        };
        let finite = (!options.allow_non_finite).then(|| scope.spawn(|| check_finite(source, &model)));
        layout::write_programs([&graphs.encoder, &graphs.decoder], layout, model.config(), &name(source), &mut folder)?;
        if let Some(finite) = finite {
            finite.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        match hashes {
            Some(hashes) => {
                let weights_blake3 = hashes.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                Ok::<_, anyhow::Error>(Origin::Checkpoint { name: name(source), weights_blake3 })
            }
            None => Ok(Origin::Preset { name: name(source), seed }),
        }
    })?;
    write_configuration(source, &model, layout, &chosen, &mut folder)?;
    if let Some((_, changed)) = model.weights().iter().find(|(_, recipe)| recipe.has_changed()) {
        let file = changed.place().map_or_else(|| source.to_string(), |place| place.file.display().to_string());
        bail!("{file}: changed while it was read; export it again when nothing writes there");
    }
    let mut account = Account::new(origin, model.parameters(), layout, graph_accounts(folder.path(), layout)?);
    account.precision = options.precision.name().into();
    account.block_size = precision::block_size(options);
    account.kept_in_f32 = graphs.kept_in_f32;
    account.files = FileAccount::of(folder.hashes());
    account.calibration = graphs.calibration;
    folder.write(account::FILE, account.to_json()?.as_bytes())?;
    let report = folder.commit()?;
    let elapsed = amounts::duration(start.elapsed());
    writeln!(out, "{source} to {} in {elapsed}\n{}", destination.display(), sizes(&report))?;
    if options.precision == Precision::F16 {
        precision::report(&account, out)?;
    }
    out.flush()?;
    let passed = options.no_verify || verify::verify(destination, Some(&model), out)?;
    if let Some(gate) = gate {
        gate.pass(destination, out)?;
    }
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The engines that graphs are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Target {
    /// All: standard operators only
    #[default]
    Portable,
    /// ONNX Runtime alone
    Ort,
}

impl Options {
    /// Only ONNX Runtime has an operator for weights in blocks. Spelt out in standard ones they would be made f32 again, at a load
    /// or at each step: slower than int8 and no smaller than f32 in memory.
    fn check_blocks(&self) -> Result<()> {
        let name = self.precision.name();
        match (self.precision.block_bits(), self.target, self.block_size) {
            (None, _, Some(_)) => bail!("--block-size: {name} has no blocks; leave it out, or add --precision int8-block or int4"),
            (Some(_), Target::Portable, _) => {
                let instead = if self.layout == Layout::Cognate { "add" } else { "instead of --layout hf pass" };
                bail!("--precision {name}: ONNX Runtime alone multiplies weights in blocks; {instead} --target ort, or choose int8")
            }
            _ => Ok(()),
        }
    }

    /// How the graphs divide the work, for the engines that are asked for.
    fn layout(&self) -> Result<Layout> {
        match (self.target, self.layout) {
            (Target::Portable, layout) => Ok(layout),
            (Target::Ort, Layout::Cognate) => Ok(Layout::SharedCache),
            (Target::Ort, layout) => bail!("--target ort: has a layout of its own; leave out --layout {layout}"),
        }
    }
}

fn parse_block_size(text: &str) -> Result<usize, String> {
    const SIZES: [usize; 4] = [16, 32, 64, 128];
    SIZES.into_iter().find(|size| size.to_string() == text).ok_or_else(|| "expected 16, 32, 64 or 128".into())
}

fn parse_layout(text: &str) -> Result<Layout, String> {
    let names = || Layout::PORTABLE.map(Layout::name).join(" or ");
    Layout::PORTABLE.into_iter().find(|layout| layout.name() == text).ok_or_else(|| format!("expected {}", names()))
}

fn attentions(options: &Options) -> Attentions {
    if options.attentions { Attentions::All } else { Attentions::Omit }
}

fn existing(options: &Options) -> Existing {
    if options.force { Existing::Replace } else { Existing::Refuse }
}

/// What the files call the source: no path, which would differ from machine to machine.
fn name(source: &ModelSource) -> String {
    match source {
        ModelSource::Checkpoint(path) | ModelSource::Exported(path) | ModelSource::File(path) => layout::folder_name(path),
        ModelSource::Preset(preset) => preset.name().into(),
    }
}

/// The files in which a model's weights are stored.
fn weights_files(model: &Model) -> BTreeSet<PathBuf> {
    model.weights().iter().filter_map(|(_, recipe)| recipe.place()).map(|place| place.file.to_owned()).collect()
}

/// Refuses weights that are infinite or no numbers: a model of them computes nothing.
fn check_finite(source: &ModelSource, model: &Model) -> Result<()> {
    let found = model.weights().iter().filter_map(|(path, recipe)| Some((path, recipe.shape(), recipe.first_non_finite()?)));
    let found: Vec<_> = found.map(|(path, shape, (place, value))| format!("{path} {shape:?}: {value} at element {place}")).collect();
    if found.is_empty() {
        return Ok(());
    }
    let listed = messages::listed(&found);
    bail!("{source}: weights in its safetensors are not finite: {listed}; take an earlier checkpoint, or pass --allow-non-finite")
}

/// The hashes of the files in which a model's weights are stored.
fn hashes(model: &Model) -> Result<Hashes> {
    let files: Vec<_> = weights_files(model).into_iter().collect();
    if let [single] = files.as_slice() {
        return hash(single).map(Hashes::Single);
    }
    let named = files.iter().map(|path| Ok((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), hash(path)?)));
    named.collect::<Result<_>>().map(Hashes::Shards)
}

/// Writes all that is beside the graphs and their weights.
fn write_configuration(source: &ModelSource, model: &Model, layout: Layout, chosen: &tokenizer::Chosen, folder: &mut Folder) -> Result<()> {
    folder.write(layout::CONFIG, layout::config_json(model, layout).as_bytes())?;
    let ModelSource::Checkpoint(checkpoint) = source else {
        return Ok(folder.write(layout::GENERATION, generation(model)?.as_bytes())?);
    };
    let text = match layout::read_if_there(&checkpoint.join(layout::GENERATION))? {
        Some(text) => text,
        None => generation(model)?,
    };
    folder.write(layout::GENERATION, chosen.generation(text)?.as_bytes())?;
    chosen.write_tokenizer(checkpoint, folder)
}

/// A `generation_config.json` that says no more than `config.json`.
fn generation(model: &Model) -> Result<String> {
    let config = model.config();
    let generation = json!({
        "decoder_start_token_id": config.start_token,
        "eos_token_id": config.eos_token,
        "pad_token_id": config.pad_token,
    });
    Ok(serde_json::to_string_pretty(&generation)? + "\n")
}

/// Accounts of the graphs in a folder.
fn graph_accounts(folder: &Path, layout: Layout) -> Result<Vec<GraphAccount>> {
    let account = |file: &str| {
        let listing = Listing::read(&folder.join(file))?;
        let (inputs, outputs) = (listing.inputs.len(), listing.outputs.len());
        Ok(GraphAccount { file: file.into(), inputs, outputs, nodes: listing.operators.values().sum() })
    };
    layout.files().into_iter().map(account).collect()
}

fn sizes(report: &Report) -> String {
    let files = report.files.iter().map(|(name, bytes)| (name.as_str(), *bytes));
    let lines = files.chain([("in all", report.bytes())]).map(|(name, bytes)| format!("  {name:<24} {:>8}", amounts::bytes(bytes)));
    lines.collect::<Vec<_>>().join("\n")
}
