//! `cargo xtask bench copy-task`: checks that a model learns. It copies or reverses sequences of
//! letters, depending on their first word; training and test have no sequence in common.
//!
//! The task requires attention by content and by position over whole sequences.

use fs_err as fs;
use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use xtask::onnxruntime::{self, Build};
use xtask::table::{duration, table, thousands};
use xtask::workspace::{Cognate, Workspace, call, capture};

/// Minimum share of exact sequences.
pub const EXACT_BOUND: f64 = 0.999;
/// Maximum time of a training on two idle processors.
pub const TIME_BOUND: Duration = Duration::from_secs(120);

/// Numbers of sequences for training and validation, and of letters of a sequence.
pub const TRAINED: usize = 20_000;
pub const VALIDATED: usize = 200;
pub const LETTERS: std::ops::RangeInclusive<u64> = 4..=12;
pub const ALPHABET: u64 = 16;

/// The models: names and settings.
pub const CHOICES: [(&str, &str); 3] = [
    ("paper", "preset = \"tiny\""),
    ("additive", "preset = \"additive\""),
    ("rotary", "preset = \"rotary\""),
];

/// Train a model to copy and to reverse sequences, and count exact translations
///
/// 2+2 layers, d_model 64, sequences of 4 to 12 letters; then 2,000 new sequences are translated
/// greedily. Prints the share of exact ones, updates and time. Fails if less than 99.9% are exact,
/// or a training takes more than two minutes.
#[derive(clap::Args)]
pub struct Options {
    /// Models, separated by commas: paper, additive (the attention score of Bahdanau et al. 2015),
    /// rotary (rotary positions)
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "paper", value_parser = CHOICES.map(|(name, _)| name))]
    pub choices: Vec<String>,
    /// Number of updates
    #[arg(long, value_name = "N", default_value_t = 1_600, value_parser = clap::value_parser!(u64).range(6..))]
    pub updates: u64,
    /// Number of test sequences
    #[arg(long, value_name = "N", default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub asked: u64,
    /// Random seed of initial weights and the order of batches
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of threads of the engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub threads: usize,
    #[command(flatten)]
    pub cognate: Cognate,
}

/// The result of one model.
pub struct Learned {
    pub name: String,
    pub exact: usize,
    pub asked: usize,
    pub time: Duration,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let cognate = options.cognate.path(workspace)?;
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    let parent = workspace.target("bench");
    fs::create_dir_all(&parent)?;
    let folder = tempfile::tempdir_in(&parent)?;
    let parts = [("train", TRAINED), ("valid", VALIDATED), ("test", options.asked as usize)];
    let sequences = sequences(parts.iter().map(|(_, count)| count).sum());
    let mut rest = sequences.as_slice();
    for (name, count) in parts {
        let (part, others) = rest.split_at(count);
        rest = others;
        let lines = |side: fn(&(String, String)) -> &str| {
            part.iter().map(|pair| format!("{}\n", side(pair))).collect::<String>()
        };
        fs::write(folder.path().join(format!("{name}.source")), lines(|pair| &pair.0))?;
        fs::write(folder.path().join(format!("{name}.target")), lines(|pair| &pair.1))?;
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
    ensure!(missed.is_empty(), "bounds missed:\n{}", missed.join("\n"));
    Ok(())
}

/// Trains a model on the folder's text and tests it.
pub fn teach(
    options: &Options,
    name: &str,
    folder: &Path,
    cognate: impl Fn() -> Command,
) -> Result<Learned> {
    let (config, out) = (folder.join(format!("{name}.toml")), folder.join(name));
    fs::write(&config, settings(options, name))?;
    let start = Instant::now();
    call(cognate().arg("train").arg(&config).args(["--engine", "ort", "--out"]).arg(&out))?;
    let time = start.elapsed();
    let found = capture(
        cognate()
            .args(["translate", "--engine", "ort", "--input"])
            .arg(folder.join("test.source"))
            .arg("--model")
            .arg(&out),
    )?;
    let wanted =
        fs::read_to_string(folder.join("test.target")).context("test.target was written before")?;
    let asked = wanted.lines().count();
    ensure!(
        found.lines().count() == asked,
        "{name}: {} answers to {asked} sequences",
        found.lines().count()
    );
    Ok(Learned {
        name: name.to_owned(),
        exact: wanted.lines().zip(found.lines()).filter(|(wanted, found)| wanted == found).count(),
        asked,
        time,
    })
}

pub fn settings(options: &Options, name: &str) -> String {
    let (_, choice) =
        CHOICES.iter().find(|(known, _)| *known == name).copied().unwrap_or(CHOICES[0]);
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

/// Different sequences with their answers: `reverse a f c` with `c f a`.
pub fn sequences(count: usize) -> Vec<(String, String)> {
    let mut state = 1_u64;
    let mut number = |below: u64| {
        // Knuth's generator; the upper bits are used.
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    while found.len() < count {
        let task = ["copy", "reverse"][number(2) as usize];
        let length = LETTERS.start() + number(1 + LETTERS.end() - LETTERS.start());
        let letters: Vec<String> =
            (0..length).map(|_| char::from(b'a' + number(ALPHABET) as u8).to_string()).collect();
        let source = format!("{task} {}", letters.join(" "));
        let answer = if task == "copy" {
            letters.join(" ")
        } else {
            letters.into_iter().rev().collect::<Vec<_>>().join(" ")
        };
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
            missed.push(format!(
                "{name}: {exact} of {asked} sequences are exact, at least {}%",
                100.0 * EXACT_BOUND
            ));
        }
        if *time > TIME_BOUND {
            missed.push(format!(
                "{name}: trained in {}, at most {}",
                duration(*time),
                duration(TIME_BOUND)
            ));
        }
        missed
    }
}

pub fn text(learned: &[Learned], updates: u64) -> String {
    let row = |learned: &Learned| {
        let exact = format!("{:.2}%", 100.0 * learned.share());
        vec![
            learned.name.clone(),
            exact,
            thousands(learned.asked as u64),
            thousands(updates),
            duration(learned.time),
        ]
    };
    table(
        &["choice", "exact", "of", "updates", "time"],
        &learned.iter().map(row).collect::<Vec<_>>(),
    )
}
