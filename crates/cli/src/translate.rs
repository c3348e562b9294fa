//! `cognate translate`.

mod input;
pub(crate) mod json;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod stream;
mod warnings;

pub(crate) use self::input::Input;

use self::output::Output;
use self::progress::Progress;
use self::warnings::Warnings;
use crate::amounts::at_most;
use crate::decoding::Decoding;
use crate::messages;
use crate::model_options::ModelOptions;
use anyhow::Result;
use cognate::{
    DecodingOptions, LineEvent, LineOptions, ModelSource, Translation, Translator,
    TranslatorOptions,
};
use std::fs;
use std::io::Write;
use std::mem;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

/// Translate sentences
///
/// Sentences are the arguments, the lines of a file, or the lines of standard input. Each becomes
/// one line in the same order, or several with --n-best. An empty line becomes an empty line.
/// Options override the model's generation_config.json.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Sentences to translate [default: the lines of --input]
    #[arg(value_name = "TEXT", conflicts_with = "input")]
    text: Vec<String>,
    /// Read sentences from FILE, one per line; - is standard input [default: -]
    #[arg(short, long, visible_alias = "src", value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write translations to FILE, which appears when it is complete; - is standard output
    /// [default: -]
    ///
    /// Until then they are in .FILE.cognate-partial in the same folder. Ctrl-C keeps the old FILE.
    /// A killed run also leaves the partial file, which the next run with the same FILE replaces.
    /// FILE must not be an input.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speed: SpeedOptions,
    /// Choose tokens among those that FILE allows the sentences of a batch, a shortlist of
    /// `cognate shortlist` or CTranslate2's vmap.txt; faster with checkpoints and exports of
    /// --target ort
    #[arg(long, value_name = "FILE")]
    shortlist: Option<PathBuf>,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, visible_aliases = ["num-beams", "beam-size"], value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens of a translation [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    /// Write each word as soon as it is decoded, one sentence at a time; not with beam search
    #[arg(long, conflicts_with_all = ["output", "workers", "batch_tokens", "batch_size", "window", "n_best"])]
    stream: bool,
    /// Number of lines to read before translating them; 1 translates each line at once [default:
    /// 2000, on a terminal 1]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    window: Option<NonZeroUsize>,
    /// Write JSON Lines: {"line": ..., "text": ..., "hypotheses": [...]}, with scores and tokens,
    /// and with alignments if --alignments is given
    #[arg(long, conflicts_with = "stream")]
    json: bool,
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

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    // These fail before the model is loaded, which can take a while.
    let window = if options.stream { Some(1) } else { options.window.map(NonZeroUsize::get) };
    let mut input = Input::open(options.text.clone(), options.input.as_deref(), window)?;
    input.is_long &= !options.stream;
    if let Some(path) = options.decoding.target_prefixes() {
        input = input.with_prefixes(path)?;
    }
    let Options { model, speed, beams, max_new_tokens, decoding, shortlist, .. } = options;
    let mut files = mem::take(&mut input.files);
    let shortlist_file = shortlist.as_deref().and_then(|file| fs::metadata(file).ok());
    files.extend(shortlist_file.map(|file| ("--shortlist", file)));
    let mut output = Output::open(options.output.as_deref(), &files, out)?;
    let mut loading = speed.options(
        model,
        decoding.options(*beams, *max_new_tokens, options.json),
        input.is_long,
    );
    loading.load.shortlist.clone_from(shortlist);
    let translator = translator(source, &loading)?;
    if options.stream {
        translator.check_stream()?;
        // --output conflicts with --stream.
        let Output::Standard(out) = output else { return Ok(ExitCode::SUCCESS) };
        stream::run(&translator, decoding, input, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    lines(&translator, input, |first, translations| {
        let numbered = translations.iter().enumerate();
        let line = |(place, translation)| match options.json {
            true => json::line(first + place, translation, translator.model().tokenizer()),
            false => decoding.lines(first + place, translation),
        };
        output.write(&numbered.map(line).collect::<Vec<_>>())
    })?;
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Workers, threads and batches.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct SpeedOptions {
    /// Number of batches to translate in parallel; they share the weights [default: the number of
    /// cores; 1 for TEXT, a terminal, a file below 4 KiB, or a GPU]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    workers: Option<NonZeroUsize>,
    /// Number of threads of ONNX Runtime for each worker [default: 1; its own choice if there is
    /// one worker by default]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Number of tokens to translate together, padding and beams included [default: 2048; 3072 with
    /// several hypotheses]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    batch_tokens: Option<NonZeroUsize>,
    /// Maximum number of sentences to translate together [default: as many as --batch-tokens
    /// allows]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    batch_size: Option<NonZeroUsize>,
}

/// Loads a model.
pub(crate) fn translator(source: ModelSource, options: &TranslatorOptions) -> Result<Translator> {
    let translator = Translator::load(source, options)?;
    messages::notices(translator.notices());
    messages::status(translator.model().source(), translator.engine());
    Ok(translator)
}

impl SpeedOptions {
    /// The options of loading and decoding. By default each core translates its own batch if there
    /// are many sentences: several threads per batch are slower.
    pub(crate) fn options(
        &self,
        model: &ModelOptions,
        decoding: DecodingOptions,
        is_long: bool,
    ) -> TranslatorOptions {
        let is_divided = self.workers.is_some() || (is_long && !model.is_on_gpus());
        let one = NonZeroUsize::MIN;
        let cores = || thread::available_parallelism().unwrap_or(one);
        let workers = self.workers.or_else(|| match (model.is_on_gpus(), is_divided) {
            // One for each.
            (true, _) => None,
            (false, true) => Some(cores()),
            (false, false) => Some(one),
        });
        let load = model.load(workers, self.threads.or(is_divided.then_some(one)));
        let Self { batch_tokens, batch_size, .. } = *self;
        TranslatorOptions { load, decoding, batch_tokens, batch_size }
    }
}

/// Translates `input` with a progress bar and warnings. `write` is called with translations in
/// order and the number of the first.
pub(crate) fn lines(
    translator: &Translator,
    input: Input,
    mut write: impl FnMut(usize, &[Translation]) -> Result<()>,
) -> Result<()> {
    let mut progress = Progress::new(input.bytes);
    let mut warnings = Warnings::new(input.unit.clone());
    let (is_file, is_typed) = (input.bytes.is_some(), input.is_typed);
    let options = LineOptions {
        unit: input.unit.clone(),
        prefix_unit: input.prefix_unit(),
        window: input.window_len,
    };
    let mut has_written = false;
    let ended = translator.translate_lines(input, options, |event| match event {
        LineEvent::Progress { sentences, tokens, bytes } => {
            if is_file || (has_written && !is_typed) {
                progress.show();
            }
            progress.add(sentences, tokens, bytes);
            Ok(())
        }
        LineEvent::Translated { first, translations } => {
            has_written = true;
            progress.suspend(|| {
                translations
                    .iter()
                    .zip(first..)
                    .for_each(|(translation, number)| warnings.of(number, translation));
                write(first, &translations)
            })
        }
    });
    if ended.is_ok() {
        progress.finish();
        warnings.finish();
    }
    ended
}
