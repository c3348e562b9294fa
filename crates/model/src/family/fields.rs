//! Reads the fields of a `config.json` and collects all problems.

use crate::Activation;
use crate::config::StackNames;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The object and the problems found. A missing or malformed field reads as a harmless value, and
/// [`Fields::finish`] then fails.
pub(super) struct Fields {
    object: Map<String, Value>,
    /// Names of the fields read.
    read: RefCell<BTreeSet<String>>,
    problems: RefCell<Problems>,
}

/// Default tokens of a family.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub(super) start: Option<usize>,
    pub(super) bos: Option<usize>,
    pub(super) eos: Option<usize>,
    pub(super) pad: Option<usize>,
}

#[derive(Default)]
struct Problems {
    /// Fields that could not be read.
    unread: Vec<String>,
    /// Unsupported values.
    refused: Vec<String>,
    /// Values that contradict each other; meaningless if a field could not be read.
    contradictions: Vec<String>,
}

impl Fields {
    pub(super) fn new(object: Map<String, Value>) -> Self {
        Self { object, read: RefCell::default(), problems: RefCell::default() }
    }

    /// Returns all problems as an error, if there are any.
    pub(super) fn finish(self) -> Result<(), String> {
        let Problems { unread, refused, contradictions } = self.problems.into_inner();
        let contradictions = if unread.is_empty() { contradictions } else { Vec::new() };
        match [unread, refused, contradictions].concat().as_slice() {
            [] => Ok(()),
            [only] => Err(only.clone()),
            several => Err(format!("{} invalid fields\n  {}", several.len(), several.join("\n  "))),
        }
    }

    /// Records an unsupported value.
    pub(super) fn refuse(&self, problem: impl Into<String>) {
        self.problems.borrow_mut().refused.push(problem.into());
    }

    /// Records values that contradict each other.
    pub(super) fn contradict(&self, problem: impl Into<String>) {
        let problem = problem.into();
        let contradictions = &mut self.problems.borrow_mut().contradictions;
        if !contradictions.contains(&problem) {
            contradictions.push(problem);
        }
    }

    fn unread(&self, problem: String) {
        let unread = &mut self.problems.borrow_mut().unread;
        if !unread.contains(&problem) {
            unread.push(problem);
        }
    }

    /// A required non-negative integer.
    pub(super) fn size(&self, field: &str) -> usize {
        self.optional_size(field).unwrap_or_else(|| {
            if self.present(field).is_none() {
                self.unread(format!("{field} is missing; expected a whole number"));
            }
            1
        })
    }

    /// An optional non-negative integer.
    pub(super) fn optional_size(&self, field: &str) -> Option<usize> {
        self.read(field, "a whole number", |value| {
            value.as_u64().and_then(|size| usize::try_from(size).ok())
        })
    }

    /// Whether the field exists, possibly as `null`.
    pub(super) fn has(&self, field: &str) -> bool {
        self.present(field);
        self.object.contains_key(field)
    }

    /// The result of `read`, also for a missing field; `None` if the field is `null`.
    pub(super) fn unless_null<T>(&self, field: &str, read: impl FnOnce() -> T) -> Option<T> {
        (!self.has(field) || self.present(field).is_some()).then(read)
    }

    /// A list of strings.
    pub(super) fn texts(&self, field: &str) -> Option<Vec<&str>> {
        self.read(field, "a list of texts", |value| {
            value.as_array()?.iter().map(Value::as_str).collect()
        })
    }

    /// The token of a field, or the first of a list.
    pub(super) fn first_token(&self, field: &str) -> Option<usize> {
        let token = |value: &Value| value.as_u64().and_then(|token| usize::try_from(token).ok());
        self.read(field, "a token id or a list of them", |value| match value.as_array() {
            Some(tokens) => token(tokens.first()?),
            None => token(value),
        })
    }

    /// A height and width, or one number for both.
    pub(super) fn sides(&self, field: &str, default: usize) -> [usize; 2] {
        let size = |value: &Value| value.as_u64().and_then(|size| usize::try_from(size).ok());
        let both = |value: &Value| match value.as_array().map(Vec::as_slice) {
            Some([height, width]) => Some([size(height)?, size(width)?]),
            _ => size(value).map(|side| [side; 2]),
        };
        self.read(field, "a whole number, or two", both).unwrap_or([default; 2])
    }

    /// A boolean.
    pub(super) fn flag(&self, field: &str, default: bool) -> bool {
        self.read(field, "true or false", Value::as_bool).unwrap_or(default)
    }

    /// A positive number.
    pub(super) fn positive(&self, field: &str, default: f32) -> f32 {
        let convert = |value: &Value| {
            value
                .as_f64()
                .map(|number| number as f32)
                .filter(|number| number.is_finite() && *number > 0.0)
        };
        self.read(field, "a positive number", convert).unwrap_or(default)
    }

