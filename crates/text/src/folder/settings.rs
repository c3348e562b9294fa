//! The settings of a folder's tokenizer: `tokenizer_config.json`, and the older
//! `special_tokens_map.json` and `added_tokens.json`.
//!
//! Source: transformers 4.57.6, `PreTrainedTokenizerBase._from_pretrained`.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value};
use tokenizers::AddedToken;

use crate::error::{Cause, Result};
use crate::tokenizer_file::{self, TOKENIZER_CONFIG};

/// The special tokens of BART's tokenizer and of fairseq's.
pub(crate) const BART_SPECIALS: [(&str, &str); 7] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "<unk>"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];

pub(crate) const WHISPER_SPECIALS: [(&str, &str); 3] = [
    ("bos_token", "<|endoftext|>"),
    ("eos_token", "<|endoftext|>"),
    ("unk_token", "<|endoftext|>"),
];

pub(crate) const BERT_SPECIALS: [(&str, &str); 5] = [
    ("unk_token", "[UNK]"),
    ("sep_token", "[SEP]"),
    ("pad_token", "[PAD]"),
    ("cls_token", "[CLS]"),
    ("mask_token", "[MASK]"),
];

pub(crate) const MPNET_SPECIALS: [(&str, &str); 7] = [
    ("bos_token", "<s>"),
    ("eos_token", "</s>"),
    ("unk_token", "[UNK]"),
    ("sep_token", "</s>"),
    ("pad_token", "<pad>"),
    ("cls_token", "<s>"),
    ("mask_token", "<mask>"),
];

/// The special tokens that have a name, in transformers' order.
pub(crate) const NAMED: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];
const ADDITIONAL: &str = "additional_special_tokens";
const EXTRA: &str = "extra_special_tokens";

const SPECIAL_TOKENS_MAP: &str = "Hugging Face's special_tokens_map.json";
const ADDED_TOKENS: &str = "Hugging Face's added_tokens.json: an object of ids";

/// The maximum number of sentinels or reserved tokens.
const MAX_COUNT: u64 = 1 << 16;

/// The settings of a tokenizer's folder.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    file: String,
    values: Map<String, Value>,
    /// Tokens that are matched in text before it is split, with their ids.
    pub(crate) added: Vec<(u32, AddedToken)>,
}

/// A special token: its text, or also how it is matched in text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Special {
    Text(String),
    Token(AddedToken),
}

/// The special tokens of a tokenizer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Specials {
    /// Names and tokens in the order of [`NAMED`].
    pub(crate) named: Vec<(&'static str, Special)>,
    pub(crate) additional: Vec<Special>,
}

impl Settings {
    /// Reads the files that exist.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let config = folder.join("tokenizer_config.json");
        let file = config.display().to_string();
        let mut values = read_object(&config, TOKENIZER_CONFIG)?.unwrap_or_default();
        // As transformers 5 names them; an object has tokens with names of their own.
        if values.get(EXTRA).is_some_and(Value::is_array)
            && let Some(tokens) = values.remove(EXTRA)
        {
            values.entry(ADDITIONAL).or_insert(tokens);
        }
        let mut added = Vec::new();
        if let Some(tokens) = values.remove("added_tokens_decoder") {
            added = added_tokens(&file, &tokens)?;
            for name in NAMED {
                let text = values.get(name).and_then(text_of).map(str::to_owned);
                if let Some((_, token)) =
                    added.iter().find(|(_, token)| Some(&token.content) == text.as_ref())
                {
                    values.insert(name.to_owned(), token_value(token));
                }
            }
        } else {
            merge_special_tokens_map(folder, &mut values)?;
            let map =
                read_object(&folder.join("added_tokens.json"), ADDED_TOKENS)?.unwrap_or_default();
            let special: HashSet<String> = NAMED
                .iter()
                .chain([&ADDITIONAL])
                .filter_map(|name| values.get(*name))
                .flat_map(texts)
                .collect();
            for (text, id) in &map {
                let token = AddedToken::from(text.clone(), special.contains(text));
                added.push((
                    id_of(&folder.join("added_tokens.json").display().to_string(), text, id)?,
                    token,
                ));
            }
        }
        Ok(Self { file, values, added })
    }

    /// Rejects unsupported settings that change ids.
    pub(crate) fn check_supported(&self) -> Result<()> {
        for name in ["split_special_tokens", EXTRA, "sp_model_kwargs"] {
            match self.values.get(name) {
                None | Some(Value::Null | Value::Bool(false)) => {}
                Some(Value::Object(options)) if options.is_empty() => {}
                Some(other) => {
                    Err(self.wrong(name, other, "no such setting: it is not supported"))?
                }
            }
        }
        Ok(())
    }

    /// The name of transformers' class, without `Fast`.
    pub(crate) fn class(&self) -> Option<&str> {
        let class = self.values.get("tokenizer_class")?.as_str()?;
        Some(class.strip_suffix("Fast").unwrap_or(class))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.setting(name, "true or false", Value::as_bool)
    }

    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>> {
        let count = |value: &Value| {
            value.as_u64().filter(|count| *count <= MAX_COUNT).map(|count| count as usize)
        };
        self.setting(name, "a number from 0 to 65536", count)
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>> {
        self.setting(name, "a string", text_of)
    }

    fn setting<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let value = self.values.get(name).filter(|value| !value.is_null());
        Ok(value
            .map(|value| read(value).ok_or_else(|| self.wrong(name, value, expected)))
            .transpose()?)
    }

    /// Whether a setting exists, even as `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// The named special tokens: those of the settings, otherwise those of the family. `of_text`
    /// creates a token from plain text as the family's class does.
    pub(crate) fn specials(
        &self,
        defaults: &[(&str, &str)],
        of_text: impl Fn(&str, String) -> Special,
    ) -> Result<Specials> {
        let mut named = Vec::new();
        for name in NAMED {
            let default = || {
                defaults
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, text)| Special::Text((*text).to_owned()))
            };
            let special = match self.values.get(name) {
                None => default(),
                Some(Value::Null) => None,
                Some(value) => Some(self.special(name, value)?),
            };
            named.extend(special.map(|special| match special {
                Special::Text(text) => (name, of_text(name, text)),
                Special::Token(_) => (name, special),
            }));
        }
        Ok(Specials { named, additional: self.additional()?.unwrap_or_default() })
    }

    /// The special tokens without a name.
    pub(crate) fn additional(&self) -> Result<Option<Vec<Special>>> {
        match self.values.get(ADDITIONAL) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(tokens)) => tokens
                .iter()
                .map(|token| self.special(ADDITIONAL, token))
                .collect::<Result<_>>()
                .map(Some),
            Some(other) => Err(self.wrong(ADDITIONAL, other, "a list of tokens"))?,
        }
    }

    fn special(&self, name: &str, value: &Value) -> Result<Special> {
        match value {
            Value::String(text) => Ok(Special::Text(text.clone())),
            _ => match added_token(value) {
                Some(token) => Ok(Special::Token(token)),
                None => Err(self.wrong(name, value, "a string or a token with `content`"))?,
            },
        }
    }

    /// The error of a setting with an invalid value.
    pub(crate) fn wrong(&self, name: &str, found: &Value, expected: &str) -> Cause {
        Cause::WrongSetting {
            file: self.file.clone(),
            name: name.to_owned(),
            found: shortened(found),
            expected: expected.to_owned(),
        }
    }
}

