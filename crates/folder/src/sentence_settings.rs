//! The settings of sentence-transformers: how the states of an encoder become one vector.
//!
//! `modules.json` lists the steps: the encoder, `Pooling` with a `config.json` of its own,
//! `Normalize`. Source: sentence-transformers 5, `SentenceTransformer.load`.

use crate::configuration::read_if_there;
use crate::{Error, ErrorKind, Result};
use cognate_export::Folder;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How the states of an encoder become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over tokens that are not padding.
    Mean,
    /// The state of the first token.
    First,
    /// What the model's pooler makes of the state of the first token.
    Pooler,
}

/// What a folder of sentence-transformers says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentenceSettings {
    /// How states become one vector.
    pub pooling: Pooling,
    /// Whether vectors are divided by their length.
    pub normalize: bool,
    /// The most tokens of a text; longer texts are cut.
    pub max_tokens: Option<usize>,
}

const MODULES: &str = "modules.json";
const LIMITS: &str = "sentence_bert_config.json";
const POOLING: &str = "1_Pooling";
const POOLING_CONFIG: &str = "1_Pooling/config.json";

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Limits {
    max_seq_length: Option<usize>,
}

impl SentenceSettings {
    /// The settings in `folder`; `None` if it has no `modules.json`.
    ///
    /// # Errors
    /// If a file cannot be read, or asks for what is not supported.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(MODULES);
        let Some(text) = read_if_there(&path)? else { return Ok(None) };
        let modules: Vec<Module> = parse(&path, &text)?;
        let path = folder.join(LIMITS);
        let limits: Option<Limits> =
            read_if_there(&path)?.map(|text| parse(&path, &text)).transpose()?;
        let mut settings = Self {
            pooling: Pooling::Mean,
            normalize: false,
            max_tokens: limits.and_then(|limits| limits.max_seq_length),
        };
        for Module { path, kind } in modules {
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" if path.is_empty() => {}
                "Pooling" if path == POOLING => settings.pooling = pooling(folder)?,
                "Normalize" => settings.normalize = true,
                _ => {
                    let message = format!(
                        "type {kind:?}, path {path:?} is not supported; expected Transformer in this folder, Pooling in {POOLING}, and Normalize"
                    );
                    return Err(Error::new(
                        ErrorKind::Model,
                        folder.join(MODULES).display(),
                        message,
                    ));
                }
            }
        }
        Ok(Some(settings))
    }

    /// The files of these settings.
    pub const FILES: [&str; 4] =
        [MODULES, LIMITS, POOLING_CONFIG, "config_sentence_transformers.json"];

    /// Copies the files of these settings from a checkpoint.
    ///
    /// # Errors
    /// If one cannot be read or written.
    pub fn copy(checkpoint: &Path, folder: &mut Folder) -> Result<()> {
        for name in Self::FILES {
            let path = checkpoint.join(name);
            if path.is_file() {
                folder.copy(name, &path)?;
            }
        }
        Ok(())
    }
}

fn pooling(folder: &Path) -> Result<Pooling> {
    let path = folder.join(POOLING_CONFIG);
    let wrong = |message: String| Error::new(ErrorKind::Model, path.display(), message);
    let text = read_if_there(&path)?
        .ok_or_else(|| wrong("missing, though modules.json names it".into()))?;
    let fields: BTreeMap<String, serde_json::Value> = parse(&path, &text)?;
    let chosen: Vec<_> = fields
        .iter()
        .filter(|(name, value)| name.starts_with("pooling_mode_") && **value == true)
        .collect();
    match chosen.as_slice() {
        [(name, _)] if *name == "pooling_mode_mean_tokens" => Ok(Pooling::Mean),
        [(name, _)] if *name == "pooling_mode_cls_token" => Ok(Pooling::First),
        chosen => {
            let names: Vec<_> = chosen.iter().map(|(name, _)| name.as_str()).collect();
            Err(wrong(format!(
                "expected pooling_mode_mean_tokens or pooling_mode_cls_token alone, found {names:?}"
            )))
        }
    }
}

fn parse<'t, T: Deserialize<'t>>(path: &Path, text: &'t str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::new(ErrorKind::Model, path.display(), error))
}
