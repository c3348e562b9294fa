//! `cargo xtask bench text`: files of real text and single sentences, from text to text, compared
//! with CTranslate2 in the same run.
//!
//! Programs take turns. Other load of the machine increases wall times, but hardly processor times.
//! Ratios are therefore of the minimum processor time of all rounds.

pub mod model;
pub mod report;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::model::Model;
use self::report::{Cell, Quality, Report};
use super::decode::RECORD;
use super::driver::Driver;
use super::measure::shares::Answer as Shares;
use super::measure::text::Answer;
use super::process::measure_piped;
use super::record;
use super::train::multi30k;
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::workspace::{Workspace, call};

/// CTranslate2 and the packages that its conversion needs, without PyTorch.
pub const REQUIREMENTS: [&str; 5] = [
    "ctranslate2==4.8.5",
    "tokenizers==0.22.2",
    "numpy==2.4.6",
    "safetensors==0.8.0",
    "transformers==4.57.6",
];
/// Maximum number of source tokens of a batch of CTranslate2. Cognate counts the tokens of all beams,
/// and has its default.
pub const BATCH_TOKENS: &str = "2048";

/// Measure the translation of files and single sentences, compared with CTranslate2
///
/// Models translate the first lines of Multi30k's training text (without that text, the bundled
/// parallel text), by whole processes with 1 and 2 workers, and one sentence at a time by warm
/// programs on one thread. Prints wall and processor seconds, sentences and words per second,
/// memory, and the number of equal texts. The first run installs packages from PyPI into
/// target/bench/text (0.3 GB). The bundled model is also measured with a shortlist in both
/// programs, with one worker; its BLEU is measured with and without it.
#[derive(clap::Args)]
pub struct Options {
    /// Number of turns of each program
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Models, separated by commas
    #[arg(long, value_delimiter = ',', default_values = ["bundled", "marian-base"])]
    pub model: Vec<Model>,
    /// Number of lines of the text; a tenth of them for marian-base
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    pub lines: u32,
    /// Number of lines that are translated one at a time; a tenth of them for marian-base
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub single: u32,
    /// Numbers of hypotheses of a sentence, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Numbers of workers of each program, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub workers: Vec<usize>,
    /// Measure only single sentences
    #[arg(long)]
    pub latency: bool,
    /// Text file, instead of Multi30k's
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["model", "beams", "workers", "latency", "data"])]
    pub write: bool,
    /// An existing `cognate`, instead of building it in release mode
    #[arg(long, value_name = "PROGRAM")]
    pub cognate: Option<PathBuf>,
    /// A Python with CTranslate2, instead of a new environment
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
}

/// A precision, with its names in each program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Precision {
    F32,
    Int8,
}

impl Precision {
    pub const ALL: [Precision; 2] = [Precision::F32, Precision::Int8];

    pub fn ours(self) -> &'static str {
        ["f32", "int8"][self as usize]
    }

    pub(crate) fn theirs(self) -> &'static str {
        ["float32", "int8"][self as usize]
    }

    /// Exports a checkpoint for ONNX Runtime, without verification.
    pub(crate) fn export(self, cognate: &Path, model: &Path, out: &Path) -> Result<()> {
        let mut command = Command::new(cognate);
        command.arg("export").args([model, out]).args([
            "--target",
            "ort",
            "--precision",
            self.ours(),
        ]);
        call(command.args(["--no-verify", "--force", "--quiet"]))
    }
}

/// The search of a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    pub precision: Precision,
    /// 1 is greedy.
    pub beams: usize,
    /// Whether tokens are restricted to those of a shortlist.
    pub has_shortlist: bool,
}

/// A program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    CTranslate2,
    Cognate,
}

