//! Reads `tokenizer.json` and checks it before the `tokenizers` library does.
//!
//! The library panics on some invalid files, such as `"precompiled_charsmap": null`. Errors that
//! users encounter are detected here first and described in the user's terms.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, Read};
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::error::Category;
use tokenizers::normalizers::Precompiled;

use crate::error::{Cause, Result};

/// The maximum size of a `tokenizer.json`: 256 MiB. One of 250,000 pieces has about 20 MB.
const MAX_BYTES: u64 = 256 << 20;
/// The maximum size of the other files: 32 MiB. A model of 256,000 pieces has about 5 MB and takes
/// 20 times that memory.
const MAX_PART_BYTES: u64 = 32 << 20;

pub(crate) const TOKENIZER: &str = "Hugging Face's tokenizer.json";
/// The target language's tokenizer if it has a separate vocabulary.
pub(crate) const TARGET_TOKENIZER: &str = "target_tokenizer.json";
pub(crate) const TOKENIZER_CONFIG: &str = "Hugging Face's tokenizer_config.json";
/// The setting that removes spaces before punctuation.
pub(crate) const CLEAN_UP: &str = "clean_up_tokenization_spaces";

/// The bytes of a file of at most 256 MiB (`tokenizer.json`) or 32 MiB; `expected` describes the
/// file in errors.
pub(crate) fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>> {
    let limit = if expected == TOKENIZER { MAX_BYTES } else { MAX_PART_BYTES };
    let file = path.display().to_string();
    let unreadable =
        |error: std::io::Error| Cause::Unreadable { file: file.clone(), reason: error.to_string() };
    let mut handle = match open(path) {
        Ok(handle) => handle,
        Err(error) if error.kind() == IoErrorKind::NotFound => Err(match expected {
            TOKENIZER => Cause::NoTokenizer { file: file.clone() },
            _ => Cause::MissingFile { file: file.clone(), expected },
        })?,
        Err(error) => Err(unreadable(error))?,
    };
    let metadata = handle.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        Err(Cause::Folder { file: file.clone(), expected })?;
    }
    let mut bytes = Vec::new();
    if metadata.len() <= limit {
        // One byte past the limit detects a file that grows.
        handle.by_ref().take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if metadata.len() > limit || bytes.len() as u64 > limit {
        Err(Cause::TooLarge { file, limit, expected })?;
    }
    Ok(bytes)
}

/// Opens a file or a folder: reading a pipe or a device may never end.
fn open(path: &Path) -> std::io::Result<File> {
    let metadata = std::fs::metadata(path)?;
    let is_other = !metadata.is_file() && !metadata.is_dir();
    if is_other {
        Err(std::io::Error::other("expected a regular file, found a pipe or device"))
    } else {
        File::open(path)
    }
}

/// Rejects files that are not tokenizers, and tokenizers on which the library panics.
pub(crate) fn check(file: &str, json: &[u8]) -> Result<()> {
    let outline: Outline = parse(file, json, TOKENIZER)?;
    if outline.model.is_none() {
        let keys: BTreeMap<String, IgnoredAny> = parse(file, json, TOKENIZER)?;
        let keys: Vec<String> = keys.into_keys().take(8).collect();
        let reason = match keys.len() {
            0 => "it is empty, expected `model`".to_owned(),
            _ => format!("it has no `model`; it has {}", keys.join(", ")),
        };
        Err(Cause::OtherJson { file: file.to_owned(), reason, expected: TOKENIZER })?;
    }
    let wrong =
        |reason: String| Cause::OtherJson { file: file.to_owned(), reason, expected: TOKENIZER };
    if let Some(Longest(bytes)) = outline.model
        && bytes > MAX_PIECE_BYTES
    {
        Err(wrong(format!(
            "model: a piece has {bytes} bytes, expected at most {MAX_PIECE_BYTES}"
        )))?;
    }
    for (place, rules) in [("normalizer", &outline.normalizer), ("decoder", &outline.decoder)] {
        let Some(rules) = rules else { continue };
        check_charsmaps(file, place, rules)?;
        let growth = growth(rules);
        if growth > MAX_GROWTH {
            Err(wrong(format!(
                "{place}: its rules make a text {growth} times as long, expected at most {MAX_GROWTH}"
            )))?;
        }
    }
    Ok(())
}

