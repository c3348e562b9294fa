//! What was measured, as tables that read well in a terminal and on the committed page.

use std::fmt::Write;

use super::limits::Limits;
use super::shape::{NEW_TOKENS, SOURCE_TOKENS, Shape};
use super::ways::{Program, Way};
use crate::bench::driver::Answer;
use crate::bench::processors::are_bound;
use crate::bench::statistics::Summary;
use crate::table::table;

/// One kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) batch: usize,
    pub(crate) beams: usize,
}

impl Column {
    pub(crate) fn method(self) -> String {
        match self.beams {
            1 => "greedy".into(),
            beams => format!("{beams} beams"),
        }
    }

    pub(crate) fn title(self) -> String {
        format!("{}, batch {}", self.method(), self.batch)
    }
}

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
        let Limits { bytes, f32, int8 } = self.limits;
        let int8 = int8.map(|int8| format!(", {:.0} in 8-bit integers", int8 / 1e9)).unwrap_or_default();
        let mut text = format!("## {}\n\n", self.title());
        text +=
            &format!("The machine reads {:.1} GB and computes {:.0} billion operations a second in f32{int8}.\n\n", bytes / 1e9, f32 / 1e9);
        text += &self.table("tokens/s", |row, column| {
            let Summary { median, min, max } = row.speed(column);
            Some(format!("{median:.0} ({min:.0}-{max:.0})"))
        });
        text += &self.table("to CTranslate2", |row, column| Some(format!("{:.2}", self.ratio(row, row.way.peer?, column)?)));
        text += &self.table("of the limit", |row, column| {
            let limit = self.limits.tokens_per_second(self.shape, row.way.weights, self.columns[column]);
            Some(format!("{:.0}%", 100.0 * row.speed(column).median / limit))
        });
        text + &self.table("outside the graph", |row, column| Some(format!("{:.1}%", 100.0 * row.outside(column)?)))
    }

    /// A line for each floor that is not kept.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.shape.name != "marian-base" || self.threads != 1 {
            return missed;
        }
        for row in &self.rows {
            for (index, column) in self.columns.iter().enumerate() {
                let of_batch = [1, 8, 32].iter().position(|&batch| batch == column.batch);
                let of_beams = [1, 4].iter().position(|&beams| beams == column.beams);
                let (Some(floors), Some(batch), Some(beams)) = (row.way.floors, of_batch, of_beams) else { continue };
                let (floor, Some(ratio)) = (floors[beams][batch], row.way.peer.and_then(|peer| self.ratio(row, peer, index))) else {
                    continue;
                };
                // Two digits, as the table tells it.
                if (ratio * 100.0).round() / 100.0 < floor {
                    missed.push(format!("{}, {}: {ratio:.2} times CTranslate2, at least {floor}", row.way.title, column.title()));
                }
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

    /// The page that is committed; `chart` is the file of its chart.
    pub(crate) fn record(&self, chart: &str) -> String {
        format!(
            "# Speed of decoding\n\n\
             Whole calls, token ids in and token ids out: {SOURCE_TOKENS} source tokens, exactly {NEW_TOKENS} new ones for each sentence (the end token is forbidden\n\
             until then), models of two well-known shapes with random weights. Every program loads its model once and stays; then they\n\
             take turns, call by call, {rounds} rounds after one that warms up (programs without a floor: {fewer}). A number is the median, with\n\
             the slowest and the fastest round behind it. Each program has the threads that are named, one model, and{processors}.\n\n\
             - *to CTranslate2*: the ratio to CTranslate2 in the same precision, in the same run: the median of the rounds' ratios.\n\
             - *of the limit*: what the same machine, before or after the same calls, could do at most if each step only read its weights once from memory,\n  \
             or only multiplied its rows with them, whichever takes longer; attention is left out.\n\
             - *outside the graph*: our share of the time that is not spent within the engine's sessions.\n\n\
             {machine}`cargo xtask bench decode --write` makes this page again.\n\n\
             ![Speed relative to CTranslate2 int8]({chart})\n\n{text}",
            rounds = self.rounds,
            fewer = self.rounds.div_ceil(3),
            processors = if are_bound() { " as many processors, always the same" } else { " any processor" },
            machine = machine(),
            text = self.text(),
        )
    }
}

/// The processor, where Linux tells it.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()));
    model.map(|model| format!("Measured on {cores} cores of {model}.\n\n")).unwrap_or_default()
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
        Block { shape: &SHAPES[0], threads: 1, limits: Limits { bytes: 1e10, f32: 1e12, int8: Some(2e12) }, columns, rows }
    }

    #[test]
    fn a_block_is_four_tables() {
        let text = block([125.0, 255.0]).text();
        let expected = "\
            ## Marian-base, 1 thread\n\n\
            The machine reads 10.0 GB and computes 1000 billion operations a second in f32, 2000 in 8-bit integers.\n\n\
            | tokens/s         | greedy, batch 1 | 4 beams, batch 8 |\n\
            | ---------------- | --------------: | ---------------: |\n\
            | CTranslate2 int8 |    100 (50-200) |    200 (100-400) |\n\
            | Cognate int8     |    125 (62-250) |    255 (128-510) |\n\n\
            | to CTranslate2 | greedy, batch 1 | 4 beams, batch 8 |\n\
            | -------------- | --------------: | ---------------: |\n\
            | Cognate int8   |            1.25 |             1.27 |\n\n\
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
    fn every_missed_floor_is_named() {
        let missed = |ours| block(ours).missed();
        assert_eq!(missed([120.0, 260.0]), Vec::<String>::new());
        assert_eq!(
            missed([119.0, 250.0]),
            [
                "Cognate int8, greedy, batch 1: 1.19 times CTranslate2, at least 1.2",
                "Cognate int8, 4 beams, batch 8: 1.25 times CTranslate2, at least 1.3"
            ]
        );
        let on_two_threads = Block { threads: 2, ..block([1.0, 1.0]) };
        assert!(on_two_threads.missed().is_empty());
    }
}
