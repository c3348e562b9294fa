//! The table of `cargo xtask bench transcribe`.

use crate::machine::Machine;
use crate::measure::transcribe::Answer;
use crate::record::Section;
use crate::rows::threads;
use crate::statistics::{Bound, Summary};
use crate::text::Precision;
use cognate_text::{ErrorRateSettings, Metric, Spelling};
use xtask::table::table;

/// Minimum ratio of faster-whisper's time to Cognate's.
pub const SPEED: Bound = Bound::AtLeast(1.3);
/// Maximum ratio of Cognate's memory to faster-whisper's.
pub const MEMORY: Bound = Bound::AtMost(0.5);

/// Both programs on the same files.
#[derive(Debug)]
pub struct Cell {
    pub precision: Precision,
    pub threads: usize,
    pub batch: usize,
    pub beams: usize,
    /// faster-whisper's and Cognate's, in this order also below.
    pub engines: [String; 2],
    pub answers: [Vec<Answer>; 2],
}

impl Cell {
    pub fn title(&self) -> String {
        let search =
            if self.beams == 1 { "greedy".to_owned() } else { format!("{} beams", self.beams) };
        let windows = if self.batch == 1 {
            "in turn".to_owned()
        } else {
            format!("batches of {}", self.batch)
        };
        format!("{}, {search}, {windows}, {}", self.precision.ours(), threads(self.threads))
    }

    /// Seconds of audio per second of wall time.
    pub fn speeds(&self) -> [f64; 2] {
        self.answers.each_ref().map(|rounds| {
            Summary::of(rounds.iter().map(|answer| answer.audio_seconds / answer.seconds)).median
        })
    }

    /// The ratio of faster-whisper's processor time to Cognate's: the median of the rounds.
    pub fn ratio(&self) -> f64 {
        let [theirs, ours] = &self.answers;
        Summary::of(
            theirs
                .iter()
                .zip(ours)
                .map(|(theirs, ours)| theirs.processor_seconds / ours.processor_seconds),
        )
        .median
    }

    /// The highest memory in bytes.
    pub fn memory(&self) -> [u64; 2] {
        self.answers
            .each_ref()
            .map(|rounds| rounds.iter().map(|answer| answer.peak_bytes).max().unwrap_or_default())
    }

    /// The ratio of Cognate's memory to faster-whisper's.
    pub fn memory_ratio(&self) -> f64 {
        let [theirs, ours] = self.memory();
        ours as f64 / theirs as f64
    }

    /// The word error rate of Cognate's texts in percent, with faster-whisper's as references;
    /// `NaN` without texts.
    pub fn difference(&self) -> f64 {
        let [theirs, ours] = self
            .answers
            .each_ref()
            .map(|rounds| rounds.last().map_or(&[][..], |answer| &answer.texts));
        let metric = Metric::ErrorRate(ErrorRateSettings {
            spelling: Spelling::Basic,
            ..ErrorRateSettings::default()
        });
        metric.statistics(ours, &[theirs]).map_or(f64::NAN, |statistics| statistics.score().value())
    }
}

#[derive(Debug, Default)]
pub struct Report {
    pub rounds: u32,
    /// Whether the model has the shape of Whisper base, and random weights.
    pub is_base: bool,
    pub cells: Vec<Cell>,
}

impl Report {
    /// The table.
    pub fn text(&self) -> String {
        let machine = Machine::here();
        let header = [
            "",
            "audio s/s: faster-whisper",
            "Cognate",
            "ratio of processor time",
            "MB: faster-whisper",
            "Cognate",
            "ratio",
            "words that differ",
        ];
        let row = |cell: &Cell| {
            let speeds = cell.speeds().map(|speed| format!("{speed:.1}"));
            let memory = cell.memory().map(|bytes| format!("{:.0}", bytes as f64 / 1e6));
            let cells = [cell.title()]
                .into_iter()
                .chain(speeds)
                .chain([SPEED.cell(cell.ratio())])
                .chain(memory);
            cells
                .chain([MEMORY.cell(cell.memory_ratio()), format!("{:.1}%", cell.difference())])
                .collect()
        };
        let engines = self.cells.first().map(|cell| cell.engines.join(" and ")).unwrap_or_default();
        let audio = self
            .cells
            .first()
            .and_then(|cell| Some(cell.answers[1].first()?.audio_seconds))
            .unwrap_or_default();
        let table = table(&header, &self.cells.iter().map(row).collect::<Vec<_>>());
        format!(
            "{}{} of {audio:.0} s of audio by {engines}.\n\n{table}",
            machine.sentence(),
            if self.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", self.rounds) }
        )
    }

    /// The part of the committed page.
    pub fn section(&self) -> Section {
        let (title, introduction) = match self.is_base {
            true => {
                ("Speed of transcription by a model of Whisper base's shape", BASE_INTRODUCTION)
            }
            false => ("Speed of transcription", INTRODUCTION),
        };
        Section {
            title,
            introduction: introduction.into(),
            processor: Machine::here().title,
            text: self.text(),
        }
    }

    /// The missed bounds.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        for cell in &self.cells {
            for (name, bound, ratio) in
                [("time", SPEED, cell.ratio()), ("memory", MEMORY, cell.memory_ratio())]
            {
                if !bound.is_kept(ratio) {
                    missed.push(format!(
                        "{}: ratio of {name} {}, expected {}",
                        cell.title(),
                        bound.shown(ratio),
                        bound.words()
                    ));
                }
            }
        }
        missed
    }
}

const BASE_INTRODUCTION: &str =
    "As under *Speed of transcription*, by seeded random weights that give as many tokens as are allowed for each window: texts say nothing, and differ. In f32 the
weights alone are 290 MB.

`cargo xtask bench transcribe --model DIR FILE... --base --new-tokens 100 --write` measures again, with vocabulary and tokenizer of the
Whisper checkpoint in DIR.
";

const INTRODUCTION: &str =
    "Speech to text by a Whisper checkpoint at temperature 0, each window by itself, compared with faster-whisper on CTranslate2's
conversion of the same checkpoint, in the same run. Both programs are warm, bound to as many processors as threads, and run in turn.
Windows in turn follow timestamps; batches of windows are cut in pauses and have no timestamps. Ratios are of faster-whisper's time on
processors to Cognate's, the median of the rounds, and of Cognate's peak memory to faster-whisper's; bold ratios miss their bound.
*Words that differ* is the word error rate of Cognate's texts if faster-whisper's were right.

`cargo xtask bench transcribe --model DIR FILE... --write` measures again and writes the part of the processor that it runs on.
";
