//! `cargo xtask bench decode --device cuda`: the same calls on a GPU, compared with CTranslate2 and
//! PyTorch in half precision.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fs_err as fs;

use super::shape::{Column, LENGTHS, SHAPES, Shape};
use super::ways::told;
use super::{Options, RECORD, REQUIREMENTS, check};
use crate::driver::Driver;
use crate::record::{self, Section};
use crate::rows::{Row, engines, is_chosen, judge};
use crate::statistics::Bound;
use crate::{gpu, peers};
use cognate_runtime::Device;
use xtask::table::table;
use xtask::workspace::Workspace;

/// A program with a form of the model.
#[derive(Debug)]
pub struct GpuWay {
    pub name: &'static str,
    pub title: &'static str,
    pub program: GpuProgram,
}

#[derive(Debug)]
pub enum GpuProgram {
    /// `cognate-bench measure decode` on the output of `cognate export` with these flags.
    Ours(&'static [&'static str]),
    /// `serve.py` with this kind, on the checkpoint or its conversion for CTranslate2.
    Theirs { kind: &'static str, is_converted: bool },
}

/// The row with which the others are compared.
pub const PEER: &str = "ct2-f16";

/// The row that is at least as fast.
pub const OURS: &str = "cognate-f16";

/// The row whose caches and logits pass through the host at every step.
const PORTABLE: &str = "cognate-portable-f16";

pub const GPU_WAYS: [GpuWay; 5] = [
    GpuWay {
        name: "pytorch-f16",
        title: "PyTorch f16",
        program: GpuProgram::Theirs { kind: "pytorch-float16", is_converted: false },
    },
    GpuWay {
        name: PEER,
        title: "CTranslate2 float16",
        program: GpuProgram::Theirs { kind: "ctranslate2-float16", is_converted: true },
    },
    GpuWay {
        name: OURS,
        title: "Cognate f16",
        program: GpuProgram::Ours(&["--target", "ort", "--precision", "f16"]),
    },
    GpuWay {
        name: "cognate-f32",
        title: "Cognate f32",
        program: GpuProgram::Ours(&["--target", "ort"]),
    },
    GpuWay {
        name: PORTABLE,
        title: "Cognate f16, portable",
        program: GpuProgram::Ours(&["--precision", "f16"]),
    },
];

/// Number of calls of each kind before those that are measured: kernels are chosen and compiled, and
/// steps are recorded for later ones.
const WARM_UP: u32 = 3;

/// One shape.
#[derive(Debug)]
pub struct GpuBlock {
    pub shape: &'static Shape,
    pub columns: Vec<Column>,
    pub rows: Vec<Row<&'static GpuWay>>,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options, device: Device) -> Result<()> {
    let is_wanted = |shape: &&Shape| !shape.is_long() && is_chosen(&options.shape, shape.name);
    let shapes: Vec<_> = SHAPES.iter().filter(is_wanted).collect();
    ensure!(
        !shapes.is_empty(),
        "--shape: expected short texts on a GPU, found {:?}",
        options.shape
    );
    let machine = gpu::name()?;
    let home = workspace.target("bench/decode");
    let python = gpu::python(options.python.as_deref(), &home.join("python"), REQUIREMENTS)?;
    let place = Place {
        cognate: options.cognate.path(workspace)?,
        bench: std::env::current_exe().context("the path of this program")?,
        python,
        scripts: workspace.root().join("crates/bench/python"),
        library: gpu::library(workspace)?,
        device,
    };
    let mut blocks = Vec::new();
    for shape in shapes {
        let folder = home.join(shape.model);
        fs::create_dir_all(&folder)?;
        peers::make(workspace, &place.python, shape.model, &folder.join("checkpoint"))?;
        blocks.push(place.measure(shape, &folder, options)?);
    }
    let text: String = blocks.iter().map(GpuBlock::text).collect();
    let text = text + &engines(blocks.iter().flat_map(|block| &block.rows));
    println!("\n{text}");
    let missed: Vec<_> = blocks.iter().flat_map(GpuBlock::missed).collect();
    if options.write {
        let page = workspace.root().join("onnx").join(RECORD);
        record::put(&page, &section(machine, options.rounds, &missed, &text))?;
        println!("written: onnx/{RECORD}");
    }
    judge(&missed, options.allow_missed)
}

