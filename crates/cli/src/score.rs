//! `cognate score`: how likely given translations are under the model.

use crate::amounts::at_most;
use crate::messages;
use crate::model_files::ModelFiles;
use crate::model_options::ModelOptions;
use crate::source::ModelSource;
use crate::translate::batches::batches;
use crate::unused::Unused;
use anyhow::{Context, Result, bail};
use cognate_generate::{Batch, Decoder, decoder as decoder_of, score};
use cognate_model::Attentions;
use cognate_runtime::Options as Load;
use cognate_text::Lines;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Tell how likely given translations are
///
/// Each input line is a source and its translation, with a tab between them; or both are lines of two files. Each gives one line
/// with three columns, divided by tabs: the log-probability of the translation, that of each of its tokens and of its end, and
/// these tokens. All logarithms are natural. A language that must come first is given, and not counted.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Read pairs from FILE, one a line: source, tab, translation; - is standard input [default: -]
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["source", "target"])]
    input: Option<PathBuf>,
    /// Read sources from FILE, one a line
    #[arg(long, value_name = "FILE", requires = "target")]
    source: Option<PathBuf>,
    /// Read their translations from FILE, one a line
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// Count nothing of what each translation begins with by a line of FILE, which has as many as there are pairs; a line may be
    /// empty
    #[arg(long, value_name = "FILE")]
    target_prefixes: Option<PathBuf>,
    #[command(flatten)]
    model: ModelOptions,
    /// Threads that ONNX Runtime uses [default: its own choice]
    #[arg(long, value_name = "N", value_parser = at_most(1024))]
    threads: Option<NonZeroUsize>,
    /// Score together as many pairs as fill this many tokens, padding included
    #[arg(long, value_name = "N", default_value = "2048", value_parser = at_most(1 << 24))]
    batch_tokens: NonZeroUsize,
    #[command(flatten)]
    unused: Unused,
}

const EXAMPLES: &str = "\
Examples:
  printf 'A dog.\\tEin Hund.\\n' | cognate score
  cognate score --source text.en --target text.de | cut -f 1
  cognate score --input pairs.tsv --target-prefixes beginnings.de
  cognate score --model nllb --source-language eng_Latn --target-language deu_Latn --input pairs.tsv";

/// Lines of a window: memory does not grow with the input.
const WINDOW: usize = 2000;

/// A model that scores.
struct Scorer {
    files: ModelFiles,
    decoder: Box<dyn Decoder>,
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = options.model.source()?;
    let mut pairs = Pairs::open(options)?;
    let mut scorer = Scorer::load(&source, options)?;
    messages::note(format_args!("model {source} on {}", scorer.decoder.engine()));
    loop {
        let (window, failure) = pairs.window();
        let is_last = window.len() < WINDOW;
        for line in scorer.score(&window, options.batch_tokens.get())? {
            writeln!(out, "{line}")?;
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

impl Scorer {
    fn load(source: &ModelSource, options: &Options) -> Result<Self> {
        let files = options.model.files(source, |settings, _| Ok(settings))?;
        let runtime = options.model.engine.open(options.model.device)?;
        let found = options.model.graphs(source, &*runtime, options.unused, Attentions::Omit)?;
        let load = Load { device: options.model.device, threads: options.threads, huge_pages: true, ..Load::default() };
        let sessions = found.graphs.iter().map(|graph| runtime.load(graph, &load)).collect::<Result<Vec<_>, _>>()?;
        let decoder = decoder_of(found.layout, sessions, &files.config, files.settings.pad_token)?;
        Ok(Self { files, decoder })
    }

    /// An output line for each pair.
    fn score(&mut self, pairs: &[Pair], budget: usize) -> Result<Vec<String>> {
        let (mut sources, mut targets, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        for pair in pairs {
            let source = self.files.source_ids(&pair.source).with_context(|| pair.place.clone())?;
            let target = self.files.target_ids(&pair.target).with_context(|| pair.place.clone())?;
            prefixes.push(self.prefix(pair, &target).with_context(|| pair.place.clone())?);
            sources.push(source);
            targets.push(target);
        }
        let mut lines = vec![String::new(); pairs.len()];
        let lengths: Vec<_> = sources.iter().zip(&targets).map(|(source, target)| source.len().max(target.len() + 1)).collect();
        for chosen in batches(&lengths, budget) {
            let take = |all: &mut Vec<Vec<i64>>| chosen.iter().map(|&index| std::mem::take(&mut all[index])).collect::<Vec<_>>();
            let (sources, targets, prefixes) = (take(&mut sources), take(&mut targets), take(&mut prefixes));
            let batch = Batch { sources: &sources, prefixes: &prefixes, numbers: &[] };
            let scored = score(self.decoder.as_mut(), &batch, &targets, &self.files.settings)?;
            for (((index, scored), target), prefix) in chosen.into_iter().zip(scored).zip(&targets).zip(&prefixes) {
                let end = self.files.settings.eos_tokens.first();
                let piece = |&id: &i64| self.files.tokenizer.piece(id).unwrap_or_else(|| format!("<{id}>"));
                let pieces: Vec<_> = target[prefix.len()..].iter().chain(end).map(piece).collect();
                let logs: Vec<_> = scored.log_probabilities.iter().map(|log| format!("{log:.6}")).collect();
                lines[index] = format!("{:.6}\t{}\t{}", scored.total, logs.join(" "), pieces.join(" "));
            }
        }
        Ok(lines)
    }

    /// The tokens at the beginning of a translation that are given: what is forced to come first is no choice of the model, nor is
    /// the prefix.
    fn prefix(&self, pair: &Pair, target: &[i64]) -> Result<Vec<i64>> {
        let forced = self.files.settings.forced_bos_token;
        let ids = if pair.prefix.is_empty() { Vec::new() } else { self.files.tokenizer.encode_target(&pair.prefix)? };
        let prefix: Vec<_> = forced.into_iter().chain(ids).collect();
        if !target.starts_with(&prefix) {
            bail!("the translation does not begin with the tokens of its prefix {:?}; expected a prefix of whole words", pair.prefix);
        }
        Ok(prefix)
    }
}

/// A source and its translation.
struct Pair {
    /// Where they stand.
    place: String,
    source: String,
    target: String,
    /// What of the translation is given.
    prefix: String,
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
