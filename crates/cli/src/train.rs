//! `cognate train`.

mod grid;
mod job;
mod progress;
mod settings;

use self::grid::Grid;
use self::job::Job;
use self::progress::Bar;
use self::settings::Settings;
use crate::{amounts, messages, signals};
use anyhow::{Context, Result, bail};
use cognate_runtime::{Device, Engine};
use cognate_train::config::{Metric, TrainingConfig};
use cognate_train::{
    Averaged, Beginning, Ending, Event, EventFile, GridAxis, Machine, Outcome, Trainer, Validation,
};
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Train a model on parallel text
///
/// Settings are read from a TOML file, from options, or from both; options override the file. The
/// tokenizer is trained first. OUT contains the best model as a Hugging Face checkpoint for
/// `cognate translate --model OUT`, `cognate export OUT ...` and, if its families support the
/// settings, transformers; log.jsonl, a line of JSON every log_every updates and for each
/// validation; and checkpoint-N, the state to resume from. Ctrl-C saves the state and ends the run;
/// --resume continues it with the same losses as an uninterrupted run.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Settings file with the sections `data`, `tokenizer`, `model`, `tuning`, `dropout`,
    /// `optimiser` and `schedule`; OUT/training.toml of a run lists all settings
    #[arg(value_name = "CONFIG.toml")]
    config: Option<PathBuf>,
    /// Folder to write; it must be new or empty without --resume
    #[arg(short, long, value_name = "DIR", required = true)]
    out: PathBuf,
    /// Resume the run in OUT with its settings and the given options
    #[arg(long)]
    resume: bool,
    /// Train one model for each value of a setting, such as norm_placement=pre,post, and compare
    /// them; can be given several times, for all combinations
    ///
    /// A name without a section belongs to `model`; others are written as optimiser.learning_rate.
    /// Each run has a folder in OUT. The validation results are written to OUT/grid.csv and
    /// OUT/grid.json, also after an interruption. The same command with --resume continues
    /// unfinished runs.
    #[arg(long, value_name = "FIELD=VALUE,...")]
    grid: Vec<GridAxis>,
    /// Write the numbers of log.jsonl to OUT/tensorboard as well, for `tensorboard --logdir OUT`
    #[arg(long)]
    tensorboard: bool,
    /// Inference engine: auto (ONNX Runtime if its library is found, else tract), ort, tract or
    /// reference
    #[arg(long, value_name = "NAME", default_value_t)]
    engine: Engine,
    /// Device of the engine: cpu, cuda or cuda:NUMBER
    #[arg(long, value_name = "NAME", default_value_t)]
    device: Device,
    #[command(flatten)]
    settings: Settings,
}

const EXAMPLES: &str = "\
Examples:
  cognate train --data train.en train.de --valid val.en val.de --out OUT --max-updates 10000
  cognate train CONFIG.toml --out OUT                    with a settings file
  cognate train --resume --out OUT                       after an interruption
  cognate train --resume --out OUT --max-updates 20000   extend a run
  cognate train CONFIG.toml --out OUT --grid positions=sinusoidal,rotary,alibi
  cognate train --init CHECKPOINT --data a.en a.de --out OUT --max-epochs 3 --learning-rate 1e-4
  mpirun -n 4 cognate train CONFIG.toml --out OUT        data-parallel on 4 processes (built with `--features mpi`)
  cognate evaluate --reference val.de --source val.en --model OUT

