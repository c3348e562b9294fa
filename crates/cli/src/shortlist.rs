//! `cognate shortlist`.

use crate::amounts::{self, at_most};
use crate::model_options::ModelFolder;
use crate::parallel::ParallelLines;
use crate::{messages, whole_file};
use anyhow::{Context, Result, bail};
use cognate_pipeline::{ShortlistBuilder, ShortlistOptions};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Learn from parallel text which tokens translate which, for faster translation
///
/// `cognate translate --shortlist FILE` then chooses each token of a translation among those that
/// FILE allows its sentence, and computes the probabilities of these alone, which is faster. FILE
/// is in the format of CTranslate2's vmap.txt.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Parallel text: two files with as many lines; can be given several times. It is held in
    /// memory, in about 10 bytes a token
    #[arg(long, num_args = 2, value_names = ["SOURCE", "TARGET"], required = true)]
    data: Vec<PathBuf>,
    /// Write the shortlist to FILE; - is standard output
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    model: ModelFolder,
    /// Number of most frequent tokens, which are allowed for every sentence [default: 200]
    #[arg(long, value_name = "N", value_parser = at_most(1 << 24))]
    frequent: Option<NonZeroUsize>,
    /// Maximum number of translations of a token [default: 100]
    #[arg(long, value_name = "N", value_parser = at_most(1000))]
    translations: Option<NonZeroUsize>,
    /// Least probability of a translation, from 0 to 1 [default: 0.0003]
    #[arg(long, value_name = "P", value_parser = probability)]
    least_probability: Option<f32>,
}

const EXAMPLES: &str = "\
Examples:
  cognate shortlist --data train.en train.de --out shortlist.txt
  cognate translate --shortlist shortlist.txt --input text.en
  cognate evaluate --shortlist shortlist.txt --source text.en --reference text.de";

fn probability(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|p: &f32| (0.0..=1.0).contains(p))
        .ok_or_else(|| "expected a number from 0 to 1".into())
}

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let data = options.data.iter().map(|file| ("--data", file.as_path()));
    whole_file::check_beside("--out", &options.out, data)?;
    let tokenizer = options.model.tokenizer()?;
    let start = Instant::now();
    let mut builder = ShortlistBuilder::new(&tokenizer);
    for files in options.data.chunks_exact(2) {
        let mut lines = ParallelLines::default();
        for file in files {
            lines.open("--data", file)?;
        }
        let mut number = 0;
        while let Some(pair) = lines.next()? {
            number += 1;
            let [source, target] = pair.as_slice() else { continue };
            if !source.trim().is_empty() && !target.trim().is_empty() {
                builder
                    .add(source, target)
                    .with_context(|| format!("{}: line {number}", files[0].display()))?;
            }
        }
    }
    if builder.sentences() == 0 {
        bail!("--data: expected sentences, found none");
    }
    let default = ShortlistOptions::default();
    let wanted = ShortlistOptions {
        frequent: options.frequent.map_or(default.frequent, NonZeroUsize::get),
        translations: options.translations.map_or(default.translations, NonZeroUsize::get),
        least_probability: options.least_probability.unwrap_or(default.least_probability),
    };
    let bar = bar();
    let file = builder.build(&wanted, |share| {
        bar.iter().for_each(|bar| bar.set_position((100.0 * share) as u64))
    });
    bar.iter().for_each(ProgressBar::finish_and_clear);
    whole_file::write("--out", &options.out, file.as_bytes(), out)?;
    let [sentences, sources] =
        [builder.sentences(), file.lines().count() - 1].map(amounts::thousands);
    messages::note(format_args!(
        "{sentences} sentences, {sources} source tokens in {}",
        amounts::duration(start.elapsed())
    ));
    Ok(ExitCode::SUCCESS)
}

fn bar() -> Option<ProgressBar> {
    messages::shows_progress().then(|| {
        let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(
            "{bar:10} {percent}% of learning which tokens translate which",
        ) {
            bar.set_style(style);
        }
        bar
    })
}
