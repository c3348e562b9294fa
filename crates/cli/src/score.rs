//! `cognate score`: how likely given translations are under the model.

use crate::amounts::at_most;
use crate::messages;
use crate::model_options::ModelOptions;
use anyhow::{Context, Result, bail};
use cognate::{Pair, ScoredPair, Scorer};
use cognate_text::Lines;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Compute the probabilities of given translations
///
/// Each input line is a source and its translation, separated by a tab; or both are lines of two files. Each pair gives one line
/// with three columns, separated by tabs: the log-probability of the translation, those of its tokens and its end token, and
/// these tokens. Logarithms are natural. A language that must come first is not counted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Read pairs from FILE, one per line: source, tab, translation; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["source", "target"])]
    input: Option<PathBuf>,
    /// Read sources from FILE, one per line
    #[arg(long, visible_alias = "src", value_name = "FILE", requires = "target")]
    source: Option<PathBuf>,
    /// Read their translations from FILE, one per line
    #[arg(long, visible_alias = "tgt", value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// Do not count the beginning of each translation, read from FILE, one line for each pair; a line may be empty
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

/// Lines of a window: memory does not grow with the input.
const WINDOW: usize = 2000;

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    let mut pairs = Pairs::open(options)?;
    let scorer = Scorer::load(source, &options.model.load(Some(NonZeroUsize::MIN), options.threads))?;
    let model = scorer.model();
    messages::notices(model.notices());
    messages::status(model.source(), model.engine());
    loop {
        let (window, failure) = pairs.window();
        let is_last = window.len() < WINDOW;
        for ScoredPair { total, log_probabilities, tokens } in scorer.score(&window, options.batch_tokens.get())? {
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

type Reading = Box<dyn Iterator<Item = cognate_text::Result<String>>>;

/// Where pairs come from, and what their translations begin with.
struct Pairs {
    texts: Texts,
    /// With their file's name.
    prefixes: Option<(Reading, String)>,
}

enum Texts {
    Together { lines: Reading, name: String, number: usize },
    Apart { sources: Reading, targets: Reading, names: [String; 2], number: usize },
}

impl Pairs {
    fn open(options: &Options) -> Result<Self> {
        let file = |option: &str, path: &Path| -> Result<(Reading, String)> {
            let name = path.display().to_string();
            let reader: Box<dyn BufRead> = match path == Path::new("-") {
                true => Box::new(BufReader::new(io::stdin())),
                false => Box::new(BufReader::new(File::open(path).with_context(|| format!("{option}: {name}: cannot be read"))?)),
            };
            let name = if path == Path::new("-") { "stdin".to_owned() } else { name };
            Ok((Box::new(Lines::new(reader, name.clone())), name))
        };
        let prefixes = options.target_prefixes.as_deref().map(|path| file("--target-prefixes", path)).transpose()?;
        let texts = match (&options.source, &options.target) {
            (Some(source), Some(target)) => {
                let ((sources, first), (targets, second)) = (file("--source", source)?, file("--target", target)?);
                Texts::Apart { sources, targets, names: [first, second], number: 0 }
            }
            _ => {
                let (lines, name) = file("--input", options.input.as_deref().unwrap_or(Path::new("-")))?;
                Texts::Together { lines, name, number: 0 }
            }
        };
        let n_standard = prefixes.iter().map(|(_, name)| name).chain(texts.names()).filter(|name| *name == "stdin").count();
        if n_standard > 1 {
            bail!("standard input cannot be several texts; give files for the others");
        }
        Ok(Self { texts, prefixes })
    }

    /// The next pairs, at most a window full, and what kept others from being read.
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
        let pair = self.texts.next()?;
        let Some((lines, name)) = &mut self.prefixes else { return Ok(pair) };
        match (pair, lines.next().transpose()?) {
            (None, None) => Ok(None),
            (Some(pair), Some(prefix)) => Ok(Some(Pair { prefix, ..pair })),
            (Some(pair), None) => bail!("{name}: has no line for {}; expected one for each pair", pair.place),
            (None, Some(_)) => bail!("{name}: has more lines than there are pairs; expected one for each"),
        }
    }
}

impl Texts {
    fn names(&self) -> impl Iterator<Item = &String> {
        match self {
            Self::Together { name, .. } => std::slice::from_ref(name).iter(),
            Self::Apart { names, .. } => names.iter(),
        }
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        match self {
            Self::Together { lines, name, number } => {
                let Some(line) = lines.next().transpose()? else { return Ok(None) };
                *number += 1;
                let place = format!("{name}: line {number}");
                let Some((source, target)) = line.split_once('\t').filter(|(_, target)| !target.contains('\t')) else {
                    bail!("{place}: expected a source, one tab and a translation, found {} tabs", line.matches('\t').count());
                };
                Ok(Some(Pair { source: source.into(), target: target.into(), prefix: String::new(), place }))
            }
            Self::Apart { sources, targets, names, number } => {
                *number += 1;
                match (sources.next().transpose()?, targets.next().transpose()?) {
                    (None, None) => Ok(None),
                    (Some(source), Some(target)) => {
                        let place = format!("{}: line {number}", names[0]);
                        Ok(Some(Pair { source, target, prefix: String::new(), place }))
                    }
                    (found, _) => {
                        let short = if found.is_some() { &names[1] } else { &names[0] };
                        bail!("{short}: ends before line {number}; expected as many lines in {} as in {}", names[0], names[1])
                    }
                }
            }
        }
    }
}
