//! The tables of `cargo xtask bench text`.

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::measure::shares::Answer as Shares;
use crate::record::Section;
use crate::text::model::Model;
use crate::text::{Precision, Search, Way};
use xtask::table::table;

/// Minimum ratios to CTranslate2: for files, and for sentences one at a time.
const FILES_FLOOR: f64 = 1.5;
const SINGLE_FLOOR: f64 = 1.3;

/// Both programs on the same text.
#[derive(Debug)]
pub struct Cell {
    pub precision: Precision,
    pub beams: usize,
    /// Whether each program chooses tokens among those of a shortlist, the same for both programs.
    pub has_shortlist: bool,
    /// `None` for sentences one at a time.
    pub workers: Option<usize>,
    /// Seconds of each round: wall, processors.
    pub seconds: BTreeMap<Way, Vec<[f64; 2]>>,
    /// Peak memory in bytes.
    pub memory: BTreeMap<Way, u64>,
    /// Wall seconds of single sentences, of all rounds.
    pub singles: BTreeMap<Way, Vec<f64>>,
    pub texts: BTreeMap<Way, Vec<String>>,
}

impl Cell {
    pub fn new(Search { precision, beams, has_shortlist }: Search, workers: Option<usize>) -> Self {
        let (seconds, memory, singles, texts) = Default::default();
        Self { precision, beams, has_shortlist, workers, seconds, memory, singles, texts }
    }

    pub fn add(&mut self, way: Way, seconds: [f64; 2], texts: Vec<String>) {
        self.seconds.entry(way).or_default().push(seconds);
        self.texts.insert(way, texts);
    }

    pub fn title(&self) -> String {
        let search =
            if self.beams == 1 { "greedy".to_owned() } else { format!("{} beams", self.beams) };
        let workers = match self.workers {
            Some(1) => ", 1 worker".to_owned(),
            Some(workers) => format!(", {workers} workers"),
            None => String::new(),
        };
        let shortlist = if self.has_shortlist { ", shortlist" } else { "" };
        format!("{} {search}{shortlist}{workers}", self.precision.ours())
    }

    /// The minimum of all rounds: 0 wall, 1 processors.
    pub fn least(&self, way: Way, clock: usize) -> f64 {
        self.seconds[&way].iter().map(|seconds| seconds[clock]).fold(f64::INFINITY, f64::min)
    }

    /// The ratio of CTranslate2's time to Cognate's.
    pub fn ratio(&self, clock: usize) -> f64 {
        self.least(Way::CTranslate2, clock) / self.least(Way::Cognate, clock)
    }

    fn equal(&self) -> String {
        equal(&self.texts[&Way::CTranslate2], &self.texts[&Way::Cognate])
    }

    /// Number of words and punctuation marks of Cognate's translations.
    fn words(&self) -> usize {
        words(&self.texts[&Way::Cognate])
    }

    fn percentile(&self, way: Way, share: f64) -> f64 {
        let mut sorted = self.singles[&way].clone();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize] * 1e3
    }
}

/// `18 of 20` texts of both programs are equal.
pub fn equal(theirs: &[String], ours: &[String]) -> String {
    let equal = theirs.iter().zip(ours).filter(|(theirs, ours)| theirs == ours).count();
    format!("{equal} of {}", ours.len())
}

/// Number of words and punctuation marks, separated by spaces.
fn words(texts: &[String]) -> usize {
    texts.iter().map(|text| text.split_whitespace().count()).sum()
}

/// The measurements of a model.
#[derive(Debug)]
pub struct Report {
    model: Model,
    rounds: u32,
    lines: usize,
    references: Vec<String>,
    pub files: Vec<Cell>,
    pub single: Vec<Cell>,
    /// The times of the parts for the whole text, in one process.
    pub shares: Vec<(Search, Shares)>,
    pub quality: Vec<Quality>,
}

/// BLEU of Cognate's translations of Multi30k's test text of 2016: exact, and with the shortlist.
#[derive(Debug)]
pub struct Quality {
    pub precision: Precision,
    pub beams: usize,
    pub bleu: [f64; 2],
}

