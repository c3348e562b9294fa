//! `cognate show`: a readable account of a model, an exported folder or an ONNX file.

mod facts;
mod parameters;

pub(crate) use parameters::without_layer;

use crate::account::{Account, Hashes, Origin, Stamp};
use crate::source::ModelSource;
use crate::unused::Unused;
use crate::{amounts, layout};
use anyhow::{Result, bail};
use clap::ValueEnum;
use cognate_export::Listing;
use cognate_graph::{Graph, Op, Type};
use cognate_model::{Attentions, Model};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show what is in a model, an exported folder or an ONNX file
///
/// Of a checkpoint or a preset: its configuration, its parameters with their shapes, and its graphs with inputs, outputs and the
/// number of their nodes. Of an exported folder: where it comes from, whether it was verified, and its files. Of any ONNX file:
/// inputs, outputs, operators and initializers.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder, an exported folder, an ONNX file, or preset:tiny, preset:base, preset:big
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print this graph of a checkpoint or a preset, operation by operation
    #[arg(long, value_name = "GRAPH")]
    graph: Option<GraphName>,
    #[command(flatten)]
    unused: Unused,
}

const EXAMPLES: &str = "\
Examples:
  cognate show testdata/multi30k-en-de
  cognate show preset:base --graph step
  cognate show out/decoder.onnx";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GraphName {
    /// The encoder, with the decoder's cross keys and values
    Encode,
    /// The decoder, one step from any past
    Step,
    /// Both on given targets
    TeacherForced,
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let found = ModelSource::find(&options.model)?;
    // Beside graphs in place lies the checkpoint that has the graphs of the language.
    let source = if options.graph.is_some() { found.into_checkpoint() } else { found };
    match (&source, options.graph) {
        (ModelSource::Checkpoint(_) | ModelSource::Preset(_), Some(name)) => {
            write!(out, "{}", graph(&source.open(0, options.unused)?, name)?)?
        }
        (ModelSource::Checkpoint(_) | ModelSource::Preset(_), None) => model(&source, &source.open(0, options.unused)?, out)?,
        (ModelSource::Exported(_) | ModelSource::File(_), Some(_)) => {
            bail!(
                "--graph: {source} holds ONNX, no graphs of Cognate's language; give the checkpoint that it was made from, or leave it out"
            )
        }
        (ModelSource::Exported(folder), None) => exported(folder, out)?,
        (ModelSource::File(path), None) => write!(out, "{}", Listing::read(path)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn graph(model: &Model, name: GraphName) -> Result<Graph> {
    let program = match name {
        GraphName::Encode => model.encode()?,
        GraphName::Step => model.step(Attentions::Omit)?,
        GraphName::TeacherForced => model.teacher_forced()?,
    };
    Ok(program.graph().clone())
}

fn model(source: &ModelSource, model: &Model, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{source}")?;
    for (name, value) in facts::facts(model)? {
        writeln!(out, "  {name:<12} {value}")?;
    }
    writeln!(out, "\nparameters")?;
    parameters::table(model, out)?;
    for name in [GraphName::Encode, GraphName::Step] {
        let graph = graph(model, name)?;
        let n_nodes = graph.nodes().iter().filter(|node| !matches!(node.op, Op::Input | Op::Parameter)).count();
        writeln!(out, "\ngraph {}: {n_nodes} nodes", graph.name())?;
        ports("input", graph.inputs().map(|(_, node)| (node.name.as_str(), &node.ty)), out)?;
        ports("output", graph.outputs().iter().map(|output| (output.name.as_str(), &graph.node(output.node).ty)), out)?;
    }
    Ok(())
}

/// Prints inputs or outputs, those of all layers together.
fn ports<'g>(kind: &str, ports: impl Iterator<Item = (&'g str, &'g Type)>, out: &mut dyn Write) -> Result<()> {
    let mut folded: Vec<(String, &Type, usize)> = Vec::new();
    for (name, ty) in ports {
        let name = parameters::without_layer(name);
        match folded.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., places)) => *places += 1,
            None => folded.push((name, ty, 1)),
        }
    }
    for (name, ty, places) in folded {
        let line = format!("  {kind:<6} {name}: {ty}  {}", parameters::times(&name, places));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn exported(folder: &Path, out: &mut dyn Write) -> Result<()> {
    let account = Account::read(folder)?;
    let layout = layout::of_own(folder)?;
    let listings = layout.files().map(|file| Ok((file, Listing::read(&folder.join(file))?)));
    let listings = listings.into_iter().collect::<Result<Vec<_>>>()?;
    writeln!(out, "{}", folder.display())?;
    match account {
        None => writeln!(out, "  no cognate.json: not known where it comes from")?,
        Some(account) => {
            let (name, origin) = match &account.source {
                Origin::Checkpoint { name, weights_blake3: Hashes::Single(hash) } => {
                    ("checkpoint", format!("{name}, model.safetensors with the BLAKE3 hash {hash}"))
                }
                Origin::Checkpoint { name, weights_blake3: Hashes::Shards(hashes) } => {
                    let files = hashes.iter().map(|(file, hash)| format!("\n    {file} with the BLAKE3 hash {hash}"));
                    ("checkpoint", format!("{name}{}", files.collect::<String>()))
                }
                Origin::CheckpointInPlace { name, files } => {
                    let files = files.iter().map(|(file, stamp)| {
                        let state =
                            if Stamp::of(&folder.join(file)).is_ok_and(|now| now == *stamp) { "" } else { ", which has changed since" };
                        format!("\n    {file}, {}{state}", amounts::bytes(stamp.bytes))
                    });
                    ("checkpoint", format!("{name}, in place{}", files.collect::<String>()))
                }
                Origin::Preset { name, seed } => ("preset", format!("{name}, initial weights with seed {seed}")),
            };
            writeln!(out, "  {name:<12} {origin}")?;
            writeln!(out, "  written by   {}", account.producer)?;
            writeln!(out, "  form         {} layout, {}, opset {}", account.layout, account.precision, account.opset)?;
            if !account.kept_in_f32.is_empty() {
                writeln!(out, "  kept in f32")?;
            }
            for kept in &account.kept_in_f32 {
                writeln!(out, "    {kept}")?;
            }
            writeln!(out, "  parameters   {}", amounts::thousands(account.parameters))?;
            match account.verification {
                None => writeln!(out, "  verification none; `cognate verify {}` does it", folder.display())?,
                Some(report) => {
                    writeln!(out, "  verification {}", if report.passed() { "passed" } else { "FAILED" })?;
                    for line in report.to_string().lines() {
                        writeln!(out, "    {line}")?;
                    }
                }
            }
            if let Some(quality) = account.quality {
                writeln!(out, "  quality      {}", quality.to_string().trim_end().replace('\n', "\n    "))?;
            }
        }
    }
    for (file, listing) in listings {
        write!(out, "\n{file}\n{listing}")?;
    }
    Ok(())
}