    /// An optional string.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.read(field, "a string", Value::as_str)
    }

    /// The transformers class that wrote the file, the first of `architectures`.
    pub(super) fn architecture(&self) -> Option<&str> {
        self.read("architectures", "a list of texts", |value| {
            value.as_array().map(|classes| classes.first().and_then(Value::as_str))
        })?
    }

    /// Whether the class is the encoder of a model that has a decoder: `M2M100Encoder`,
    /// `T5EncoderModel`.
    pub(super) fn is_encoder_alone(&self) -> bool {
        self.architecture()
            .is_some_and(|class| class.trim_end_matches("Model").ends_with("Encoder"))
    }

    /// The major version of transformers that wrote the file; 0 if it does not say.
    pub(super) fn transformers(&self) -> u32 {
        self.text("transformers_version").map_or(0, super::major)
    }

    /// The number of a classifier's classes; the default is 2.
    pub(super) fn labels(&self) -> usize {
        let named =
            || self.read("id2label", "an object", Value::as_object).map(serde_json::Map::len);
        self.optional_size("num_labels").or_else(named).unwrap_or(2)
    }

    /// The activation that `field` calls `name`.
    pub(super) fn activation(&self, field: &str, name: &str) -> Activation {
        Activation::named(name).unwrap_or_else(|| {
            let names: Vec<_> = Activation::names().collect();
            self.refuse(format!(
                "{field} {name:?} is not supported; expected one of {}",
                names.join(", ")
            ));
            Activation::Identity
        })
    }

    /// The value that a field names; `default` if the field is absent.
    pub(super) fn named<T: DeserializeOwned>(&self, field: &str, default: T) -> T {
        let Some(found) = self.text(field) else { return default };
        serde_json::from_value(found.into()).unwrap_or_else(|error| {
            self.refuse(format!("{field}: {error}"));
            default
        })
    }

    /// The value in `words` of the field's string; the first of `words` if the field is missing.
    pub(super) fn choice<T: Copy>(&self, field: &str, words: &[(&str, T)]) -> T {
        let found = self.text(field).unwrap_or(words[0].0);
        words.iter().find(|(word, _)| *word == found).map_or_else(
            || {
                let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
                self.refuse(format!(
                    "{field} {found:?} is not supported; expected one of {}",
                    known.join(", ")
                ));
                words[0].1
            },
            |(_, meaning)| *meaning,
        )
    }

    /// The width of a head if the model's width is divided among the heads.
    pub(super) fn width_of_heads(
        &self,
        d_model: usize,
        StackNames { heads, d_k, .. }: &StackNames,
    ) -> usize {
        let n_heads = self.size(heads);
        if n_heads == 0 || !d_model.is_multiple_of(n_heads) {
            self.contradict(format!("{d_k} {d_model} is not divisible by {heads} {n_heads}"));
        }
        d_model.checked_div(n_heads).unwrap_or(1).max(1)
    }

    /// Rejects fields that were not read, except those in `ignored`.
    pub(super) fn refuse_unread(&self, ignored: &[&str]) {
        let read = self.read.borrow();
        for (field, value) in self
            .object
            .iter()
            .filter(|(field, _)| !read.contains(*field) && !ignored.contains(&field.as_str()))
        {
            self.refuse(format!("{field} {value} is not used by this model; remove it"));
        }
    }

    /// Rejects every value except `wanted`, which is also the default.
    pub(super) fn refuse_other(&self, field: &str, wanted: bool) {
        if self.flag(field, wanted) != wanted {
            self.refuse(format!("{field} {} is not supported; expected {wanted}", !wanted));
        }
    }

    /// The tokens that start decoding, end a sentence and pad a batch.
    pub(super) fn tokens(&self, implied: Tokens) -> [usize; 3] {
        let token =
            |field: &str, implied: Option<usize>| match self.optional_size(field).or(implied) {
                Some(token) => token,
                None => self.size(field),
            };
        // Without a start token, transformers starts with `bos_token_id`.
        let start = implied.start.or_else(|| self.optional_size("bos_token_id")).or(implied.bos);
        [
            token("decoder_start_token_id", start),
            token("eos_token_id", implied.eos),
            token("pad_token_id", implied.pad),
        ]
    }

    fn read<'a, T>(
        &'a self,
        field: &str,
        expected: &str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.present(field)?;
        let converted = convert(value);
        if converted.is_none() {
            self.unread(format!("{field}: expected {expected}, found {value}"));
        }
        converted
    }

    pub(super) fn present(&self, field: &str) -> Option<&Value> {
        if !self.read.borrow().contains(field) {
            self.read.borrow_mut().insert(field.into());
        }
        self.object.get(field).filter(|value| !value.is_null())
    }
}
