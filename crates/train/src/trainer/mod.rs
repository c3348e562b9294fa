//! The training loop.
//!
//! The learning rate, batches and dropout of a step depend only on the settings and the number of
//! updates. A resumed run therefore gives bit for bit the losses of an uninterrupted one, with the
//! same build, engine and number of threads.

mod block;
mod checkpoint;
mod events;
mod log;
mod model;
mod rate;
mod recipes;
mod resume;
mod scale;
mod step;
mod tuning;
mod validate;
mod validations;
mod values;

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cognate_model::Model;
use cognate_pipeline::{Notice, SourceEncoder};
use cognate_runtime::{Options, multiplies_bf16};
use cognate_text::Tokenizer;

use crate::batches::{BatchSettings, Batches, Position, TrainingBatch};
use crate::config::{Precision, TrainingConfig};
use crate::corpus::{Cleaning, Corpus};
use crate::error::{Cause, Result};
use crate::left_out::LeftOut;
use crate::ranks::{agree, leads};

use checkpoint::{Output, Run};
pub use events::{
    Averaged, Beginning, Ending, Event, Machine, Outcome, Progress, Stretch, Validation,
};
use log::Log;
pub use log::{LogLine, read_log};
use model::Start;
use recipes::{dropout_seed, loss, optimiser};
use step::{Recipes, Step, Sums, Updated};
use tuning::Learned;
use validate::ValidationSet;
use validations::tell;

/// A training run.
pub struct Trainer<'r> {
    config: TrainingConfig,
    output: Output,
    corpus: Arc<Corpus>,
    held: Option<ValidationSet>,
    start: Start,
    step: Step<'r>,
    run: Run,
    /// Only in the first rank.
    log: Option<Log>,
    settings: BatchSettings,
    machine: Machine<'r>,
    options: Options,
    /// Pairs left out since the run began; `None` after its first epoch and in resumed runs.
    left_out: Option<LeftOut>,
    /// Start of this process, and the seconds of training before it.
    began: (Instant, f64),
}

impl fmt::Debug for Trainer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (folder, updates) = (self.output.path(), self.run.update);
        let mut debug = f.debug_struct("Trainer");
        debug.field("folder", &folder).field("updates", &updates).finish_non_exhaustive()
    }
}

