//! `--source-language` and `--target-language`: what a multilingual model translates from and into.
//!
//! The source language changes what the tokenizer puts around a sentence. The target language is a token that must be
//! decoded first (mBART-50, M2M100, NLLB), or that decoding starts from (mBART-25, PLBart), or the sentence's first one
//! (Marian).

use crate::messages;
use anyhow::{Context, Result, bail};
use cognate_generate::Settings;
use cognate_model::Config;
use cognate_text::{TargetLanguage, Tokenizer};
use std::path::Path;

/// The languages of a run.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Languages {
    /// The language of the sentences, for a multilingual model: en_XX (mBART), eng_Latn (NLLB), en (M2M100) [default: the
    /// tokenizer's]
    #[arg(long, value_name = "CODE")]
    source_language: Option<String>,
    /// The language to translate into, for a multilingual model: de_DE (mBART), deu_Latn (NLLB), de (M2M100), deu (Marian)
    /// [default: the one that generation_config.json names]
    #[arg(long, value_name = "CODE")]
    target_language: Option<String>,
}

impl Languages {
    /// Whether any is chosen.
    pub(crate) fn is_chosen(&self) -> bool {
        self.source().or(self.target()).is_some()
    }

    pub(crate) fn source(&self) -> Option<&str> {
        self.source_language.as_deref()
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.target_language.as_deref()
    }

    /// The tokenizer with these languages.
    ///
    /// # Errors
    /// If it has no languages, or not these, or the model has no row for the target's token.
    pub(crate) fn choose(&self, tokenizer: Tokenizer, config: &Config) -> Result<Tokenizer> {
        let tokenizer = tokenizer.with_languages(self.source(), None).context("--source-language")?;
        let tokenizer = tokenizer.with_languages(None, self.target()).context("--target-language")?;
        if let Some(TargetLanguage::Forced(id) | TargetLanguage::Start(id)) = tokenizer.target_language()
            && usize::try_from(id).is_ok_and(|id| id >= config.vocab)
        {
            let (code, vocab) = (self.target().unwrap_or_default(), config.vocab);
            bail!(
                "--target-language: {code} is token {id}, but vocab_size in config.json is {vocab}: tokenizer and model do not belong together"
            );
        }
        Ok(tokenizer)
    }
}

/// Lets decoding begin with the chosen target language.
pub(crate) fn decode_into(target: Option<TargetLanguage>, settings: &mut Settings) {
    match target {
        Some(TargetLanguage::Forced(id)) => settings.forced_bos_token = Some(id),
        Some(TargetLanguage::Start(id)) => settings.start_token = id,
        None => {}
    }
}

/// Where the target language has yet to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    /// Nowhere: it is told, or there is one only.
    Nowhere,
    /// In front of each sentence, as `>>deu<<`: Marian's codes.
    InSentences(Vec<String>),
}

/// Finds out whether the model in `folder` will know what to translate into.
///
/// # Errors
/// If it cannot, and would decode some language or none.
pub(crate) fn untold(
    folder: &Path,
    config_json: &str,
    tokenizer: &Tokenizer,
    languages: &Languages,
    settings: &Settings,
) -> Result<Untold> {
    let codes = tokenizer.languages();
    let [first, ..] = codes.as_slice() else { return Ok(Untold::Nowhere) };
    if languages.target().is_some() {
        return Ok(Untold::Nowhere);
    }
    let is_told = match tokenizer.clone().with_languages(None, Some(first))?.target_language() {
        None => return Ok(Untold::InSentences(codes)),
        Some(TargetLanguage::Forced(_)) => settings.forced_bos_token.is_some(),
        Some(TargetLanguage::Start(_)) => tokenizer.piece(settings.start_token).is_some_and(|piece| is_code(&piece, &codes)),
    };
    if !is_told {
        let (place, listed) = (folder.display(), messages::listed(&codes));
        // Many of PLBart's checkpoints are trained for one language, and start as BART does.
        if model_type(config_json).as_deref() == Some("plbart") {
            messages::warning(format_args!("{place}: no target language is named; --target-language takes {listed}"));
        } else {
            bail!(
                "{place}: the model knows {} languages, and none is named to translate into: pass --target-language, one of {listed}",
                codes.len()
            );
        }
    }
    Ok(Untold::Nowhere)
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