/// The programs, files and folders of a run.
pub(crate) struct Place<'a> {
    pub(crate) cognate: &'a Path,
    pub(crate) python: &'a Path,
    pub(crate) script: PathBuf,
    pub(crate) library: &'a Path,
    /// The checkpoint.
    pub(crate) model: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) text: PathBuf,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(
        !options.beams.contains(&0) && !options.workers.contains(&0),
        "--beams and --workers: expected numbers from 1 on, found 0"
    );
    let cognate = match &options.cognate {
        Some(program) => program.clone(),
        None => workspace.build_cognate()?,
    };
    let folder = workspace.target("bench/text");
    let python = match &options.python {
        Some(program) => program.clone(),
        None => python::environment(&folder.join("python"), &REQUIREMENTS)?,
    };
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let root = workspace.root();
    let parallel = multi30k(workspace);
    let own =
        ["en", "de"].map(|language| root.join("testdata/parallel/train").with_extension(language));
    let [source, target] = parallel.clone().unwrap_or(own);
    let text = options.data.clone().unwrap_or_else(|| source.clone());
    let all = fs::read_to_string(&text).with_context(|| text.display().to_string())?;
    let references = (text == source)
        .then(|| fs::read_to_string(&target).with_context(|| target.display().to_string()))
        .transpose()?;
    let mut reports = Vec::new();
    for &model in &options.model {
        let share = |count: u32| (count as usize).div_ceil(model.share());
        let n_lines = share(options.lines);
        let lines: Vec<&str> = all.lines().take(n_lines).collect();
        let place = Place {
            cognate: &cognate,
            python: &python,
            script: root.join("crates/bench/python/text.py"),
            library: &library,
            model: model.folder(workspace)?,
            text: folder.join("text"),
            folder: folder.join(model.name()),
        };
        fs::create_dir_all(&place.folder).with_context(|| place.folder.display().to_string())?;
        fs::write(&place.text, lines.join("\n") + "\n")
            .with_context(|| place.text.display().to_string())?;
        let references = references
            .iter()
            .flat_map(|all| all.lines().take(n_lines))
            .map(str::to_owned)
            .collect();
        let mut report = Report::new(model, options.rounds, lines.len(), references);
        let with_shortlist = model.has_shortlist();
        if with_shortlist {
            place.learn_shortlist([&source, &target])?;
        }
        for precision in Precision::ALL {
            [Way::CTranslate2, Way::Cognate]
                .into_iter()
                .try_for_each(|way| place.prepare(way, precision))?;
            if with_shortlist {
                let theirs = place.folder(Way::CTranslate2, precision).join("vmap.txt");
                fs::copy(place.shortlist(), &theirs)
                    .with_context(|| theirs.display().to_string())?;
            }
        }
        place.measure(
            &mut report,
            options,
            &lines[..lines.len().min(share(options.single))],
            with_shortlist,
        )?;
        if let Some(tests) = parallel.as_ref().filter(|_| with_shortlist) {
            let tests = tests.each_ref().map(|file| renamed(file, "test_2016_flickr"));
            for (precision, beams) in Precision::ALL
                .into_iter()
                .flat_map(|precision| [1, 4, 5].map(|beams| (precision, beams)))
            {
                let [exact, short] = [false, true].map(|has_shortlist| {
                    place.bleu(Search { precision, beams, has_shortlist }, &tests)
                });
                report.quality.push(Quality { precision, beams, bleu: [exact?, short?] });
            }
        }
        reports.push(report);
    }
    println!("\n{}", report::text(&reports));
    if options.write {
        record::put(&root.join("onnx").join(RECORD), &report::section(&reports))?;
        println!("written: onnx/{RECORD}");
    }
    Ok(())
}

/// The file with another name and the same extension.
fn renamed(file: &Path, name: &str) -> PathBuf {
    file.with_file_name(name).with_extension(file.extension().unwrap_or_default())
}

impl Search {
    fn theirs(self) -> &'static str {
        if self.has_shortlist { "shortlist" } else { "exact" }
    }
}