impl<'r> Trainer<'r> {
    /// Checks the settings, opens the text, trains or reads the tokenizer, and loads the graphs.
    ///
    /// # Errors
    /// If settings are inconsistent or unsupported, the text or checkpoint cannot be read, the
    /// folder is not empty or not writable, the engine cannot run the graphs, a run is resumed with
    /// other settings or text, or ranks differ.
    pub fn new(
        mut config: TrainingConfig,
        out: &Path,
        beginning: Beginning,
        machine: Machine<'r>,
    ) -> Result<Self> {
        config.make_paths_absolute();
        config.check()?;
        machine.check(&config)?;
        config.model.name_choices();
        let resumed = match beginning {
            Beginning::Fresh if leads(machine.ranks) => Output::check_vacant(out).map(|()| None)?,
            Beginning::Fresh => None,
            Beginning::Resume => Some(Output::resume(out, leads(machine.ranks))?),
        };
        let text = config.to_toml()?;
        let told =
            serde_json::to_value(&config).map_err(|error| Cause::Config(error.to_string()))?;
        let former =
            resumed.as_ref().map(|(_, folder)| checkpoint::read_run(folder)).transpose()?;
        if let Some(former) = &former {
            resume::check(out, &former.config, &told)?;
        }
        let state =
            resumed.as_ref().map(|(_, folder)| checkpoint::State::read(folder)).transpose()?;
        let corpus = Corpus::open(&config.train_files(), &config.cleaning())?;
        let valid = (!config.valid_files().is_empty())
            .then(|| Corpus::open(&config.valid_files(), &Cleaning::default()))
            .transpose()?;
        let mut start = match (&resumed, &config.model.init, &config.tokenizer.from) {
            // Checkpoints contain merged weights; adapters belong to the original ones.
            (Some(_), Some(init), _) if config.tuning.lora_rank.is_some() => {
                Start::checkpoint(init)?
            }
            (Some((_, folder)), _, _) => Start::checkpoint(folder)?,
            (None, Some(init), _) => Start::checkpoint(init)?,
            (None, None, Some(folder)) => Start::fresh(
                &config,
                Tokenizer::from_folder(folder)?,
                model::tokenizer_files(folder)?,
            )?,
            (None, None, None) => {
                let (tokenizer, files) = model::trained_tokenizer(&config, &corpus, machine.ranks)?;
                Start::fresh(&config, tokenizer, files)?
            }
        };
        if let Some(positions) = start.model.config().max_positions {
            config.model.max_positions = positions;
            let limits = [
                ("max_source_tokens", config.data.max_source_tokens),
                ("max_target_tokens", config.data.max_target_tokens),
            ];
            for (field, limit) in limits {
                if let Some(limit) = limit.filter(|limit| *limit > positions) {
                    Err(Cause::Config(format!(
                        "data.{field}: expected at most {positions}, the positions of the model, found {limit}"
                    )))?;
                }
            }
        }
        // Adapters are learned for these weights.
        let base = config.tuning.lora_rank.map(|_| model::fingerprint(&start.model));
        let fresh = Run {
            corpus: corpus.fingerprint(),
            valid: valid.as_ref().map(Corpus::fingerprint),
            base,
            ..Run::new(told)
        };
        if let Some(former) = &former {
            resume::check_unchanged(out, former, &fresh)?;
        }
        let settings = config.batch_settings(start.framing.clone());
        let tokenizer = Arc::new(start.tokenizer.clone());
        let sources = SourceEncoder::new(&tokenizer, start.model.config(), &start.settings);
        let held = valid
            .map(|corpus| {
                let positions = config.model.max_positions;
                ValidationSet::new(corpus, &tokenizer, settings.clone(), &sources, positions)
            })
            .transpose()?;
        start.warnings.extend(held.iter().flat_map(|held| held.notes.clone()));
        let threads = config.threads.or((machine.ranks.size() > 1).then_some(1));
        let options = Options {
            device: machine.device,
            threads: threads.and_then(NonZeroUsize::new),
            training: true,
            in_bf16: config.optimiser.precision == Precision::Bf16,
            ..Options::default()
        };
        let recipes = Recipes {
            model: &start.model,
            learned: Learned::new(&config, &start.model)?,
            loss: loss(&config),
            optimiser: optimiser(&config),
            in_blocks: model::fits_in_blocks(&config, &machine),
            in_half: config.optimiser.precision == Precision::F16,
        };
        let mut step = Step::new(&recipes, machine.runtime, &options, machine.ranks)?;
        if let nodes @ [_, ..] = step.left_to_processor() {
            let notice = Notice::LeftToProcessor { nodes: nodes.to_vec() };
            start.warnings.push(notice.to_string());
        }
        if options.in_bf16 && !multiplies_bf16() {
            let notice =
                "optimiser.precision: this processor does not multiply bf16; products are in f32";
            start.warnings.push(notice.into());
        }
        let (output, run) = match (resumed, former, state) {
            (Some((output, _)), Some(former), Some(state)) => {
                state.restore(former.update, &mut step)?;
                (output, Run { config: fresh.config, ..former })
            }
            _ if leads(machine.ranks) => (Output::create(out)?, fresh),
            _ => (Output::at(out), fresh),
        };
        agree(machine.ranks, "settings", || Ok(blake3::hash(run.config.to_string().as_bytes())))?;
        agree(machine.ranks, "text", || Ok(blake3::hash(run.corpus.as_bytes())))?;
        agree(machine.ranks, "weights", || step.hash())?;
        let mut log = None;
        if leads(machine.ranks) {
            log = Some(Log::open(&output, run.update)?);
            output.write("training.toml", &text)?;
        }
        let began = (Instant::now(), run.seconds);
        let left_out = (run.position == Position::default()).then(LeftOut::default);
        let corpus = Arc::new(corpus);
        Ok(Self {
            config,
            output,
            corpus,
            held,
            start,
            step,
            run,
            log,
            settings,
            machine,
            options,
            left_out,
            began,
        })
    }

    /// The engine.
    pub fn engine(&self) -> &str {
        self.step.engine()
    }

    /// The initial model.
    pub fn model(&self) -> &Model {
        &self.start.model
    }

    /// Warnings about the initial model.
    pub fn warnings(&self) -> &[String] {
        &self.start.warnings
    }

    /// The training corpus.
    pub fn corpus(&self) -> &Corpus {
        &self.corpus
    }

    /// The learning rate at the end of the warm-up.
    pub fn peak_learning_rate(&self) -> f64 {
        rate::rate(
            &self.config,
            self.start.model.config().d_model,
            self.config.optimiser.warmup_updates,
        )
    }

    /// Number of updates so far.
    pub fn updates(&self) -> u64 {
        self.run.update
    }

