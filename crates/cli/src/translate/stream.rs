//! `--stream`: one sentence at a time, each word as soon as it is final.

use super::input::Input;
use super::warnings::Warnings;
use crate::decoding::Decoding;
use crate::messages;
use anyhow::{Context, Error, Result, anyhow};
use cognate::Translator;
use std::io::Write;

/// Translates `input` line by line and writes words to `out` as they are decoded.
pub(crate) fn run(
    translator: &Translator,
    decoding: &Decoding,
    input: Input,
    out: &mut dyn Write,
) -> Result<()> {
    let (unit, prefix_unit) = (input.unit.clone(), input.prefix_unit());
    let mut warnings = Warnings::new(unit.clone());
    for (line, number) in input.zip(1..) {
        let mut write = |words: &str| {
            write!(out, "{}", decoding.text_column(words))
                .and_then(|()| out.flush())
                .context(messages::UNWRITTEN)
        };
        // The error of a prefix names the prefix's line.
        let place = |error: Error| match error
            .downcast_ref::<cognate::Error>()
            .and_then(cognate::Error::option)
        {
            Some(("target_prefix", message)) => anyhow!("{prefix_unit} {number}: {message}"),
            _ => error.context(format!("{unit} {number}")),
        };
        let translation = translator.stream(&line?, number as u64, &mut write).map_err(place)?;
        warnings.of(number, &translation);
        let columns = translation
            .hypotheses
            .first()
            .map(|best| decoding.columns(&best.hypothesis))
            .unwrap_or_default();
        writeln!(out, "{columns}").and_then(|()| out.flush()).context(messages::UNWRITTEN)?;
    }
    warnings.finish();
    Ok(())
}
