//! The rows of the tables: programs with a form of the model. A form of Cognate is given by flags
//! of `cognate export` and the engine.

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use Weights::{Bf16, F32, Int4, Int8};
use anyhow::{Result, bail};

use crate::peers::reason;
use crate::processors;
use xtask::workspace::capture;

/// The type of the weights of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    F32,
    Bf16,
    Int8,
    /// Layers in 4 bits, the output layer in 8.
    Int4,
}

impl Weights {
    pub const ALL: [Weights; 4] = [F32, Bf16, Int8, Int4];

    /// Bytes of an element, without scales; for `Int4` as if the output layer also had 4 bits.
    pub fn bytes(self) -> f64 {
        match self {
            F32 => 4.0,
            Bf16 => 2.0,
            Int8 => 1.0,
            Int4 => 0.5,
        }
    }
}

/// The program of a row.
#[derive(Debug)]
pub enum Program {
    /// `cognate-bench measure decode` with a flag, on the output of `cognate export` with these
    /// flags.
    Ours { export: &'static [&'static str], engine: &'static str, flag: Option<&'static str> },
    /// `serve.py` with this kind, on the checkpoint or its conversion by `convert.py`.
    Theirs { kind: &'static str, is_converted: bool },
}

/// A row.
#[derive(Debug)]
pub struct Way {
    pub name: &'static str,
    pub title: &'static str,
    pub weights: Weights,
    pub program: Program,
    /// The row with which it is compared: CTranslate2 in the same precision, or in f32.
    pub peer: Option<&'static str>,
    /// Minimum ratios to the peer on one thread, Marian-base: greedy at batch 1, 8 and 32, then the
    /// same with 4 beams.
    pub floors: Option<[[f64; 3]; 2]>,
    /// Minimum ratio to the peer on long texts.
    pub long: Option<f64>,
}

impl Way {
    pub const fn with_long(self, long: f64) -> Way {
        Way { long: Some(long), ..self }
    }

    /// Whether it has a floor on long texts, or is the peer of such a row.
    pub fn runs_long_texts(&self) -> bool {
        self.long.is_some()
            || WAYS.iter().any(|way| way.long.is_some() && way.peer == Some(self.name))
    }

    /// Whether it has floors, or is the peer of such a row.
    pub fn is_compared(&self) -> bool {
        self.floors.is_some()
            || WAYS.iter().any(|way| way.floors.is_some() && way.peer == Some(self.name))
    }
}

pub const CT2: Option<&str> = Some("ct2");
pub const CT2_INT8: Option<&str> = Some("ct2-int8");

pub const fn theirs(
    name: &'static str,
    title: &'static str,
    weights: Weights,
    kind: &'static str,
    is_converted: bool,
    peer: Option<&'static str>,
) -> Way {
    Way {
        name,
        title,
        weights,
        program: Program::Theirs { kind, is_converted },
        peer,
        floors: None,
        long: None,
    }
}

pub const fn ours(
    name: &'static str,
    title: &'static str,
    weights: Weights,
    export: &'static [&'static str],
    engine: &'static str,
    floors: Option<[[f64; 3]; 2]>,
) -> Way {
    let peer = match weights {
        Weights::F32 | Weights::Bf16 => CT2,
        Weights::Int8 | Weights::Int4 => CT2_INT8,
    };
    Way {
        name,
        title,
        weights,
        program: Program::Ours { export, engine, flag: None },
        peer,
        floors,
        long: None,
    }
}

/// A row of Cognate on ONNX Runtime with a flag of `bench measure decode`.
pub const fn without(
    name: &'static str,
    title: &'static str,
    weights: Weights,
    export: &'static [&'static str],
    flag: &'static str,
) -> Way {
    Way {
        program: Program::Ours { export, engine: "ort", flag: Some(flag) },
        ..ours(name, title, weights, export, "ort", None)
    }
}

pub const F32_EXPORT: &[&str] = &["--target", "ort"];
pub const INT8_EXPORT: &[&str] = &["--target", "ort", "--precision", "int8"];

