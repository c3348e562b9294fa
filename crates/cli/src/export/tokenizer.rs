//! What an export has of its checkpoint's tokenizer: the files, and the languages that were chosen.

use crate::languages::Languages;
use crate::source::ModelSource;
use crate::{layout, tokenizer_files};
use anyhow::{Context, Result, bail};
use cognate_export::Folder;
use cognate_model::Model;
use cognate_text::{TargetLanguage, Tokenizer};
use serde_json::{Map, Value};
use std::path::Path;

const CONFIG: &str = "tokenizer_config.json";

/// The tokenizer of an export and its languages.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// With these languages, if the checkpoint has one.
    pub(super) tokenizer: Option<Tokenizer>,
    /// `src_lang`, as transformers spells it.
    source: Option<String>,
    target: Option<(String, TargetLanguage)>,
}

/// Reads the tokenizer of `source`, if it has one.
///
/// # Errors
/// If it is the tokenizer of another model, or languages were chosen that it has not.
pub(super) fn check(source: &ModelSource, model: &Model, languages: &Languages) -> Result<Chosen> {
    let tokenizer = match source {
        ModelSource::Checkpoint(folder) => {
            tokenizer_files::open_if_readable(folder, model.config(), "without it `cognate translate` cannot use the export")?
        }
        ModelSource::Preset(_) | ModelSource::Exported(_) | ModelSource::File(_) => None,
    };
    let Some(tokenizer) = tokenizer else {
        if languages.is_chosen() {
            bail!("{source}: has no tokenizer to choose languages of; leave out --source-language and --target-language");
        }
        return Ok(Chosen::default());
    };
    let tokenizer = languages.choose(tokenizer, model.config())?;
    let known = tokenizer.languages();
    // M2M100 spells `__en__` in its vocabulary and `en` in its settings.
    let spelt = |code: &str| known.iter().find(|known| *known == code.trim_matches('_')).map_or(code, String::as_str).to_owned();
    let target = match (languages.target(), tokenizer.target_language()) {
        (None, _) => None,
        (Some(code), Some(target)) => Some((spelt(code), target)),
        (Some(code), None) => bail!("--target-language: this model reads {code} in every sentence; give it to `cognate translate`"),
    };
    Ok(Chosen { source: languages.source().map(spelt), target, tokenizer: Some(tokenizer) })
}

impl Chosen {
    /// Writes the tokenizer's files, with the languages in `tokenizer_config.json`.
    ///
    /// # Errors
    /// If one cannot be read or written.
    pub(super) fn write_tokenizer(&self, checkpoint: &Path, folder: &mut Folder) -> Result<()> {
        let fields = [("src_lang", self.source.as_ref()), ("tgt_lang", self.target.as_ref().map(|(code, _)| code))];
        let fields: Vec<_> = fields.into_iter().filter_map(|(name, code)| Some((name, Value::from(code?.as_str())))).collect();
        if fields.is_empty() {
            return tokenizer_files::copy(checkpoint, folder, &[]);
        }
        let path = checkpoint.join(CONFIG);
        let text = layout::read_if_there(&path)?.unwrap_or_else(|| "{}".into());
        folder.write(CONFIG, with(&text, &fields).with_context(|| path.display().to_string())?.as_bytes())?;
        tokenizer_files::copy(checkpoint, folder, &[CONFIG])
    }

    /// A `generation_config.json` by which the chosen target language is decoded.
    ///
    /// # Errors
    /// If the text is no object.
    pub(super) fn generation(&self, text: String) -> Result<String> {
        match self.target {
            None => Ok(text),
            Some((_, TargetLanguage::Forced(id))) => with(&text, &[("forced_bos_token_id", id.into())]),
            Some((_, TargetLanguage::Start(id))) => with(&text, &[("decoder_start_token_id", id.into())]),
        }
        .context(layout::GENERATION)
    }
}

/// A text's object with these fields.
fn with(text: &str, fields: &[(&str, Value)]) -> Result<String> {
    let mut object: Map<String, Value> = serde_json::from_str(text)?;
    object.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    Ok(serde_json::to_string_pretty(&object)? + "\n")
}
