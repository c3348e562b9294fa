//! Measurements of training as tables, for a terminal and for the committed page.

use super::{Shape, Way};
use crate::machine::Machine;
use crate::processors;
use crate::record::Section;
use crate::rows::{self, engines, threads};
use crate::statistics::Bound;
use xtask::table::{table, thousands};

/// Minimum ratio of PyTorch's time in f32 to Cognate's.
pub const SPEED: Bound = Bound::AtLeast(1.0);
/// Maximum ratio of Cognate's memory of training to PyTorch's in f32.
pub const MEMORY: Bound = Bound::AtMost(1.3);

/// The answers of one program, in one column.
pub type Row = rows::Row<Way>;

impl Row {
    /// The memory that training takes beyond the program before the model was loaded.
    fn memory(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.base_bytes)
    }
}

/// One shape with a number of threads.
#[derive(Debug)]
pub struct Block {
    pub shape: &'static Shape,
    pub threads: usize,
    pub parameters: u64,
    pub rows: Vec<Row>,
}

impl Block {
    fn row(&self, way: Way) -> Option<&Row> {
        self.rows.iter().find(|row| row.way == way)
    }

    /// The ratios of speed and memory to PyTorch in f32.
    fn ratios(&self, row: &Row) -> Option<[f64; 2]> {
        let peer = self.row(Way::PyTorch)?;
        Some([row.ratio(peer, 0), row.memory() as f64 / peer.memory() as f64])
    }

    fn title(&self) -> String {
        format!("{}, {}", self.shape.title, threads(self.threads))
    }

    pub fn text(&self) -> String {
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        let row = |row: &Row| {
            // The bounds apply only to Cognate.
            let cell = |bound: Bound, ratio: f64| {
                if row.way == Way::Cognate { bound.cell(ratio) } else { format!("{ratio:.2}") }
            };
            let ratios =
                self.ratios(row).map(|[speed, memory]| [cell(SPEED, speed), cell(MEMORY, memory)]);
            let [speed, memory] = ratios.unwrap_or_default();
            let outside = row.outside(0).unwrap_or_else(|| "-".into());
            let peaks = [row.peak_bytes, row.memory()].map(megabytes);
            [
                &[row.way.title().to_owned(), row.speed_cell(0), speed, outside],
                &peaks[..],
                &[memory],
            ]
            .concat()
        };
        let header = [
            "",
            "tokens/s",
            "to PyTorch f32",
            "outside the engine",
            "peak, MB",
            "of it training",
            "to PyTorch f32",
        ];
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let copies = megabytes(self.parameters * 4 * 4);
        let parameters = thousands(self.parameters);
        format!(
            "### {}\n\n{parameters} parameters; four copies of them are {copies} MB.\n\n{}\n",
            self.title(),
            table(&header, &rows)
        )
    }

    /// One line for each missed bound.
    pub fn missed(&self) -> Vec<String> {
        let Some([speed, memory]) = self.row(Way::Cognate).and_then(|row| self.ratios(row)) else {
            return Vec::new();
        };
        let missed = [("tokens/s", SPEED, speed), ("memory", MEMORY, memory)]
            .into_iter()
            .filter(|(_, bound, ratio)| !bound.is_kept(*ratio));
        let line = |(name, bound, ratio): (&str, Bound, f64)| {
            format!(
                "{}: {} times PyTorch's {name} in f32, {}",
                self.title(),
                bound.shown(ratio),
                bound.words()
            )
        };
        missed.map(line).collect()
    }
}

/// All measurements of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    pub updates: u32,
    pub blocks: Vec<Block>,
}

impl Report {
    pub fn missed(&self) -> Vec<String> {
        self.blocks.iter().flat_map(Block::missed).collect()
    }

    pub fn text(&self) -> String {
        self.blocks.iter().map(Block::text).collect::<String>()
            + &engines(self.blocks.iter().flat_map(|block| &block.rows))
    }

    /// The section of the committed page.
    pub fn section(&self) -> Section {
        let machine = Machine::here();
        let introduction = String::from(
            "Updates on Multi30k English-German: a vocabulary of 8,000, batches of at most 2,048 tokens a side in the shapes of the text,\n\
             dropout 0.1, label smoothing 0.1, Adam. Cognate runs the loop of `cognate train`, from text to new weights; PyTorch's step gets\n\
             prepared arrays, and has transformers' MarianMTModel and its fused Adam. All update on the same batches and run in turn, some\n\
             updates each, after a warm-up round. A number is the median of the rounds, followed by the slowest and the fastest; tokens are\n\
             those of the targets, without padding. Each program has the given number of threads.\n\n\
             - *to PyTorch f32*: the ratio in the same run: for speed the median of the rounds' ratios. Bold: Cognate misses the given bound.\n\
             - *outside the engine*: the share of Cognate's time outside of the engine's sessions.\n\
             - *peak*: the highest resident memory; *of it training*: without the program's memory before the model was loaded.\n\n\
             `cargo xtask bench train --write` measures again, and writes the part of the processor that it runs on.\n",
        );
        let (updates, rounds, bound, sentence) =
            (self.updates, self.rounds, processors::described(), machine.sentence());
        let text = format!(
            "{sentence}{updates} updates a turn, {rounds} rounds; each program has {bound}.\n\n{}",
            self.text()
        );
        Section { title: "Speed of training", introduction, processor: machine.title, text }
    }
}
