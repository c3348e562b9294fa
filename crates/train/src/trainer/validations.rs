//! Validation during a run, the best model, and the report of a diverged run.

use std::ops::ControlFlow;

use cognate_model::Model;
use cognate_runtime::Options;

use super::checkpoint::Best;
use super::events::Validation;
use super::recipes::{loss, optimiser};
use super::step::{Recipes, Step, Sums};
use super::tuning::Learned;
use super::validate::ValidationSet;
use super::{Averaged, Event, Trainer, resume};
use crate::batches::TrainingBatch;
use crate::config::Metric;
use crate::error::{Cause, Error, Result};
use crate::optimiser::Optimiser;
use crate::ranks::{agree, leads};

const FAILED_BATCH: &str = "failed_batch.json";

impl Trainer<'_> {
    /// Validates, publishes the model if it is the best, and saves a checkpoint.
    pub(super) fn validate(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let model = self.step.snapshot()?;
        self.run.validated = Some(self.run.update);
        let mut is_best = true;
        if let Some(held) = &self.held {
            let sums = held.loss(&mut self.step)?;
            let mut validation = self.judge(held, &model, sums)?;
            let value = match self.config.schedule.metric {
                Metric::Loss => validation.valid_loss,
                Metric::Bleu => validation.bleu.unwrap_or_default(),
            };
            is_best = self.run.best.is_none_or(|best| match self.config.schedule.metric {
                Metric::Loss => value < best.value,
                Metric::Bleu => value > best.value,
            });
            validation.best = is_best;
            if is_best {
                self.run.best = Some(Best { update: self.run.update, value });
                self.run.worse = 0;
            } else {
                self.run.worse += 1;
            }
            self.write_log(&validation)?;
            tell(observer, Event::Validated(&validation));
        }
        if is_best && leads(self.machine.ranks) {
            self.output.publish(&model, &self.start)?;
        }
        self.save_model(&model, observer)
    }

    pub(super) fn save(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let model = self.step.snapshot()?;
        self.save_model(&model, observer)
    }

    fn save_model(
        &mut self,
        model: &Model,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let ranks = self.machine.ranks;
        if leads(ranks) {
            let path = self.output.save(
                &self.run,
                model,
                &self.step,
                &self.start,
                self.config.schedule.keep_checkpoints,
            )?;
            tell(observer, Event::Saved(&path));
        }
        // Detects ranks with different weights; the other ranks also wait here for the checkpoint.
        agree(ranks, "weights", || self.step.hash())?;
        Ok(())
    }

    /// The validation of `model`, whose losses are `sums`; includes BLEU if it is the metric.
    fn judge(&self, held: &ValidationSet, model: &Model, sums: Sums) -> Result<Validation> {
        let bleu = match self.config.schedule.metric {
            Metric::Bleu => {
                let (beams, machine) = (self.config.schedule.beams, self.machine);
                let decoding = Options { training: false, in_bf16: false, ..self.options };
                Some(held.bleu(model, &self.start, beams, machine, &decoding)?)
            }
            Metric::Loss => None,
        };
        let labels = sums.tokens.max(1) as f64;
        let (valid_loss, valid_nll) = (sums.loss / labels, sums.nll / labels);
        let (update, epoch, seconds) =
            (self.run.update, self.run.position.last_epoch(), self.run.seconds);
        if !valid_loss.is_finite() {
            let (value, kept) = (valid_loss, self.last_saved());
            Err(Cause::DivergedInValidation { update, value, kept })?;
        }
        Ok(Validation {
            update,
            epoch,
            valid_loss,
            valid_nll,
            perplexity: valid_nll.exp(),
            bleu,
            best: false,
            seconds,
        })
    }

    /// Publishes the average of the last checkpoints if the settings say so.
    pub(super) fn average(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Averaged>> {
        let n = self.config.schedule.average_checkpoints;
        if n < 2 {
            return Ok(None);
        }
        let checkpoints = self.output.checkpoints()?;
        let last = &checkpoints[checkpoints.len().saturating_sub(n)..];
        let models =
            last.iter().map(|(_, folder)| Model::open(folder)).collect::<Result<Vec<_>, _>>()?;
        let Some(model) = resume::mean(&models)? else { return Ok(None) };
        let mut validation = None;
        if let Some(held) = &self.held {
            let recipes = Recipes {
                model: &model,
                learned: Learned::all(&model),
                loss: loss(&self.config),
                optimiser: Optimiser { average: None, ..optimiser(&self.config) },
                in_blocks: false,
                in_half: false,
            };
            let sums = held.loss(&mut Step::new(
                &recipes,
                self.machine.runtime,
                &self.options,
                self.machine.ranks,
            )?)?;
            validation = Some(self.judge(held, &model, sums)?);
        }
        if let Some(validation) = &validation {
            self.write_log(validation)?;
            tell(observer, Event::Validated(validation));
        }
        if leads(self.machine.ranks) {
            self.output.publish(&model, &self.start)?;
        }
        Ok(Some(Averaged { checkpoints: models.len(), validation }))
    }

    /// Saves the batch of a diverged run and returns the error.
    pub(super) fn diverged(&self, what: &'static str, value: f64, batch: &TrainingBatch) -> Error {
        let update = self.step.updates().max(self.run.update);
        let (arrays, lines) = (
            batch.arrays(),
            batch.places().map(|place| self.corpus.name(place)).collect::<Vec<_>>(),
        );
        let rows = |array: &ndarray::Array2<i64>| {
            array.rows().into_iter().map(|row| row.to_vec()).collect::<Vec<_>>()
        };
        let content = serde_json::json!({
            "update": update, "position": batch.position(), "lines": lines,
            "input_ids": rows(&arrays.input_ids), "decoder_input_ids": rows(&arrays.decoder_input_ids), "labels": rows(&arrays.labels),
        });
        let written = if leads(self.machine.ranks) {
            self.output.write(FAILED_BATCH, &format!("{content:#}\n"))
        } else {
            Ok(())
        };
        let file = match written {
            Ok(()) => self.output.path().join(FAILED_BATCH).display().to_string(),
            Err(error) => format!("nothing ({error})"),
        };
        Cause::Diverged { update, what, value, file, kept: self.last_saved() }.into()
    }

    /// Says which state a diverged run can continue from.
    fn last_saved(&self) -> String {
        match self.output.checkpoints().ok().and_then(|mut checkpoints| checkpoints.pop()) {
            Some((update, _)) => format!("the state of update {update} is kept"),
            None => "no state was saved before".to_owned(),
        }
    }
}

/// Sends an event whose answer is ignored; the next update's counts.
pub(super) fn tell(observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>, event: Event<'_>) {
    let _asked_later = observer(event);
}
