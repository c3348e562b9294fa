//! The tables of `cargo xtask bench generate`.

use super::super::decode::shape::Column;
use super::super::decode::ways::Way;
use crate::machine::Machine;
use crate::measure::generate::Answer;
use crate::processors;
use crate::record::Section;
use crate::statistics::{Bound, Summary};
use xtask::table::table;

/// All programs on the same sentences.
#[derive(Debug)]
pub struct Cell {
    pub column: Column,
    /// For each program and round: wall seconds, processor seconds.
    pub seconds: Vec<Vec<[f64; 2]>>,
    pub found: Vec<Vec<Vec<i64>>>,
}

impl Cell {
    pub fn new(column: Column, programs: usize) -> Self {
        Self { column, seconds: vec![Vec::new(); programs], found: vec![Vec::new(); programs] }
    }

    /// Adds the answer of a round; round 0 warms up.
    pub fn add(&mut self, round: u32, program: usize, answer: Answer) {
        if round > 0 {
            self.seconds[program].push([answer.seconds, answer.processor_seconds]);
        }
        self.found[program] = answer.found;
    }

    /// The median of the rounds: 0 wall, 1 processors.
    pub fn median(&self, program: usize, clock: usize) -> f64 {
        Summary::of(self.seconds[program].iter().map(|seconds| seconds[clock])).median
    }

    /// The processor time of a program over that of another: the median of the rounds' ratios.
    pub fn ratio(&self, program: usize, to: usize) -> f64 {
        let rounds = self.seconds[program].iter().zip(&self.seconds[to]);
        Summary::of(rounds.map(|(program, to)| program[1] / to[1])).median
    }

    /// Number of sentences with the same tokens as the first program's, up to the end of the
    /// shorter one: others add end tokens and padding.
    pub fn equal(&self, program: usize) -> usize {
        let [first, other] = [0, program].map(|program| &self.found[program]);
        first.iter().zip(other).filter(|(first, other)| other.starts_with(first)).count()
    }
}

#[derive(Debug)]
pub struct Report {
    pub rounds: u32,
    pub sentences: usize,
    pub ways: Vec<&'static Way>,
    pub engines: Vec<String>,
    pub cells: Vec<Cell>,
}

impl Report {
    fn place(&self, name: &str) -> Option<usize> {
        self.ways.iter().position(|way| way.name == name)
    }

    /// The bound of the ratio of the graph's time to another program's.
    fn bound(name: &str, column: Column) -> Option<Bound> {
        match (name, column.batch) {
            ("loop", _) => Some(Bound::AtMost(1.15)),
            ("optimum", 1) => Some(Bound::AtMost(0.5)),
            _ => None,
        }
    }

    /// The ratios of the graph's time to those of other programs.
    fn ratios<'a>(
        &'a self,
        cell: &'a Cell,
    ) -> impl Iterator<Item = (&'static Way, f64, Option<Bound>)> + 'a {
        let graph = self.place("generate");
        let others = self.ways.iter().enumerate().filter_map(move |(place, way)| {
            Some((graph.filter(|graph| *graph != place)?, place, *way))
        });
        others.map(|(graph, place, way)| {
            (way, cell.ratio(graph, place), Self::bound(way.name, cell.column))
        })
    }

    pub fn missed(&self) -> Vec<String> {
        let ratios = self
            .cells
            .iter()
            .flat_map(|cell| self.ratios(cell).map(move |ratio| (cell.column, ratio)));
        let missed = ratios.filter_map(|(column, (way, ratio, bound))| {
            let bound = bound.filter(|bound| !bound.is_kept(ratio))?;
            Some(format!(
                "{}: {} of the time of the {}, {}",
                column.title(),
                bound.shown(ratio),
                way.title,
                bound.words()
            ))
        });
        missed.collect()
    }

    pub fn text(&self) -> String {
        let titles = |title: &str| {
            self.ways.iter().map(|way| format!("{title}: {}", way.title)).collect::<Vec<_>>()
        };
        let others: Vec<_> = self
            .ways
            .iter()
            .filter(|way| way.name != "generate" && self.place("generate").is_some())
            .collect();
        let header = [
            vec!["ms a sentence".to_owned()],
            titles("wall"),
            titles("processor"),
            others.iter().map(|way| format!("to the {}", way.title)).collect(),
            others.iter().map(|way| format!("equal to the {}", way.title)).collect(),
        ];
        let row = |cell: &Cell| {
            let each = |clock| {
                (0..self.ways.len()).map(move |way| {
                    format!("{:.2}", cell.median(way, clock) * 1e3 / self.sentences as f64)
                })
            };
            let ratio = |(_, ratio, bound): (_, f64, Option<Bound>)| {
                bound.map_or_else(|| format!("{ratio:.2}"), |bound| bound.cell(ratio))
            };
            let equal = others.iter().filter_map(|way| {
                Some(format!("{} of {}", cell.equal(self.place(way.name)?), self.sentences))
            });
            [cell.column.title()]
                .into_iter()
                .chain(each(0))
                .chain(each(1))
                .chain(self.ratios(cell).map(ratio))
                .chain(equal)
                .collect()
        };
        let rows: Vec<Vec<String>> = self.cells.iter().map(row).collect();
        let mut engines = self.engines.clone();
        engines.dedup();
        format!(
            "{}{} rounds of {} sentences; each program has one thread and {}. Ran in {}.\n\n{}",
            Machine::here().sentence(),
            self.rounds,
            self.sentences,
            processors::described(),
            engines.join(", "),
            table(&header.concat(), &rows)
        )
    }

    /// The part of the committed page.
    pub fn section(&self) -> Section {
        let introduction = INTRODUCTION.into();
        Section {
            title: "Speed of one graph that decodes",
            introduction,
            processor: Machine::here().title,
            text: self.text(),
        }
    }
}

const INTRODUCTION: &str =
    "The bundled model on the first sentences of Multi30k's test text of 2016, from token ids to token ids, up to the end tokens:
`generate.onnx` (`cognate export --layout generate`) beside the loop of `cognate translate` around the portable decoder, both on ONNX
Runtime, and beside Optimum's `generate` on its own export. The three take turns. Milliseconds are medians of the rounds; *processor* is
the time on processors, which other programs on the machine hardly change, and of which ratios are made: the time of `generate.onnx`
over the other's, the median of the rounds' ratios. Bold: above the bound. *Equal* counts sentences with equal tokens.

`cargo xtask bench generate --write` measures again, and writes the part of the processor that it runs on.
";
