//! `cognate score`: the probabilities of given translations.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use crate::parallel::ParallelLines;
use anyhow::{Result, bail};
use cognate::{Pair, ScoredPair, Scorer};
use serde_json::json;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compute the probabilities of given translations
///
/// Each input line is a source and its translation, separated by a tab; or both are lines of two
/// files. Each pair gives one line with three columns, separated by tabs: the log-probability of
/// the translation, those of its tokens and its end token, and these tokens. Logarithms are
/// natural. A forced language token is not counted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Read pairs from FILE, one per line: source, tab, translation; - is standard input [default:
    /// -]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["source", "target"])]
    input: Option<PathBuf>,
    /// Read sources from FILE, one per line
    #[arg(long, visible_alias = "src", value_name = "FILE", requires = "target")]
    source: Option<PathBuf>,
    /// Read their translations from FILE, one per line
    #[arg(long, visible_alias = "tgt", value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// Do not count the beginning of each translation, read from FILE, one line for each pair; a
    /// line may be empty
    #[arg(long, value_name = "FILE")]
    target_prefixes: Option<PathBuf>,
    /// Write JSON Lines: {"total": ..., "tokens": [...], "log_probabilities": [...]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelOptions,
    /// Number of threads of ONNX Runtime [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Number of tokens to score together, padding included
    #[arg(long, value_name = "N", default_value = "2048", value_parser = at_most(1 << 24))]
    batch_tokens: NonZeroUsize,
}

const EXAMPLES: &str = "\
Examples:
  printf 'A dog.\\tEin Hund.\\n' | cognate score
  cognate score --source text.en --target text.de | cut -f 1
  cognate score --input pairs.tsv --target-prefixes beginnings.de
  cognate score --model nllb --source-language eng_Latn --target-language deu_Latn --input pairs.tsv";

/// Number of pairs that are read before they are scored.
const WINDOW: usize = 2000;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    let mut pairs = Pairs::open(options)?;
    let scorer =
        Scorer::load(source, &options.model.load(Some(NonZeroUsize::MIN), options.threads))?;
    let model = scorer.model();
    messages::notices(model.notices());
    messages::status(model.source(), model.engine());
    loop {
        let (window, failure) = pairs.window();
        let is_last = window.len() < WINDOW;
        for ScoredPair { total, log_probabilities, tokens } in
            scorer.score(&window, options.batch_tokens.get())?
        {
            if options.json {
                let line = json!({ "total": total, "tokens": tokens, "log_probabilities": log_probabilities });
                writeln!(out, "{line}")?;
                continue;
            }
            let logs: Vec<_> = log_probabilities.iter().map(|log| format!("{log:.6}")).collect();
            writeln!(out, "{total:.6}\t{}\t{}", logs.join(" "), tokens.join(" "))?;
        }
        if let Some(error) = failure {
            out.flush()?;
            return Err(error);
        }
        if is_last {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// The pairs, from one text with tabs or from two, and the prefixes of their translations.
struct Pairs {
    lines: ParallelLines,
    has_tabs: bool,
    number: usize,
}

impl Pairs {
    fn open(options: &Options) -> Result<Self> {
        let mut lines = ParallelLines::default();
        match (&options.source, &options.target) {
            (Some(source), Some(target)) => {
                lines.open("--source", source)?;
                lines.open("--target", target)?;
            }
            _ => {
                lines.open("--input", options.input.as_deref().unwrap_or(Path::new("-")))?;
            }
        }
        if let Some(prefixes) = &options.target_prefixes {
            lines.open("--target-prefixes", prefixes)?;
        }
        Ok(Self { lines, has_tabs: options.source.is_none(), number: 0 })
    }

    /// The next pairs, and the error that ends them.
    fn window(&mut self) -> (Vec<Pair>, Option<anyhow::Error>) {
        let mut window = Vec::new();
        while window.len() < WINDOW {
            match self.next() {
                Ok(Some(pair)) => window.push(pair),
                Ok(None) => break,
                Err(error) => return (window, Some(error)),
            }
        }
        (window, None)
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        let Some(lines) = self.lines.next()? else { return Ok(None) };
        self.number += 1;
        let place = format!("{}: line {}", self.lines.name(0), self.number);
        let mut lines = lines.into_iter();
        let mut next = || lines.next().unwrap_or_default();
        let first = next();
        let (source, target) =
            match first.split_once('\t').filter(|(_, target)| !target.contains('\t')) {
                Some((source, target)) if self.has_tabs => (source.to_owned(), target.to_owned()),
                None if self.has_tabs => {
                    bail!(
                        "{place}: expected a source, one tab and a translation, found {} tabs",
                        first.matches('\t').count()
                    )
                }
                _ => (first, next()),
            };
        Ok(Some(Pair { source, target, prefix: next(), place }))
    }
}
