//! What was measured of training, as tables that read well in a terminal and on the committed page.

use super::{Shape, Way};
use crate::driver::{Answer, Driver};
use crate::machine::Machine;
use crate::processors::are_bound;
use crate::record::Section;
use crate::statistics::{Bound, Summary};
use xtask::table::{table, thousands};

/// PyTorch's time in f32 over ours, at least.
pub const SPEED: Bound = Bound::AtLeast(1.0);
/// Our memory over PyTorch's in f32, at most: what a program takes beyond what it had before there was a model.
pub const MEMORY: Bound = Bound::AtMost(1.3);

/// One program's answers.
#[derive(Debug)]
pub struct Row {
    pub way: Way,
    pub engine: String,
    pub base_bytes: u64,
    pub peak_bytes: u64,
    pub answers: Vec<Answer>,
}

impl Row {
    pub fn new(way: Way, driver: &Driver) -> Row {
        Row { way, engine: driver.engine().to_owned(), base_bytes: driver.base_bytes(), peak_bytes: 0, answers: Vec::new() }
    }

    /// An answer; one that does not count tells of memory alone.
    pub fn add(&mut self, answer: Answer, counts: bool) {
        self.peak_bytes = self.peak_bytes.max(answer.peak_bytes);
        if counts {
            self.answers.push(answer);
        }
    }

    pub fn speeds(&self) -> impl Iterator<Item = f64> {
        self.answers.iter().map(|answer| answer.tokens as f64 / answer.seconds)
    }

    /// The median share of the time that is not the engine's, where the program tells it.
    pub fn outside(&self) -> Option<f64> {
        let shares = self.answers.iter().map(|answer| Some(1.0 - answer.seconds_in_graph? / answer.seconds));
        Some(Summary::of(shares.collect::<Option<Vec<_>>>()?).median)
    }

    /// What training took beyond the bare program.
    pub fn memory(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.base_bytes)
    }
}

/// One shape on some threads.
#[derive(Debug)]
pub struct Block {
    pub shape: &'static Shape,
    pub threads: usize,
    pub parameters: u64,
    pub rows: Vec<Row>,
}

impl Block {
    pub fn row(&self, way: Way) -> Option<&Row> {
        self.rows.iter().find(|row| row.way == way)
    }

    /// The ratio of the row's speed to that of PyTorch in f32: the median of the rounds' ratios.
    pub fn ratio(&self, row: &Row) -> Option<f64> {
        let peer = self.row(Way::PyTorch)?;
        Some(Summary::of(row.speeds().zip(peer.speeds()).map(|(row, peer)| row / peer)).median)
    }

    pub fn memory_ratio(&self, row: &Row) -> Option<f64> {
        Some(row.memory() as f64 / self.row(Way::PyTorch)?.memory() as f64)
    }

    pub fn title(&self) -> String {
        let threads = if self.threads == 1 { "1 thread".into() } else { format!("{} threads", self.threads) };
        format!("{}, {threads}", self.shape.title)
    }

    pub fn text(&self) -> String {
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        // Only ours has bounds to keep.
        let ratio = |row: &Row, bound: Bound, ratio: Option<f64>| match ratio {
            Some(ratio) if row.way == Way::Cognate => bound.cell(ratio),
            Some(ratio) => format!("{ratio:.2}"),
            None => String::new(),
        };
        let row = |row: &Row| {
            let Summary { median, min, max } = Summary::of(row.speeds());
            vec![
                row.way.title().to_owned(),
                format!("{median:.0} ({min:.0}-{max:.0})"),
                ratio(row, SPEED, self.ratio(row)),
                row.outside().map_or_else(|| "-".into(), |share| format!("{:.1}%", 100.0 * share)),
                megabytes(row.peak_bytes),
                megabytes(row.memory()),
                ratio(row, MEMORY, self.memory_ratio(row)),
            ]
        };
        let header = ["", "tokens/s", "to PyTorch f32", "outside the engine", "peak, MB", "of it training", "to PyTorch f32"];
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let copies = megabytes(self.parameters * 4 * 4);
        let parameters = thousands(self.parameters);
        format!("### {}\n\n{parameters} parameters; four copies of them are {copies} MB.\n\n{}\n", self.title(), table(&header, &rows))
    }

    /// A line for each bound that is not kept.
    pub fn missed(&self) -> Vec<String> {
        let Some(ours) = self.row(Way::Cognate) else { return Vec::new() };
        let ratios = [("tokens/s", SPEED, self.ratio(ours)), ("memory", MEMORY, self.memory_ratio(ours))];
        let missed = ratios.into_iter().filter_map(|(name, bound, ratio)| {
            let ratio = ratio.filter(|ratio| !bound.is_kept(*ratio))?;
            let (shown, words) = (bound.shown(ratio), bound.words());
            Some(format!("{}: {shown} times PyTorch's {name} in f32, {words}", self.title()))
        });
        missed.collect()
    }
}

/// All that a run gave.
#[derive(Debug)]
pub struct Report {
    pub rounds: u32,
    pub updates: u32,
    pub blocks: Vec<Block>,
}

impl Report {
    pub fn new(rounds: u32, updates: u32) -> Report {
        Report { rounds, updates, blocks: Vec::new() }
    }

    pub fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    pub fn missed(&self) -> Vec<String> {
        self.blocks.iter().flat_map(Block::missed).collect()
    }

    pub fn text(&self) -> String {
        let text: String = self.blocks.iter().map(Block::text).collect();
        let mut engines: Vec<&str> = Vec::new();
        for row in self.blocks.iter().flat_map(|block| &block.rows) {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        format!("{text}Ran in {}.\n", engines.join(", "))
    }

    /// The part of the page that is committed.
    pub fn section(&self) -> Section {
        let machine = Machine::here();
        let introduction = String::from(
            "Updates on Multi30k English-German: a vocabulary of 8,000, batches of at most 2,048 tokens a side in the shapes that the text gives\n\
             them, dropout 0.1, label smoothing 0.1, Adam. Ours is the loop of `cognate train`, from text to new weights; PyTorch's step gets\n\
             arrays that are made before, and has transformers' MarianMTModel and its fused Adam. All update on the same batches and take turns,\n\
             some updates each, round by round after one that warms up. A number is the median, with the slowest and the fastest round behind\n\
             it; tokens are those of the targets, without padding. Each program has the threads that are named.\n\n\
             - *to PyTorch f32*: the ratio in the same run: for speed the median of the rounds' ratios. Bold: ours misses the bound that is named.\n\
             - *outside the engine*: our share of the time that is not spent within the engine's sessions.\n\
             - *peak*: the most memory that was resident; *of it training*: beyond what the program had before there was a model.\n\n\
             `cargo xtask bench train --write` measures again, and writes the part of the processor that it runs on.\n",
        );
        let processors = if are_bound() { "as many processors as threads, always the same" } else { "any processor" };
        let (updates, rounds) = (self.updates, self.rounds);
        let text =
            format!("{}{updates} updates a turn, {rounds} rounds; each program has {processors}.\n\n{}", machine.sentence(), self.text());
        Section { title: "Speed of training", introduction, processor: machine.title, text }
    }
}
