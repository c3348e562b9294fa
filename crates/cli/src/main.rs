//! The `cognate` command: train, translate, score and evaluate with, export, show, look into and verify encoder-decoder Transformers.
//!
//! One module a command. Results go to standard output, all that is said to people to standard error. An error ends the
//! program with status 1, a wrong command line with 2. A reader that closes standard output ends it quietly.

mod account;
mod amounts;
mod attend;
mod bench;
mod decoding;
mod evaluate;
mod explain;
mod export;
mod export_training;
mod languages;
mod layout;
mod messages;
mod model_files;
mod model_options;
mod observed;
mod plot;
mod quality;
mod score;
mod show;
mod signals;
mod source;
mod tokenizer_files;
mod train;
mod translate;
mod unused;
mod verify;
mod whole_file;

use clap::{Parser, Subcommand};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

/// Encoder-decoder Transformers: one definition, exported to ONNX, with the same numbers on every runtime
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  cognate translate \"A man is riding a bicycle.\"  with the checkpoint of the repository
  cognate export CHECKPOINT OUT                   a Hugging Face checkpoint becomes ONNX
  cognate translate --model OUT --input text.en   a file, line by line
  cognate score --input pairs.tsv                 how likely given translations are
  cognate evaluate --reference text.de output.de  how good translations are
  cognate train CONFIG.toml --out OUT             parallel text becomes a model
  cognate plot OUT --out curves.svg               how its training went
  cognate export-training MODEL OUT               the training step as ONNX, for other programs
  cognate show OUT                                what is in there
  cognate attend \"Two dogs.\" --out dogs.html      which words the model looks at
  cognate explain \"Two dogs.\"                     what it does, step by step
  cognate verify OUT                              every runtime against the f64 reference

Environment:
  COGNATE_MODEL   the model of commands that name none
  COGNATE_LIMITS  what ONNX files may ask for: parts=524288,depth=16,elements=67108864
  ORT_DYLIB_PATH  the library of ONNX Runtime

`cognate help COMMAND` tells more.";

#[derive(Subcommand)]
enum Command {
    Translate(translate::Options),
    Score(score::Options),
    Evaluate(evaluate::Options),
    Export(export::Options),
    Train(Box<train::Options>),
    Plot(plot::Options),
    ExportTraining(export_training::Options),
    Show(show::Options),
    Attend(attend::Options),
    Explain(explain::Options),
    Verify(verify::Options),
    #[command(hide = true)]
    Bench(bench::Options),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // Engines and tokenizers answer some files by a panic, which our crates turn into errors: it is not for people's eyes.
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        panic::set_hook(Box::new(|_| {}));
    }
    let ended = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut out = BufWriter::new(io::stdout().lock());
        if !matches!(cli.command, Command::Train(_)) {
            signals::end_cleanly()?;
        }
        let status = run(&cli.command, &mut out)?;
        out.flush()?;
        Ok(status)
    }));
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

fn run(command: &Command, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match command {
        Command::Translate(options) => translate::run(options, out),
        Command::Score(options) => score::run(options, out),
        Command::Evaluate(options) => evaluate::run(options, out),
        Command::Export(options) => export::run(options, out),
        Command::Train(options) => train::run(options, out),
        Command::Plot(options) => plot::run(options, out),
        Command::ExportTraining(options) => export_training::run(options, out),
        Command::Show(options) => show::run(options, out),
        Command::Attend(options) => attend::run(options, out),
        Command::Explain(options) => explain::run(options, out),
        Command::Verify(options) => verify::run(options, out),
        Command::Bench(options) => bench::run(options, out),
    }
}

/// Whether nobody reads our output any more, as after `| head`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
