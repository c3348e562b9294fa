//! `cognate show`: the contents of a model, an exported folder or an ONNX file.

mod facts;
mod json;
mod parameters;

use crate::model_options::UnusedOption;
use crate::{amounts, messages, whole_file};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use cognate::{Export, Manifest, ModelSource, Origin, diagram};
use cognate_export::Listing;
use cognate_folder::{Stamp, WeightHashes, graph_files, require_layout};
use cognate_graph::{Class, Graph, Program, Type};
use cognate_model::{Attentions, Model, Parts, without_layer};
use cognate_text::Tokenizer;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show the contents of a model, an exported folder or an ONNX file
///
/// For a checkpoint or a preset: its configuration, languages, parameters with shapes, and graphs
/// with inputs, outputs and number of nodes. For an exported folder: its source, its verification
/// and its files. For any ONNX file: inputs, outputs, operators and initializers.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder, an exported folder, an ONNX file, or preset:tiny, preset:base,
    /// preset:big
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Print this graph of a checkpoint or a preset, operation by operation
    #[arg(long, value_name = "GRAPH")]
    graph: Option<GraphName>,
    /// Write an HTML page to FILE with the modules of the graph as boxes that open, with
    /// parameters, FLOPs and equations [default graph: teacher-forced]
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    html: Option<PathBuf>,
    /// Write one line of JSON: the same contents for programs
    #[arg(long, conflicts_with_all = ["graph", "html", "format"])]
    json: bool,
    /// Print the graph in the language of a drawing program [default graph: teacher-forced]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Depth of nested boxes in --format: 0 draws encoder and decoder
    #[arg(long, value_name = "N", default_value_t = 3, requires = "format")]
    depth: usize,
    /// Sizes for which FLOPs are counted, such as batch=1,src=24 [default: 1 sentence and beam, 32
    /// tokens]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    sizes: Vec<(String, usize)>,
    #[command(flatten)]
    unused: UnusedOption,
}

const EXAMPLES: &str = "\
Examples:
  cognate show testdata/multi30k-en-de
  cognate show preset:base --graph step
  cognate show testdata/multi30k-en-de --html graph.html
  cognate show preset:tiny --graph encode --format dot --depth 4 | dot -Tsvg > encoder.svg
  cognate show out/decoder.onnx";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GraphName {
    /// The encoder, with keys and values of cross-attention
    Encode,
    /// One step of the decoder from any past
    Step,
    /// Encoder and decoder on given targets
    TeacherForced,
}

