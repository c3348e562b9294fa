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
const WHOLE: Bound = Bound::AtMost(1.0);

/// One program's answers, by column.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) way: &'static Way,
    engine: String,
    answers: Vec<Vec<Answer>>,
}

impl Row {
    pub(crate) fn new(way: &'static Way, engine: &str, columns: usize) -> Row {
        Row { way, engine: engine.to_owned(), answers: vec![Vec::new(); columns] }
    }

    pub(crate) fn add(&mut self, column: usize, answer: Answer) {
        self.answers[column].push(answer);
    }

    /// Tokens in a second, of each round.
    fn speeds(&self, column: usize) -> impl Iterator<Item = f64> {
        self.answers[column].iter().map(|answer| answer.tokens as f64 / answer.seconds)
    }

    /// Tokens in a second.
    pub(crate) fn speed(&self, column: usize) -> Summary {
        Summary::of(self.speeds(column))
    }

    /// The median share of the time that is not the engine's, where the program tells it.
    fn outside(&self, column: usize) -> Option<f64> {
        let shares = self.answers[column].iter().map(|answer| Some(1.0 - answer.seconds_in_graph? / answer.seconds));
        Some(Summary::of(shares.collect::<Option<Vec<_>>>()?).median)
    }

    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.way.program, Program::Ours { .. })
    }
}

/// One shape on some threads.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) shape: &'static Shape,
    pub(crate) threads: usize,
    pub(crate) limits: Limits,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

impl Block {
    pub(crate) fn title(&self) -> String {
        self.shape.on(self.threads)
    }

    /// The ratio of the row's speed to that of the row called `peer`: the median over the rounds in which both took turns, for what
    /// the machine does beside changes from round to round.
    pub(crate) fn ratio(&self, row: &Row, peer: &str, column: usize) -> Option<f64> {
        let peer = self.rows.iter().find(|other| other.way.name == peer)?;
        let rounds = row.speeds(column).zip(peer.speeds(column));
        Some(Summary::of(rounds.map(|(ours, theirs)| ours / theirs)).median)
    }

    /// A table of the rows for which `cell` has something to say.
    fn table(&self, head: &str, cell: impl Fn(&Row, usize) -> Option<String>) -> String {
        let header: Vec<String> = std::iter::once(head.to_owned()).chain(self.columns.iter().map(|column| column.title())).collect();
        let cells = |row: &Row| (0..self.columns.len()).map(|column| cell(row, column)).collect::<Option<Vec<_>>>();
        let row = |row: &Row| Some(std::iter::once(row.way.title.to_owned()).chain(cells(row)?).collect());
        let rows: Vec<Vec<String>> = self.rows.iter().filter_map(row).collect();
        if rows.is_empty() { String::new() } else { format!("{}\n", table(&header, &rows)) }
    }

