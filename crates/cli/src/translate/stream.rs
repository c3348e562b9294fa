//! `--stream`: one sentence at a time, its words as soon as they are certain.

use super::input::Input;
use super::translator::Translator;
use super::warnings::{Warning, Warnings};
use anyhow::{Context, Result};
use cognate_generate::Batch;
use cognate_pipeline::EncodedSource;
use std::io::Write;

/// Translates `input` line by line and writes words to `out` as they come.
///
/// # Errors
/// The first by the order of lines; the lines before it are written.
pub(super) fn run(translator: &Translator, mut input: Input, out: &mut dyn Write) -> Result<()> {
    let mut decoder = translator.decoder()?;
    let mut warnings = Warnings::new(input.unit.clone());
    let limit = translator.settings().max_new_tokens;
    let mut number = 0;
    loop {
        let (lines, failure) = input.window();
        let is_last = lines.is_empty() || failure.is_some();
        for line in lines {
            number += 1;
            let place = || format!("{} {number}", input.unit);
            let prefix = translator.prefix(&line).with_context(|| input.prefix_place(number));
            match translator.encode(&line.text).with_context(place)? {
                EncodedSource::Empty => warnings.tell(vec![(number, Warning::Empty)]),
                EncodedSource::Tokens { ids, cut_from } => {
                    let too_long = |tokens| Warning::TooLong { tokens, limit: translator.max_positions() };
                    let language = translator.lacks_language(&line.text).then_some(Warning::NoLanguage);
                    warnings.tell(cut_from.map(too_long).into_iter().chain(language).map(|warning| (number, warning)).collect());
                    let mut write = |words: &str| write!(out, "{words}").and_then(|()| out.flush()).context(UNWRITTEN);
                    let sentence = Batch { sources: &[ids], prefixes: &[prefix?], numbers: &[number as u64] };
                    let complete = translator.stream(decoder.as_mut(), &sentence, &mut write).with_context(place)?;
                    if !complete {
                        warnings.tell(vec![(number, Warning::Unfinished { limit })]);
                    }
                }
            }
            writeln!(out).and_then(|()| out.flush()).context(UNWRITTEN)?;
        }
        if let Some(error) = failure {
            return Err(error);
        }
        if is_last {
            warnings.finish();
            return Ok(());
        }
    }
}

const UNWRITTEN: &str = "standard output: cannot be written";
