//! Measurements of decoding as tables, for a terminal and for the committed page.

use std::fmt::Write;

use super::limits::Limits;
use super::shape::{Column, LENGTHS, Shape};
use super::ways::{Program, Way};
use crate::machine::Machine;
use crate::processors;
use crate::record::Section;
use crate::rows::{self, engines};
use crate::statistics::Bound;
use xtask::table::table;

/// No call is faster than the limit of the machine.
pub const WHOLE: Bound = Bound::AtMost(1.0);

/// The answers of one program.
pub type Row = rows::Row<&'static Way>;

impl Row {
    pub fn is_ours(&self) -> bool {
        matches!(self.way.program, Program::Ours { .. })
    }
}

/// One shape with a number of threads.
#[derive(Debug)]
pub struct Block {
    pub shape: &'static Shape,
    pub threads: usize,
    pub limits: Limits,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
}

impl Block {
    pub fn title(&self) -> String {
        self.shape.on(self.threads)
    }

    /// The ratio of the row's speed to that of the row called `peer`.
    pub fn ratio(&self, row: &Row, peer: &str, column: usize) -> Option<f64> {
        Some(row.ratio(self.rows.iter().find(|other| other.way.name == peer)?, column))
    }

    /// A table of the rows for which `cell` returns a text.
    fn table(&self, head: &str, cell: impl Fn(&Row, usize) -> Option<String>) -> String {
        let header: Vec<String> = std::iter::once(head.to_owned())
            .chain(self.columns.iter().map(|column| column.title()))
            .collect();
        let cells = |row: &Row| {
            (0..self.columns.len()).map(|column| cell(row, column)).collect::<Option<Vec<_>>>()
        };
        let row = |row: &Row| {
            Some(std::iter::once(row.way.title.to_owned()).chain(cells(row)?).collect())
        };
        let rows: Vec<Vec<String>> = self.rows.iter().filter_map(row).collect();
        if rows.is_empty() { String::new() } else { format!("{}\n", table(&header, &rows)) }
    }

    pub fn text(&self) -> String {
        let mut text = format!("### {}\n\n{}\n", self.title(), self.limits.text());
        text += &self.table("tokens/s", |row, column| Some(row.speed_cell(column)));
        text += &self.table("to CTranslate2", |row, column| {
            let ratio = self.ratio(row, row.way.peer?, column)?;
            Some(
                self.floor(row, column)
                    .map_or_else(|| format!("{ratio:.2}"), |floor| floor.cell(ratio)),
            )
        });
        text += &self.table("of the limit", |row, column| {
            let share = self.of_limit(row, column);
            Some(if WHOLE.is_kept(share) {
                format!("{:.0}%", 100.0 * share)
            } else {
                format!("**{:.0}%**", (100.0 * share).ceil())
            })
        });
        text += &self.table("outside the graph", Row::outside);
        text + &self.table("GB/s of 8, 32, 64 workers", |row, column| self.reads(row, column))
    }

    /// The bytes that this number of workers of Cognate read from memory per second, if each keeps
    /// its speed on one thread: the weights once per step.
    fn reads(&self, row: &Row, column: usize) -> Option<String> {
        if self.threads > 1 || !row.is_ours() || !row.way.runs_long_texts() {
            return None;
        }
        let steps = row.speed(column).median / self.columns[column].batch as f64;
        let (all, output, size) =
            (self.shape.decoder_weights(), self.shape.output_weights(), row.way.weights.bytes());
        let in_8_bits = if self.columns[column].beams == 1 { output } else { 0 };
        let bytes = steps * ((all - in_8_bits) as f64 * size + in_8_bits as f64);
        Some([8.0, 32.0, 64.0].map(|workers| format!("{:.0}", workers * bytes / 1e9)).join(", "))
    }

    /// The share of the maximum speed of the machine.
    fn of_limit(&self, row: &Row, column: usize) -> f64 {
        row.speed(column).median
            / self.limits.tokens_per_second(
                self.shape,
                row.way.weights,
                self.columns[column],
                row.is_ours(),
            )
    }

    /// The minimum ratio of the row to its peer: on one thread, Marian-base and long texts.
    fn floor(&self, row: &Row, column: usize) -> Option<Bound> {
        if self.shape.is_long() {
            return row.way.long.filter(|_| self.threads == 1).map(Bound::AtLeast);
        }
        let Column { batch, beams } = self.columns[column];
        let of_batch = [1, 8, 32].iter().position(|&known| known == batch)?;
        let of_beams = [1, 4].iter().position(|&known| known == beams)?;
        let is_bound = self.shape.name == "marian-base" && self.threads == 1;
        is_bound.then_some(Bound::AtLeast(row.way.floors?[of_beams][of_batch]))
    }