impl Special {
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Token(token) => &token.content,
        }
    }
}

impl Specials {
    /// The text of a named token.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.named.iter().find(|(key, _)| *key == name).map(|(_, special)| special.text())
    }

    /// The tokens without duplicates by text, the named ones first.
    pub(crate) fn unique(&self) -> Vec<&Special> {
        let mut seen = HashSet::new();
        self.named
            .iter()
            .map(|(_, special)| special)
            .chain(&self.additional)
            .filter(|special| seen.insert(special.text()))
            .collect()
    }
}

/// The object of a JSON file, `None` if it does not exist.
pub(crate) fn read_object(
    path: &Path,
    expected: &'static str,
) -> Result<Option<Map<String, Value>>> {
    if !path.exists() {
        return Ok(None);
    }
    let json = tokenizer_file::read(path, expected)?;
    tokenizer_file::parse(&path.display().to_string(), &json, expected).map(Some)
}

/// A token's id in an object of ids.
pub(crate) fn id_of(file: &str, token: &str, id: &Value) -> Result<u32> {
    match id.as_u64().and_then(|id| u32::try_from(id).ok()) {
        Some(id) => Ok(id),
        None => Err(Cause::BadId {
            file: file.to_owned(),
            token: token.to_owned(),
            found: shortened(id),
        })?,
    }
}

/// `special_tokens_map.json` overrides `tokenizer_config.json`.
fn merge_special_tokens_map(folder: &Path, values: &mut Map<String, Value>) -> Result<()> {
    let map = read_object(&folder.join("special_tokens_map.json"), SPECIAL_TOKENS_MAP)?
        .unwrap_or_default();
    for (name, mut value) in map {
        if let Value::Object(token) = &mut value {
            token.insert("special".to_owned(), Value::Bool(true));
        }
        if let (ADDITIONAL, Value::Array(tokens)) = (name.as_str(), &mut value) {
            let mut all = match values.remove(ADDITIONAL) {
                Some(Value::Array(tokens)) => tokens,
                _ => Vec::new(),
            };
            for mut token in std::mem::take(tokens) {
                if let Value::Object(token) = &mut token {
                    token.insert("special".to_owned(), Value::Bool(true));
                }
                if !all.contains(&token) {
                    all.push(token);
                }
            }
            *tokens = all;
        }
        values.insert(name, value);
    }
    Ok(())
}

fn added_tokens(file: &str, tokens: &Value) -> Result<Vec<(u32, AddedToken)>> {
    let wrong = |found: &Value| Cause::WrongSetting {
        file: file.to_owned(),
        name: "added_tokens_decoder".to_owned(),
        found: shortened(found),
        expected: "an object of tokens by id".to_owned(),
    };
    let entries = tokens.as_object().ok_or_else(|| wrong(tokens))?;
    let mut added = Vec::new();
    for (id, token) in entries {
        let id = id.parse().map_err(|_| wrong(&Value::String(id.clone())))?;
        added.push((id, added_token(token).ok_or_else(|| wrong(token))?));
    }
    Ok(added)
}

/// A token with the defaults of the tokenizers library: special tokens are not normalized.
fn added_token(value: &Value) -> Option<AddedToken> {
    let flag = |name: &str| value.get(name).and_then(Value::as_bool);
    let special = flag("special").unwrap_or(false);
    let token = AddedToken::from(value.get("content")?.as_str()?, special)
        .single_word(flag("single_word").unwrap_or(false))
        .lstrip(flag("lstrip").unwrap_or(false))
        .rstrip(flag("rstrip").unwrap_or(false));
    Some(token.normalized(flag("normalized").unwrap_or(!special)))
}

fn token_value(token: &AddedToken) -> Value {
    serde_json::to_value(token).expect("a token is made of text and flags")
}

/// The text of a token, or any string.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(tokens) => tokens.iter().filter_map(text_of).map(str::to_owned).collect(),
        other => text_of(other).map(str::to_owned).into_iter().collect(),
    }
}

/// The beginning of a value, for messages.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
