//! The `cognate` command: translating, continuing texts, scoring, evaluating, exporting, verifying,
//! training and explaining encoder-decoder Transformers.
//!
//! Each command is a module. Results go to standard output, messages to standard error. The exit
//! status is 1 for an error and 2 for an invalid command line. A closed standard output is not an
//! error.

mod amounts;
mod attend;
mod classify;
mod completions;
mod decoding;
mod embed;
mod evaluate;
mod explain;
mod export;
mod export_training;
mod generate;
mod messages;
mod model_options;
mod observe;
mod parallel;
mod plot;
mod read;
mod score;
mod sentences;
#[cfg(feature = "serve")]
mod serve;
mod shortlist;
mod show;
mod signals;
mod tokenize;
mod train;
mod transcribe;
mod translate;
mod verify;
mod whole_file;

use anyhow::Context;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

/// Encoder-decoder Transformers: translate, train, export to ONNX, and verify on every engine
#[derive(Parser)]
#[command(name = "cognate", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    /// Print only warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    quiet: bool,
    /// Print the model and the engine, also if standard error is not a terminal
    #[arg(short, long, global = true, display_order = 901)]
    verbose: bool,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cognate translate \"A man is riding a bicycle.\"  translate with the bundled checkpoint
  cognate export CHECKPOINT OUT                   export a Hugging Face checkpoint to ONNX
  cognate translate --model OUT --input text.en   translate a file
  cognate generate --model GPT2 \"Once upon\"       continue a text
  cognate score --input pairs.tsv                 compute probabilities of given translations
  cognate embed --model BERT \"Two dogs.\"          compute the vector of a sentence
  cognate classify --model BERT \"Two dogs.\"       compute the class of a sentence
  cognate transcribe --model WHISPER speech.wav   transcribe speech
  cognate read --model TROCR line.png             read the text of an image
  cognate evaluate --reference text.de output.de  compute BLEU and chrF
  cognate train CONFIG.toml --out OUT             train a model on parallel text
  cognate plot OUT --out curves.svg               draw the curves of a training run
  cognate export-training MODEL OUT               export the training step to ONNX
  cognate show OUT                                show the contents of a model's folder
  cognate attend \"Two dogs.\" --out dogs.html      draw attention
  cognate explain \"Two dogs.\"                     explain a translation step by step
  cognate shortlist --data A B --out FILE         learn which tokens translate which, for speed
  cognate tokenize \"Two dogs.\"                    print the pieces of a sentence
  cognate verify OUT                              compare every engine with the f64 reference

Environment:
  COGNATE_MODEL   default of --model
  COGNATE_LIMITS  limits on ONNX files: parts=524288,depth=16,elements=67108864
  ORT_DYLIB_PATH  library of ONNX Runtime

`cognate help COMMAND` explains a command.";

#[derive(Subcommand)]
enum Command {
    Translate(Box<translate::Options>),
    Generate(Box<generate::Options>),
    Score(score::Options),
    Embed(embed::Options),
    Classify(classify::Options),
    Transcribe(Box<transcribe::Options>),
    Read(read::Options),
    Evaluate(evaluate::Options),
    Export(export::Options),
    Train(Box<train::Options>),
    Plot(plot::Options),
    ExportTraining(export_training::Options),
    Show(show::Options),
    Attend(attend::Options),
    Explain(explain::Options),
    Verify(verify::Options),
    #[cfg(feature = "serve")]
    Serve(serve::Options),
    Shortlist(shortlist::Options),
    Tokenize(tokenize::TokenizeOptions),
    Detokenize(tokenize::DetokenizeOptions),
    Completions(completions::CompletionsOptions),
    Man(completions::ManOptions),
}

fn main() -> ExitCode {
    let cli = match parse() {
        Ok(cli) => cli,
        Err(help) => return print(&help),
    };
    messages::set_volume(cli.quiet, cli.verbose);
    // Engines and tokenizers panic on some files. The library returns these panics as errors, so
    // they are not printed.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        panic::set_hook(Box::new(|_| {}));
    }
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut out = BufWriter::new(io::stdout().lock());
        if !cli.command.ends_by_itself() {
            signals::end_cleanly()?;
        }
        let status = run(&cli.command, &mut out)?;
        out.flush().context(messages::UNWRITTEN)?;
        Ok(status)
    }));
    signals::wait_if_ending();
    match ended {
        Ok(Ok(status)) => status,
        Ok(Err(error)) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            messages::error(&error);
            ExitCode::FAILURE
        }
        Err(panic) => {
            messages::bug(panic.as_ref());
            ExitCode::FAILURE
        }
    }
}

impl Command {
    /// Whether the command ends by itself after a signal.
    fn ends_by_itself(&self) -> bool {
        match self {
            Self::Train(_) => true,
            #[cfg(feature = "serve")]
            Self::Serve(_) => true,
            _ => false,
        }
    }
}

/// The command line. Negative numbers are values, which the options check.
fn command_line() -> clap::Command {
    let with_numbers = |argument: clap::Arg| {
        let takes_values = argument.get_action().takes_values();
        argument.allow_negative_numbers(takes_values)
    };
    Cli::command().mut_subcommands(|command| command.mut_args(with_numbers))
}

fn parse() -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command_line().try_get_matches()?)
}

fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Command::Translate(options) => translate::run(options, out),
        Command::Generate(options) => generate::run(options, out),
        Command::Score(options) => score::run(options, out),
        Command::Embed(options) => embed::run(options, out),
        Command::Classify(options) => classify::run(options, out),
        Command::Transcribe(options) => transcribe::run(options, out),
        Command::Read(options) => read::run(options, out),
        Command::Evaluate(options) => evaluate::run(options, out),
        Command::Export(options) => export::run(options, out),
        Command::Train(options) => train::run(options, out),
        Command::Plot(options) => plot::run(options, out),
        Command::ExportTraining(options) => export_training::run(options, out),
        Command::Show(options) => show::run(options, out),
        Command::Attend(options) => attend::run(options, out),
        Command::Explain(options) => explain::run(options, out),
        Command::Verify(options) => verify::run(options, out),
        #[cfg(feature = "serve")]
        Command::Serve(options) => serve::run(options),
        Command::Shortlist(options) => shortlist::run(options, out),
        Command::Tokenize(options) => tokenize::tokenize(options, out),
        Command::Detokenize(options) => tokenize::detokenize(options, out),
        Command::Completions(options) => completions::completions(options, out),
        Command::Man(options) => completions::man(options, out),
    }
}

/// Prints a help text, the version or the error of a command line.
fn print(help: &clap::Error) -> ExitCode {
    match help.print().and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            messages::error(&anyhow::Error::new(error).context(messages::UNWRITTEN));
            ExitCode::FAILURE
        }
        _ => ExitCode::from(u8::try_from(help.exit_code()).unwrap_or(1)),
    }
}

/// Whether standard output was closed, as by `| head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }
}
