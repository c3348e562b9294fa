//! `cargo xtask bench copy-task`: whether a model learns at all. It copies sequences of letters, or reverses them, as their first word
//! says; what it was trained on and what it is asked have no sequence in common.
//!
//! Nothing else is learned here than to attend: by content and position, from one end of a sequence to the other.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use xtask::onnxruntime::{self, Build};
use xtask::table::{duration, table, thousands};
use xtask::workspace::{Workspace, call, capture};

/// Exact sequences of all, at least.
pub const EXACT_BOUND: f64 = 0.999;
/// Time of a training at most, on two processors that do nothing else.
pub const TIME_BOUND: Duration = Duration::from_secs(120);

/// Sequences to train on and to ask, and the letters of each.
pub const TRAINED: usize = 20_000;
pub const VALIDATED: usize = 200;
pub const LETTERS: std::ops::RangeInclusive<u64> = 4..=12;
pub const ALPHABET: u64 = 16;

/// What a model is made of, and what of it is not the paper's.
pub const CHOICES: [(&str, &str); 3] =
    [("paper", "preset = \"tiny\""), ("additive", "preset = \"additive\""), ("rotary", "preset = \"rotary\"")];

/// Teach a model to copy and to reverse sequences, and count the ones that it gets right
///
/// 2+2 layers, d_model 64, on sequences of 4 to 12 letters; then 2,000 sequences that it has never seen are translated greedily. Prints
/// the share of exact ones, updates and time. Fails when less than 99.9% are exact, or a training takes more than two minutes.
#[derive(clap::Args)]
pub struct Options {
    /// What is not as in the paper, with commas between: paper (all is), additive (the attention score of Bahdanau et al. 2015), rotary
    /// (positions as angles)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "paper", value_parser = CHOICES.map(|(name, _)| name))]
    pub choices: Vec<String>,
    /// Updates of the weights
    #[arg(long, value_name = "N", default_value_t = 1_600, value_parser = clap::value_parser!(u64).range(6..))]
    pub updates: u64,
    /// Sequences that are asked
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub asked: u64,
    /// What initial weights and the order of batches follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Threads of the engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: usize,
    /// A `cognate` that is built already, in place of building it in release mode
    #[arg(long, value_name = "PROGRAM")]
    pub cognate: Option<PathBuf>,
}

/// What became of one choice.
pub struct Learned {
    pub name: String,
    pub exact: usize,
    pub asked: usize,
    pub time: Duration,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let cognate = match &options.cognate {
        Some(program) => program.clone(),
        None => workspace.build_cognate()?,
    };
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let parent = workspace.target("bench");
    fs::create_dir_all(&parent).with_context(|| parent.display().to_string())?;
    let folder = tempfile::tempdir_in(&parent)?;
    let parts = [("train", TRAINED), ("valid", VALIDATED), ("test", options.asked as usize)];
    let sequences = sequences(parts.iter().map(|(_, count)| count).sum());
    let mut rest = sequences.as_slice();
    for (name, count) in parts {
        let (part, others) = rest.split_at(count);
        rest = others;
        let lines = |side: fn(&(String, String)) -> &str| part.iter().map(|pair| format!("{}\n", side(pair))).collect::<String>();
        write(&folder.path().join(format!("{name}.source")), &lines(|pair| &pair.0))?;
        write(&folder.path().join(format!("{name}.target")), &lines(|pair| &pair.1))?;
    }
    let command = || {
        let mut command = Command::new(&cognate);
        command.env("ORT_DYLIB_PATH", &library);
        command
    };
    let mut learned = Vec::new();
    for name in &options.choices {
        learned.push(teach(options, name, folder.path(), command)?);
    }
    println!("\n{}", text(&learned, options.updates));
    let missed: Vec<_> = learned.iter().flat_map(Learned::missed).collect();
    ensure!(missed.is_empty(), "not learned as wanted:\n{}", missed.join("\n"));
    Ok(())
}

