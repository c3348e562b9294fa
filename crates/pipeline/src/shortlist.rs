//! Files of lexical shortlists, in the format of CTranslate2's vocabulary maps (`vmap.txt`).
//!
//! A line has one source token or several, a tab, and the target tokens that translate them, with
//! spaces between tokens. A line that begins with the tab has those for any source.

use crate::error::{Error, Result};
use cognate_generate::Shortlist;
use cognate_model::Config;
use cognate_text::{Lexicon, Lines, ParallelTokens, Tokenizer};
use std::collections::HashMap;
use std::fmt::Write;
use std::path::Path;

/// How many target tokens a shortlist has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShortlistOptions {
    /// For any source: the most frequent ones.
    pub frequent: usize,
    /// For each source token: its most probable translations, at most.
    pub translations: usize,
    /// The least probability of these.
    pub least_probability: f32,
}

impl Default for ShortlistOptions {
    fn default() -> Self {
        Self { frequent: 200, translations: 100, least_probability: 0.0003 }
    }
}

/// Makes a shortlist from parallel text.
pub struct ShortlistBuilder<'t> {
    tokenizer: &'t Tokenizer,
    text: ParallelTokens,
}

impl<'t> ShortlistBuilder<'t> {
    /// Begins with no text.
    pub fn new(tokenizer: &'t Tokenizer) -> Self {
        Self { tokenizer, text: ParallelTokens::default() }
    }

    /// Adds a sentence and its translation.
    ///
    /// # Errors
    /// If the tokenizer rejects one.
    pub fn add(&mut self, source: &str, target: &str) -> Result<()> {
        let (source, target) =
            (self.tokenizer.encode(source)?, self.tokenizer.encode_target(target)?);
        self.text.push(&source, &target);
        Ok(())
    }

    /// The number of sentences.
    pub fn sentences(&self) -> usize {
        self.text.len()
    }

    /// The contents of the file. `progress` is called with the share of the work that is done.
    pub fn build(&self, options: &ShortlistOptions, progress: impl FnMut(f64)) -> String {
        let lexicon = Lexicon::learn(&self.text, progress);
        let piece = |id: i64| self.tokenizer.piece(id).filter(|piece| is_writable(piece));
        let pieces = |ids: &mut dyn Iterator<Item = i64>| {
            ids.filter_map(piece).collect::<Vec<_>>().join(" ")
        };
        let mut file =
            format!("\t{}\n", pieces(&mut lexicon.frequent(options.frequent).into_iter()));
        for source in lexicon.sources() {
            let Some(name) = self.tokenizer.source_piece(source).filter(|piece| is_writable(piece))
            else {
                continue;
            };
            let probable = lexicon
                .translations(source)
                .into_iter()
                .take_while(|(_, p)| *p >= options.least_probability);
            let targets =
                pieces(&mut probable.take(options.translations).map(|(target, _)| target));
            let _ = writeln!(file, "{name}\t{targets}");
        }
        file
    }
}

/// Whether a token can stand in a file.
fn is_writable(piece: &str) -> bool {
    !piece.is_empty() && !piece.contains([' ', '\t', '\n', '\r'])
}

/// Reads the shortlist of a model.
pub(crate) fn read_shortlist(
    path: &Path,
    tokenizer: &Tokenizer,
    config: &Config,
) -> Result<Shortlist> {
    let wrong = |error: &dyn std::fmt::Display| Error::wrong_option("shortlist", error);
    let (mut always, mut by_source) = (Vec::new(), HashMap::<_, Vec<i64>>::new());
    for (line, number) in Lines::open(path).map_err(|error| wrong(&error))?.zip(1_usize..) {
        let line = line.map_err(|error| wrong(&error))?;
        let refuse = |expected: &str, found: &str| {
            wrong(&format_args!(
                "{}: line {number}: expected {expected}, found {found:?}",
                path.display()
            ))
        };
        let (sources, targets) = line
            .split_once('\t')
            .ok_or_else(|| refuse("source tokens, a tab and target tokens", &line))?;
        let is_target = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < config.vocab);
        let target = |piece: &str| {
            tokenizer
                .target_id(piece)
                .filter(is_target)
                .ok_or_else(|| refuse("a target token of the model", piece))
        };
        let targets = targets.split_whitespace().map(target).collect::<Result<Vec<_>>>()?;
        let source = |piece: &str| {
            tokenizer.id(piece).ok_or_else(|| refuse("a source token of the model", piece))
        };
        let sources = sources.split_whitespace().map(source).collect::<Result<Vec<_>>>()?;
        match sources.is_empty() {
            true => always.extend(targets),
            false => by_source.entry(sources).or_default().extend(targets),
        }
    }
    if always.is_empty() && by_source.values().all(Vec::is_empty) {
        return Err(wrong(&format_args!(
            "{}: expected lines of source tokens, a tab and target tokens, found no token",
            path.display()
        )));
    }
    Ok(Shortlist::new(always, by_source))
}
