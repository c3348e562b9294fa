//! `cargo xtask bench wheel`: the Python package from text to text, compared with CTranslate2 and
//! its tokenizer in the same environment and the same run.
//!
//! Both programs are warm, bound to as many processors as threads, and run in turn.

use fs_err as fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::decode::RECORD;
use super::driver::Driver;
use super::machine::Machine;
use super::measure::text::Answer;
use super::processors;
use super::record::{self, Section};
use super::rows::{judge, threads};
use super::statistics::{Bound, Summary};
use super::text::report::equal;
use super::text::{self, Precision, Way};
use super::train::multi30k;
use xtask::table::table;
use xtask::workspace::{Workspace, call};
use xtask::{onnxruntime, python, wheel};

/// Minimum ratio of CTranslate2's wall time to that of the wheel.
pub const SPEED: Bound = Bound::AtLeast(1.2);
const WAYS: [Way; 2] = [Way::CTranslate2, Way::Cognate];

/// Measure the Python package, compared with CTranslate2 in the same environment
///
/// Builds the wheel, installs it beside CTranslate2, and translates a list of texts by the bundled
/// model, with f32 and int8, tokenizers included. Prints wall seconds and their ratio. The first
/// run installs packages from PyPI into target/bench/wheel (0.4 GB). Fails if a ratio misses its
/// bound.
#[derive(clap::Args)]
pub struct Options {
    /// Number of turns of each program
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Number of lines of Multi30k's training text, or of the bundled parallel text
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    pub lines: u32,
    /// Numbers of hypotheses of a sentence, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Numbers of threads, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 2])]
    pub threads: Vec<usize>,
    /// Write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["beams", "threads"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
    /// A Python with the wheel and CTranslate2, instead of a new environment
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
}

/// Both programs on the same texts; CTranslate2 first.
#[derive(Debug)]
pub struct Cell {
    pub precision: Precision,
    pub beams: usize,
    pub threads: usize,
    pub engines: [String; 2],
    pub answers: [Vec<Answer>; 2],
}

/// All cells of a run.
#[derive(Debug)]
pub struct Report {
    pub rounds: u32,
    pub lines: usize,
    pub cells: Vec<Cell>,
}

/// Programs, files and folders of a run.
struct Place {
    python: PathBuf,
    scripts: PathBuf,
    model: PathBuf,
    folder: PathBuf,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let counts = [&options.beams, &options.threads];
    ensure!(!counts.iter().any(|counts| counts.contains(&0)), "expected numbers from 1 on");
    let (folder, root) = (workspace.target("bench/wheel"), workspace.root());
    let python = match &options.python {
        Some(program) => program.clone(),
        None => {
            let ours =
                [wheel::MATURIN.to_owned(), format!("onnxruntime=={}", onnxruntime::VERSION)];
            let requirements: Vec<&str> =
                text::REQUIREMENTS.into_iter().chain(ours.iter().map(String::as_str)).collect();
            let program = python::environment(&folder.join("python"), &requirements)?;
            wheel::install(workspace, &program)?;
            program
        }
    };
    let place = Place {
        python,
        scripts: root.join("crates/bench/python"),
        model: root.join("testdata/multi30k-en-de"),
        folder,
    };
    fs::create_dir_all(&place.folder)?;
    let source = multi30k(workspace).and_then(|files| files.into_iter().next());
    let source =
        fs::read_to_string(source.unwrap_or_else(|| root.join("testdata/parallel/train.en")))?;
    let lines: Vec<&str> = source.lines().take(options.lines as usize).collect();
    let mut report = Report { rounds: options.rounds, lines: lines.len(), cells: Vec::new() };
    for precision in Precision::ALL {
        WAYS.into_iter().try_for_each(|way| place.prepare(way, precision))?;
        for &beams in &options.beams {
            for &threads in &options.threads {
                let (engines, answers) = Default::default();
                let mut cell = Cell { precision, beams, threads, engines, answers };
                place.measure(&mut cell, options.rounds, &lines)?;
                eprintln!("{}: {:.2}", cell.title(), cell.ratio());
                report.cells.push(cell);
            }
        }
    }
    println!("\n{}", report.text());
    if options.write {
        record::put(&root.join("onnx").join(RECORD), &report.section())?;
        println!("written: onnx/{RECORD}");
    }
    judge(&report.missed(), options.allow_missed)
}

impl Place {
    fn model(&self, way: Way, precision: Precision) -> PathBuf {
        self.folder.join(format!("{way:?}-{}", precision.ours()))
    }

    fn script(&self, mut command: Command, script: &str) -> Command {
        // The scripts are in the source tree, which must not change.
        command
            .arg(self.scripts.join(script))
            .envs([("PYTHONDONTWRITEBYTECODE", "1"), ("OMP_NUM_THREADS", "1")])
            // The wheel finds the library of its environment.
            .env_remove("ORT_DYLIB_PATH");
        command
    }

    /// Converts the checkpoint for a program.
    fn prepare(&self, way: Way, precision: Precision) -> Result<()> {
        let (script, command, name) = match way {
            Way::CTranslate2 => ("text.py", "convert", precision.theirs()),
            Way::Cognate => ("wheel.py", "export", precision.ours()),
        };
        let mut program = self.script(Command::new(&self.python), script);
        call(program.arg(command).arg(&self.model).arg(self.model(way, precision)).arg(name))
    }