/// Trains a model on the folder's text and asks it.
pub fn teach(options: &Options, name: &str, folder: &Path, cognate: impl Fn() -> Command) -> Result<Learned> {
    let (config, out) = (folder.join(format!("{name}.toml")), folder.join(name));
    write(&config, &settings(options, name))?;
    let start = Instant::now();
    call(cognate().arg("train").arg(&config).args(["--engine", "ort", "--out"]).arg(&out))?;
    let time = start.elapsed();
    let found =
        capture(cognate().args(["translate", "--engine", "ort", "--input"]).arg(folder.join("test.source")).arg("--model").arg(&out))?;
    let wanted = fs::read_to_string(folder.join("test.target")).context("test.target was written before")?;
    let asked = wanted.lines().count();
    ensure!(found.lines().count() == asked, "{name}: {} answers to {asked} sequences", found.lines().count());
    Ok(Learned {
        name: name.to_owned(),
        exact: wanted.lines().zip(found.lines()).filter(|(wanted, found)| wanted == found).count(),
        asked,
        time,
    })
}

pub fn settings(options: &Options, name: &str) -> String {
    let (_, choice) = CHOICES.iter().find(|(known, _)| *known == name).copied().unwrap_or(CHOICES[0]);
    let Options { seed, threads, updates, .. } = options;
    let warmup = updates / 6;
    format!(
        "seed = {seed}\nthreads = {threads}\n\
         [data]\n\
         train = [{{ source = \"train.source\", target = \"train.target\" }}]\n\
         valid = [{{ source = \"valid.source\", target = \"valid.target\" }}]\n\
         max_tokens = 1024\n\
         [tokenizer]\nalgorithm = \"bpe\"\nvocab_size = 64\n\
         [model]\n{choice}\nd_model = 64\ninitialisation = \"glorot\"\nheads = 4\nd_ff = 256\nencoder_layers = 2\ndecoder_layers = 2\nmax_positions = 32\n\
         [dropout]\nembeddings = 0.0\nsublayers = 0.0\n\
         [optimiser]\nlabel_smoothing = 0.0\nlearning_rate = 3e-3\nwarmup_updates = {warmup}\ndecay = \"linear\"\n\
         [schedule]\nmax_updates = {updates}\nvalidate_every = {updates}\nlog_every = 100\n"
    )
}

/// As many different sequences with their answers: `reverse a f c` with `c f a`.
pub fn sequences(count: usize) -> Vec<(String, String)> {
    let mut state = 1_u64;
    let mut number = |below: u64| {
        // Knuth's generator; its upper bits are good enough for letters.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    while found.len() < count {
        let task = ["copy", "reverse"][number(2) as usize];
        let length = LETTERS.start() + number(1 + LETTERS.end() - LETTERS.start());
        let letters: Vec<String> = (0..length).map(|_| char::from(b'a' + number(ALPHABET) as u8).to_string()).collect();
        let source = format!("{task} {}", letters.join(" "));
        let answer = if task == "copy" { letters.join(" ") } else { letters.into_iter().rev().collect::<Vec<_>>().join(" ") };
        if seen.insert(source.clone()) {
            found.push((source, answer));
        }
    }
    found
}

impl Learned {
    pub fn share(&self) -> f64 {
        self.exact as f64 / self.asked as f64
    }

    pub fn missed(&self) -> Vec<String> {
        let Self { name, exact, asked, time } = self;
        let mut missed = Vec::new();
        if self.share() < EXACT_BOUND {
            missed.push(format!("{name}: {exact} of {asked} sequences are exact, at least {}%", 100.0 * EXACT_BOUND));
        }
        if *time > TIME_BOUND {
            missed.push(format!("{name}: trained in {}, at most {}", duration(*time), duration(TIME_BOUND)));
        }
        missed
    }
}

pub fn text(learned: &[Learned], updates: u64) -> String {
    let row = |learned: &Learned| {
        let exact = format!("{:.2}%", 100.0 * learned.share());
        vec![learned.name.clone(), exact, thousands(learned.asked as u64), thousands(updates), duration(learned.time)]
    };
    table(&["choice", "exact", "of", "updates", "time"], &learned.iter().map(row).collect::<Vec<_>>())
}

pub fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
}