    /// One line for each missed floor, and for each call that is faster than the measured limit.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (row, column) in self
            .rows
            .iter()
            .flat_map(|row| (0..self.columns.len()).map(move |column| (row, column)))
        {
            let call =
                format!("{}, {}: {}", self.title(), row.way.title, self.columns[column].title());
            let ratio = row.way.peer.and_then(|peer| self.ratio(row, peer, column));
            if let (Some(floor), Some(ratio)) = (self.floor(row, column), ratio)
                && !floor.is_kept(ratio)
            {
                missed.push(format!(
                    "{call}: {} times CTranslate2, {}",
                    floor.shown(ratio),
                    floor.words()
                ));
            }
            let share = self.of_limit(row, column);
            if !WHOLE.is_kept(share) {
                missed.push(format!(
                    "{call}: {:.0}% of the limit, which is measured too low",
                    (100.0 * share).ceil()
                ));
            }
        }
        missed
    }
}

/// All measurements of a run.
#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    pub blocks: Vec<Block>,
    /// Rows without a model, with reasons.
    pub left_out: Vec<String>,
}

impl Report {
    /// Adds a row without a model.
    pub fn leave_out(&mut self, way: &Way, error: &anyhow::Error) {
        let line = format!("{} is left out: {error:#}", way.title);
        if !self.left_out.contains(&line) {
            eprintln!("{line}");
            self.left_out.push(line);
        }
    }

    pub fn missed(&self) -> Vec<String> {
        self.blocks.iter().flat_map(Block::missed).collect()
    }

    pub fn text(&self) -> String {
        let mut text: String = self.blocks.iter().map(Block::text).collect();
        for line in &self.left_out {
            let _ = writeln!(text, "{line}.\n");
        }
        text + &engines(self.blocks.iter().flat_map(|block| &block.rows))
    }

    /// The section of the committed page; `chart` is the file of its chart.
    pub fn record(&self, machine: Machine, chart: &str) -> Section {
        let [n_source, n_new] = LENGTHS;
        let introduction = format!(
            "Whole calls, from token ids to token ids: {n_source} source tokens, exactly {n_new} new ones for each sentence where a title does not\n\
             say others (the end token is forbidden until then), models of two well-known shapes with random weights. Each program loads its\n\
             model once; then they run in turn, call by call, after a warm-up round. A number is the median of the rounds, followed by the slowest and the fastest.\n\
             Each program has the given number of threads and one model. Only Cognate asks the system for huge pages; the rows\n\
             *no huge pages* do not.\n\n\
             - *to CTranslate2*: the ratio to CTranslate2 in the same precision (of bf16: in f32) and the same run: the median of the rounds'\n  \
             ratios. Bold: below the given floor. Ratios are compared with floors before they are rounded.\n\
             - *of the limit*: the share of the highest speed that the same machine reaches, before or after the same calls, if each step only\n  \
             reads its weights once, as fast as the best program reads the same number of bytes repeatedly (caches hold a part of them), or\n  \
             only multiplies its rows by them, as fast as the best program multiplies, whichever takes longer; without attention.\n  \
             Greedy steps of Cognate read and multiply the output layer in 8 bits: of few tokens it then computes the logits exactly.\n  \
             With beams in f32, on processors with AMX-BF16, products of 16 bits are summed to the softmax, but for its largest terms.\n\
             - *outside the graph*: the share of Cognate's time outside of the engine's sessions.\n\
             - *GB/s of 8, 32, 64 workers*: what so many workers read if each keeps its speed. They share the memory of the weights and no\n  \
             locks, but each reads all of them at each step. Twelve channels of DDR5-4800 give 460 GB/s: where workers read more, memory is\n  \
             the limit, and larger batches help, not more cores.\n\n\
             `cargo xtask bench decode --write` measures again, and writes the part of the processor that it runs on.\n"
        );
        let missed = self.missed();
        let verdict = match missed.is_empty() {
            true => "All floors are reached.\n".to_owned(),
            false => format!(
                "Missed:\n\n{}",
                missed.iter().map(|line| format!("- {line}\n")).collect::<String>()
            ),
        };
        let text = format!(
            "{}{} rounds (programs without a floor: {}); each program has {}.\n\n{verdict}\n![Speed relative to CTranslate2 int8]({chart})\n\n{}",
            machine.sentence(),
            self.rounds,
            self.rounds.div_ceil(3),
            processors::described(),
            self.text(),
        );
        Section { title: "Speed of decoding", introduction, processor: machine.title, text }
    }
}
