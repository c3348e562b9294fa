//! `cognate generate`: texts that continue prompts.

use crate::amounts::at_most;
use crate::decoding::Decoding;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::translate::output::Output;
use crate::translate::{Input, SpeedOptions, json, lines, stream};
use anyhow::{Result, bail};
use cognate::Generator;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Continue texts
///
/// The model is a decoder alone, such as GPT-2 or OPT. Prompts are the arguments, the lines of a
/// file, or the lines of standard input. The text after each prompt is one line in the same order,
/// or several with --n-best; line breaks in it become spaces. An empty prompt begins a text.
/// Options override the model's generation_config.json.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, mut_args = about_prompts)]
pub(crate) struct Options {
    /// Prompts to continue [default: the lines of --input]
    #[arg(value_name = "TEXT", conflicts_with = "input")]
    text: Vec<String>,
    /// Read prompts from FILE, one per line; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write texts to FILE, which appears when it is complete; - is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    speed: SpeedOptions,
    /// Number of hypotheses in beam search; 1 is greedy [default: the model's]
    #[arg(long, visible_aliases = ["num-beams", "beam-size"], value_name = "N", value_parser = at_most(256))]
    beams: Option<NonZeroUsize>,
    /// Maximum number of tokens after the prompt [default: the model's]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    max_new_tokens: Option<NonZeroUsize>,
    /// Write each word as soon as it is decoded, one prompt at a time; not with beam search
    #[arg(long, conflicts_with_all = ["output", "workers", "batch_tokens", "batch_size", "window", "n_best"])]
    stream: bool,
    /// Number of lines to read before continuing them; 1 continues each line at once [default:
    /// 2000, on a terminal 1]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    window: Option<NonZeroUsize>,
    /// Write JSON Lines: {"line": ..., "text": ..., "hypotheses": [...]}, with scores and
    /// tokens
    #[arg(long, conflicts_with = "stream")]
    json: bool,
    #[command(flatten)]
    decoding: Decoding,
}

const EXAMPLES: &str = "\
Examples:
  cognate generate --model gpt2 \"Once upon a time\"
  cognate generate --model gpt2 --input prompts.txt --output texts.txt --max-new-tokens 40
  cognate generate --model gpt2 --stream --sample --temperature 0.7 --top-p 0.9 --seed 42 \"The weather\"
  cognate generate --model gpt2 --beams 4 --n-best 4 --scores --no-repeat-ngram-size 3 \"The weather\"
  cognate export gpt2 out && cognate generate --model out \"Once upon a time\"";

/// Options about the source of a translation.
const OF_TRANSLATIONS: [&str; 6] = [
    "alignments",
    "replace_unknowns",
    "target_prefix",
    "target_prefixes",
    "source_language",
    "target_language",
];

/// Hides options about translations, and names prompts in the help of others.
fn about_prompts(arg: clap::Arg) -> clap::Arg {
    if OF_TRANSLATIONS.contains(&arg.get_id().as_str()) {
        return arg.hide(true);
    }
    let help = arg.get_help().map(ToString::to_string);
    let reworded = help.map(|help| {
        let words = [
            ("translations", "texts"),
            ("translation", "text"),
            ("sentences", "prompts"),
            ("sentence", "prompt"),
        ];
        words
            .into_iter()
            .fold(help, |help, (from, to)| help.replace(from, to))
            .replace("to translate", "to continue")
    });
    match reworded {
        Some(help) => arg.help(help),
        None => arg,
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    if options.decoding.target_prefixes().is_some() {
        bail!(
            "--target-prefixes: a decoder alone has no source; leave it out, and write the beginning of a text as its prompt"
        );
    }
    // These fail before the model is loaded, which can take a while.
    let window = if options.stream { Some(1) } else { options.window.map(NonZeroUsize::get) };
    let mut input = Input::open(options.text.clone(), options.input.as_deref(), window)?;
    input.is_long &= !options.stream;
    let mut output = Output::open(options.output.as_deref(), &input.files, out)?;
    let Options { model, speed, beams, max_new_tokens, decoding, .. } = options;
    let loading = speed.options(
        model,
        decoding.options(*beams, *max_new_tokens, options.json),
        input.is_long,
    );
    let generator = Generator::load(source, &loading)?;
    messages::notices(generator.notices());
    messages::status(generator.model().source(), generator.model().engine());
    if options.stream {
        generator.as_ref().check_stream()?;
        // --output conflicts with --stream.
        let Output::Standard(out) = output else { return Ok(ExitCode::SUCCESS) };
        stream::run(generator.as_ref(), decoding, input, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    lines(generator.as_ref(), input, |first, found| {
        let line = |(number, found)| match options.json {
            true => json::line(number, found, generator.model().tokenizer()),
            false => decoding.lines(number, found),
        };
        output.write(&(first..).zip(found).map(line).collect::<Vec<_>>())
    })?;
    output.finish()?;
    Ok(ExitCode::SUCCESS)
}