impl GraphName {
    /// The graphs that a model is exported as.
    fn of(model: &Model) -> &'static [Self] {
        match model.config().parts {
            Parts::Both => &[Self::Encode, Self::Step],
            Parts::Encoder(_) => &[Self::Encode],
            Parts::Decoder => &[Self::Step],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Graphviz
    Dot,
    /// A Mermaid flowchart
    Mermaid,
}

/// Reads `symbol=size`.
fn size(text: &str) -> Result<(String, usize), String> {
    let (symbol, size) = text.split_once('=').ok_or("expected SYMBOL=SIZE, as src=24")?;
    let size = size.parse().ok().filter(|size| (1..=1 << 20).contains(size));
    Ok((symbol.trim().to_owned(), size.ok_or("expected a size from 1 to 1048576")?))
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let found = ModelSource::find(&options.model)?;
    // An export in place has its checkpoint in the same folder, whose graphs can be drawn.
    let is_drawn = options.html.is_some() || options.format.is_some();
    let wanted = options.graph.or(is_drawn.then_some(GraphName::TeacherForced));
    let source = if wanted.is_some() { found.into_checkpoint() } else { found };
    match (&source, wanted) {
        (ModelSource::Checkpoint(_) | ModelSource::Preset(_), Some(name)) if is_drawn => {
            options.draw(&source, name, out)?
        }
        (ModelSource::Checkpoint(_) | ModelSource::Preset(_), Some(name)) => {
            write!(out, "{}", program(options.open(&source)?.model(), name)?.graph())?
        }
        (ModelSource::Checkpoint(_) | ModelSource::Preset(_), None) => {
            let (export, languages) = (options.open(&source)?, languages(&source));
            match options.json {
                true => writeln!(out, "{}", json::model(&source, export.model(), &languages)?)?,
                false => model(&source, export.model(), &languages, out)?,
            }
        }
        (ModelSource::Exported(_) | ModelSource::File(_), Some(_)) => {
            if let ModelSource::File(path) = &source {
                // The error of a file that is not ONNX.
                Listing::read(path)?;
            }
            let option = if options.html.is_some() {
                "--html"
            } else if options.format.is_some() {
                "--format"
            } else {
                "--graph"
            };
            bail!(
                "{option}: expected a checkpoint or a preset, found ONNX: {source}; pass the checkpoint that it was exported from"
            )
        }
        (ModelSource::Exported(folder), None) => exported(options, folder, out)?,
        (ModelSource::File(path), None) if options.json => {
            writeln!(out, "{}", json::listing(&Listing::read(path)?))?
        }
        (ModelSource::File(path), None) => write!(out, "{}", Listing::read(path)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// The model of a checkpoint or preset.
    fn open(&self, source: &ModelSource) -> Result<Export> {
        let export = Export::open_with(source, None, self.unused.ignore_unused)?;
        messages::notices(export.notices());
        Ok(export)
    }

    /// Draws a graph, as a page or in the language of another program.
    fn draw(&self, source: &ModelSource, name: GraphName, out: &mut dyn Write) -> Result<()> {
        if let Some(file) = &self.html {
            whole_file::check("--html", file)?;
        }
        let export = self.open(source)?;
        let model = export.model();
        let program = program(model, name)?;
        let sizes = diagram::sizes(program.graph(), &self.sizes)
            .map_err(|reason| anyhow!("--sizes: {reason}"))?;
        let title = format!("{}, {source}", program.graph().name());
        let diagram = diagram::diagram(&program, model.config(), title, &sizes);
        match (&self.html, self.format) {
            (Some(file), _) => {
                whole_file::write("--html", file, diagram.to_html().as_bytes(), out)?
            }
            (None, Some(Format::Mermaid)) => write!(out, "{}", diagram.to_mermaid(self.depth))?,
            (None, Some(Format::Dot) | None) => write!(out, "{}", diagram.to_dot(self.depth))?,
        }
        Ok(())
    }
}

fn program(model: &Model, name: GraphName) -> Result<Program> {
    Ok(match name {
        GraphName::Encode => model.encode()?,
        GraphName::Step => model.step(Attentions::Omit)?,
        GraphName::TeacherForced => model.teacher_forced()?,
    })
}

/// The languages of a model's tokenizer, if it has one.
fn languages(source: &ModelSource) -> Vec<String> {
    let tokenizer = source.folder().ok().and_then(|folder| Tokenizer::from_folder(folder).ok());
    tokenizer.map(|tokenizer| tokenizer.languages()).unwrap_or_default()
}

fn model(
    source: &ModelSource,
    model: &Model,
    languages: &[String],
    out: &mut dyn Write,
) -> Result<()> {
    writeln!(out, "{source}")?;
    for (name, value) in facts::facts(model)? {
        writeln!(out, "  {name:<12} {value}")?;
    }
    if !languages.is_empty() {
        writeln!(out, "  {:<12} {}: {}", "languages", languages.len(), languages.join(", "))?;
    }
    writeln!(out, "\nparameters")?;
    parameters::table(model, out)?;
    for &name in GraphName::of(model) {
        let program = program(model, name)?;
        let graph = program.graph();
        writeln!(out, "\ngraph {}: {} nodes", graph.name(), n_nodes(graph))?;
        ports("input", graph.inputs().map(|(_, node)| (node.name.as_str(), &node.ty)), out)?;
        ports(
            "output",
            graph
                .outputs()
                .iter()
                .map(|output| (output.name.as_str(), &graph.node(output.node).ty)),
            out,
        )?;
    }
    Ok(())
}

/// The number of operations of a graph.
fn n_nodes(graph: &Graph) -> usize {
    graph.nodes().iter().filter(|node| node.op.class() != Class::Declared).count()
}

/// Prints inputs or outputs, one line for all layers.
fn ports<'g>(
    kind: &str,
    ports: impl Iterator<Item = (&'g str, &'g Type)>,
    out: &mut dyn Write,
) -> Result<()> {
    let mut folded: Vec<(String, &Type, usize)> = Vec::new();
    for (name, ty) in ports {
        let name = without_layer(name);
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

fn exported(options: &Options, folder: &Path, out: &mut dyn Write) -> Result<()> {
    let manifest = Manifest::read(folder)?;
    let layout = require_layout(folder)?;
    let listings = graph_files(folder, layout)
        .into_iter()
        .map(|file| Ok((file, Listing::read(&folder.join(file))?)));
    let listings = listings.collect::<Result<Vec<_>>>()?;
    let languages = languages(&ModelSource::Exported(folder.into()));
    if options.json {
        return Ok(writeln!(
            out,
            "{}",
            json::exported(folder, manifest.as_ref(), &listings, &languages)
        )?);
    }
    writeln!(out, "{}", folder.display())?;
    match manifest {
        None => writeln!(out, "  no cognate.json: the source is unknown")?,
        Some(manifest) => {
            let (name, origin) = match &manifest.source {
                Origin::Checkpoint { name, weights_blake3: WeightHashes::Single(hash) } => {
                    ("checkpoint", format!("{name}, model.safetensors with the BLAKE3 hash {hash}"))
                }
                Origin::Checkpoint { name, weights_blake3: WeightHashes::Shards(hashes) } => {
                    let files = hashes
                        .iter()
                        .map(|(file, hash)| format!("\n    {file} with the BLAKE3 hash {hash}"));
                    ("checkpoint", format!("{name}{}", files.collect::<String>()))
                }
                Origin::CheckpointInPlace { name, files } => {
                    let files = files.iter().map(|(file, stamp)| {
                        let state = if Stamp::of(&folder.join(file))
                            .is_ok_and(|now| stamp.is_unchanged(&now))
                        {
                            ""
                        } else {
                            ", changed since the export"
                        };
                        format!("\n    {file}, {}{state}", amounts::bytes(stamp.bytes))
                    });
                    ("checkpoint", format!("{name}, in place{}", files.collect::<String>()))
                }
                Origin::Preset { name, seed } => {
                    ("preset", format!("{name}, initial weights with seed {seed}"))
                }
            };
            writeln!(out, "  {name:<12} {origin}")?;
            writeln!(out, "  written by   {}", manifest.producer)?;
            let blocks =
                manifest.block_size.map_or(String::new(), |size| format!(" in blocks of {size}"));
            writeln!(
                out,
                "  form         {} layout, {}{blocks}, opset {}",
                manifest.layout, manifest.precision, manifest.opset
            )?;
            if let Some(calibration) = &manifest.calibration {
                writeln!(out, "  calibration  {calibration}")?;
            }
            if !manifest.kept_in_f32.is_empty() {
                writeln!(out, "  kept in f32")?;
            }
            for kept in &manifest.kept_in_f32 {
                writeln!(out, "    {kept}")?;
            }
            writeln!(out, "  parameters   {}", amounts::thousands(manifest.parameters))?;
            if !languages.is_empty() {
                writeln!(out, "  languages    {}: {}", languages.len(), languages.join(", "))?;
            }
            match manifest.verification {
                None => {
                    writeln!(out, "  verification none; run `cognate verify {}`", folder.display())?
                }
                Some(report) => {
                    writeln!(
                        out,
                        "  verification {}",
                        if report.passed() { "passed" } else { "FAILED" }
                    )?;
                    for line in report.to_string().lines() {
                        writeln!(out, "    {line}")?;
                    }
                }
            }
            if let Some(quality) = manifest.quality {
                writeln!(
                    out,
                    "  quality      {}",
                    quality.to_string().trim_end().replace('\n', "\n    ")
                )?;
            }
        }
    }
    for (file, listing) in listings {
        write!(out, "\n{file}\n{listing}")?;
    }
    Ok(())
}
