//! Where a run computes, what it begins as, tells on its way, and comes to.

use std::path::Path;

use cognate_runtime::{Device, Runtime};

use super::log::{Stretch, Validation};
use crate::ranks::{Alone, Ranks};

/// Where a run computes.
#[derive(Clone, Copy)]
pub struct Machine<'r> {
    /// The engine.
    pub runtime: &'r dyn Runtime,
    /// What it computes on.
    pub device: Device,
    /// The processes that share the work. If there are several, each computes in one thread unless
    /// `threads` says otherwise.
    pub ranks: &'r dyn Ranks,
}

impl<'r> Machine<'r> {
    /// This process by itself.
    pub fn alone(runtime: &'r dyn Runtime, device: Device) -> Self {
        Self { runtime, device, ranks: &Alone }
    }
}

/// Whether a run begins or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// In a folder that is empty or does not exist.
    Fresh,
    /// With the last checkpoint in the folder, made with the same settings.
    Resume,
}

/// What happens while a run goes on.
#[derive(Clone, Copy, Debug)]
pub enum Event<'e> {
    /// An update was made.
    Update(&'e Progress),
    /// A stretch of updates is over, and stands in the log.
    Logged(&'e Stretch),
    /// The held-out text was validated at.
    Validated(&'e Validation),
    /// A checkpoint was saved in this folder.
    Saved(&'e Path),
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Updates so far.
    pub update: u64,
    /// The epoch, from 1.
    pub epoch: u64,
    /// The smoothed loss of a label in the last update.
    pub loss: f64,
    /// Target tokens of the last update.
    pub tokens: u64,
    /// The share of the run that is over, by the nearest limit: 0 to 1. `None` where only patience
    /// ends it.
    pub share: Option<f64>,
}

/// Why a run ended.
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
    /// The observer, of any rank.
    Stopped,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub ending: Ending,
    /// Updates so far.
    pub updates: u64,
    /// The update whose model is the result, and its loss a label or BLEU; `None` without held-out
    /// text.
    pub best: Option<(u64, f64)>,
    /// The validation of the mean of checkpoints, where that is the result.
    pub averaged: Option<Validation>,
}