    fn text(&self) -> String {
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
    fn of_limit(&self, row: &Row, column: usize) -> f64 {
        row.speed(column).median / self.limits.tokens_per_second(self.shape, row.way.weights, self.columns[column])
    }

    /// The least ratio to its peer that the row has to keep: on one thread, Marian-base.
    fn floor(&self, row: &Row, column: usize) -> Option<Bound> {
        let Column { batch, beams } = self.columns[column];
        let of_batch = [1, 8, 32].iter().position(|&known| known == batch)?;
        let of_beams = [1, 4].iter().position(|&known| known == beams)?;
        let is_bound = self.shape.name == "marian-base" && self.threads == 1;
        is_bound.then_some(Bound::AtLeast(row.way.floors?[of_beams][of_batch]))
    }

    /// A line for each floor that is not kept, and for each call that beats what the machine was said to do at most.
    fn missed(&self) -> Vec<String> {
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
pub(crate) struct Report {
    rounds: u32,
    blocks: Vec<Block>,
    left_out: Vec<String>,
}

impl Report {
    pub(crate) fn new(rounds: u32) -> Report {
        Report { rounds, blocks: Vec::new(), left_out: Vec::new() }
    }

    pub(crate) fn add(&mut self, block: Block) {
        self.blocks.push(block);
    }

    /// A row that has no model to run.
    pub(crate) fn leave_out(&mut self, way: &Way, error: &anyhow::Error) {
        let line = format!("{} is left out: {error:#}", way.title);
        if !self.left_out.contains(&line) {
            eprintln!("{line}");
            self.left_out.push(line);
        }
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// A line for each of our rows that is slower than its floor.
    pub(crate) fn missed(&self) -> Vec<String> {
        self.blocks.iter().flat_map(Block::missed).collect()
    }

    pub(crate) fn text(&self) -> String {
        let mut text: String = self.blocks.iter().map(Block::text).collect();
        for line in &self.left_out {
            let _ = writeln!(text, "{line}.\n");
        }
        text + &self.programs()
    }

    fn programs(&self) -> String {
        let mut engines: Vec<&str> = Vec::new();
        for row in self.blocks.iter().flat_map(|block| &block.rows) {
            if !engines.contains(&row.engine.as_str()) {
                engines.push(&row.engine);
            }
        }
        format!("Ran in {}.\n", engines.join(", "))
    }

    /// The part of the page that is committed; `chart` is the file of its chart.
    pub(crate) fn record(&self, machine: Machine, chart: &str) -> Section {
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

#[cfg(test)]
pub(crate) mod tests {
    use super::super::shape::SHAPES;
    use super::super::ways::WAYS;
    use super::*;

    /// Marian-base on one thread: CTranslate2 int8 at 100 and 200 tokens a second, ours as told, a quarter of the time outside.
    pub(crate) fn block(ours: [f64; 2]) -> Block {
        let columns = vec![Column { batch: 1, beams: 1 }, Column { batch: 8, beams: 4 }];
        let row = |name: &str, speeds: [f64; 2], in_graph: Option<f64>| {
            let way = WAYS.iter().find(|way| way.name == name).unwrap();
            let mut row = Row::new(way, &format!("{name} 1"), 2);
            for (column, speed) in speeds.into_iter().enumerate() {
                for factor in [1.0, 0.5, 2.0] {
                    let seconds = 32.0 / (speed * factor);
                    row.add(column, Answer { seconds, seconds_in_graph: in_graph.map(|share| share * seconds), tokens: 32, peak_bytes: 0 });
                }
            }
            row
        };
        let rows = vec![row("ct2-int8", [100.0, 200.0], None), row("cognate-int8", ours, Some(0.75))];
        // Limits of 32 tokens in 2.2 + 32 * 3.84 ms, 256 a second, and of 256 in 4.2 + 32 * 3.84 ms, 2,014 a second: memory, but for the
        // encoder of 8 sentences.
        Block { shape: &SHAPES[0], threads: 1, limits: Limits { bytes: [1e10; 3], f32: 1e12, int8: Some(2e12) }, columns, rows }
    }

    #[test]
    fn a_block_is_four_tables() {
        let text = block([125.0, 255.0]).text();
        let expected = "\
            ### Marian-base, 1 thread\n\n\
            The machine reads 10.0 GB of f32 weights a second, 10.0 of 8-bit and 10.0 of 4-bit ones, and computes 1000 billion\n\
            operations a second in f32, 2000 in 8-bit integers.\n\n\
            | tokens/s         | greedy, batch 1 | 4 beams, batch 8 |\n\
            | ---------------- | --------------: | ---------------: |\n\
            | CTranslate2 int8 |    100 (50-200) |    200 (100-400) |\n\
            | Cognate int8     |    125 (62-250) |    255 (128-510) |\n\n\
            | to CTranslate2 | greedy, batch 1 | 4 beams, batch 8 |\n\
            | -------------- | --------------: | ---------------: |\n\
            | Cognate int8   |            1.25 |   **1.27 < 1.3** |\n\n\
            | of the limit     | greedy, batch 1 | 4 beams, batch 8 |\n\
            | ---------------- | --------------: | ---------------: |\n\
            | CTranslate2 int8 |             39% |              10% |\n\
            | Cognate int8     |             49% |              13% |\n\n\
            | outside the graph | greedy, batch 1 | 4 beams, batch 8 |\n\
            | ----------------- | --------------: | ---------------: |\n\
            | Cognate int8      |           25.0% |            25.0% |\n\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_missed_floor_is_named_and_marked() {
        let missed = |ours| block(ours).missed();
        assert_eq!(missed([120.0, 260.0]), Vec::<String>::new());
        assert_eq!(
            missed([119.0, 250.0]),
            [
                "Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.19 times CTranslate2, at least 1.2",
                "Marian-base, 1 thread, Cognate int8: 4 beams, batch 8: 1.25 times CTranslate2, at least 1.3"
            ]
        );
        // Rounded, the first would keep its floor.
        let almost = block([119.9, 260.0]);
        assert_eq!(almost.missed(), ["Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.19 times CTranslate2, at least 1.2"]);
        assert!(almost.text().contains("| Cognate int8   |  **1.19 < 1.2** |             1.30 |\n"), "{}", almost.text());
        let on_two_threads = Block { threads: 2, ..block([1.0, 1.0]) };
        assert!(on_two_threads.missed().is_empty());
        assert!(!on_two_threads.text().contains("**"));
    }

    #[test]
    fn nothing_passes_the_limit_unseen() {
        // The limit is 256 tokens a second.
        let over = Block { threads: 2, ..block([257.0, 260.0]) };
        assert_eq!(over.missed(), ["Marian-base, 2 threads, Cognate int8: greedy, batch 1: 101% of the limit, which is measured too low"]);
        assert!(over.text().contains("**101%**"), "{}", over.text());
    }

    #[test]
    fn the_page_tells_the_processor_and_what_is_missed() {
        let mut report = Report::new(6);
        report.add(block([119.0, 260.0]));
        let section = report.record(Machine::here(), "chart.svg");
        assert_eq!((section.title, section.processor), ("Speed of decoding", Machine::here().title));
        let text = section.text;
        assert!(text.contains("6 rounds (programs without a floor: 2)") && text.contains("(chart.svg)"), "{text}");
        assert!(text.contains("Not kept:\n\n- Marian-base, 1 thread, Cognate int8: greedy, batch 1: 1.19 times"), "{text}");
        assert!(text.contains("\n### Marian-base, 1 thread\n") && !text.contains("\n## "), "{text}");
    }
}
