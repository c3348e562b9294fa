//! Training: corpora, batches, training graphs that any engine runs, and the training loop.
//!
//! - [`Corpus`]: parallel files, checked, cleaned and indexed; memory use does not grow with the
//!   text.
//! - [`train_tokenizers`]: trains the tokenizers of a corpus.
//! - [`Batches`]: token-budget batches in seeded order, [`Prefetch`]ed by a thread, resumed at any
//!   [`Position`].
//! - [`config::TrainingConfig`]: the settings file; one error reports all its problems.
//! - [`gradients`] extends a loss graph with the gradients `gradient.PATH` of all learned weights, and
//!   [`gradients_in_half`] with those of layers in f16; [`Optimiser::update`] is the graph from
//!   gradients and state to the new state. Gradients can be summed over batches and processes in
//!   between. [`training_step`] is both in one graph, for other programs.
//! - [`Trainer`]: the training loop with validation, checkpoints and a log, in one process or
//!   several [`Ranks`]; [`EventFile`] repeats the log for TensorBoard, and [`grid`] makes one run
//!   for each combination of settings.

mod batches;
pub mod config;
mod corpus;
mod error;
mod gradients;
mod grid;
mod left_out;
mod optimiser;
mod prefetch;
mod ranks;
mod tensorboard;
mod tokenizers;
mod trainer;
mod training_step;

pub use batches::{
    Arrays, BatchSettings, Batches, Framing, IGNORED, Position, TrainingBatch, shard,
};
pub use corpus::{Cleaning, Corpus, Dropped, Files, Pair, Place};
pub use error::{Error, ErrorKind, Result};
pub use gradients::{LOSS_SCALE, gradients, gradients_in_half};
pub use grid::{GridAxis, GridRun, grid};
pub use left_out::LeftOut;
pub use optimiser::{Optimiser, Rule, UpdateNames};
pub use prefetch::Prefetch;
pub use ranks::{Alone, Ranks};
pub use tensorboard::EventFile;
pub use tokenizers::{TokenizerChoice, Tokenizers, train_tokenizers};
pub use trainer::{
    Averaged, Beginning, Ending, Event, LogLine, Machine, Outcome, Progress, Stretch, Trainer,
    Validation, read_log,
};
pub use training_step::training_step;
