//! Reading a training file field by field, so that all its problems are reported together.

use std::collections::{BTreeMap, BTreeSet};

use toml::Spanned;
use toml::de::{DeTable, DeValue, Error, ValueDeserializer};

use super::check;
use super::sections::{Section, TrainingConfig};
use crate::error::{Cause, Result};

/// Reads a file's text, changes the settings, and checks them. `change` returns the fields that it
/// set, with their names in errors.
pub(super) fn read(
    text: &str,
    file: &str,
    change: impl FnOnce(&mut TrainingConfig) -> Vec<Changed>,
) -> Result<TrainingConfig> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut reader =
        Reader { text, problems: Vec::new(), lines: BTreeMap::new(), refused: BTreeSet::new() };
    for error in &errors {
        reader.fail(error, None, "TOML");
    }
    let (mut config, mut of_options) = (TrainingConfig::default(), Vec::new());
    // A text that is not TOML may have lost fields, so missing or unknown fields are not reported.
    if errors.is_empty() {
        reader.top(&mut config, table.into_inner());
        let changed = change(&mut config);
        for problem in check::problems(&config) {
            if let Some((_, option)) = changed.iter().find(|(field, _)| *field == problem.field) {
                of_options.push(format!("{option}: {problem}"));
                continue;
            }
            let line = reader.lines.get(&problem.field).copied();
            // A field whose own value was rejected has its default here; it is reported once.
            if !reader.refused.contains(&problem.field) {
                reader.problems.push((line.unwrap_or(0), problem.to_string()));
            }
        }
    }
    if reader.problems.is_empty() && of_options.is_empty() {
        return Ok(config);
    }
    reader.problems.sort_by_key(|(line, _)| *line);
    let place = |line: usize| {
        if line == 0 { format!("{file}: ") } else { format!("{file}: line {line}: ") }
    };
    let of_file = reader.problems.into_iter().map(|(line, problem)| place(line) + &problem);
    let lines: Vec<String> = of_options.into_iter().chain(of_file).collect();
    Err(Cause::Config(lines.join("\n")))?
}

/// A field and its name in errors.
pub(super) type Changed = (&'static str, &'static str);

/// Sets one field, called `section.field`, to a value as in a file; words need no quotation marks.
pub(super) fn set(config: &mut TrainingConfig, name: &str, text: &str) -> Result<()> {
    match name.split_once('.') {
        Some(("data", field)) => set_in(&mut config.data, name, field, text),
        Some(("tokenizer", field)) => set_in(&mut config.tokenizer, name, field, text),
        Some(("model", field)) => set_in(&mut config.model, name, field, text),
        Some(("tuning", field)) => set_in(&mut config.tuning, name, field, text),
        Some(("dropout", field)) => set_in(&mut config.dropout, name, field, text),
        Some(("optimiser", field)) => set_in(&mut config.optimiser, name, field, text),
        Some(("schedule", field)) => set_in(&mut config.schedule, name, field, text),
        Some((section, _)) => Err(Cause::Config(format!(
            "{name}: {section} is not a section; expected one of {}",
            SECTIONS.join(", ")
        ))
        .into()),
        None => set_in(config, name, name, text),
    }
}

fn set_in<S: Section>(section: &mut S, name: &str, field: &str, text: &str) -> Result<()> {
    if !S::FIELDS.contains(&field) {
        Err(Cause::Config(format!("{name} is unknown; expected one of {}", S::FIELDS.join(", "))))?;
    }
    let word =
        || ValueDeserializer::from(Spanned::new(0..text.len(), DeValue::String(text.into())));
    let value = ValueDeserializer::parse(text).unwrap_or_else(|_| word());
    Ok(section
        .set(field, value)
        .map_err(|error| Cause::Config(format!("{name}: {}", plain(error.message()))))?)
}

const SECTIONS: [&str; 7] =
    ["data", "tokenizer", "model", "tuning", "dropout", "optimiser", "schedule"];

struct Reader<'t> {
    text: &'t str,
    /// With their lines, 0 for none.
    problems: Vec<(usize, String)>,
    /// The lines of the fields that were set: `model.heads`.
    lines: BTreeMap<String, usize>,
    /// The fields that could not be set.
    refused: BTreeSet<String>,
}

impl Reader<'_> {
    fn top(&mut self, config: &mut TrainingConfig, table: DeTable<'_>) {
        let (mut sections, mut fields) = (Vec::new(), DeTable::new());
        for (key, value) in table {
            match SECTIONS.contains(&key.get_ref().as_ref()) {
                true => sections.push((key, value)),
                false => {
                    fields.insert(key, value);
                }
            }
        }
        for (key, value) in sections {
            let line = self.line(key.span().start);
            let DeValue::Table(table) = value.into_inner() else {
                self.problems.push((
                    line,
                    format!(
                        "{} is not a section; expected [{0}] and its fields below",
                        key.get_ref()
                    ),
                ));
                continue;
            };
            match key.get_ref().as_ref() {
                "data" => self.section("data.", &mut config.data, table),
                "tokenizer" => self.section("tokenizer.", &mut config.tokenizer, table),
                "model" => self.section("model.", &mut config.model, table),
                "tuning" => self.section("tuning.", &mut config.tuning, table),
                "dropout" => self.section("dropout.", &mut config.dropout, table),
                "optimiser" => self.section("optimiser.", &mut config.optimiser, table),
                "schedule" => self.section("schedule.", &mut config.schedule, table),
                _ => unreachable!("it is one of the sections"),
            }
        }
        self.section("", config, fields);
    }

    fn section<S: Section>(&mut self, prefix: &str, section: &mut S, table: DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref().to_string();
            let (field, line) = (format!("{prefix}{name}"), self.line(key.span().start));
            if !S::FIELDS.contains(&name.as_str()) {
                let mut known = S::FIELDS.join(", ");
                if prefix.is_empty() {
                    known += &format!(", and the sections {}", SECTIONS.join(", "));
                }
                self.problems.push((line, format!("{field} is unknown; expected one of {known}")));
                continue;
            }
            let span = value.span();
            match section
                .set(&name, ValueDeserializer::from(Spanned::new(span.clone(), value.into_inner())))
            {
                Ok(()) => {
                    self.lines.insert(field, line);
                }
                Err(error) => {
                    self.fail(&error, Some(span), &field);
                    self.refused.insert(field);
                }
            }
        }
    }

    fn fail(&mut self, error: &Error, span: Option<std::ops::Range<usize>>, field: &str) {
        let start = error.span().or(span).map_or(0, |span| span.start);
        self.problems.push((self.line(start), format!("{field}: {}", plain(error.message()))));
    }

    /// The line of a byte, counted from 1.
    fn line(&self, byte: usize) -> usize {
        1 + self.text.bytes().take(byte).filter(|byte| *byte == b'\n').count()
    }
}

/// A message of serde without the names of Rust's types.
fn plain(message: &str) -> String {
    let types = [
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected f64", "expected a number"),
        ("expected a boolean", "expected true or false"),
        ("expected path string", "expected text with a path"),
        ("expected a string", "expected text"),
        ("expected a sequence", "expected a list in [ ]"),
        ("expected struct Text", "expected a corpus in { }"),
        ("wanted string or table", "expected text with one word"),
        ("invalid type: ", "found "),
        ("invalid value: ", "found "),
        ("unknown variant ", "found "),
        ("unknown field ", "found the unknown field "),
    ];
    types
        .iter()
        .fold(message.trim().replace('\n', " "), |message, (from, to)| message.replace(from, to))
}