    /// Trains until a limit is reached or the observer stops the run; the state is saved in both
    /// cases.
    ///
    /// # Errors
    /// If the text cannot be read, the engine fails, a checkpoint cannot be saved (the previous one
    /// is kept), or the loss is not finite (the batch is saved).
    pub fn run(
        &mut self,
        observer: &mut dyn FnMut(Event<'_>) -> ControlFlow<()>,
    ) -> Result<Outcome> {
        let validate_every = self.config.schedule.validate_every;
        // A run that was stopped at the update of a validation was saved without it.
        if self.run.is_unvalidated()
            && self.run.update.is_multiple_of(validate_every)
            && self.is_over().is_none()
        {
            self.validate(observer)?;
            self.step.take_computed();
        }
        let tokenizer = Arc::new(self.start.tokenizer.clone());
        let batches = Batches::new(
            Arc::clone(&self.corpus),
            tokenizer,
            self.settings.clone(),
            self.run.position,
        )?;
        let mut batches = batches.prefetched(self.config.data.prefetch);
        let mut unlogged = Unlogged::of(self.run.unlogged);
        let mut saved = self.run.update;
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
                self.write_log(&stretch)?;
                tell(observer, Event::Logged(&stretch));
            }
            self.run.unlogged = unlogged.bits();
            let (loss, tokens) = (sums.loss / sums.tokens.max(1) as f64, sums.tokens);
            let progress = Progress {
                update,
                epoch: self.run.position.last_epoch(),
                loss,
                tokens,
                share: self.share(),
            };
            let stopped = observer(Event::Update(&progress)).is_break();
            if self.run.position.epoch > 0
                && let Some(left_out) = self.left_out.take().filter(|it| *it != LeftOut::default())
            {
                tell(observer, Event::LeftOut(&left_out));
            }
            let stopped = self.agree_on(stopped);
            if !stopped && update.is_multiple_of(validate_every) {
                saved = update;
                self.validate(observer)?;
                // Time of validation is not training time.
                unlogged.clock = Instant::now();
                unlogged.since_log = 0;
                self.step.take_computed();
            }
            if stopped {
                break Ending::Stopped;
            }
        };
        match ending {
            Ending::Stopped if saved < self.run.update => self.save(observer)?,
            Ending::Stopped => {}
            _ if saved < self.run.update || self.run.is_unvalidated() => self.validate(observer)?,
            _ => {}
        }
        if leads(self.machine.ranks) && !self.output.has_model() {
            let model = self.step.snapshot()?;
            self.output.publish(&model, &self.start)?;
        }
        let averaged = if ending == Ending::Stopped { None } else { self.average(observer)? };
        let best = self.run.best.map(|best| (best.update, best.value));
        Ok(Outcome { ending, updates: self.run.update, best, averaged })
    }

    /// One update: sums the gradients of its batches and changes the weights.
    fn update(
        &mut self,
        batches: &mut impl Iterator<Item = Result<TrainingBatch>>,
    ) -> Result<(Sums, f64)> {
        let (mut sums, update, ranks) = (Sums::default(), self.run.update + 1, self.machine.ranks);
        let mut last = None;
        for micro in 0..self.config.optimiser.accumulation {
            let batch = batches.next().ok_or_else(|| Cause::Engine("batches ended".into()))??;
            if let Some(left_out) = &mut self.left_out {
                *left_out += batch.left_out();
            }
            let seed = dropout_seed(
                self.config.seed,
                update,
                micro * ranks.size() as u64 + ranks.rank() as u64,
            );
            let found = self.step.accumulate(&batch, seed)?;
            if !found.loss.is_finite() {
                return Err(self.diverged("the loss", found.loss, &batch));
            }
            sums += found;
            last = Some(batch);
        }
        let batch = last.expect("accumulation is at least 1");
        let Updated { norm, is_skipped } = self.step.update(rate::rate(
            &self.config,
            self.start.model.config().d_model,
            update,
        ))?;
        self.run.update = update;
        if !norm.is_finite() && !is_skipped {
            return Err(self.diverged("the norm of the gradients", norm, &batch));
        }
        self.run.position = batch.next_position();
        self.run.seconds = self.began.1 + self.began.0.elapsed().as_secs_f64();
        debug_assert_eq!(self.step.updates(), update);
        Ok((sums, norm))
    }

    /// Whether any rank is to stop; all ranks get the clock of the first.
    fn agree_on(&mut self, stopped: bool) -> bool {
        let own_seconds = if leads(self.machine.ranks) { self.run.seconds } else { 0.0 };
        let mut numbers = [f64::from(u8::from(stopped)), own_seconds];
        self.machine.ranks.sum_f64(&mut numbers);
        self.run.seconds = numbers[1];
        numbers[0] > 0.0
    }

    fn write_log(&mut self, line: &impl serde::Serialize) -> Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.write(line))
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
        [updates, minutes, epochs]
            .into_iter()
            .flatten()
            .reduce(f64::max)
            .map(|share| share.min(1.0))
    }

    fn stretch(&mut self, unlogged: &mut Unlogged, gradient_norm: f64) -> Stretch {
        let Sums { loss, nll, tokens } = std::mem::take(&mut unlogged.sums);
        let since_log = std::mem::take(&mut unlogged.since_log);
        let elapsed =
            std::mem::replace(&mut unlogged.clock, Instant::now()).elapsed().as_secs_f64();
        let labels = tokens.max(1) as f64;
        Stretch {
            update: self.run.update,
            epoch: self.run.position.last_epoch(),
            loss: loss / labels,
            nll: nll / labels,
            learning_rate: rate::rate(
                &self.config,
                self.start.model.config().d_model,
                self.run.update,
            ),
            gradient_norm,
            tokens_per_second: since_log as f64 / elapsed.max(1e-9),
            engine_share: self.step.take_computed().as_secs_f64() / elapsed.max(1e-9),
            seconds: self.run.seconds,
        }
    }
}

/// Sums since the last line of the log.
struct Unlogged {
    sums: Sums,
    /// Tokens for the speed, of this process only.
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
