//! The loop: batches in, weights changed, validated and saved, until a limit, patience or the caller ends it.
//!
//! Everything that a step depends on is a function of the settings and of how many updates were made: the rate, the batches, what
//! dropout leaves out. So a run that goes on from a checkpoint gives the losses that it would have given without a break, to the
//! last bit, with the same build, engine and threads.

mod checkpoint;
mod log;
mod model;
mod rate;
mod resume;
mod step;
mod validate;

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use cognate_model::{DropoutRates, Loss, Model};
use cognate_runtime::{Device, Options, Runtime};
use cognate_text::Tokenizer;

use crate::batches::{Batch, BatchSettings, Batches};
use crate::config::{Metric, OptimiserAlgorithm, TrainingConfig};
use crate::corpus::Corpus;
use crate::error::{Cause, Error, Result};
use crate::optimiser::Adam;
use crate::tokenizers::train_tokenizers;

use checkpoint::{Best, Output, Run};
use log::Log;
pub use log::{Stretch, Validation};
use model::Start;
use step::{Recipes, Step, Sums};
use validate::Held;

/// A training run that is ready to go.
pub struct Trainer<'r> {
    config: TrainingConfig,
    output: Output,
    corpus: Arc<Corpus>,
    held: Option<Held>,
    start: Start,
    step: Step,
    run: Run,
    log: Log,
    settings: BatchSettings,
    runtime: &'r dyn Runtime,
    options: Options,
    /// When this part of the run began, and the seconds of those before.
    began: (Instant, f64),
    /// The last checkpoint of this run.
    saved: Option<PathBuf>,
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
    /// A line was added to the log.
    Logged(&'e Stretch),
    /// The held-out text was looked at.
    Validated(&'e Validation),
    /// A checkpoint was saved in this folder.
    Saved(&'e Path),
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Updates so far.
    pub update: u64,
    /// Epochs that are over.
    pub epoch: u64,
    /// The smoothed loss of a label in the last update.
    pub loss: f64,
    /// Target tokens of the last update.
    pub tokens: u64,
    /// The share of the run that is over, by the nearest limit: 0 to 1. `None` where only patience ends it.
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
    /// The observer.
    Stopped,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub ending: Ending,
    /// Updates so far.
    pub updates: u64,
    /// The update whose model is the result, and its loss a label or BLEU; `None` without held-out text.
    pub best: Option<(u64, f64)>,
    /// The validation of the mean of checkpoints, where that is the result.
    pub averaged: Option<Validation>,
}

impl<'r> Trainer<'r> {
    /// Reads and checks all that the settings name, trains or reads the tokenizer, and loads the graphs.
    ///
    /// # Errors
    /// If settings contradict each other or ask for what cannot be trained, text or checkpoint cannot be read, the folder is not
    /// empty or not writable, the engine cannot run the graphs, or a run is to go on with other settings or another text.
    pub fn new(mut config: TrainingConfig, out: &Path, beginning: Beginning, runtime: &'r dyn Runtime, device: Device) -> Result<Self> {
        config.make_paths_absolute();
        config.check()?;
        model::refuse_unbuilt(&config)?;
        let resumed = match beginning {
            Beginning::Fresh => Output::check_vacant(out).map(|()| None)?,
            Beginning::Resume => Some(Output::resume(out)?),
        };
        let text = config.to_toml()?;
        let told = serde_json::to_value(&config).map_err(|error| Cause::Config(error.to_string()))?;
        let former = resumed.as_ref().map(|(_, folder)| checkpoint::read_run(folder)).transpose()?;
        if let Some(former) = &former {
            resume::check(out, &former.config, &told)?;
        }
        let corpus = Corpus::open(&config.train_files(), &config.cleaning())?;
        let valid = (!config.valid_files().is_empty()).then(|| Corpus::open(&config.valid_files(), &config.cleaning())).transpose()?;
        if former.as_ref().is_some_and(|former| former.corpus != corpus.fingerprint()) {
            Err(Cause::Config(format!("{}: data.train: the text has changed since the run began; start another one", out.display())))?;
        }
        let start = match (&resumed, &config.model.init, &config.tokenizer.from) {
            (Some((_, folder)), _, _) => Start::checkpoint(folder)?,
            (None, Some(init), _) => Start::checkpoint(init)?,
            (None, None, Some(folder)) => Start::fresh(&config, Tokenizer::from_folder(folder)?, model::tokenizer_files(folder)?)?,
            (None, None, None) => {
                let tokenizers = train_tokenizers(&corpus, &config.tokenizer_choice())?;
                let files = tokenizers.files(config.model.max_positions).into_iter();
                let files = files.map(|(name, text)| (name.to_owned(), text.into_bytes())).collect();
                Start::fresh(&config, tokenizers.tokenizer(), files)?
            }
        };
        if let Some(positions) = start.model.config().max_positions {
            config.model.max_positions = positions;
        }
        let settings = config.batch_settings(start.framing.clone());
        let tokenizer = Arc::new(start.tokenizer.clone());
        let longest = start.model.config().max_positions.unwrap_or(usize::MAX).min(config.data.max_tokens);
        let held = valid.map(|corpus| Held::new(corpus, &tokenizer, settings.clone(), longest)).transpose()?;
        let options = Options { device, threads: config.threads.and_then(NonZeroUsize::new), ..Options::default() };
        let recipes = Recipes { model: &start.model, loss: loss(&config), adam: adam(&config) };
        let mut step = Step::new(&recipes, runtime, &options)?;
        let fresh = Run::new(told, corpus.fingerprint());
        let (output, run) = match (resumed, former) {
            (Some((output, folder)), Some(former)) => {
                checkpoint::restore(&folder, &former, &mut step)?;
                (output, Run { config: fresh.config, ..former })
            }
            _ => (Output::create(out)?, fresh),
        };
        let log = Log::open(output.path(), run.update)?;
        std::fs::write(output.path().join("training.toml"), text).map_err(|error| output.problem(error.to_string()))?;
        let began = (Instant::now(), run.seconds);
        let corpus = Arc::new(corpus);
        Ok(Self { config, output, corpus, held, start, step, run, log, settings, runtime, options, began, saved: None })
    }

    /// What executes.
    pub fn engine(&self) -> &str {
        self.step.engine()
    }

    /// The model as it began.
    pub fn model(&self) -> &Model {
        &self.start.model
    }

    /// The text.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// Updates so far.
    pub fn updates(&self) -> u64 {
        self.run.update
    }

    /// Trains until a limit is reached, or the observer breaks off: then the state is saved, too.
    ///
    /// # Errors
    /// If the text cannot be read any more, the engine fails, a checkpoint cannot be saved (the one before it stays), or the loss
    /// is no number any more: the batch is then saved and named.
    pub fn run(&mut self, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<Outcome> {
        let tokenizer = Arc::new(self.start.tokenizer.clone());
        let batches = Batches::new(Arc::clone(&self.corpus), tokenizer, self.settings.clone(), self.run.position)?;
        let mut batches = batches.prefetched(self.config.data.prefetch);
        let mut unlogged = Unlogged::of(self.run.unlogged);
        // Where the last validation or checkpoint was.
        let mut looked = self.run.update;
        let ending = loop {
            if let Some(ending) = self.is_over() {
                break ending;
            }
            let (sums, norm) = self.update(&mut batches)?;
            unlogged.sums += sums;
            unlogged.since_log += sums.tokens;
            let update = self.run.update;
            if update.is_multiple_of(self.config.schedule.log_every) {
                let stretch = self.stretch(&mut unlogged, norm);
                self.log.write(&stretch)?;
                tell(observer, Event::Logged(&stretch));
            }
            self.run.unlogged = unlogged.bits();
            let (loss, tokens) = (sums.loss / sums.tokens.max(1) as f64, sums.tokens);
            let progress = Progress { update, epoch: self.run.position.epoch, loss, tokens, share: self.share() };
            let stopped = observer(Event::Update(&progress)).is_break();
            if !stopped && update.is_multiple_of(self.config.schedule.validate_every) {
                looked = update;
                self.look(observer)?;
                // Validations do not count as training.
                unlogged.clock = Instant::now();
                unlogged.since_log = 0;
                self.step.take_computed();
            }
            if stopped {
                break Ending::Stopped;
            }
        };
        if looked != self.run.update {
            match ending {
                Ending::Stopped => self.save(observer)?,
                _ => self.look(observer)?,
            }
        }
        if !self.output.has_model() {
            let model = self.step.snapshot()?;
            self.output.publish(&model, &self.start)?;
        }
        let averaged = if ending == Ending::Stopped { None } else { self.average(observer)? };
        let best = self.run.best.map(|best| (best.update, best.value));
        Ok(Outcome { ending, updates: self.run.update, best, averaged })
    }

    /// One update: the batches whose gradients are summed for it, and the change of the weights.
    fn update(&mut self, batches: &mut impl Iterator<Item = Result<Batch>>) -> Result<(Sums, f64)> {
        let (mut sums, update) = (Sums::default(), self.run.update + 1);
        let mut last = None;
        for micro in 0..self.config.optimiser.accumulation {
            let batch = batches.next().ok_or_else(|| Cause::Engine("batches ended".into()))??;
            let found = self.step.accumulate(&batch.arrays(), dropout_seed(self.config.seed, update, micro))?;
            if !found.loss.is_finite() {
                return Err(self.diverged("the loss", found.loss, &batch));
            }
            sums += found;
            last = Some(batch);
        }
        let batch = last.expect("accumulation is at least 1");
        let norm = self.step.update(rate::rate(&self.config, self.start.model.config().d_model, update))?;
        self.run.update = update;
        if !norm.is_finite() {
            return Err(self.diverged("the norm of the gradients", norm, &batch));
        }
        self.run.position = batch.next_position();
        self.run.seconds = self.began.1 + self.began.0.elapsed().as_secs_f64();
        debug_assert_eq!(self.step.updates(), update);
        Ok((sums, norm))
    }

    fn is_over(&self) -> Option<Ending> {
        let (schedule, run) = (&self.config.schedule, &self.run);
        if schedule.max_updates.is_some_and(|most| run.update >= most) {
            Some(Ending::Updates)
        } else if schedule.max_epochs.is_some_and(|most| run.position.epoch >= most) {
            Some(Ending::Epochs)
        } else if schedule.max_minutes.is_some_and(|most| run.seconds >= 60.0 * most) {
            Some(Ending::Minutes)
        } else if schedule.patience.is_some_and(|most| run.worse >= most) {
            Some(Ending::Patience)
        } else {
            None
        }
    }

    fn share(&self) -> Option<f64> {
        let schedule = &self.config.schedule;
        let updates = schedule.max_updates.map(|most| self.run.update as f64 / most as f64);
        let minutes = schedule.max_minutes.map(|most| self.run.seconds / (60.0 * most));
        let epochs = schedule.max_epochs.map(|most| self.run.position.epoch as f64 / most as f64);
        [updates, minutes, epochs].into_iter().flatten().reduce(f64::max).map(|share| share.min(1.0))
    }

    fn stretch(&mut self, unlogged: &mut Unlogged, gradient_norm: f64) -> Stretch {
        let Sums { loss, nll, tokens } = std::mem::take(&mut unlogged.sums);
        let since_log = std::mem::take(&mut unlogged.since_log);
        let elapsed = std::mem::replace(&mut unlogged.clock, Instant::now()).elapsed().as_secs_f64();
        let labels = tokens.max(1) as f64;
        Stretch {
            update: self.run.update,
            epoch: self.run.position.epoch,
            loss: loss / labels,
            nll: nll / labels,
            learning_rate: rate::rate(&self.config, self.start.model.config().d_model, self.run.update),
            gradient_norm,
            tokens_per_second: since_log as f64 / elapsed.max(1e-9),
            engine_share: self.step.take_computed().as_secs_f64() / elapsed.max(1e-9),
            seconds: self.run.seconds,
        }
    }

    /// Validates, keeps the model if it is the best, and saves.
    fn look(&mut self, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<()> {
        let model = self.step.snapshot()?;
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
            self.log.write(&validation)?;
            tell(observer, Event::Validated(&validation));
        }
        if is_best {
            self.output.publish(&model, &self.start)?;
        }
        self.save_model(&model, observer)
    }

    fn save(&mut self, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<()> {
        let model = self.step.snapshot()?;
        self.save_model(&model, observer)
    }

    fn save_model(&mut self, model: &Model, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<()> {
        let path = self.output.save(&self.run, model, &self.step, &self.start, self.config.schedule.keep_checkpoints)?;
        tell(observer, Event::Saved(&path));
        self.saved = Some(path);
        Ok(())
    }

    /// What held-out text says of `model`, whose losses are `sums`: with BLEU where that is the metric.
    fn judge(&self, held: &Held, model: &Model, sums: Sums) -> Result<Validation> {
        let bleu = match self.config.schedule.metric {
            Metric::Bleu => Some(held.bleu(model, &self.start, self.config.schedule.beams, self.runtime, &self.options)?),
            Metric::Loss => None,
        };
        let labels = sums.tokens.max(1) as f64;
        let (valid_loss, valid_nll) = (sums.loss / labels, sums.nll / labels);
        let (update, epoch, seconds) = (self.run.update, self.run.position.epoch, self.run.seconds);
        Ok(Validation { update, epoch, valid_loss, valid_nll, perplexity: valid_nll.exp(), bleu, best: false, seconds })
    }

    /// Makes the mean of the last checkpoints the result, where the settings ask for that.
    fn average(&mut self, observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>) -> Result<Option<Validation>> {
        let n = self.config.schedule.average_checkpoints;
        if n < 2 {
            return Ok(None);
        }
        let checkpoints = self.output.checkpoints()?;
        let last = &checkpoints[checkpoints.len().saturating_sub(n)..];
        let models = last.iter().map(|(_, folder)| Model::open(folder)).collect::<Result<Vec<_>, _>>()?;
        let Some(model) = resume::mean(&models)? else { return Ok(None) };
        let mut validation = None;
        if let Some(held) = &self.held {
            let recipes = Recipes { model: &model, loss: loss(&self.config), adam: Adam { average: None, ..adam(&self.config) } };
            let sums = held.loss(&mut Step::new(&recipes, self.runtime, &self.options)?)?;
            validation = Some(self.judge(held, &model, sums)?);
        }
        if let Some(validation) = &validation {
            self.log.write(validation)?;
            tell(observer, Event::Validated(validation));
        }
        self.output.publish(&model, &self.start)?;
        Ok(validation)
    }

    /// Saves the batch that broke the run, and says so.
    fn diverged(&self, what: &'static str, value: f64, batch: &Batch) -> Error {
        let update = self.step.updates().max(self.run.update);
        let file = self.output.path().join("failed_batch.json");
        let (arrays, lines) = (batch.arrays(), batch.places().map(|place| self.corpus.name(place)).collect::<Vec<_>>());
        let rows = |array: &ndarray::Array2<i64>| array.rows().into_iter().map(|row| row.to_vec()).collect::<Vec<_>>();
        let content = serde_json::json!({
            "update": update, "position": batch.position(), "lines": lines,
            "input_ids": rows(&arrays.input_ids), "decoder_input_ids": rows(&arrays.decoder_input_ids), "labels": rows(&arrays.labels),
        });
        let saved = std::fs::write(&file, format!("{content:#}\n"));
        let file = match saved {
            Ok(()) => file.display().to_string(),
            Err(error) => format!("nothing ({}: {error})", file.display()),
        };
        let kept = match self.output.checkpoints() {
            Ok(checkpoints) if !checkpoints.is_empty() => format!("the state of update {} is kept", checkpoints[checkpoints.len() - 1].0),
            _ => "no state was saved before".to_owned(),
        };
        Cause::Diverged { update, what, value, file, kept }.into()
    }
}

/// What is not yet in the log.
struct Unlogged {
    sums: Sums,
    /// For the speed: this part of the run alone.
    since_log: u64,
    clock: Instant,
}

impl Unlogged {
    fn of([loss, nll, tokens]: [u64; 3]) -> Self {
        let sums = Sums { loss: f64::from_bits(loss), nll: f64::from_bits(nll), tokens };
        Self { sums, since_log: 0, clock: Instant::now() }
    }

    fn bits(&self) -> [u64; 3] {
        [self.sums.loss.to_bits(), self.sums.nll.to_bits(), self.sums.tokens]
    }
}

/// Tells what needs no answer: the next update will ask.
fn tell(observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>, event: Event<'_>) {
    let _asked_later = observer(event);
}

/// A seed of 31 bits for each batch of each update (Steele et al. 2014's mixing of 64 bits).
fn dropout_seed(seed: u64, update: u64, micro: u64) -> i64 {
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let step = 0x9e37_79b9_7f4a_7c15_u64;
    let mixed = [update, micro]
        .into_iter()
        .fold(mix(seed.wrapping_add(step)), |state, number| mix(state.wrapping_add(step).wrapping_add(mix(number.wrapping_add(step)))));
    (mixed >> 33) as i64
}

fn loss(config: &TrainingConfig) -> Loss {
    let dropout = &config.dropout;
    Loss {
        label_smoothing: config.optimiser.label_smoothing as f32,
        dropout: DropoutRates {
            embedding: dropout.embeddings as f32,
            sublayer: dropout.sublayers as f32,
            attention: dropout.attention as f32,
            activation: dropout.activation as f32,
        },
    }
}

fn adam(config: &TrainingConfig) -> Adam {
    let optimiser = &config.optimiser;
    Adam {
        betas: [optimiser.beta1, optimiser.beta2],
        epsilon: optimiser.epsilon,
        weight_decay: match optimiser.algorithm {
            OptimiserAlgorithm::Adam => 0.0,
            OptimiserAlgorithm::Adamw => optimiser.weight_decay,
        },
        clip_norm: optimiser.clip_norm,
        average: optimiser.ema_decay,
    }
}
