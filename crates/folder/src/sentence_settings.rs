//! The settings of sentence-transformers: how the states of an encoder become one vector.
//!
//! `modules.json` lists the steps: the encoder, `Pooling` with a `config.json` of its own,
//! `Normalize`. Source: sentence-transformers 5 and 6, `SentenceTransformer.load`.

use crate::configuration::read_if_there;
use crate::{Error, ErrorKind, Result};
use cognate_export::Folder;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// How the states of an encoder become one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The mean over tokens that are not padding.
    #[default]
    Mean,
    /// The state of the first token.
    First,
    /// What the model's pooler makes of the state of the first token.
    Pooler,
}

/// What a folder of sentence-transformers says; by default the mean of a text as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentenceSettings {
    /// How states become one vector.
    pub pooling: Pooling,
    /// Whether vectors are divided by their length.
    pub normalize: bool,
    /// The most tokens of a text; longer texts are cut.
    pub max_tokens: Option<usize>,
    /// What can stand before each text, by name.
    pub prompts: BTreeMap<String, String>,
    /// The name of the prompt that stands before each text if none is chosen.
    pub default_prompt: Option<String>,
    /// Whether tokens of the prompt count in the mean of [`Pooling::Mean`].
    pub include_prompt: bool,
    /// Whether texts are lower-cased.
    pub lower_case: bool,
}

impl Default for SentenceSettings {
    fn default() -> Self {
        Self {
            pooling: Pooling::Mean,
            normalize: false,
            max_tokens: None,
            prompts: BTreeMap::new(),
            default_prompt: None,
            include_prompt: true,
            lower_case: false,
        }
    }
}

const MODULES: &str = "modules.json";
const LIMITS: &str = "sentence_bert_config.json";
const POOLING: &str = "1_Pooling";
const PROMPTS: &str = "config_sentence_transformers.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";
/// What transformers writes for a tokenizer without limit is larger.
const LONGEST: f64 = 1e9;

#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize, Default)]
struct Limits {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

#[derive(Deserialize, Default)]
struct Prompts {
    prompts: Option<BTreeMap<String, String>>,
    default_prompt_name: Option<String>,
}

#[derive(Deserialize, Default)]
struct TokenizerLimits {
    model_max_length: Option<f64>,
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
        let Limits { max_seq_length, do_lower_case } = read_or_default(folder, LIMITS)?;
        let max_tokens = match max_seq_length {
            Some(tokens) => Some(tokens),
            None => read_or_default::<TokenizerLimits>(folder, TOKENIZER_CONFIG)?
                .model_max_length
                .filter(|&tokens| (1.0..LONGEST).contains(&tokens))
                .map(|tokens| tokens as usize),
        };
        let (prompts, default_prompt) = prompts(folder)?;
        let mut settings = Self {
            max_tokens,
            prompts,
            default_prompt,
            lower_case: do_lower_case,
            ..Self::default()
        };
        for Module { path, kind } in modules {
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" if path.is_empty() => {}
                "Pooling" if path == POOLING => {
                    (settings.pooling, settings.include_prompt) = pooling(folder)?;
                }
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

    /// The prompt of this name, or the default one; empty if there is none.
    ///
    /// # Errors
    /// With the known names, if there is no prompt of this name.
    pub fn prompt(&self, name: Option<&str>) -> Result<&str, Vec<&str>> {
        let Some(name) = name.or(self.default_prompt.as_deref()) else { return Ok("") };
        let known = || self.prompts.keys().map(String::as_str).collect();
        self.prompts.get(name).map(String::as_str).ok_or_else(known)
    }

    /// The files of these settings.
    pub const FILES: [&str; 4] = [MODULES, LIMITS, Self::POOLING_FILE, PROMPTS];

    /// The file of the pooling.
    pub const POOLING_FILE: &str = "1_Pooling/config.json";

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

/// All prompts, and the name of the default one.
fn prompts(folder: &Path) -> Result<(BTreeMap<String, String>, Option<String>)> {
    let Prompts { prompts, default_prompt_name } = read_or_default(folder, PROMPTS)?;
    let prompts = prompts.unwrap_or_default();
    match default_prompt_name {
        Some(name) if !prompts.contains_key(&name) => {
            let names: Vec<_> = prompts.keys().collect();
            let message = format!(
                "default_prompt_name: expected a name of prompts, {names:?}, found {name:?}"
            );
            Err(Error::new(ErrorKind::Model, folder.join(PROMPTS).display(), message))
        }
        name => Ok((prompts, name)),
    }
}

/// The pooling, and `include_prompt`. Since version 6 `pooling_mode` is a name; before, one of
/// several fields is true.
fn pooling(folder: &Path) -> Result<(Pooling, bool)> {
    let path = folder.join(SentenceSettings::POOLING_FILE);
    let wrong = |message: String| Error::new(ErrorKind::Model, path.display(), message);
    let text = read_if_there(&path)?
        .ok_or_else(|| wrong("missing, though modules.json names it".into()))?;
    let fields: BTreeMap<String, serde_json::Value> = parse(&path, &text)?;
    let include_prompt = fields.get("include_prompt").is_none_or(|included| *included != false);
    let mut chosen: Vec<_> = fields
        .iter()
        .filter(|(name, value)| name.starts_with("pooling_mode_") && **value == true)
        .map(|(name, _)| name.clone())
        .collect();
    let mode = fields.get("pooling_mode").map(|mode| mode.as_str().unwrap_or("no name"));
    chosen.extend(mode.map(|mode| format!("pooling_mode {mode}")));
    let pooling = match chosen.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pooling_mode_mean_tokens" | "pooling_mode mean"] => Pooling::Mean,
        ["pooling_mode_cls_token" | "pooling_mode cls"] => Pooling::First,
        _ => {
            return Err(wrong(format!(
                "expected a pooling_mode of \"mean\" or \"cls\", or pooling_mode_mean_tokens or pooling_mode_cls_token alone, found {chosen:?}"
            )));
        }
    };
    Ok((pooling, include_prompt))
}

fn read_or_default<T: for<'t> Deserialize<'t> + Default>(folder: &Path, name: &str) -> Result<T> {
    let path = folder.join(name);
    read_if_there(&path)?.map_or_else(|| Ok(T::default()), |text| parse(&path, &text))
}

fn parse<'t, T: Deserialize<'t>>(path: &Path, text: &'t str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::new(ErrorKind::Model, path.display(), error))
}
