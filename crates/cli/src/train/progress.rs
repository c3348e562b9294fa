//! The progress of a training run: a bar on a terminal, otherwise a line every `log_every` updates.

use crate::{amounts, messages};
use cognate_train::{Progress, Stretch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::{Duration, Instant};

/// The progress of a run.
pub(super) struct Bar {
    bar: Option<ProgressBar>,
    quiet: bool,
    start: Instant,
    tokens: u64,
    /// The loss of the last line of the log.
    loss: Option<f64>,
    /// The completed share of the run at the start and now.
    shares: [f64; 2],
    /// Updates before a resumption.
    first: u64,
}

/// Steps of the bar.
const STEPS: f64 = 10_000.0;

impl Bar {
    pub(super) fn new(quiet: bool, first: u64) -> Self {
        let bar = (!quiet && messages::shows_progress()).then(|| {
            let bar =
                ProgressBar::with_draw_target(Some(STEPS as u64), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{bar:10} {percent}% {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, quiet, start: Instant::now(), tokens: 0, loss: None, shares: [0.0; 2], first }
    }

    /// Shows an update.
    pub(super) fn update(&mut self, progress: &Progress) {
        self.tokens += progress.tokens;
        self.shares[1] = progress.share.unwrap_or_default();
        if progress.update == self.first + 1 {
            self.shares[0] = self.shares[1];
        }
        let Some(bar) = &self.bar else { return };
        bar.set_position((self.shares[1] * STEPS) as u64);
        let speed = self.tokens as f64 / self.start.elapsed().as_secs_f64().max(1e-3);
        let [update, speed] = [progress.update as usize, speed as usize].map(amounts::thousands);
        let (epoch, loss) = (progress.epoch, self.loss.unwrap_or(progress.loss));
        bar.set_message(format!(
            "update {update}, epoch {epoch}, loss {loss:.3}, {speed} tok/s{}",
            self.left()
        ));
    }

    /// Shows a line of the log.
    pub(super) fn logged(&mut self, stretch: &Stretch) {
        self.loss = Some(stretch.loss);
        if self.quiet || self.bar.is_some() {
            return;
        }
        let Stretch { update, epoch, loss, learning_rate, tokens_per_second, .. } = *stretch;
        let [update, speed] = [update as usize, tokens_per_second as usize].map(amounts::thousands);
        messages::note(format_args!(
            "update {update}, epoch {epoch}: loss {loss:.4}, learning rate {learning_rate:.2e}, {speed} tokens/s{}",
            self.left()
        ));
    }

    /// `, 3 min 20 s left`; empty while it is unknown.
    fn left(&self) -> String {
        let [first, now] = self.shares;
        match now > first {
            true => {
                let left = self.start.elapsed().as_secs_f64() * (1.0 - now) / (now - first);
                format!(
                    ", {} left",
                    amounts::duration(Duration::from_secs_f64(left.clamp(0.0, 1e9)))
                )
            }
            false => String::new(),
        }
    }

    /// Runs `work`, which writes to the terminal, with the bar hidden.
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
