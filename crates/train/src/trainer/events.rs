//! The machine, start, events and outcome of a run.

use std::path::Path;

use cognate_runtime::{Device, Runtime};
use serde::{Deserialize, Deserializer, Serialize};

use crate::left_out::LeftOut;
use crate::ranks::{Alone, Ranks};

/// The engine, the device and the processes of a run.
#[derive(Clone, Copy)]
pub struct Machine<'r> {
    /// The engine.
    pub runtime: &'r dyn Runtime,
    /// The device of the engine.
    pub device: Device,
    /// The processes that share the work. If there are several, each uses one thread unless
    /// `threads` is set.
    pub ranks: &'r dyn Ranks,
}

impl<'r> Machine<'r> {
    /// A single process.
    pub fn alone(runtime: &'r dyn Runtime, device: Device) -> Self {
        Self { runtime, device, ranks: &Alone }
    }
}

/// Whether a run starts or resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// In a folder that is empty or does not exist.
    Fresh,
    /// From the last checkpoint in the folder, made with the same settings.
    Resume,
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// An update was made.
    Update(&'e Progress),
    /// A stretch of updates is complete and in the log.
    Logged(&'e Stretch),
    /// The validation set was evaluated.
    Validated(&'e Validation),
    /// A checkpoint was saved in this folder.
    Saved(&'e Path),
    /// The first epoch ended; these pairs of it were in no batch of this process.
    LeftOut(&'e LeftOut),
}

/// The progress of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Number of updates so far.
    pub update: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The smoothed loss per label of the last update.
    pub loss: f64,
    /// Number of target tokens of the last update.
    pub tokens: u64,
    /// The completed share of the run by the nearest limit, 0 to 1; `None` if only patience ends
    /// it.
    pub share: Option<f64>,
}

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `schedule.max_updates`.
    Updates,
    /// `schedule.max_epochs`.
    Epochs,
    /// `schedule.max_minutes`.
    Minutes,
    /// `schedule.patience`.
    Patience,
    /// The observer of any rank.
    Stopped,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The reason why it ended.
    pub ending: Ending,
    /// Number of updates.
    pub updates: u64,
    /// The update whose model is the result, and its loss per label or BLEU; `None` without a
    /// validation set.
    pub best: Option<(u64, f64)>,
    /// The average of checkpoints, if that is the result.
    pub averaged: Option<Averaged>,
}

/// An average of checkpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Averaged {
    /// Number of checkpoints.
    pub checkpoints: usize,
    /// Its validation; `None` without a validation set.
    pub validation: Option<Validation>,
}

/// A line of the log about a stretch of updates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stretch {
    /// Number of updates so far.
    pub update: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The smoothed loss per label, averaged over the stretch.
    pub loss: f64,
    /// The loss without smoothing: the logarithm of the perplexity.
    pub nll: f64,
    /// The learning rate of the last update.
    pub learning_rate: f64,
    /// The norm of all gradients of the last update, before clipping.
    pub gradient_norm: f64,
    /// Target tokens per second, without padding.
    pub tokens_per_second: f64,
    /// The share of the time spent in the engine, 0 to 1.
    pub engine_share: f64,
    /// Seconds of training so far, including those before a resume.
    pub seconds: f64,
}

/// A line of the log about a validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Number of updates so far.
    pub update: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The smoothed loss per label.
    pub valid_loss: f64,
    /// The loss without smoothing.
    pub valid_nll: f64,
    /// `e` to the power of `valid_nll`; `null` in the log if it is infinite.
    #[serde(deserialize_with = "infinite_if_null")]
    pub perplexity: f64,
    /// BLEU of the translations, 0 to 100, if it is the metric.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bleu: Option<f64>,
    /// Whether it is better than all previous ones.
    pub best: bool,
    /// Seconds of training so far.
    pub seconds: f64,
}

/// JSON has no infinity: serde_json writes it as `null`.
fn infinite_if_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Option::deserialize(deserializer).map(|number| number.unwrap_or(f64::INFINITY))
}
