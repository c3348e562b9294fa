//! `cognate show`: the contents of a model, an exported folder or an ONNX file.

use crate::model_options::UnusedOption;
use crate::{messages, whole_file};
use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use cognate::description::{FolderDescription, listing_json};
use cognate::{Export, ModelSource, diagram};
use cognate_export::Listing;
use cognate_graph::Program;
use cognate_model::{Attentions, Layout, Model, Parts};
use std::io::Write;
use std::path::PathBuf;
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
    /// parameters, FLOPs and equations [default graph: teacher-forced, or encode for an encoder
    /// alone]
    #[arg(long, value_name = "FILE", conflicts_with = "format")]
    html: Option<PathBuf>,
    /// Write one line of JSON: the same contents for programs
    #[arg(long, conflicts_with_all = ["graph", "html", "format"])]
    json: bool,
    /// Print the graph in the language of a drawing program [default graph: teacher-forced, or
    /// encode for an encoder alone]
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
    /// The encoder, with keys and values of cross-attention or the head of an encoder alone
    Encode,
    /// One step of the decoder from any past
    Step,
    /// Encoder and decoder on given targets
    TeacherForced,
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
    let is_graph = is_drawn || options.graph.is_some();
    if !is_drawn && !options.sizes.is_empty() {
        bail!("--sizes: only FLOPs depend on sizes; expected --html or --format with it");
    }
    let source = if is_graph { found.into_checkpoint() } else { found };
    match &source {
        ModelSource::Checkpoint(_) | ModelSource::Preset(_) if is_drawn => {
            options.draw(&source, out)?
        }
        ModelSource::Checkpoint(_) | ModelSource::Preset(_) if is_graph => {
            write!(out, "{}", options.program(options.open(&source)?.model())?.graph())?
        }
        ModelSource::Checkpoint(_) | ModelSource::Preset(_) => {
            let model = options.open(&source)?.describe()?;
            match options.json {
                true => writeln!(out, "{}", model.to_json())?,
                false => write!(out, "{model}")?,
            }
        }
        ModelSource::Exported(_) | ModelSource::File(_) if is_graph => {
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
        ModelSource::Exported(folder) => {
            let folder = FolderDescription::read(folder)?;
            match options.json {
                true => writeln!(out, "{}", folder.to_json())?,
                false => write!(out, "{folder}")?,
            }
        }
        ModelSource::File(path) if options.json => {
            writeln!(out, "{}", listing_json(&Listing::read(path)?))?
        }
        ModelSource::File(path) => write!(out, "{}", Listing::read(path)?)?,
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
    fn draw(&self, source: &ModelSource, out: &mut dyn Write) -> Result<()> {
        if let Some(file) = &self.html {
            whole_file::check("--html", file)?;
        }
        let export = self.open(source)?;
        let model = export.model();
        let program = self.program(model)?;
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

    /// The graph: by default the whole model.
    fn program(&self, model: &Model) -> Result<Program> {
        let is_encoder = matches!(model.config().parts, Parts::Encoder(_));
        Ok(match self.graph {
            None | Some(GraphName::Encode) if is_encoder => {
                model.programs(Layout::Cognate, Attentions::Omit)?.remove(0)
            }
            Some(GraphName::Encode) => model.encode()?,
            Some(GraphName::Step) => model.step(Attentions::Omit)?,
            None | Some(GraphName::TeacherForced) => model.teacher_forced()?,
        })
    }
}
