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
use crate::tokenizer::Spaces;

/// The largest file that is read: 256 MiB. Tokenizers of 250,000 pieces take some 20 MB.
const MAX_BYTES: u64 = 256 << 20;

pub(crate) const TOKENIZER: &str = "Hugging Face's tokenizer.json";
const TOKENIZER_CONFIG: &str = "Hugging Face's tokenizer_config.json";

/// The bytes of a file of at most [`MAX_BYTES`]; `expected` says in errors what it should be.
pub(crate) fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>> {
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| Cause::Unreadable { file: file.clone(), reason: error.to_string() };
    let mut handle = match File::open(path) {
        Ok(handle) => handle,
        Err(error) if error.kind() == IoErrorKind::NotFound => Err(missing(path))?,
        Err(error) => Err(unreadable(error))?,
    };
    let metadata = handle.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        Err(Cause::Folder { file: file.clone(), expected })?;
    }
    let mut bytes = Vec::new();
    if metadata.len() <= MAX_BYTES {
        // One byte past the limit tells a file that grows or a pipe from one that fits.
        handle.by_ref().take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    }
    if metadata.len() > MAX_BYTES || bytes.len() as u64 > MAX_BYTES {
        Err(Cause::TooLarge { file, limit: MAX_BYTES, expected })?;
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

/// `clean_up_tokenization_spaces` of a `tokenizer_config.json`; transformers' default, false, if the file or the key
/// is missing.
pub(crate) fn read_spaces(path: &Path) -> Result<Spaces> {
    if !path.exists() {
        return Ok(Spaces::Keep);
    }
    let config: TokenizerConfig = parse(&path.display().to_string(), &read(path, TOKENIZER_CONFIG)?, TOKENIZER_CONFIG)?;
    Ok(match config.clean_up_tokenization_spaces {
        Some(true) => Spaces::CleanUp,
        Some(false) | None => Spaces::Keep,
    })
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Outline {
    normalizer: Option<Value>,
    model: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct TokenizerConfig {
    clean_up_tokenization_spaces: Option<bool>,
}

fn parse<'a, T: Deserialize<'a>>(file: &str, json: &'a [u8], expected: &'static str) -> Result<T> {
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

/// Names what lies in the tokenizer's place, where the reader may wonder.
fn missing(path: &Path) -> Cause {
    let sentence_piece = ["source.spm", "spiece.model", "sentencepiece.bpe.model"];
    let present = |name: &&str| path.with_file_name(name).exists();
    let file = path.display().to_string();
    match sentence_piece.into_iter().find(present) {
        Some(found) => Cause::OnlySentencePiece { file, found: found.to_owned() },
        None => Cause::NoTokenizer { file },
    }
}
