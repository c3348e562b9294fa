//! `cognate translate`: lines in, lines out.
//!
//! Lines are read in windows, so that memory does not grow with the input. The sentences of a window are translated in
//! batches of like length and written in the order in which they came.

pub(crate) mod batches;
mod output;
mod progress;
pub(crate) mod translator;
mod warnings;

use self::batches::batches;
use self::output::Output;
use self::progress::Progress;
use self::translator::{Encoded, Translator};
use self::warnings::{Warning, Warnings};
use crate::decoding::Decoding;
use crate::languages::Languages;
use crate::messages;
use crate::source::ModelSource;
use crate::unused::Unused;
use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use cognate_runtime::{Device, Engine};
use cognate_text::Lines;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

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
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// An exported folder, or a checkpoint's folder, which is exported to a temporary one [default: $COGNATE_MODEL, else the
    /// checkpoint that comes with the repository]
    #[arg(short, long, value_name = "DIR")]
    model: Option<PathBuf>,
    #[command(flatten)]
    languages: Languages,
    /// What computes
    #[arg(long, default_value = "auto", value_parser = engine())]
    engine: Engine,
    /// Where it computes
    #[arg(long, default_value = "cpu", value_parser = device())]
    device: Device,
    /// Threads that ONNX Runtime uses [default: its own choice]
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
  cognate translate --beams 5 --n-best 3 --scores --length-penalty 0.6 \"A man is riding a bicycle.\"
  cognate translate --sample --temperature 0.7 --top-p 0.9 --seed 42 --n-best 4 \"Two dogs are playing.\"
  cognate translate --target-prefix \"Zwei Hunde\" --alignments \"Two dogs are playing in the snow.\"";

/// Lines of a window, where nobody waits for each.
const WINDOW: usize = 2000;

