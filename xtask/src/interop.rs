//! `cargo xtask interop`: runs exported graphs in other programs and compares the results
//! with PyTorch's.
//!
//! `cognate` exports each golden model in every layout. The exports run in ONNX Runtime (Python,
//! Node, WebAssembly), ONNX's reference evaluator, OpenVINO, rten, MNN, OpenCV, Optimum and
//! transformers.js. Their drivers are in `xtask/interop/`, with one list of pinned
//! versions per language. Each cell is a process, so that a crash affects only itself.

pub mod cell;
pub mod checkpoint;
pub mod matrix;
pub mod programs;
pub mod record;
pub mod runtime;
pub mod task;

use fs_err as fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::workspace::{Cognate, Workspace};
use cell::{Cell, Outcome};
use checkpoint::{ANSWERS, Checkpoint, Exports};
use matrix::Matrix;
use programs::Programs;
use record::Record;
use runtime::{Layout, Runtime};

/// The committed results, in the folder of the exported graphs.
pub const RECORD: &str = "INTEROP.md";

/// Run exported models in other programs and compare with PyTorch
///
/// Prints a table per layout: each runtime's distance from PyTorch, and whether its tokens are
/// equal. Writes onnx/INTEROP.md; with `--family`, `--runtime` or `--layout` only the cells that
/// ran are replaced. The first run installs packages from PyPI and npm into target/interop (6 GB,
/// most of it PyTorch, which Optimum needs); the column of a missing language says so. Fails if a
/// runtime gives numbers or tokens other than PyTorch's, or rejects a graph that it runs in
/// onnx/INTEROP.md or that is new; onnx/INTEROP.md is not changed then.
#[derive(clap::Args)]
pub struct Options {
    /// Golden models to run, by the names in onnx/INTEROP.md, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    family: Vec<String>,
    /// Runtimes to run, separated by commas
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    runtime: Vec<Runtime>,
    /// Layouts to run, separated by commas
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    layout: Vec<Layout>,
    /// Folder of the golden models, instead of testdata/golden
    #[arg(long, value_name = "FOLDER")]
    golden: Option<PathBuf>,
    /// Write onnx/INTEROP.md even if a runtime rejects a graph that it ran before, or a new one
    #[arg(long, conflicts_with = "golden")]
    write: bool,
    #[command(flatten)]
    cognate: Cognate,
}

impl Options {
    /// Whether everything is run.
    fn complete(&self) -> bool {
        self.family.is_empty() && self.runtime.is_empty() && self.layout.is_empty()
    }
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let golden = options.golden.clone().unwrap_or_else(|| workspace.root().join("testdata/golden"));
    let families = chosen_families(&golden, &options.family)?;
    let (layouts, runtimes) = (chosen(&options.layout), chosen(&options.runtime));
    let cognate = options.cognate.path(workspace)?;
    let home = workspace.target("interop");
    let programs = Programs::bring(workspace, &home, &runtimes, &layouts)?;

