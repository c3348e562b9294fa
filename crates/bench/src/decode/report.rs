//! What was measured, as tables that read well in a terminal and on the committed page.

use std::fmt::Write;

use super::limits::Limits;
use super::shape::{Column, NEW_TOKENS, SOURCE_TOKENS, Shape};
use super::ways::{Program, Way};
use crate::driver::Answer;
use crate::machine::Machine;
use crate::processors::are_bound;
use crate::record::Section;
use crate::statistics::{Bound, Summary};
use xtask::table::table;

/// No call does more than the machine can.
pub const WHOLE: Bound = Bound::AtMost(1.0);

/// One program's answers, by column.
#[derive(Debug)]
pub struct Row {
    pub way: &'static Way,
    pub engine: String,
    pub answers: Vec<Vec<Answer>>,
}

impl Row {
    pub fn new(way: &'static Way, engine: &str, columns: usize) -> Row {
        Row { way, engine: engine.to_owned(), answers: vec![Vec::new(); columns] }
    }

    pub fn add(&mut self, column: usize, answer: Answer) {
        self.answers[column].push(answer);
    }

    /// Tokens in a second, of each round.
    pub fn speeds(&self, column: usize) -> impl Iterator<Item = f64> {
        self.answers[column].iter().map(|answer| answer.tokens as f64 / answer.seconds)
    }

    /// Tokens in a second.
    pub fn speed(&self, column: usize) -> Summary {
        Summary::of(self.speeds(column))
    }

    /// The median share of the time that is not the engine's, where the program tells it.
    pub fn outside(&self, column: usize) -> Option<f64> {
        let shares = self.answers[column].iter().map(|answer| Some(1.0 - answer.seconds_in_graph? / answer.seconds));
        Some(Summary::of(shares.collect::<Option<Vec<_>>>()?).median)
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.way.program, Program::Ours { .. })
    }
}

/// One shape on some threads.
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

    /// The ratio of the row's speed to that of the row called `peer`: the median over the rounds in which both took turns, for what
    /// the machine does beside changes from round to round.
    pub fn ratio(&self, row: &Row, peer: &str, column: usize) -> Option<f64> {
        let peer = self.rows.iter().find(|other| other.way.name == peer)?;
        let rounds = row.speeds(column).zip(peer.speeds(column));
        Some(Summary::of(rounds.map(|(ours, theirs)| ours / theirs)).median)
    }

    /// A table of the rows for which `cell` has something to say.
    pub fn table(&self, head: &str, cell: impl Fn(&Row, usize) -> Option<String>) -> String {
        let header: Vec<String> = std::iter::once(head.to_owned()).chain(self.columns.iter().map(|column| column.title())).collect();
        let cells = |row: &Row| (0..self.columns.len()).map(|column| cell(row, column)).collect::<Option<Vec<_>>>();
        let row = |row: &Row| Some(std::iter::once(row.way.title.to_owned()).chain(cells(row)?).collect());
        let rows: Vec<Vec<String>> = self.rows.iter().filter_map(row).collect();
        if rows.is_empty() { String::new() } else { format!("{}\n", table(&header, &rows)) }
    }

    pub fn text(&self) -> String {
        let mut text = format!("### {}\n\n{}\n", self.title(), self.limits.text());
        text += &self.table("tokens/s", |row, column| {
            let Summary { median, min, max } = row.speed(column);
            Some(format!("{median:.0} ({min:.0}-{max:.0})"))
        });
        text += &self.table("to CTranslate2", |row, column| {
            let ratio = self.ratio(row, row.way.peer?, column)?;
            Some(self.floor(row, column).map_or_else(|| format!("{ratio:.2}"), |floor| floor.cell(ratio)))
        });
        text += &self.table("of the limit", |row, column| {
            let share = self.of_limit(row, column);
            Some(if WHOLE.is_kept(share) { format!("{:.0}%", 100.0 * share) } else { format!("**{:.0}%**", (100.0 * share).ceil()) })
        });
        text + &self.table("outside the graph", |row, column| Some(format!("{:.1}%", 100.0 * row.outside(column)?)))
    }

    /// The share of the speed that the machine could have at most.
    pub fn of_limit(&self, row: &Row, column: usize) -> f64 {
        row.speed(column).median / self.limits.tokens_per_second(self.shape, row.way.weights, self.columns[column])
    }

    /// The least ratio to its peer that the row has to keep: on one thread, Marian-base.
    pub fn floor(&self, row: &Row, column: usize) -> Option<Bound> {
        let Column { batch, beams } = self.columns[column];
        let of_batch = [1, 8, 32].iter().position(|&known| known == batch)?;
        let of_beams = [1, 4].iter().position(|&known| known == beams)?;
        let is_bound = self.shape.name == "marian-base" && self.threads == 1;
        is_bound.then_some(Bound::AtLeast(row.way.floors?[of_beams][of_batch]))
    }

    /// A line for each floor that is not kept, and for each call that beats what the machine was said to do at most.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for (row, column) in self.rows.iter().flat_map(|row| (0..self.columns.len()).map(move |column| (row, column))) {
            let call = format!("{}, {}: {}", self.title(), row.way.title, self.columns[column].title());
            let ratio = row.way.peer.and_then(|peer| self.ratio(row, peer, column));
            if let (Some(floor), Some(ratio)) = (self.floor(row, column), ratio)
                && !floor.is_kept(ratio)
            {
                missed.push(format!("{call}: {} times CTranslate2, {}", floor.shown(ratio), floor.words()));
            }
            let share = self.of_limit(row, column);
            if !WHOLE.is_kept(share) {
                missed.push(format!("{call}: {:.0}% of the limit, which is measured too low", (100.0 * share).ceil()));
            }
        }
        missed
    }
}