impl Place<'_> {
    fn shortlist(&self) -> PathBuf {
        self.folder.join("shortlist")
    }

    fn learn_shortlist(&self, [source, target]: [&Path; 2]) -> Result<()> {
        let mut learn = Command::new(self.cognate);
        learn
            .args(["shortlist", "--quiet", "--data"])
            .args([source, target])
            .arg("--model")
            .arg(&self.model);
        call(learn.arg("--out").arg(self.shortlist()))
    }

    /// Measures files, then single lines, with all searches.
    fn measure(
        &self,
        report: &mut Report,
        options: &Options,
        single: &[&str],
        with_shortlist: bool,
    ) -> Result<()> {
        for &beams in &options.beams {
            for precision in Precision::ALL {
                for has_shortlist in [false, true].into_iter().take(1 + usize::from(with_shortlist))
                {
                    let search = Search { precision, beams, has_shortlist };
                    let workers =
                        options.workers.iter().take(if has_shortlist { 1 } else { usize::MAX });
                    for &workers in workers.filter(|_| !options.latency) {
                        report.files.push(self.files(options.rounds, search, workers)?);
                    }
                    report.single.push(self.single(options.rounds, search, single)?);
                    if !has_shortlist {
                        report.shares.push((search, self.shares(search)?));
                    }
                }
            }
        }
        Ok(())
    }

    /// The options of Cognate for the shortlist.
    fn shortlisted(&self, search: Search) -> impl Iterator<Item = PathBuf> {
        [PathBuf::from("--shortlist"), self.shortlist()]
            .into_iter()
            .filter(move |_| search.has_shortlist)
    }

    /// BLEU of Cognate's translations of a text.
    fn bleu(&self, search: Search, [source, reference]: &[PathBuf; 2]) -> Result<f64> {
        let mut command = Command::new(self.cognate);
        command.args([
            "evaluate",
            "--quiet",
            "--json",
            "--metrics",
            "bleu",
            "--engine",
            "ort",
            "--beams",
            &search.beams.to_string(),
        ]);
        command
            .arg("--model")
            .arg(self.folder(Way::Cognate, search.precision))
            .arg("--source")
            .arg(source)
            .arg("--reference")
            .arg(reference);
        let output = command
            .args(self.shortlisted(search))
            .env("ORT_DYLIB_PATH", self.library)
            .output()
            .context("cognate evaluate")?;
        ensure!(
            output.status.success(),
            "cognate evaluate: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found: serde_json::Value =
            serde_json::from_slice(&output.stdout).context("cognate evaluate")?;
        found["scores"]["BLEU"]["score"]
            .as_f64()
            .with_context(|| format!("cognate evaluate: expected BLEU, found {found}"))
    }

    pub(crate) fn folder(&self, way: Way, precision: Precision) -> PathBuf {
        self.folder.join(format!("{way:?}-{}", precision.ours()))
    }

    /// Converts the checkpoint for a program.
    pub(crate) fn prepare(&self, way: Way, precision: Precision) -> Result<()> {
        let folder = self.folder(way, precision);
        match way {
            Way::CTranslate2 => {
                call(self.script(&["convert"]).arg(&self.model).arg(folder).arg(precision.theirs()))
            }
            Way::Cognate => precision.export(self.cognate, &self.model, &folder),
        }
    }

    pub(crate) fn script(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.python);
        // The scripts are in the source tree, which must not change. The number of threads is set
        // before the engine reads it.
        command
            .arg(&self.script)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("OMP_NUM_THREADS", "1");
        command
    }

    /// Measures whole processes on the text.
    fn files(&self, rounds: u32, search: Search, workers: usize) -> Result<Cell> {
        let Search { precision, beams, .. } = search;
        let mut cell = Cell::new(search, Some(workers));
        for round in 1..=rounds {
            for way in [Way::CTranslate2, Way::Cognate] {
                let out = self.folder.join(format!("{way:?}.out"));
                let mut command = match way {
                    Way::CTranslate2 => self.script(&["file"]),
                    Way::Cognate => Command::new(self.cognate),
                };
                let model = self.folder(way, precision);
                match way {
                    Way::CTranslate2 => {
                        command.arg(model).arg(self.model.join("tokenizer.json")).args([
                            precision.theirs(),
                            &beams.to_string(),
                            search.theirs(),
                            &workers.to_string(),
                            BATCH_TOKENS,
                        ])
                    }
                    Way::Cognate => {
                        command.args(["translate", "--engine", "ort", "--threads", "1", "--quiet"]);
                        command
                            .args([
                                "--beams",
                                &beams.to_string(),
                                "--workers",
                                &workers.to_string(),
                                "--model",
                            ])
                            .arg(model);
                        command.args(self.shortlisted(search)).env("ORT_DYLIB_PATH", self.library)
                    }
                };
                let open =
                    |path: &Path| File::open(path).with_context(|| path.display().to_string());
                command
                    .stdin(open(&self.text)?)
                    .stdout(File::create(&out).with_context(|| out.display().to_string())?);
                let run = measure_piped(&mut command)?;
                let texts = fs::read_to_string(&out).with_context(|| out.display().to_string())?;
                cell.add(
                    way,
                    [run.time.as_secs_f64(), run.processor],
                    texts.lines().map(str::to_owned).collect(),
                );
                cell.memory.insert(way, run.memory.resident);
            }
            eprintln!("{}: round {round} of {rounds}", cell.title());
        }
        Ok(cell)
    }

    /// The times of the parts of Cognate.
    fn shares(&self, search: Search) -> Result<Shares> {
        let mut command =
            Command::new(std::env::current_exe().context("the path of this program")?);
        command.args([
            "measure",
            "shares",
            "--engine",
            "ort",
            "--beams",
            &search.beams.to_string(),
        ]);
        command
            .arg("--model")
            .arg(self.folder(Way::Cognate, search.precision))
            .env("ORT_DYLIB_PATH", self.library);
        let text = File::open(&self.text).with_context(|| self.text.display().to_string())?;
        let output =
            command.stdin(text).stderr(Stdio::inherit()).output().context("measure shares")?;
        ensure!(output.status.success(), "measure shares: {}", output.status);
        serde_json::from_slice(&output.stdout).context("measure shares")
    }

    /// Measures one sentence at a time, with programs that stay loaded.
    fn single(&self, rounds: u32, search: Search, lines: &[&str]) -> Result<Cell> {
        let Search { precision, beams, .. } = search;
        let mut cell = Cell::new(search, None);
        let bench = std::env::current_exe().context("the path of this program")?;
        let mut programs = BTreeMap::new();
        for way in [Way::CTranslate2, Way::Cognate] {
            let model = self.folder(way, precision);
            let mut command = match way {
                Way::CTranslate2 => self.script(&["serve"]),
                Way::Cognate => Command::new(&bench),
            };
            match way {
                Way::CTranslate2 => command
                    .arg(model)
                    .arg(self.model.join("tokenizer.json"))
                    .args([precision.theirs(), &beams.to_string(), search.theirs()]),
                Way::Cognate => {
                    command
                        .args([
                            "measure",
                            "text",
                            "--engine",
                            "ort",
                            "--beams",
                            &beams.to_string(),
                            "--model",
                        ])
                        .arg(model);
                    command.args(self.shortlisted(search)).env("ORT_DYLIB_PATH", self.library)
                }
            };
            programs.insert(
                way,
                Driver::start(command, &self.folder.join(format!("{way:?}.log")))
                    .with_context(|| format!("{way:?}"))?,
            );
        }
        // Round 0 is a warm-up.
        for round in 0..=rounds {
            for (&way, program) in &mut programs {
                let answer: Answer = program
                    .request(&json!({ "lines": lines }))
                    .with_context(|| format!("{way:?}"))?;
                if round > 0 {
                    cell.add(
                        way,
                        [answer.seconds.iter().sum(), answer.processor_seconds],
                        answer.texts,
                    );
                    cell.singles.entry(way).or_default().extend(answer.seconds);
                }
            }
            eprintln!("{}: round {round} of {rounds}", cell.title());
        }
        Ok(cell)
    }
}
