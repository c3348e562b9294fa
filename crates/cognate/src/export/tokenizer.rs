//! The tokenizer of an export: the checkpoint's files with the chosen languages.

use cognate_export::Folder;
use cognate_folder::{GENERATION_CONFIG, ModelSource, copy_tokenizer, read_if_there};
use cognate_model::{Front, Model, Parts};
use cognate_pipeline::{Error, ErrorKind, Languages, Notice, Result, open_tokenizer_if_readable};
use cognate_text::{TargetLanguage, Tokenizer};
use serde_json::{Map, Value};
use std::path::Path;

const CONFIG: &str = "tokenizer_config.json";

/// The tokenizer of an export and its languages.
#[derive(Debug, Default)]
pub(super) struct ChosenTokenizer {
    /// The tokenizer with these languages, if the checkpoint has one.
    pub(super) tokenizer: Option<Tokenizer>,
    /// `src_lang` of transformers.
    source: Option<String>,
    target: Option<(String, TargetLanguage)>,
}

impl ChosenTokenizer {
    /// Reads the tokenizer of `source`, if it has one.
    pub(super) fn of(
        source: &ModelSource,
        model: &Model,
        languages: &Languages,
    ) -> Result<(Self, Option<Notice>)> {
        let config = model.config();
        let reads_images =
            matches!((config.parts, config.front), (Parts::Encoder(_), Front::Pixels(_)));
        let loss = match config.parts {
            Parts::Both => "without it `cognate translate` cannot use the export",
            Parts::Encoder(_) => {
                "without it `cognate embed` and `cognate classify` cannot use the export"
            }
            Parts::Decoder => "without it `cognate generate` cannot use the export",
        };
        let (tokenizer, notice) = match source {
            ModelSource::Checkpoint(folder) if !reads_images => {
                open_tokenizer_if_readable(folder, config, loss)?
            }
            _ => (None, None),
        };
        let Some(tokenizer) = tokenizer else {
            if languages.is_chosen() {
                let message = format!(
                    "{source}: has no tokenizer to choose languages of; leave out --source-language and --target-language"
                );
                return Err(Error::new(ErrorKind::Options, message));
            }
            return Ok((Self::default(), notice));
        };
        let tokenizer = languages.choose(tokenizer, model.config())?;
        let known = tokenizer.languages();
        // M2M100 spells `__en__` in its vocabulary and `en` in its settings.
        let spelt = |code: &String| {
            known.iter().find(|known| *known == code.trim_matches('_')).unwrap_or(code).clone()
        };
        let target = match (&languages.target_language, tokenizer.target_language()) {
            (None, _) => None,
            (Some(code), Some(target)) => Some((spelt(code), target)),
            (Some(code), None) => {
                let message = format!(
                    "this model needs {code} in every sentence; pass it to `cognate translate`"
                );
                return Err(Error::wrong_option("target_language", message));
            }
        };
        Ok((
            Self {
                source: languages.source_language.as_ref().map(spelt),
                target,
                tokenizer: Some(tokenizer),
            },
            notice,
        ))
    }

    /// Writes the tokenizer's files, with the languages in `tokenizer_config.json`.
    pub(super) fn write(&self, checkpoint: &Path, folder: &mut Folder) -> Result<()> {
        let fields = [
            ("src_lang", self.source.as_ref()),
            ("tgt_lang", self.target.as_ref().map(|(code, _)| code)),
        ];
        let fields: Vec<_> = fields
            .into_iter()
            .filter_map(|(name, code)| Some((name, Value::from(code?.as_str()))))
            .collect();
        if fields.is_empty() {
            return Ok(copy_tokenizer(checkpoint, folder, &[])?);
        }
        let path = checkpoint.join(CONFIG);
        let text = read_if_there(&path)?.unwrap_or_else(|| "{}".into());
        folder.write(CONFIG, with(&text, &fields, path.display())?.as_bytes())?;
        Ok(copy_tokenizer(checkpoint, folder, &[CONFIG])?)
    }

    /// `generation_config.json` with the chosen target language.
    pub(super) fn generation_config(&self, text: String) -> Result<String> {
        match self.target {
            None => Ok(text),
            Some((_, TargetLanguage::Forced(id))) => {
                with(&text, &[("forced_bos_token_id", id.into())], GENERATION_CONFIG)
            }
            Some((_, TargetLanguage::Start(id))) => {
                with(&text, &[("decoder_start_token_id", id.into())], GENERATION_CONFIG)
            }
        }
    }
}

/// The object of a text with these fields.
fn with(text: &str, fields: &[(&str, Value)], place: impl std::fmt::Display) -> Result<String> {
    let object: Result<Map<String, Value>, _> = serde_json::from_str(text);
    let mut object =
        object.map_err(|error| Error::new(ErrorKind::Folder, format!("{place}: {error}")))?;
    object.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Ok(format!("{:#}\n", Value::Object(object)))
}