impl Report {
    pub fn new(model: Model, rounds: u32, lines: usize, references: Vec<String>) -> Self {
        Self {
            model,
            rounds,
            lines,
            references,
            files: Vec::new(),
            single: Vec::new(),
            shares: Vec::new(),
            quality: Vec::new(),
        }
    }

    /// All tables.
    fn text(&self) -> String {
        let mut text = format!(
            "### {}\n\n{} round{}, {} lines.{}\n\n{}",
            self.model.title(),
            self.rounds,
            if self.rounds == 1 { "" } else { "s" },
            self.lines,
            self.lengths(),
            self.missed()
        );
        if !self.files.is_empty() {
            let header = [
                "whole processes",
                "wall s: CTranslate2",
                "Cognate",
                "ratio",
                "processor s: CTranslate2",
                "Cognate",
                "ratio",
                "sentences/s",
                "words/s",
                "MB: CTranslate2",
                "Cognate",
                "equal",
            ];
            let row = |cell: &Cell| {
                let [wall, processor] = [0, 1].map(|clock| {
                    let [theirs, ours] = [Way::CTranslate2, Way::Cognate]
                        .map(|way| format!("{:.2}", cell.least(way, clock)));
                    [theirs, ours, format!("{:.2}", cell.ratio(clock))]
                });
                let seconds = cell.least(Way::Cognate, 0);
                let speed = [self.lines, cell.words()]
                    .map(|count| format!("{:.0}", count as f64 / seconds));
                let memory = [Way::CTranslate2, Way::Cognate]
                    .map(|way| format!("{:.0}", cell.memory[&way] as f64 / 1e6));
                [cell.title()]
                    .into_iter()
                    .chain(wall)
                    .chain(processor)
                    .chain(speed)
                    .chain(memory)
                    .chain([cell.equal()])
                    .collect()
            };
            text += &table(&header, &self.files.iter().map(row).collect::<Vec<_>>());
            text.push('\n');
        }
        let header = [
            "one sentence at a time",
            "median ms: CTranslate2",
            "Cognate",
            "ratio",
            "99th percentile: CTranslate2",
            "Cognate",
            "processor ms: CTranslate2",
            "Cognate",
            "ratio",
            "equal",
        ];
        let row = |cell: &Cell| {
            let [median, last] = [0.5, 0.99].map(|share| {
                [Way::CTranslate2, Way::Cognate].map(|way| cell.percentile(way, share))
            });
            let n = cell.texts[&Way::Cognate].len() as f64;
            let processor = [Way::CTranslate2, Way::Cognate]
                .map(|way| format!("{:.2}", cell.least(way, 1) / n * 1e3));
            let median_ratio = format!("{:.2}", median[0] / median[1]);
            let [median, last] = [median, last].map(|pair| pair.map(|ms| format!("{ms:.2}")));
            let cells = [cell.title()]
                .into_iter()
                .chain(median)
                .chain([median_ratio])
                .chain(last)
                .chain(processor);
            cells.chain([format!("{:.2}", cell.ratio(1)), cell.equal()]).collect()
        };
        text += &table(&header, &self.single.iter().map(row).collect::<Vec<_>>());
        if !self.shares.is_empty() {
            let header = [
                "% of our time, 1 thread",
                "tokenizer",
                "encoder",
                "products",
                "output layer",
                "attention",
                "others",
                "outside",
                "s",
            ];
            let row = |(search, found): &(Search, Shares)| {
                let Shares { total, tokenizer, encoder, products, output_layer, attention, others } =
                    *found;
                let parts = [
                    tokenizer,
                    encoder,
                    products,
                    output_layer,
                    attention,
                    others,
                    found.outside(),
                ];
                let title = Cell::new(*search, None).title();
                [title]
                    .into_iter()
                    .chain(parts.map(|part| format!("{:.0}", part / total * 100.0)))
                    .chain([format!("{total:.2}")])
                    .collect()
            };
            text.push('\n');
            text += &table(&header, &self.shares.iter().map(row).collect::<Vec<_>>());
        }
        if !self.quality.is_empty() {
            let row = |Quality { precision, beams, bleu: [exact, short] }: &Quality| {
                let search =
                    if *beams == 1 { "greedy".to_owned() } else { format!("{beams} beams") };
                let bleu = [*exact, *short, short - exact].map(|bleu| format!("{bleu:.2}"));
                [format!("{} {search}", precision.ours())].into_iter().chain(bleu).collect()
            };
            text.push('\n');
            text += &table(
                &["BLEU, test 2016", "exact", "shortlist", "gained"],
                &self.quality.iter().map(row).collect::<Vec<_>>(),
            );
        }
        text
    }

