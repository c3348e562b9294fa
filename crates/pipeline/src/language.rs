//! The languages of a multilingual model.
//!
//! The source language changes the special tokens around a sentence. The target language is the
//! forced first token (mBART-50, M2M100, NLLB), the start token (mBART-25, PLBart), or the first
//! token of the sentence (Marian).

use cognate_generate::Settings;
use cognate_model::Config;
use cognate_text::{TargetLanguage, Tokenizer};

use crate::error::{Error, Result};

/// The source and target languages; the tokenizer's defaults if `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Languages {
    /// The source language: `en_XX` (mBART), `eng_Latn` (NLLB), `en` (M2M100).
    pub source_language: Option<String>,
    /// The target language: `de_DE` (mBART), `deu_Latn` (NLLB), `de` (M2M100), `deu` (Marian).
    pub target_language: Option<String>,
}

impl Languages {
    /// Whether a language is set.
    pub fn is_chosen(&self) -> bool {
        self.source_language.is_some() || self.target_language.is_some()
    }

    /// The tokenizer with these languages.
    ///
    /// # Errors
    /// If the tokenizer does not have the languages, or the model has no embedding for the target's
    /// token.
    pub fn choose(&self, tokenizer: Tokenizer, config: &Config) -> Result<Tokenizer> {
        let wrong = |option| move |error: cognate_text::Error| Error::wrong_option(option, error);
        let tokenizer = tokenizer
            .with_languages(self.source_language.as_deref(), None)
            .map_err(wrong("source_language"))?;
        let tokenizer = tokenizer
            .with_languages(None, self.target_language.as_deref())
            .map_err(wrong("target_language"))?;
        if let Some(TargetLanguage::Forced(id) | TargetLanguage::Start(id)) =
            tokenizer.target_language()
            && usize::try_from(id).is_ok_and(|id| id >= config.vocab)
        {
            let (code, vocab) = (self.target_language.as_deref().unwrap_or_default(), config.vocab);
            let message = format!(
                "{code} is token {id}, but vocab_size in config.json is {vocab}: tokenizer and model do not belong together"
            );
            return Err(Error::wrong_option("target_language", message));
        }
        Ok(tokenizer)
    }
}

/// Where the target language of a model is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetNaming {
    /// In the model's files or the tokenizer, or there is only one language.
    Settled,
    /// At the beginning of each sentence, such as `>>deu<<`, with one of Marian's codes.
    InSentences(Vec<String>),
    /// Nowhere.
    Missing {
        /// The field of `generation_config.json` that can set it.
        field: &'static str,
        /// The model's languages.
        codes: Vec<String>,
        /// Whether the model can translate without it: many checkpoints of PLBart have one target
        /// language.
        is_optional: bool,
    },
}

impl TargetNaming {
    /// Finds where the target language of a model with this `config.json` is set.
    ///
    /// # Errors
    /// If the tokenizer has no token for one of its languages.
    pub fn of(config_json: &str, tokenizer: &Tokenizer, settings: &Settings) -> Result<Self> {
        let codes = tokenizer.languages();
        let Some(first) = codes.first().filter(|_| !tokenizer.has_target_language()) else {
            return Ok(Self::Settled);
        };
        let (field, is_named) =
            match tokenizer.clone().with_languages(None, Some(first))?.target_language() {
                None => return Ok(Self::InSentences(codes)),
                Some(TargetLanguage::Forced(_)) => {
                    ("forced_bos_token_id", settings.forced_bos_token.is_some())
                }
                Some(TargetLanguage::Start(_)) => (
                    "decoder_start_token_id",
                    tokenizer
                        .piece(settings.start_token)
                        .is_some_and(|piece| is_code(&piece, &codes)),
                ),
            };
        if is_named {
            return Ok(Self::Settled);
        }
        Ok(Self::Missing {
            field,
            codes,
            is_optional: model_type(config_json).as_deref() == Some("plbart"),
        })
    }
}

/// Sets the tokenizer's target language, if it has one, in `settings`.
pub fn decode_into(tokenizer: &Tokenizer, settings: &mut Settings) {
    match tokenizer.target_language() {
        Some(TargetLanguage::Forced(id)) => settings.forced_bos_token = Some(id),
        Some(TargetLanguage::Start(id)) => settings.start_token = id,
        None => {}
    }
}

/// Whether a piece is one of these codes: `en_XX` or `__java__`.
fn is_code(piece: &str, codes: &[String]) -> bool {
    let bare = piece.strip_prefix("__").and_then(|rest| rest.strip_suffix("__")).unwrap_or(piece);
    codes.iter().any(|code| code == bare)
}

fn model_type(config_json: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(config_json).ok()?;
    Some(config["model_type"].as_str()?.to_owned())
}
