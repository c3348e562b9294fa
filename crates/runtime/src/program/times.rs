//! Times of the parts of programs, for measurements.

use super::{Program, Step};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Times of all programs of this process, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Programs that neither write caches nor compute logits.
    pub encoder: Duration,
    /// Products of the others, except for the output layer.
    pub products: Duration,
    /// The output layer, with the search for the best tokens.
    pub output_layer: Duration,
    /// Attention.
    pub attention: Duration,
    /// Operations in between: sums, normalisations, activations, embeddings.
    pub others: Duration,
}

static IS_ON: AtomicBool = AtomicBool::new(false);
/// Nanoseconds in the order of the fields.
static SPENT: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// Starts measuring, from zero.
pub fn start_times() {
    SPENT.iter().for_each(|spent| spent.store(0, Relaxed));
    IS_ON.store(true, Relaxed);
}

/// The times since the start.
pub fn times() -> Times {
    let [encoder, products, output_layer, attention, others] =
        SPENT.each_ref().map(|spent| Duration::from_nanos(spent.load(Relaxed)));
    Times { encoder, products, output_layer, attention, others }
}

/// Runs a step of a program and measures it, if measuring is on.
#[inline]
pub(super) fn timed<T>(program: &Program, step: &Step, run: impl FnOnce() -> T) -> T {
    if !IS_ON.load(Relaxed) {
        return run();
    }
    let start = Instant::now();
    let made = run();
    SPENT[kind(program, step)].fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
    made
}

fn kind(program: &Program, step: &Step) -> usize {
    let is_decoder =
        |step: &Step| matches!(step, Step::Cached(_) | Step::Grown(_) | Step::Output(_));
    match step {
        _ if !program.steps.iter().any(is_decoder) => 0,
        Step::Product { .. } | Step::FeedForward(_) => 1,
        Step::Output(_) => 2,
        Step::Cached(_) | Step::Memory(_) | Step::SelfAttention(_) | Step::Grown(_) => 3,
        Step::Rows(_)
        | Step::Rotation(_)
        | Step::Gate(_)
        | Step::Heads(_)
        | Step::Divided(_)
        | Step::Convolutions(_)
        | Step::Embedding(_)
        | Step::Largest(_) => 4,
    }
}