    /// The mean lengths of references and of translations.
    fn lengths(&self) -> String {
        if self.references.is_empty() {
            return String::new();
        }
        let mean = |texts: &[String]| format!("{:.1}", words(texts) as f64 / texts.len() as f64);
        let of_cell = |cell: &Cell| {
            let [theirs, ours] =
                [Way::CTranslate2, Way::Cognate].map(|way| mean(&cell.texts[&way]));
            format!("; CTranslate2 {theirs}, Cognate {ours} ({})", cell.title())
        };
        let cells: String = self
            .files
            .iter()
            .filter(|cell| cell.workers == Some(1) && !cell.has_shortlist)
            .map(of_cell)
            .collect();
        format!(" Words a line: references {}{cells}.", mean(&self.references))
    }

    /// The cells whose ratio of processor time is below their floor.
    fn missed(&self) -> String {
        let floors = self
            .files
            .iter()
            .map(|cell| (cell, FILES_FLOOR))
            .chain(self.single.iter().map(|cell| (cell, SINGLE_FLOOR)));
        let missed = floors.filter(|(cell, floor)| cell.ratio(1) < *floor).map(|(cell, floor)| {
            let kind = if cell.workers.is_none() { ", one sentence at a time" } else { "" };
            format!(
                "- {}{kind}: {:.2} times CTranslate2, at least {floor}\n",
                cell.title(),
                cell.ratio(1)
            )
        });
        let missed = missed.collect::<String>();
        if missed.is_empty() { missed } else { format!("Missed:\n\n{missed}\n") }
    }
}

/// All tables of all models.
pub fn text(reports: &[Report]) -> String {
    let parts: Vec<_> = reports.iter().map(Report::text).collect();
    format!("{}\n{}", Machine::here().sentence(), parts.join("\n"))
}

/// The part of the committed page.
pub fn section(reports: &[Report]) -> Section {
    Section {
        title: "Speed on text",
        introduction: INTRODUCTION.into(),
        processor: Machine::here().title,
        text: text(reports),
    }
}

const INTRODUCTION: &str =
    "The first lines of Multi30k's English training text, text in and text out, tokenizers included, batches of 2,048 source
tokens of CTranslate2 and of Cognate's default (2,048 tokens, with beams 3,072, those of all beams), by the bundled model (2.36 million parameters) and by a model of OPUS-MT's shape (Marian-base, 58,101 tokens) with random
weights, whose translations have about as many tokens as the references (many are parts of words). CTranslate2 has the same
checkpoints, converted by its own loader, and Hugging Face's tokenizer. The two take turns. Whole processes count from start to end, start-up included; sentences one at a time go through warm programs on one thread.
Seconds are the least of the rounds, *processor* the time on processors, which other programs on the machine hardly change; ratios
are CTranslate2's time over ours. *Equal* counts equal translations. *Shortlist* is one that `cognate shortlist` makes of the training
text, the same file on both sides (`use_vmap` of CTranslate2).

Shares of our time are of a warm translator on one thread: *products* are those of the decoder, the *output layer* is with the search
for the best tokens, *others* are what stands between in the decoder, *outside* is what no graph does: batches, beams, and the engine.

`cargo xtask bench text --write` measures again, and writes the part of the processor that it runs on.
";
