//! Measurements of training as tables, for a terminal and for the committed page.

use super::{On, Shape, Way};
use crate::machine::Machine;
use crate::processors;
use crate::record::Section;
use crate::rows::{self, engines, threads};
use crate::statistics::Bound;
use xtask::table::{table, thousands};

/// The answers of one program, in one column.
pub type Row = rows::Row<Way>;

impl Row {
    /// The memory that training takes beyond the program before the model was loaded.
    fn memory(&self) -> u64 {
        self.peak_bytes.saturating_sub(self.base_bytes)
    }
}

/// One shape on a device.
#[derive(Debug)]
pub struct Block {
    pub shape: &'static Shape,
    pub on: On,
    pub parameters: u64,
    pub rows: Vec<Row>,
}

impl Block {
    fn row(&self, way: Way) -> Option<&Row> {
        self.rows.iter().find(|row| row.way == way)
    }

    /// The program with which the others are compared.
    fn peer(&self) -> Way {
        if self.on.is_gpu() { Way::PyTorchBf16 } else { Way::PyTorch }
    }

    /// The program with bounds.
    fn ours(&self) -> Way {
        let ways = [Way::CognateHalf, Way::CognateBf16];
        ways.into_iter().find(|&way| self.row(way).is_some()).unwrap_or(Way::Cognate)
    }

    /// The bounds of the ratios of speed and memory.
    fn bounds(&self) -> [Bound; 2] {
        let [speed, memory] = if self.on.is_gpu() { [1.0, 1.3] } else { [1.3, 0.8] };
        [Bound::AtLeast(speed), Bound::AtMost(memory)]
    }

    /// The ratios of speed and memory to the peer.
    fn ratios(&self, row: &Row) -> Option<[f64; 2]> {
        let peer = self.row(self.peer())?;
        Some([row.ratio(peer, 0), row.memory() as f64 / peer.memory() as f64])
    }

    fn title(&self) -> String {
        match self.on {
            On::Threads(count) => format!("{}, {}", self.shape.title, threads(count)),
            On::Gpu(_) => self.shape.title.into(),
        }
    }

    pub fn text(&self) -> String {
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        let row = |row: &Row| {
            // The bounds apply only to Cognate.
            let cell = |bound: Bound, ratio: f64| {
                if row.way == self.ours() { bound.cell(ratio) } else { format!("{ratio:.2}") }
            };
            let [of_speed, of_memory] = self.bounds();
            let ratios = self
                .ratios(row)
                .map(|[speed, memory]| [cell(of_speed, speed), cell(of_memory, memory)]);
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
        let to_peer = &format!("to {}", self.peer().title());
        let header =
            ["", "tokens/s", to_peer, "outside the engine", "peak, MB", "of it training", to_peer];
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
        let Some([speed, memory]) = self.row(self.ours()).and_then(|row| self.ratios(row)) else {
            return Vec::new();
        };
        let [of_speed, of_memory] = self.bounds();
        let missed = [("tokens/s", of_speed, speed), ("memory", of_memory, memory)]
            .into_iter()
            .filter(|(_, bound, ratio)| !bound.is_kept(*ratio));
        let line = |(name, bound, ratio): (&str, Bound, f64)| {
            format!(
                "{}: {} times {name} of {}, {}",
                self.title(),
                bound.shown(ratio),
                self.peer().title(),
                bound.words()
            )
        };
        missed.map(line).collect()
    }
}

/// All measurements of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The GPU, if it was one.
    pub gpu: Option<String>,
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
        if let Some(gpu) = &self.gpu {
            return self.section_of_gpu(gpu.clone());
        }
        let machine = Machine::here();
        let introduction = String::from(
            "Updates on Multi30k English-German: a vocabulary of 8,000, batches of at most 2,048 tokens a side in the shapes of the text,\n\
             dropout 0.1, label smoothing 0.1, Adam. Cognate runs the loop of `cognate train`, from text to new weights; PyTorch's step gets\n\
             prepared arrays, and has transformers' MarianMTModel and its fused Adam. All update on the same batches and run in turn, some\n\
             updates each, after a warm-up round. A number is the median of the rounds, followed by the slowest and the fastest; tokens are\n\
             those of the targets, without padding. Each program has the given number of threads.\n\n\
             - *to PyTorch f32*: the ratio in the same run: for speed the median of the rounds' ratios. Bold: Cognate misses the given bound.\n\
             - *Cognate bf16*: with `optimiser.precision` `bf16`: products in bf16, everything else in f32. Only where the processor multiplies it.\n\
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
    fn section_of_gpu(&self, gpu: String) -> Section {
        let introduction = String::from(
            "Updates as in *Speed of training*, on a GPU: batches of at most 8,192 tokens a side, and ratios to PyTorch in bf16 (`torch.autocast`\n\
             with weights in f32). Memory is the GPU's, which programs keep for later calls. `cargo xtask bench train --device cuda --write`\n\
             measures again; on a machine without PyPI, `--python PATH` names a Python with PyTorch and transformers, ORT_DYLIB_PATH the library\n\
             of ONNX Runtime, and `--data` the text.\n",
        );
        let (updates, rounds) = (self.updates, self.rounds);
        let text = format!("{updates} updates a turn, {rounds} rounds.\n\n{}", self.text());
        Section { title: "Speed of training on a GPU", introduction, processor: gpu, text }
    }
}