/// The maximum length of a string in a model: a merge of two pieces of SentencePiece's maximum
/// length. The library recurses once for each byte.
const MAX_PIECE_BYTES: usize = 16_000;

/// The maximum growth of a text by replacement rules. Those of published models replace a space by
/// 3 bytes.
const MAX_GROWTH: u64 = 1024;

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Outline {
    normalizer: Option<Value>,
    decoder: Option<Value>,
    model: Option<Longest>,
}

/// The length in bytes of the longest string at any depth.
struct Longest(usize);

impl<'de> Deserialize<'de> for Longest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Longest(0))
    }
}

impl<'de> Visitor<'de> for Longest {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> std::result::Result<Self, E> {
        Ok(Longest(text.len()))
    }

    fn visit_unit<E>(self) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(
        mut self,
        mut values: A,
    ) -> std::result::Result<Self, A::Error> {
        while let Some(Longest(bytes)) = values.next_element()? {
            self.0 = self.0.max(bytes);
        }
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(
        mut self,
        mut fields: A,
    ) -> std::result::Result<Self, A::Error> {
        while let Some((Longest(key), Longest(value))) = fields.next_entry()? {
            self.0 = self.0.max(key).max(value);
        }
        Ok(self)
    }
}

/// The growth of a text by replacement rules; nested ones multiply.
fn growth(rules: &Value) -> u64 {
    let own = match rules["type"].as_str() {
        Some("Replace") => rules["content"].as_str(),
        Some("Prepend") => rules["prepend"].as_str(),
        _ => None,
    };
    let own = own.map_or(1, |content| content.len().max(1) as u64);
    let inner =
        ["normalizers", "decoders"].into_iter().filter_map(|name| rules[name].as_array()).flatten();
    inner.map(growth).fold(own, u64::saturating_mul)
}

/// The value of a JSON file; `expected` describes the file in errors.
pub(crate) fn parse<'a, T: Deserialize<'a>>(
    file: &str,
    json: &'a [u8],
    expected: &'static str,
) -> Result<T> {
    let error = match serde_json::from_slice(json) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let file = file.to_owned();
    if json.starts_with(b"version https://git-lfs.") {
        Err(Cause::LfsPointer { file: file.clone() })?;
    }
    let reason = error.to_string();
    Err(match error.classify() {
        Category::Eof => Cause::Truncated { file, reason },
        Category::Syntax | Category::Io => Cause::NotJson { file, reason, expected },
        Category::Data => Cause::OtherJson { file, reason, expected },
    })?
}

/// Loads the `Precompiled` rules of a normalizer and of its inner normalizers, as the library will.
fn check_charsmaps(file: &str, place: &str, normalizer: &Value) -> Result<()> {
    if normalizer["type"] == "Precompiled" {
        if normalizer["precompiled_charsmap"].is_null() {
            Err(Cause::NullCharsmap { file: file.to_owned(), place: place.to_owned() })?;
        }
        // The library allocates as much memory as the map claims.
        let map = normalizer["precompiled_charsmap"]
            .as_str()
            .and_then(|text| BASE64_STANDARD.decode(text).ok())
            .unwrap_or_default();
        if let Some((size, rest)) = map.split_first_chunk::<4>()
            && u32::from_le_bytes(*size) as usize > rest.len()
        {
            let reason = format!(
                "its double array needs {} bytes, found {}",
                u32::from_le_bytes(*size),
                rest.len()
            );
            Err(Cause::DamagedCharsmap { file: file.to_owned(), place: place.to_owned(), reason })?;
        }
        // Through text, as in the library: its base64 field needs a borrowed string.
        if let Err(error) = serde_json::from_str::<Precompiled>(&normalizer.to_string()) {
            let reason = error.to_string();
            Err(Cause::DamagedCharsmap { file: file.to_owned(), place: place.to_owned(), reason })?;
        }
    }
    for (index, inner) in normalizer["normalizers"].as_array().into_iter().flatten().enumerate() {
        check_charsmaps(file, &format!("{place}.normalizers[{index}]"), inner)?;
    }
    Ok(())
}
