//! A bar on a terminal: how far, what loss, how fast, how long still.

use crate::amounts;
use cognate_train::Progress;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::Instant;

/// Seen only where standard error is a terminal.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    start: Instant,
    tokens: u64,
    /// A mean of the losses, the last ones weighing most.
    loss: Option<f64>,
    /// Updates made before this part of the run.
    first: u64,
}

/// Steps of the bar.
const STEPS: f64 = 10_000.0;
/// How much of the mean of the losses stays at an update.
const STAYS: f64 = 0.98;

impl Bar {
    pub(super) fn new(quiet: bool, first: u64) -> Self {
        let bar = (!quiet && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(STEPS as u64), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("[{elapsed}] {bar:20} {percent}%, {eta} left: {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, start: Instant::now(), tokens: 0, loss: None, first }
    }

    pub(super) fn update(&mut self, progress: &Progress) {
        self.tokens += progress.tokens;
        let loss = self.loss.map_or(progress.loss, |mean| mean * STAYS + progress.loss * (1.0 - STAYS));
        self.loss = Some(loss);
        let Some(bar) = &self.bar else { return };
        if progress.update == self.first + 1 {
            // What was done before is not this part's speed.
            bar.set_position((progress.share.unwrap_or_default() * STEPS) as u64);
            bar.reset_eta();
        }
        bar.set_position((progress.share.unwrap_or_default() * STEPS) as u64);
        let speed = self.tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        let [update, epoch, speed] = [progress.update as usize, progress.epoch as usize + 1, speed as usize].map(amounts::thousands);
        bar.set_message(format!("update {update}, epoch {epoch}, loss {loss:.3}, {speed} tokens/s"));
    }

    /// Does what writes to the terminal while the bar is out of the way.
    pub(super) fn suspend(&self, work: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(work),
            None => work(),
        }
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
