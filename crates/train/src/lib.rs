//! Training: from parallel text to batches of ids, and the step as two graphs that any engine executes.
//!
//! - [`Corpus`]: parallel files, checked, cleaned and indexed; memory does not grow with the text.
//! - [`train_tokenizers`]: the tokenizers of a corpus, made on the spot.
//! - [`Batches`]: token-budget batches in seeded order, [`Prefetch`]ed by a thread, resumed at any [`Position`].
//! - [`config::TrainingConfig`]: what a training file says, with every problem of it in one error.
//! - [`gradients`] makes of a loss graph one that gives `loss` and `gradient.PATH` of every learned weight; [`Optimiser::update`] is the
//!   graph that takes gradients and state and gives the new state. Between the two, gradients may be summed: over batches, over
//!   processes. [`training_step`] is both in one graph, for other programs.
//! - [`Trainer`]: the loop over all of these, with validation, checkpoints and a log, in one process or in several [`Ranks`].

mod batches;
pub mod config;
mod corpus;
mod error;
mod gradients;
mod left_out;
mod optimiser;
mod prefetch;
mod ranks;
mod tokenizers;
mod trainer;
mod training_step;

pub use batches::{Arrays, BatchSettings, Batches, Framing, IGNORED, Position, Survey, TrainingBatch, shard, survey};
pub use corpus::{Cleaning, Corpus, Dropped, Files, Pair, Place};
pub use error::{Error, ErrorKind, Result};
pub use gradients::gradients;
pub use left_out::LeftOut;
pub use optimiser::{Optimiser, Rule, UpdateNames, accumulate, inverse_square_root, paper_rate};
pub use prefetch::Prefetch;
pub use ranks::{Alone, Ranks};
pub use tokenizers::{TokenizerChoice, Tokenizers, train_tokenizers};
pub use trainer::{Beginning, Ending, Event, LogLine, Machine, Outcome, Progress, Stretch, Trainer, Validation, read_log};
pub use training_step::training_step;