/// All rows in the order in which they run. Rows with flags that this `cognate` does not have are
/// left out.
pub const WAYS: &[Way] = &[
    theirs("pytorch", "PyTorch", F32, "pytorch", false, CT2),
    theirs("optimum", "Optimum", F32, "optimum", true, CT2),
    theirs("optimum-int8", "Optimum int8", Int8, "optimum-int8", true, CT2_INT8),
    ours("cognate-tract", "Cognate on tract, portable", F32, &[], "tract", None),
    ours("cognate-tract-ort", "Cognate on tract", F32, F32_EXPORT, "tract", None),
    ours("cognate-portable", "Cognate, portable", F32, &[], "ort", None),
    // Rows with floors directly follow their peer, so that both have the same load of the machine.
    theirs("ct2", "CTranslate2", F32, "ctranslate2", true, None),
    ours("cognate-ort", "Cognate", F32, F32_EXPORT, "ort", Some([[1.2; 3]; 2])).with_long(1.5),
    ours(
        "cognate-bf16",
        "Cognate bf16",
        Bf16,
        &["--target", "ort", "--precision", "bf16"],
        "ort",
        None,
    ),
    theirs("ct2-int8", "CTranslate2 int8", Int8, "ctranslate2-int8", true, None),
    ours("cognate-int8", "Cognate int8", Int8, INT8_EXPORT, "ort", Some([[1.7; 3]; 2]))
        .with_long(1.5),
    ours(
        "cognate-int8-tensor",
        "Cognate int8-tensor",
        Int8,
        &["--target", "ort", "--precision", "int8-tensor"],
        "ort",
        Some([[1.2, 1.4, 1.5], [1.2, 1.5, 2.0]]),
    ),
    ours("cognate-tract-int8", "Cognate int8 on tract", Int8, INT8_EXPORT, "tract", None),
    without(
        "cognate-int8-plain",
        "Cognate int8, no operators of ours",
        Int8,
        INT8_EXPORT,
        "--plain",
    ),
    without("cognate-ort-pages", "Cognate, no huge pages", F32, F32_EXPORT, "--no-huge-pages"),
    without(
        "cognate-int8-pages",
        "Cognate int8, no huge pages",
        Int8,
        INT8_EXPORT,
        "--no-huge-pages",
    ),
    ours(
        "cognate-int8-block",
        "Cognate int8-block",
        Int8,
        &["--target", "ort", "--precision", "int8-block"],
        "ort",
        None,
    ),
    ours(
        "cognate-int4",
        "Cognate int4",
        Int4,
        &["--target", "ort", "--precision", "int4"],
        "ort",
        None,
    ),
];

/// The programs, and the models of one shape.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub cognate: &'a Path,
    pub bench: &'a Path,
    pub python: &'a Path,
    pub scripts: &'a Path,
    /// Contains the folder `checkpoint`, and one for each form.
    pub folder: &'a Path,
}

impl Place<'_> {
    pub fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    /// Writes the model in the form of the row. Conversions by other programs are slow and cached.
    pub fn prepare(&self, way: &Way) -> Result<()> {
        let folder = self.folder.join(way.name);
        match way.program {
            Program::Theirs { is_converted: false, .. } => {}
            Program::Theirs { .. } if folder.exists() => {}
            Program::Theirs { kind, .. } => {
                let partial = folder.with_extension("partial");
                if partial.exists() {
                    fs::remove_dir_all(&partial)?;
                }
                eprintln!("converting: {kind}");
                let mut convert = self.script(Command::new(self.python), "convert.py");
                told(convert.arg(kind).arg(self.checkpoint()).arg(&partial))?;
                fs::rename(&partial, &folder)?;
            }
            Program::Ours { export, .. } => {
                let mut command = Command::new(self.cognate);
                command
                    .arg("export")
                    .arg(self.checkpoint())
                    .arg(&folder)
                    .args(["--no-verify", "--force"])
                    .args(export);
                told(&mut command)?;
            }
        }
        Ok(())
    }

    /// The program that answers requests with a number of threads and processors.
    pub fn serve(&self, way: &Way, threads: usize) -> Command {
        let folder = self.folder.join(way.name);
        match way.program {
            Program::Theirs { kind, is_converted } => {
                let mut command = self.script(processors::bound(self.python, threads), "serve.py");
                command
                    .arg(kind)
                    .arg(if is_converted { folder } else { self.checkpoint() })
                    .arg(threads.to_string());
                // Engines read the variable when they are loaded.
                command.env("OMP_NUM_THREADS", threads.to_string());
                command
            }
            Program::Ours { engine, flag, .. } => {
                let mut command = processors::bound(self.bench, threads);
                command
                    .args(["measure", "decode", "--requests", "--engine", engine, "--model"])
                    .arg(folder);
                command.args(["--threads", &threads.to_string()]).args(flag);
                command
            }
        }
    }

    pub fn script(&self, mut command: Command, name: &str) -> Command {
        // Writes no files into the source tree.
        command
            .arg(self.scripts.join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("HF_HUB_OFFLINE", "1");
        command
    }
}

/// Runs a command; its error is the line with the reason.
pub fn told(command: &mut Command) -> Result<()> {
    if let Err(error) = capture(command) {
        bail!("{}", reason(&error.to_string()));
    }
    Ok(())
}