/// All that a run gave.
#[derive(Debug)]
pub struct Report {
    pub rounds: u32,
    pub blocks: Vec<Block>,
    pub left_out: Vec<String>,
}

impl Report {
    pub fn new(rounds: u32) -> Report {
        Report { rounds, blocks: Vec::new(), left_out: Vec::new() }
    }

    pub fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// A row that has no model to run.
    pub fn leave_out(&mut self, way: &Way, error: &anyhow::Error) {
        let line = format!("{} is left out: {error:#}", way.title);
        if !self.left_out.contains(&line) {
            eprintln!("{line}");
            self.left_out.push(line);
        }
    }

    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// A line for each of our rows that is slower than its floor.
    pub fn missed(&self) -> Vec<String> {
        self.blocks.iter().flat_map(Block::missed).collect()
    }

    pub fn text(&self) -> String {
        let mut text: String = self.blocks.iter().map(Block::text).collect();
        for line in &self.left_out {
            let _ = writeln!(text, "{line}.\n");
        }
        text + &self.programs()
    }

    pub fn programs(&self) -> String {
        let mut engines: Vec<&str> = Vec::new();
        for row in self.blocks.iter().flat_map(|block| &block.rows) {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        format!("Ran in {}.\n", engines.join(", "))
    }

    /// The part of the page that is committed; `chart` is the file of its chart.
    pub fn record(&self, machine: Machine, chart: &str) -> Section {
        let introduction = format!(
            "Whole calls, token ids in and token ids out: {SOURCE_TOKENS} source tokens, exactly {NEW_TOKENS} new ones for each sentence (the end token is forbidden\n\
             until then), models of two well-known shapes with random weights. Every program loads its model once and stays; then they\n\
             take turns, call by call, after a round that warms up. A number is the median, with the slowest and the fastest round behind it.\n\
             Each program has the threads that are named and one model. Only ours asks the system for huge pages; the rows *no huge pages*\n\
             do not.\n\n\
             - *to CTranslate2*: the ratio to CTranslate2 in the same precision, in the same run: the median of the rounds' ratios. Bold: below the\n  \
             floor that is named. Ratios are compared with floors before they are rounded.\n\
             - *of the limit*: what the same machine, before or after the same calls, could do at most if each step only read its weights once, as\n  \
             fast as the best program reads as many bytes again and again (caches hold a part of them), or only multiplied its rows with them, as\n  \
             fast as the best program multiplies, whichever takes longer; attention is left out.\n\
             - *outside the graph*: our share of the time that is not spent within the engine's sessions.\n\n\
             `cargo xtask bench decode --write` measures again, and writes the part of the processor that it runs on.\n"
        );
        let missed = self.missed();
        let verdict = match missed.is_empty() {
            true => "Every floor is kept.\n".to_owned(),
            false => format!("Not kept:\n\n{}", missed.iter().map(|line| format!("- {line}\n")).collect::<String>()),
        };
        let text = format!(
            "{instructions}{rounds} rounds (programs without a floor: {fewer}); each program has {processors}.\n\n\
             {verdict}\n![Speed relative to CTranslate2 int8]({chart})\n\n{text}",
            instructions = machine.sentence(),
            rounds = self.rounds,
            fewer = self.rounds.div_ceil(3),
            processors = if are_bound() { "as many processors as threads, always the same" } else { "any processor" },
            text = self.text(),
        );
        Section { title: "Speed of decoding", introduction, processor: machine.title, text }
    }
}