A settings file; everything except training text and length is optional:
  seed = 1
  [data]
  train = [{ source = \"train.en\", target = \"train.de\" }]   # or { tsv = \"train.tsv\" }
  valid = [{ source = \"val.en\", target = \"val.de\" }]
  max_tokens = 4096                                        # per batch, on each side
  [tokenizer]
  vocab_size = 8000
  [model]
  preset = \"tiny\"                                          # tiny, base, big, additive or rotary
  norm_placement = \"pre\"                                   # overrides the preset, as do d_model, heads, d_ff
  [optimiser]
  learning_rate = 1e-3
  warmup_updates = 2000
  [schedule]
  max_updates = 10000
  validate_every = 500
  metric = \"bleu\"
  patience = 10";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let job = Job::join()?;
    let ended = train(options, &job, out);
    ended.or_else(|error| job.fail(error))
}

fn train(options: &Options, job: &Job, out: &mut dyn Write) -> Result<ExitCode> {
    let ranks = job.ranks();
    let quiet = messages::is_quiet() || ranks.rank() > 0;
    let is_grid = !options.grid.is_empty();
    let config = options.settings.config(
        options.config.as_deref(),
        &options.out,
        options.resume && !is_grid,
    )?;
    let runtime = options.engine.open(options.device)?;
    if is_grid && ranks.size() > 1 {
        bail!("--grid: expected one process, found {} of `mpirun`", ranks.size());
    }
    if runtime.engine() != Engine::Ort && ranks.rank() == 0 {
        let install =
            "`cargo xtask onnxruntime` installs ONNX Runtime, which is several times as fast";
        messages::warning(format_args!("training runs on {}; {install}", runtime.name()));
    }
    let signals = Signals::watched()?;
    let machine = Machine { runtime: &*runtime, device: options.device, ranks };
    let run = Run { options, machine, quiet, signals: &signals };
    let ending = if is_grid {
        Grid::new(&options.grid, &config, &options.out, &machine)?.run(&run, options.resume, out)?
    } else {
        let beginning = if options.resume { Beginning::Resume } else { Beginning::Fresh };
        let (outcome, _) = run.train(config.clone(), &options.out, beginning)?;
        if outcome.ending != Ending::Stopped && !quiet {
            conclude(&outcome, &options.out, config.schedule.metric);
        }
        outcome.ending
    };
    // The status of a program that SIGINT has ended, as in shells.
    Ok(if ending == Ending::Stopped { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// The context of all runs of a command.
struct Run<'a> {
    options: &'a Options,
    machine: Machine<'a>,
    quiet: bool,
    signals: &'a Signals,
}

impl Run<'_> {
    /// Trains one model. Returns the outcome and the number of parameters.
    fn train(
        &self,
        config: TrainingConfig,
        out: &Path,
        beginning: Beginning,
    ) -> Result<(Outcome, usize)> {
        let quiet = self.quiet;
        let mut trainer = Trainer::new(config, out, beginning, self.machine)?;
        if self.machine.ranks.rank() == 0 {
            trainer.warnings().iter().for_each(messages::warning);
        }
        if !quiet {
            introduce(&trainer, self.machine.ranks.size());
        }
        let mut bar = Bar::new(quiet, trainer.updates());
        let writes_events = self.options.tensorboard && self.machine.ranks.rank() == 0;
        let mut events =
            writes_events.then(|| EventFile::create(out, trainer.updates())).transpose()?;
        let mut written = Ok(());
        self.signals.trains.store(true, Ordering::Relaxed);
        let outcome = trainer.run(&mut |event| {
            match event {
                Event::Update(progress) => bar.update(progress),
                Event::Validated(validation) if !quiet => {
                    bar.suspend(|| messages::note(described(validation)))
                }
                Event::LeftOut(left_out) if !quiet => bar.suspend(|| {
                    messages::note(format_args!("pairs of an epoch that are left out: {left_out}"))
                }),
                Event::Logged(stretch) => bar.logged(stretch),
                Event::Validated(_) | Event::Saved(_) | Event::LeftOut(_) => {}
            }
            if let (Some(events), Ok(())) = (&mut events, &written) {
                written = events.write(&event);
            }
            if written.is_err() {
                return ControlFlow::Break(());
            }
            if self.signals.count.load(Ordering::Relaxed) > 0 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.signals.trains.store(false, Ordering::Relaxed);
        bar.finish();
        let outcome = outcome?;
        written?;
        if outcome.ending == Ending::Stopped && self.machine.ranks.rank() == 0 {
            let resume = match self.options.grid.is_empty() {
                true => format!("`cognate train --resume --out {}`", out.display()),
                false => "the same command with --resume".into(),
            };
            messages::note(format_args!(
                "stopped and saved after update {}; continue with {resume}",
                amounts::thousands(outcome.updates as usize)
            ));
        }
        Ok((outcome, trainer.model().parameters()))
    }
}

/// Termination signals: after the first a run saves its state, the second ends it at once. Before
/// the first update there is nothing to save.
#[derive(Default)]
struct Signals {
    count: AtomicUsize,
    trains: AtomicBool,
}

impl Signals {
    fn watched() -> Result<Arc<Self>> {
        let signals = Arc::new(Self::default());
        let seen = Arc::clone(&signals);
        let handler = move || {
            if !seen.trains.load(Ordering::Relaxed)
                || seen.count.fetch_add(1, Ordering::Relaxed) > 0
            {
                signals::end();
            }
            messages::note("saving; press Ctrl-C again to end without saving");
        };
        ctrlc::set_handler(handler).context("cannot watch for Ctrl-C")?;
        Ok(signals)
    }
}

fn introduce(trainer: &Trainer<'_>, n_ranks: usize) {
    let (model, corpus) = (trainer.model(), trainer.corpus());
    let [parameters, pairs, lines] =
        [model.parameters(), corpus.n_pairs() as usize, corpus.n_lines() as usize]
            .map(amounts::thousands);
    let shared = if n_ranks > 1 { format!(", in {n_ranks} processes") } else { String::new() };
    messages::note(format_args!(
        "{parameters} parameters, {pairs} pairs of {lines} lines, on {}{shared}",
        trainer.engine()
    ));
    if corpus.n_pairs() < corpus.n_lines() {
        messages::note(format_args!("dropped pairs: {}", corpus.dropped()));
    }
    let (vocab, rate) = (amounts::thousands(model.config().vocab), trainer.peak_learning_rate());
    messages::note(format_args!("vocabulary of {vocab}, peak learning rate {rate:.2e}"));
    if trainer.updates() > 0 {
        messages::note(format_args!(
            "resuming after update {}",
            amounts::thousands(trainer.updates() as usize)
        ));
    }
}

fn described(validation: &Validation) -> String {
    let bleu = validation.bleu.map_or_else(String::new, |bleu| format!(", BLEU {bleu:.2}"));
    let best = if validation.best { ", the best so far" } else { "" };
    let Validation { update, valid_loss, perplexity, .. } = validation;
    format!(
        "update {}: validation loss {valid_loss:.4}, perplexity {perplexity:.2}{bleu}{best}",
        amounts::thousands(*update as usize)
    )
}

fn conclude(outcome: &Outcome, out: &Path, metric: Metric) {
    let why = match outcome.ending {
        Ending::Updates => "maximum number of updates",
        Ending::Epochs => "maximum number of epochs",
        Ending::Minutes => "maximum time",
        Ending::Patience => "no improvement within the patience",
        Ending::Stopped => "stopped",
    };
    let result = match (outcome.averaged, outcome.best) {
        (Some(Averaged { checkpoints, .. }), _) => {
            format!("contains the average of the last {checkpoints} checkpoints")
        }
        (None, Some((update, value))) => {
            let name = if metric == Metric::Bleu { "BLEU" } else { "validation loss" };
            format!(
                "contains the model of update {}, {name} {value:.4}",
                amounts::thousands(update as usize)
            )
        }
        (None, None) => "contains the last model".to_owned(),
    };
    let updates = amounts::thousands(outcome.updates as usize);
    messages::note(format_args!("{why}: update {updates}; {} {result}", out.display()));
}

/// The settings file of an earlier run in `out`.
fn earlier_settings(out: &Path) -> Result<PathBuf> {
    let path = out.join("training.toml");
    if !path.is_file() {
        bail!("{}: has no run to resume (no training.toml); start without --resume", out.display());
    }
    Ok(path)
}
