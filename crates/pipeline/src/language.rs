//! Whether a multilingual model knows which language to translate into.

use cognate_generate::Settings;
use cognate_text::{TargetLanguage, Tokenizer};

use crate::error::Result;

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