struct Place {
    cognate: PathBuf,
    bench: PathBuf,
    python: PathBuf,
    scripts: PathBuf,
    library: PathBuf,
    device: Device,
}

impl Place {
    fn measure(&self, shape: &'static Shape, folder: &Path, options: &Options) -> Result<GpuBlock> {
        let batches = options.batches();
        let beams = options.beams.iter();
        let columns: Vec<_> = beams
            .flat_map(|&beams| batches.iter().map(move |&batch| Column { batch, beams }))
            .collect();
        let ways = GPU_WAYS.iter().filter(|way| way.is_wanted(&options.only));
        let rows = ways.map(|way| {
            eprintln!("{}: loading {}", shape.title, way.name);
            self.row(way, shape, folder, &columns, options).context(way.name)
        });
        let rows = rows.collect::<Result<_>>()?;
        Ok(GpuBlock { shape, columns, rows })
    }

    /// All calls of a program.
    fn row(
        &self,
        way: &'static GpuWay,
        shape: &Shape,
        folder: &Path,
        columns: &[Column],
        options: &Options,
    ) -> Result<Row<&'static GpuWay>> {
        let command = self.prepare(way, folder)?;
        let before = gpu::used()?;
        let mut driver = Driver::start(command, &folder.join(format!("{}.log", way.name)))?;
        let mut row = Row::new(way, &driver.greeting, columns.len());
        for (index, column) in columns.iter().enumerate() {
            let request = shape.request(*column);
            for call in 0..WARM_UP + options.rounds {
                let answer = driver.ask(&request)?;
                check(&answer, shape, column.batch)?;
                row.add((call + 1).saturating_sub(WARM_UP), index, answer);
            }
            eprintln!("{}: {} tokens/s", column.title(), row.speed_cell(index));
        }
        row.peak_bytes = gpu::used()?.saturating_sub(before);
        Ok(row)
    }

    /// Writes the model in the form of the row; returns the program that answers requests.
    fn prepare(&self, way: &GpuWay, folder: &Path) -> Result<Command> {
        let checkpoint = folder.join("checkpoint");
        let script = |name: &str| {
            let mut command = Command::new(&self.python);
            command.arg(self.scripts.join(name)).env("PYTHONDONTWRITEBYTECODE", "1");
            command
        };
        match way.program {
            GpuProgram::Ours(flags) => {
                let out = folder.join(way.name);
                let mut export = Command::new(&self.cognate);
                export.arg("export").arg(&checkpoint).arg(&out);
                told(export.args(["--no-verify", "--force"]).args(flags))?;
                let mut command = Command::new(&self.bench);
                command.args(["measure", "decode", "--requests", "--engine", "ort"]);
                command.args(["--device", &self.device.to_string(), "--model"]).arg(out);
                command.env("ORT_DYLIB_PATH", &self.library);
                Ok(command)
            }
            GpuProgram::Theirs { kind, is_converted } => {
                let converted = folder.join("ct2");
                if is_converted && !converted.exists() {
                    let partial = folder.join("ct2.partial");
                    told(script("convert.py").arg("ctranslate2").arg(&checkpoint).arg(&partial))?;
                    fs::rename(&partial, &converted)?;
                }
                let mut command = script("serve.py");
                command.arg(kind).arg(if is_converted { &converted } else { &checkpoint });
                command.args(["1", &self.device.to_string()]);
                Ok(command)
            }
        }
    }
}

impl GpuWay {
    /// Without a choice, those whose caches stay on the GPU.
    fn is_wanted(&self, only: &[String]) -> bool {
        is_chosen(only, self.name) && (self.name != PORTABLE || !only.is_empty())
    }
}

