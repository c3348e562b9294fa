//! The progress bar of a translation.

use crate::{amounts, messages};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// The progress of a run, shown if standard error is a terminal.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    /// The size of the input, if it is known.
    total: Option<u64>,
    bytes: u64,
    sentences: usize,
    tokens: usize,
    start: Instant,
}

const REDRAWN: Duration = Duration::from_millis(200);

impl Progress {
    /// Starts without a bar; `total` is the size of the input in bytes.
    pub(crate) fn new(total: Option<u64>) -> Self {
        Self { bar: None, total, bytes: 0, sentences: 0, tokens: 0, start: Instant::now() }
    }

    /// Shows the bar.
    pub(crate) fn show(&mut self) {
        if self.bar.is_some() || !messages::shows_progress() {
            return;
        }
        let bar = ProgressBar::with_draw_target(self.total, ProgressDrawTarget::stderr());
        let template = match self.total {
            Some(_) => "{bar:10} {percent}% {msg}",
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.enable_steady_tick(REDRAWN);
        self.bar = Some(bar);
    }

    /// Counts translated sentences, tokens of their translations, and bytes of their lines with
    /// line ends.
    pub(crate) fn add(&mut self, sentences: usize, tokens: usize, bytes: usize) {
        self.sentences += sentences;
        self.tokens += tokens;
        self.bytes += bytes as u64;
        if let Some(bar) = &self.bar {
            // The last line can lack its end.
            bar.set_position(self.total.map_or(self.bytes, |total| total.min(self.bytes)));
            bar.set_message(self.speed() + &self.left());
        }
    }

    /// Runs `work`, which writes to the terminal, with the bar hidden.
    pub(crate) fn suspend<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(work),
            None => work(),
        }
    }

    /// Replaces the bar by a summary.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            messages::note(format_args!(
                "{} in {}",
                self.speed(),
                amounts::duration(self.start.elapsed())
            ));
        }
    }

    /// `, 3 min 20 s left`; empty while it is unknown.
    fn left(&self) -> String {
        match self.total {
            Some(total) if self.bytes > 0 => {
                let share = (self.bytes as f64 / total as f64).min(1.0);
                let left = self.start.elapsed().as_secs_f64() * (1.0 - share) / share;
                format!(", {} left", amounts::duration(Duration::from_secs_f64(left)))
            }
            _ => String::new(),
        }
    }

    fn speed(&self) -> String {
        let rate = |count: usize| count as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        let (sentences, tokens) = (rate(self.sentences), rate(self.tokens) as usize);
        let done = amounts::thousands(self.sentences);
        format!("{done} sentences, {sentences:.1}/s, {} tokens/s", amounts::thousands(tokens))
    }
}
