//! The rows of the tables of decoding and training: the answers of one program.

use anyhow::{Result, ensure};

use crate::driver::{Answer, Greeting};
use crate::statistics::Summary;

/// The answers of one program, by column.
#[derive(Debug)]
pub struct Row<W> {
    /// The program and its model.
    pub way: W,
    pub engine: String,
    /// Resident memory before the model was loaded, and the highest so far.
    pub base_bytes: u64,
    pub peak_bytes: u64,
    pub answers: Vec<Vec<Answer>>,
}

impl<W> Row<W> {
    pub fn new(way: W, greeting: &Greeting, columns: usize) -> Row<W> {
        let Greeting { engine, base_bytes, .. } = greeting.clone();
        Row { way, engine, base_bytes, peak_bytes: 0, answers: vec![Vec::new(); columns] }
    }

    /// Adds the answer of a round; round 0 warms up and counts for memory only.
    pub fn add(&mut self, round: u32, column: usize, answer: Answer) {
        self.peak_bytes = self.peak_bytes.max(answer.peak_bytes);
        if round > 0 {
            self.answers[column].push(answer);
        }
    }

    fn speeds(&self, column: usize) -> impl Iterator<Item = f64> {
        self.answers[column].iter().map(|answer| answer.tokens as f64 / answer.seconds)
    }

    /// Tokens per second.
    pub fn speed(&self, column: usize) -> Summary {
        Summary::of(self.speeds(column))
    }

    /// Tokens per second as a cell of a table: `125 (62-250)`.
    pub fn speed_cell(&self, column: usize) -> String {
        let Summary { median, min, max } = self.speed(column);
        format!("{median:.0} ({min:.0}-{max:.0})")
    }

    /// The ratio of the speed to a peer's: the median over the rounds in which both ran, because
    /// the load of the machine changes from round to round.
    pub fn ratio(&self, peer: &Self, column: usize) -> f64 {
        Summary::of(self.speeds(column).zip(peer.speeds(column)).map(|(own, peer)| own / peer))
            .median
    }

    /// The median share of the time outside of the engine's sessions as a cell of a table, if the
    /// program reports it.
    pub fn outside(&self, column: usize) -> Option<String> {
        let shares = self.answers[column]
            .iter()
            .map(|answer| Some(1.0 - answer.seconds_in_graph? / answer.seconds));
        Some(format!("{:.1}%", 100.0 * Summary::of(shares.collect::<Option<Vec<_>>>()?).median))
    }
}

/// A sentence with all engines.
pub fn engines<'r, W: 'r>(rows: impl IntoIterator<Item = &'r Row<W>>) -> String {
    let mut engines: Vec<&str> = Vec::new();
    for row in rows {
        if !engines.contains(&row.engine.as_str()) {
            engines.push(&row.engine);
        }
    }
    format!("Ran in {}.\n", engines.join(", "))
}

/// `1 thread`, `2 threads`.
pub fn threads(count: usize) -> String {
    if count == 1 { "1 thread".into() } else { format!("{count} threads") }
}

/// Whether a name is among the chosen ones; no choice means all.
pub fn is_chosen(chosen: &[String], name: &str) -> bool {
    chosen.is_empty() || chosen.iter().any(|other| other == name)
}

/// Prints missed bounds, or fails with them unless they are allowed.
pub fn judge(missed: &[String], is_allowed: bool) -> Result<()> {
    let text = format!("bounds missed:\n{}", missed.join("\n"));
    ensure!(missed.is_empty() || is_allowed, "{text}");
    if !missed.is_empty() {
        println!("{text}");
    }
    Ok(())
}