pub(crate) fn engine() -> impl TypedValueParser<Value = Engine> {
    let values = [
        PossibleValue::new("auto").help("ONNX Runtime if its library is found, else tract"),
        PossibleValue::new("reference").help("the reference evaluator, slow; needs a checkpoint"),
        PossibleValue::new("tract").help("tract, in pure Rust, always there"),
        PossibleValue::new("ort").help("ONNX Runtime; `cargo xtask onnxruntime` brings its library"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

pub(crate) fn device() -> impl TypedValueParser<Value = Device> {
    let values = [
        PossibleValue::new("cpu").help("the processor"),
        PossibleValue::new("cuda").help("an NVIDIA GPU, by ONNX Runtime; an error where there is none"),
    ];
    PossibleValuesParser::new(values).try_map(|name| name.parse())
}

/// A number from 1 to `largest`.
pub(crate) fn at_most(largest: usize) -> impl Fn(&str) -> Result<NonZeroUsize, String> + Clone {
    move |text| {
        let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= largest);
        number.ok_or_else(|| format!("expected a number from 1 to {largest}"))
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = match &options.model {
        Some(path) => ModelSource::find(path)?,
        None => ModelSource::default()?,
    };
    // Both fail before the model is loaded, which may take a while.
    let mut input = Input::open(options)?;
    let mut output = Output::open(options.output.as_deref(), out)?;
    let mut translator = Translator::load(&source, options)?;
    messages::note(format_args!("model {source} on {}", translator.engine()));
    if input.is_typed {
        messages::note("type a sentence a line; Ctrl-D ends");
    }

    let mut progress = Progress::new(input.bytes);
    let mut warnings = Warnings::new(input.unit.clone());
    for number in 0.. {
        let (lines, failure) = input.window();
        let is_last = lines.len() < input.window_len;
        if input.bytes.is_some() || (number > 0 && !input.is_typed) {
            progress.show();
        }
        let first = number * input.window_len + 1;
        let translations = window(&mut translator, &lines, first, options, &mut warnings, &mut progress)?;
        progress.suspend(|| output.write(&translations))?;
        if let Some(error) = failure {
            return Err(error.into());
        }
        if is_last {
            break;
        }
    }
    progress.finish();
    warnings.finish();
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// The translations of some lines; the first of them has the number `first`.
fn window(
    translator: &mut Translator,
    lines: &[String],
    first: usize,
    options: &Options,
    warnings: &mut Warnings,
    progress: &mut Progress,
) -> Result<Vec<String>> {
    let mut translations = vec![String::new(); lines.len()];
    let (mut indices, mut sources, mut found) = (Vec::new(), Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let number = first + index;
        match translator.encode(line).with_context(|| format!("{} {number}", warnings.unit))? {
            Encoded::Empty => {
                progress.add(0, line);
                found.push((number, Warning::Empty));
            }
            Encoded::Tokens { ids, cut_from } => {
                indices.push(index);
                sources.push(ids);
                found.extend(translator.lacks_language(line).then_some((number, Warning::NoLanguage)));
                found.extend(cut_from.map(|tokens| (number, Warning::TooLong { tokens, limit: translator.max_positions() })));
            }
        }
    }
    let lengths: Vec<_> = sources.iter().map(Vec::len).collect();
    let budget = options.batch_tokens.get() / translator.settings().num_beams.max(1);
    for batch in batches(&lengths, budget) {
        let chosen: Vec<_> = batch.iter().map(|&index| std::mem::take(&mut sources[index])).collect();
        let numbers: Vec<_> = batch.iter().map(|&index| (first + indices[index]) as u64).collect();
        for (translation, index) in translator.translate(&chosen, &numbers)?.into_iter().zip(batch.iter().map(|&index| indices[index])) {
            if !translation.complete {
                found.push((first + index, Warning::Unfinished { limit: translator.settings().max_new_tokens }));
            }
            progress.add(translation.n_tokens, &lines[index]);
            translations[index] = translation.text;
        }
    }
    progress.suspend(|| warnings.tell(found));
    Ok(translations)
}

/// Where sentences come from.
struct Input {
    lines: Box<dyn Iterator<Item = cognate_text::Result<String>>>,
    /// What a sentence is called in warnings.
    unit: String,
    /// The size of a file.
    bytes: Option<u64>,
    /// Whether somebody types.
    is_typed: bool,
    window_len: usize,
}

impl Input {
    fn open(options: &Options) -> Result<Self> {
        let input = options.input.as_deref().filter(|path| *path != Path::new("-"));
        let mut opened = match input {
            _ if !options.text.is_empty() => {
                let sentences = options.text.clone().into_iter().map(Ok);
                Self { lines: Box::new(sentences), unit: "sentence".into(), bytes: None, is_typed: false, window_len: WINDOW }
            }
            Some(path) => {
                let place = path.display();
                let file = File::open(path).with_context(|| format!("--input: {place}: cannot be read"))?;
                let metadata = file.metadata().with_context(|| format!("--input: {place}: cannot be looked at"))?;
                if metadata.is_dir() {
                    bail!("--input: {place}: is a folder; expected a text file, one sentence a line");
                }
                let bytes = metadata.is_file().then_some(metadata.len());
                Self::reading(BufReader::new(file), place.to_string(), bytes, false)
            }
            None => Self::reading(BufReader::new(io::stdin()), "stdin".into(), None, io::stdin().is_terminal()),
        };
        if let Some(window) = options.window {
            opened.window_len = window.get();
        }
        Ok(opened)
    }

    fn reading(reader: impl BufRead + 'static, name: String, bytes: Option<u64>, is_typed: bool) -> Self {
        let window_len = if is_typed { 1 } else { WINDOW };
        Self { unit: format!("{name}: line"), lines: Box::new(Lines::new(reader, name)), bytes, is_typed, window_len }
    }

    /// The next lines, at most a window full, and what kept others from being read.
    fn window(&mut self) -> (Vec<String>, Option<cognate_text::Error>) {
        let mut lines = Vec::new();
        while lines.len() < self.window_len {
            match self.lines.next() {
                None => break,
                Some(Ok(line)) => lines.push(line),
                Some(Err(error)) => return (lines, Some(error)),
            }
        }
        (lines, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_and_device_can_be_chosen() {
        let engines: Vec<_> = engine().possible_values().into_iter().flatten().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(engines, Engine::ALL.map(|engine| engine.to_string()));
        let devices: Vec<_> = device().possible_values().into_iter().flatten().map(|value| value.get_name().to_owned()).collect();
        assert_eq!(devices, Device::ALL.map(|device| device.to_string()));
    }
}