    fn start(&self, cell: &Cell, way: Way) -> Result<Driver> {
        let program = processors::bound(&self.python, cell.threads);
        let mut command = self.script(program, "wheel.py");
        command.arg(format!("{way:?}")).arg(self.model(way, cell.precision));
        if way == Way::CTranslate2 {
            command.arg(self.model.join("tokenizer.json")).arg(cell.precision.theirs());
        }
        command.args([cell.beams.to_string(), cell.threads.to_string()]);
        let log = self.folder.join(format!("{way:?}.log"));
        Driver::start(command, &log).with_context(|| format!("{way:?}"))
    }

    /// Runs both programs in turn.
    fn measure(&self, cell: &mut Cell, rounds: u32, lines: &[&str]) -> Result<()> {
        let [theirs, ours] = WAYS.map(|way| self.start(cell, way));
        let mut programs = [theirs?, ours?];
        cell.engines = programs.each_ref().map(|program| program.greeting.engine.clone());
        // Round 0 is a warm-up.
        for round in 0..=rounds {
            for (program, answers) in programs.iter_mut().zip(&mut cell.answers) {
                let answer = program.request(&json!({ "lines": lines }))?;
                if round > 0 {
                    answers.push(answer);
                }
            }
        }
        Ok(())
    }
}

impl Cell {
    pub fn title(&self) -> String {
        let search =
            if self.beams == 1 { "greedy".to_owned() } else { format!("{} beams", self.beams) };
        format!("{} {search}, {}", self.precision.ours(), threads(self.threads))
    }

    /// Median wall seconds.
    fn seconds(&self) -> [f64; 2] {
        self.answers.each_ref().map(|answers| Summary::of(answers.iter().map(wall)).median)
    }

    /// The ratio of CTranslate2's wall time to the wheel's: the median of the rounds.
    pub fn ratio(&self) -> f64 {
        let [theirs, ours] = &self.answers;
        let rounds = theirs.iter().zip(ours);
        Summary::of(rounds.map(|(theirs, ours)| wall(theirs) / wall(ours))).median
    }

    /// The ratio of processor times: the median of the rounds.
    fn processor_ratio(&self) -> f64 {
        let [theirs, ours] = &self.answers;
        let rounds = theirs.iter().zip(ours);
        let ratio =
            |(theirs, ours): (&Answer, &Answer)| theirs.processor_seconds / ours.processor_seconds;
        Summary::of(rounds.map(ratio)).median
    }

    fn equal(&self) -> String {
        let [theirs, ours] =
            self.answers.each_ref().map(|rounds| rounds.last().map_or(&[][..], |last| &last.texts));
        equal(theirs, ours)
    }
}

fn wall(answer: &Answer) -> f64 {
    answer.seconds.iter().sum()
}

impl Report {
    /// The table.
    pub fn text(&self) -> String {
        let header =
            ["", "s: CTranslate2", "wheel", "ratio", "of processor time", "sentences/s", "equal"];
        let row = |cell: &Cell| {
            let seconds = cell.seconds();
            let ratios = [SPEED.cell(cell.ratio()), format!("{:.2}", cell.processor_ratio())];
            let speed = format!("{:.0}", self.lines as f64 / seconds[1]);
            [cell.title()]
                .into_iter()
                .chain(seconds.map(|seconds| format!("{seconds:.3}")))
                .chain(ratios)
                .chain([speed, cell.equal()])
                .collect()
        };
        let engines = self.cells.first().map(|cell| cell.engines.join(" and ")).unwrap_or_default();
        let table = table(&header, &self.cells.iter().map(row).collect::<Vec<_>>());
        format!(
            "{}{} rounds, {} lines, {engines}.\n\n{table}",
            Machine::here().sentence(),
            self.rounds,
            self.lines
        )
    }

    /// The part of the committed page.
    fn section(&self) -> Section {
        Section {
            title: "Speed of the Python package",
            introduction: INTRODUCTION.into(),
            processor: Machine::here().title,
            text: self.text(),
        }
    }

    /// The missed bounds.
    pub fn missed(&self) -> Vec<String> {
        let missed = self.cells.iter().filter(|cell| !SPEED.is_kept(cell.ratio()));
        missed
            .map(|cell| {
                let shown = SPEED.shown(cell.ratio());
                format!("{}: {shown} times CTranslate2, expected {}", cell.title(), SPEED.words())
            })
            .collect()
    }
}

const INTRODUCTION: &str =
    "`cognate.Translator(...).translate(lines)` of the wheel, with exports for ONNX Runtime, beside `ctranslate2.Translator` with Hugging
Face's tokenizer, in one Python environment: the first lines of Multi30k's English training text by the bundled model, in batches of
2,048 tokens. Both programs are warm, bound to as many processors as threads, and run in turn. Seconds are of wall time, the median of
the rounds; ratios are CTranslate2's time over ours, the median of the rounds; bold ratios miss their bound. *Equal* counts equal
translations.

`cargo xtask bench wheel --write` measures again and writes the part of the processor that it runs on.
";