    let mut matrix = Matrix::default();
    for family in &families {
        let checkpoint = Checkpoint::prepare(
            &folder_of(&golden, family),
            &home.join("checkpoints").join(family),
        )?;
        for &layout in layouts.iter().filter(|layout| layout.has(checkpoint.task)) {
            eprintln!("{family}: exporting in {} layout", layout.title());
            let exported = Exports { home: &home, cognate: &cognate, programs: &programs }
                .export(&checkpoint, layout)?;
            if let Err(reason) = &exported {
                eprintln!("{family}: not exported: {reason}");
            }
            for &runtime in runtimes.iter().filter(|runtime| runtime.runs(layout, checkpoint.task))
            {
                let cell = Cell { family, layout, runtime };
                let outcome = match (&exported, programs.command(runtime)) {
                    (Err(reason), _) => Outcome::NotExported(reason.clone()),
                    (Ok(_), Err(reason)) => Outcome::Absent(reason),
                    (Ok(folder), Ok(command)) => {
                        let outcome = cell.measure(&home, &checkpoint, folder, command)?;
                        eprintln!("{family}: {}: {}", runtime.title(), outcome.summary());
                        outcome
                    }
                };
                matrix.add(cell, outcome);
            }
        }
    }
    // Committed text contains no absolute paths.
    let text = |mut record: Record| {
        record.extend(matrix.cells());
        record
            .text()
            .replace(&format!("{}/", home.display()), "")
            .replace(&format!("{}/", workspace.root().display()), "")
    };
    println!("\n{}", text(Record::default()));
    let page = workspace.root().join("onnx").join(RECORD);
    let record = Record::read(&fs::read_to_string(&page)?);
    let changes = record.compare(matrix.cells());
    for line in changes.better.iter().chain(&changes.of_others) {
        println!("differs from onnx/{RECORD}: {line}");
    }
    match programs.missing(&runtimes) {
        _ if options.golden.is_some() => {}
        Some(reason) => println!("onnx/{RECORD} is not changed: {reason}"),
        None if !changes.worse.is_empty() && !options.write => {
            println!("onnx/{RECORD} is not changed: cells are worse; --write accepts them")
        }
        None => {
            fs::write(
                &page,
                record::page(&text(if options.complete() { Record::default() } else { record })),
            )?;
            println!("written: {}", workspace.readable(&page));
        }
    }
    let wrong = matrix.wrong();
    ensure!(wrong.is_empty(), "different from PyTorch:\n{}", wrong.join("\n"));
    let worse = changes.worse.join("\n");
    ensure!(worse.is_empty() || options.write, "worse than onnx/{RECORD}:\n{worse}");
    Ok(())
}

/// The requested values, or all.
fn chosen<T: ValueEnum>(asked: &[T]) -> Vec<T> {
    if asked.is_empty() { T::value_variants().to_vec() } else { asked.to_vec() }
}

/// Golden models outside testdata/golden itself: one or two of each family, by their last
/// component.
const FURTHER: [&str; 24] = [
    "strange/bert-bert",
    "strange/blenderbot",
    "strange/blenderbot-small-untied",
    "strange/byt5",
    "strange/distilbert-gpt2",
    "strange/plbart-untied",
    "strange/t5gemma",
    "strange/umt5-untied",
    "images/trocr",
    "speech/whisper",
    "../encoders/bert",
    "../encoders/deit-classes",
    "../encoders/distilbert-text",
    "../encoders/mpnet",
    "../encoders/roberta-masked",
    "../encoders/vit",
    "../encoders/xlm-roberta-tokens",
    "../decoders/gemma",
    "../decoders/gemma2",
    "../decoders/gpt2",
    "../decoders/llama",
    "../decoders/mistral",
    "../decoders/opt",
    "../decoders/qwen2",
];

/// The folder of a golden model.
fn folder_of(golden: &Path, family: &str) -> PathBuf {
    let further = FURTHER.iter().map(|path| golden.join(path)).find(|path| path.ends_with(family));
    further.filter(|_| !golden.join(family).is_dir()).unwrap_or_else(|| golden.join(family))
}

/// The requested golden models, or all.
pub fn chosen_families(golden: &Path, asked: &[String]) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(golden).with_context(|| format!("{}: cannot list", golden.display()))?;
    let mut present: Vec<String> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| ANSWERS.iter().any(|name| path.join(name).is_file()))
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    present.extend(
        FURTHER
            .iter()
            .filter(|path| golden.join(path).is_dir())
            .filter_map(|path| Some(path.rsplit_once('/')?.1.to_owned())),
    );
    present.sort();
    present.dedup();
    ensure!(
        !present.is_empty(),
        "{}: expected folders with {}, found none",
        golden.display(),
        ANSWERS.join(" or ")
    );
    for family in asked {
        ensure!(
            present.contains(family),
            "--family {family}: expected a folder of {}, one of {}",
            golden.display(),
            present.join(", ")
        );
    }
    Ok(if asked.is_empty() { present } else { asked.to_vec() })
}
