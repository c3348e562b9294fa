//! `cognate translate`: lines in, lines out.
//!
//! Lines are read in windows, so that memory does not grow with the input. The sentences of a window are translated in
//! batches of like length, by several workers, and written in the order in which they came. The batches depend on the text
//! alone, and so do the translations, however many workers there are.

pub(crate) mod batches;
mod input;
mod output;
mod pipeline;
pub(crate) mod progress;
mod reading;
mod stream;
pub(crate) mod translator;
mod warnings;
mod workers;

use self::input::Input;
use self::output::Output;
use self::translator::Translator;
use crate::amounts::at_most;
use crate::decoding::Decoding;
use crate::evaluate::Translating;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::unused::Unused;
use anyhow::{Context, Result, bail};
use cognate_runtime::Device;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

/// Translate sentences: lines in, lines out
///
/// Sentences are the arguments, or the lines of a file, or those of standard input; each gives one line, in the same order, or with
/// --n-best several. An empty line gives an empty line. Limits and beams are those of the model's generation_config.json unless
/// options say otherwise.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Sentences to translate [default: the lines of --input]
    #[arg(value_name = "TEXT", conflicts_with = "input")]
    text: Vec<String>,
    /// Read sentences from FILE, one a line; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write translations to FILE, which appears when all are done; - is standard output [default: -]
    ///
    /// Until then they are in .FILE.cognate-partial beside it. A run that is ended by Ctrl-C leaves FILE as it was; one that is killed
    /// leaves the other, too, which the next run with the same FILE replaces. FILE may not be one that is read.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    model: ModelOptions,
    /// Batches to translate at the same time; they share the weights [default: the cores of this machine; 1 for TEXT, a terminal,
    /// a file below 4 KiB, or a GPU]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    workers: Option<NonZeroUsize>,
    /// Threads that ONNX Runtime uses for each worker [default: 1; its own choice where workers are 1 by default]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Translate together as many sentences as fill this many tokens, padding and beams included
    #[arg(long, value_name = "N", default_value = "2048", value_parser = at_most(1 << 24))]
    batch_tokens: NonZeroUsize,
    /// Hypotheses kept in beam search; 1 is greedy [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// The most tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    /// Write each word as soon as it is decoded, one sentence at a time; not for beam search, which knows no word before its end
    #[arg(long, conflicts_with_all = ["output", "workers", "batch_tokens", "window", "n_best"])]
    stream: bool,
    /// Lines to read before they are translated; 1 answers each line at once [default: 2000, on a terminal 1]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    window: Option<NonZeroUsize>,
    #[command(flatten)]
    unused: Unused,
    #[command(flatten)]
    decoding: Decoding,
}

const EXAMPLES: &str = "\
Examples:
  cognate translate \"A man is riding a bicycle.\" \"Two dogs are playing in the snow.\"
  cognate translate --input text.en --output text.de
  head -n 3 text.en | cognate translate --engine tract --beams 5
  cognate export my-checkpoint out && cognate translate --model out \"Hello.\"
  cognate translate --model nllb --source-language eng_Latn --target-language deu_Latn \"Hello.\"
  cognate translate --model mbart-50 --source-language en_XX --target-language de_DE \"Hello.\"
  cognate translate --model opus-mt-en-ROMANCE --target-language fra \"Hello.\"
  cognate translate --beams 5 --n-best 3 --scores --length-penalty 0.6 \"Two dogs.\"
  cognate translate --sample --temperature 0.7 --top-p 0.9 --seed 42 --n-best 4 \"Two dogs.\"
  cognate translate --stream --input text.en
  cognate translate --input text.en --target-prefixes beginnings.de
  cognate translate --target-prefix \"Zwei Hunde\" --alignments \"Two dogs are playing in the snow.\"";

/// Who translates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crew {
    workers: NonZeroUsize,
    /// The threads of each; the engine's own choice if `None`.
    threads: Option<NonZeroUsize>,
}

impl Crew {
    /// As the options say. By default each core translates a batch of its own where there are many: two threads on one batch
    /// wait for each other.
    ///
    /// # Errors
    /// If a GPU is to run several batches at the same time.
    fn of(options: &Options, input: &Input) -> Result<Self> {
        let one = NonZeroUsize::MIN;
        match options.model.device {
            Device::Cuda if options.workers.is_some_and(|workers| workers > one) => {
                bail!("--workers: a GPU runs one batch at a time; leave it out, and raise --batch-tokens to fill the GPU")
            }
            Device::Cpu | Device::Cuda => {}
        }
        let is_divided = options.workers.is_some() || (input.is_long && options.model.device == Device::Cpu);
        let cores = || thread::available_parallelism().unwrap_or(one);
        Ok(Self {
            workers: options.workers.unwrap_or_else(|| if is_divided { cores() } else { one }),
            threads: options.threads.or(is_divided.then_some(one)),
        })
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    // Both fail before the model is loaded, which may take a while.
    let window = if options.stream { Some(1) } else { options.window.map(NonZeroUsize::get) };
    let mut input = Input::open(options.text.clone(), options.input.as_deref(), window)?;
    input.is_long &= !options.stream;
    if let Some(path) = options.decoding.target_prefixes() {
        input = input.with_prefixes(path)?;
    }
    let mut output = Output::open(options.output.as_deref(), &input.files, out)?;
    let crew = Crew::of(options, &input)?;
    let translator = Translator::load(&source, options, crew)?;
    messages::note(format_args!("model {source} on {}", translator.engine()));
    if input.is_typed {
        messages::note("type a sentence a line; Ctrl-D ends");
    }
    if options.stream {
        // An output file is refused.
        let Output::Standard(out) = output else { return Ok(ExitCode::SUCCESS) };
        stream::run(&translator, input, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    let budget = options.batch_tokens.get() / translator.settings().num_beams.max(1);
    pipeline::run(translator, input, crew.workers.get(), budget, &mut output)?;
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The translations of the lines of a file.
///
/// # Errors
/// As for the command.
pub(crate) fn lines(input: &Path, model: &ModelOptions, translating: Translating, unused: Unused) -> Result<Vec<String>> {
    let Translating { beams, max_new_tokens, workers, threads, batch_tokens } = translating;
    let options = Options {
        text: Vec::new(),
        input: Some(input.to_path_buf()),
        output: None,
        model: model.clone(),
        workers,
        threads,
        batch_tokens,
        beams,
        max_new_tokens,
        stream: false,
        window: None,
        unused,
        decoding: Decoding::default(),
    };
    let mut out = Vec::new();
    run(&options, &mut out)?;
    let text = String::from_utf8(out).context("the translations")?;
    Ok(text.lines().map(str::to_owned).collect())
}
