//! Reading `tokenizer.json`, and what must hold before the `tokenizers` library sees it.
//!
//! The library is made for files of its own; it panics on some others, as on `"precompiled_charsmap": null`. What a
//! user can meet is found here first and told in the user's terms.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind as IoErrorKind, Read};
use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::error::Category;
use tokenizers::normalizers::Precompiled;

use crate::error::{Cause, Result};

/// The largest `tokenizer.json` that is read: 256 MiB. Tokenizers of 250,000 pieces take some 20 MB.
const MAX_BYTES: u64 = 256 << 20;
/// The largest of the other files: 32 MiB. Models of 256,000 pieces take some 5 MB, and memory some 20 times that.
const MAX_PART_BYTES: u64 = 32 << 20;

pub(crate) const TOKENIZER: &str = "Hugging Face's tokenizer.json";
pub(crate) const TOKENIZER_CONFIG: &str = "Hugging Face's tokenizer_config.json";
/// The setting that cleans decoded text up.
pub(crate) const CLEAN_UP: &str = "clean_up_tokenization_spaces";

/// The bytes of a file of at most 256 MiB (`tokenizer.json`) or 32 MiB; `expected` says in errors what it should be.
pub(crate) fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>> {
    let limit = if expected == TOKENIZER { MAX_BYTES } else { MAX_PART_BYTES };
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| Cause::Unreadable { file: file.clone(), reason: error.to_string() };
    let mut handle = match File::open(path) {
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
        // One byte past the limit tells a file that grows or a pipe from one that fits.
        handle.by_ref().take(limit + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if metadata.len() > limit || bytes.len() as u64 > limit {
        Err(Cause::TooLarge { file, limit, expected })?;
    }
    Ok(bytes)
}

/// Refuses what is not a tokenizer, and the tokenizers on which the library panics.
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
    if let Some(normalizer) = &outline.normalizer {
        check_charsmaps(file, "normalizer", normalizer)?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Outline {
    normalizer: Option<Value>,
    model: Option<IgnoredAny>,
}

/// The value of a JSON file; `expected` says in errors what it should be.
pub(crate) fn parse<'a, T: Deserialize<'a>>(file: &str, json: &'a [u8], expected: &'static str) -> Result<T> {
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

/// Loads the `Precompiled` rules of a normalizer and of those inside it, as the library will.
fn check_charsmaps(file: &str, place: &str, normalizer: &Value) -> Result<()> {
    if normalizer["type"] == "Precompiled" {
        if normalizer["precompiled_charsmap"].is_null() {
            Err(Cause::NullCharsmap { file: file.to_owned(), place: place.to_owned() })?;
        }
        // Through text, as the library: its base64 field wants a borrowed string.
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
