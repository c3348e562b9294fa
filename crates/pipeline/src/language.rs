//! The languages of a multilingual model.
//!
//! The source language changes what the tokenizer puts around a sentence. The target language is a token that must be
//! decoded first (mBART-50, M2M100, NLLB), or that decoding starts from (mBART-25, PLBart), or the sentence's first one
//! (Marian).

use cognate_generate::Settings;
use cognate_model::Config;
use cognate_text::{TargetLanguage, Tokenizer};

use crate::error::{Error, Result};

/// The languages to translate from and into; the tokenizer's own if `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Languages {
    /// The language of the sentences: `en_XX` (mBART), `eng_Latn` (NLLB), `en` (M2M100).
    pub source_language: Option<String>,
    /// The language to translate into: `de_DE` (mBART), `deu_Latn` (NLLB), `de` (M2M100), `deu` (Marian).
    pub target_language: Option<String>,
}

impl Languages {
    /// Whether any is chosen.
    pub fn is_chosen(&self) -> bool {
        self.source_language.is_some() || self.target_language.is_some()
    }

    /// The tokenizer with these languages.
    ///
    /// # Errors
    /// If it does not know the languages, or the model has no row for the target's token.
    pub fn choose(&self, tokenizer: Tokenizer, config: &Config) -> Result<Tokenizer> {
        let wrong = |option| move |error: cognate_text::Error| Error::wrong_option(option, error);
        let tokenizer = tokenizer.with_languages(self.source_language.as_deref(), None).map_err(wrong("source_language"))?;
        let tokenizer = tokenizer.with_languages(None, self.target_language.as_deref()).map_err(wrong("target_language"))?;
        if let Some(TargetLanguage::Forced(id) | TargetLanguage::Start(id)) = tokenizer.target_language()
            && usize::try_from(id).is_ok_and(|id| id >= config.vocab)
        {
            let (code, vocab) = (self.target_language.as_deref().unwrap_or_default(), config.vocab);
            let message =
                format!("{code} is token {id}, but vocab_size in config.json is {vocab}: tokenizer and model do not belong together");
            return Err(Error::wrong_option("target_language", message));
        }
        Ok(tokenizer)
    }
}

/// Where the target language of a model is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetNaming {
    /// In the model's files or by the tokenizer's choice; or there is only one language.
    Settled,
    /// In front of each sentence, as `>>deu<<`: Marian's codes, which are listed.
    InSentences(Vec<String>),
    /// Nowhere.
    Missing {
        /// The field of `generation_config.json` that would name it.
        field: &'static str,
        /// The languages that the model knows.
        codes: Vec<String>,
        /// Whether the model may still translate: many of PLBart's checkpoints are trained for one language, and start as BART does.
        is_optional: bool,
    },
}

impl TargetNaming {
    /// Finds out where the target language is named, for a model with this `config.json`.
    ///
    /// # Errors
    /// If the tokenizer has no token for one of its own languages.
    pub fn of(config_json: &str, tokenizer: &Tokenizer, settings: &Settings) -> Result<Self> {
        let codes = tokenizer.languages();
        let Some(first) = codes.first().filter(|_| !tokenizer.has_target_language()) else { return Ok(Self::Settled) };
        let (field, is_named) = match tokenizer.clone().with_languages(None, Some(first))?.target_language() {
            None => return Ok(Self::InSentences(codes)),
            Some(TargetLanguage::Forced(_)) => ("forced_bos_token_id", settings.forced_bos_token.is_some()),
            Some(TargetLanguage::Start(_)) => {
                ("decoder_start_token_id", tokenizer.piece(settings.start_token).is_some_and(|piece| is_code(&piece, &codes)))
            }
        };
        if is_named {
            return Ok(Self::Settled);
        }
        Ok(Self::Missing { field, codes, is_optional: model_type(config_json).as_deref() == Some("plbart") })
    }
}

/// Lets decoding begin with the target language that the tokenizer was given, if it was.
pub fn decode_into(tokenizer: &Tokenizer, settings: &mut Settings) {
    match tokenizer.target_language() {
        Some(TargetLanguage::Forced(id)) => settings.forced_bos_token = Some(id),
        Some(TargetLanguage::Start(id)) => settings.start_token = id,
        None => {}
    }
}

/// Whether a vocabulary's piece is one of these codes: `en_XX`, or `__java__`.
fn is_code(piece: &str, codes: &[String]) -> bool {
    let bare = piece.strip_prefix("__").and_then(|rest| rest.strip_suffix("__")).unwrap_or(piece);
    codes.iter().any(|code| code == bare)
}

fn model_type(config_json: &str) -> Option<String> {
    let config: serde_json::Value = serde_json::from_str(config_json).ok()?;
    Some(config["model_type"].as_str()?.to_owned())
}