impl GpuBlock {
    pub fn text(&self) -> String {
        let table = |head: &str, cell: &dyn Fn(&Row<&'static GpuWay>, usize) -> Option<String>| {
            let header: Vec<String> = std::iter::once(head.to_owned())
                .chain(self.columns.iter().map(|column| column.title()))
                .collect();
            let rows: Vec<Vec<String>> = self
                .rows
                .iter()
                .filter_map(|row| {
                    let cells = (0..self.columns.len()).map(|column| cell(row, column));
                    let cells = cells.collect::<Option<Vec<_>>>()?;
                    Some(std::iter::once(row.way.title.to_owned()).chain(cells).collect())
                })
                .collect();
            if rows.is_empty() { String::new() } else { format!("{}\n", table(&header, &rows)) }
        };
        let ratio = |row: &Row<&'static GpuWay>, column: usize| {
            let ratio = self.ratio(row, column)?;
            Some(if row.way.name == OURS { FLOOR.cell(ratio) } else { format!("{ratio:.2}") })
        };
        format!(
            "### {}\n\n{}{}{}Memory of the GPU at the end, MB: {}.\n\n",
            self.shape.title,
            table("tokens/s", &|row, column| Some(row.speed_cell(column))),
            table("to CTranslate2 float16", &ratio),
            table("outside the graph", &|row, column| row.outside(column)),
            self.rows
                .iter()
                .map(|row| format!("{} {:.0}", row.way.title, row.peak_bytes as f64 / 1e6))
                .collect::<Vec<_>>()
                .join(", ")
        )
    }

    /// The ratio of a row's speed to CTranslate2's.
    fn ratio(&self, row: &Row<&'static GpuWay>, column: usize) -> Option<f64> {
        let peer = self.rows.iter().find(|row| row.way.name == PEER)?;
        (row.way.name != PEER).then(|| row.ratio(peer, column))
    }

    /// One line for each call in which Cognate in half precision is slower than CTranslate2.
    pub fn missed(&self) -> Vec<String> {
        let Some(ours) = self.rows.iter().find(|row| row.way.name == OURS) else {
            return Vec::new();
        };
        let columns = self.columns.iter().enumerate();
        columns
            .filter_map(|(index, column)| {
                let ratio = self.ratio(ours, index).filter(|&ratio| !FLOOR.is_kept(ratio))?;
                let call = format!("{}, {}: {}", self.shape.title, ours.way.title, column.title());
                Some(format!("{call}: {} times CTranslate2, {}", FLOOR.shown(ratio), FLOOR.words()))
            })
            .collect()
    }
}

const FLOOR: Bound = Bound::AtLeast(1.0);

fn section(machine: String, rounds: u32, missed: &[String], text: &str) -> Section {
    let [n_source, n_new] = LENGTHS;
    let introduction = format!(
        "Whole calls as in *Speed of decoding*, on a GPU: {n_source} source tokens, exactly {n_new} new ones for each sentence. Programs run one\n\
         after the other, in half precision unless a row says otherwise. `cargo xtask bench decode --device cuda --write` measures again; on a machine\n\
         without PyPI, `--python PATH` names a Python with PyTorch, transformers and CTranslate2, and ORT_DYLIB_PATH the library of ONNX Runtime.\n\
         Each call is measured after {WARM_UP} others of its shape, so that Cognate replays its steps. Whisper-small listens to windows of random\n\
         frames, and its time includes the encoder's.\n"
    );
    let verdict = match missed {
        [] => "At least as fast as CTranslate2 in all calls.\n".to_owned(),
        missed => {
            let lines: String = missed.iter().map(|line| format!("- {line}\n")).collect();
            format!("Missed:\n\n{lines}")
        }
    };
    let text = format!("{rounds} rounds.\n\n{verdict}\n{text}");
    Section { title: "Speed of decoding on a GPU", introduction, processor: machine, text }
}
