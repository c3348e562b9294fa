//! `--source-language` and `--target-language`: what a multilingual model translates from and into.
//!
//! The source language changes what the tokenizer puts around a sentence. The target language is a token that must be
//! decoded first (mBART-50, M2M100, NLLB), or that decoding starts from (mBART-25, PLBart), or the sentence's first one
//! (Marian).

use crate::messages;
use anyhow::{Context, Result, bail};
use cognate_generate::Settings;
use cognate_model::Config;
use cognate_pipeline::TargetNaming;
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

/// Finds out where the target language of the model in `folder` is named; warns where it is not and need not be.
///
/// # Errors
/// If it is named nowhere, and the model would decode some language or none.
pub(crate) fn target_naming(folder: &Path, config_json: &str, tokenizer: &Tokenizer, settings: &Settings) -> Result<TargetNaming> {
    let naming = TargetNaming::of(config_json, tokenizer, settings)?;
    if let TargetNaming::Missing { codes, is_optional, .. } = &naming {
        let (place, listed) = (folder.display(), messages::listed(codes));
        if !is_optional {
            bail!(
                "{place}: the model knows {} languages, and none is named to translate into: pass --target-language, one of {listed}",
                codes.len()
            );
        }
        messages::warning(format_args!("{place}: no target language is named; --target-language takes {listed}"));
    }
    Ok(naming)
}
