//! Tokenizers that transformers converts to the form of the `tokenizers` library: T5, mBART, NLLB,
//! Pegasus, BART, Blenderbot, Whisper, BERT, MPNet.
//!
//! The library splits the text, not SentencePiece: results differ on some texts (no fallback to
//! bytes, runs of spaces become one `▁`) and equal those of transformers' fast tokenizers.
//!
//! Source: transformers 4.57.6, `convert_slow_tokenizer.py` and `PreTrainedTokenizerFast.__init__`.

pub(crate) mod byte_level;
mod merges;
pub(crate) mod sentence_piece;
pub(crate) mod word_piece;

use std::path::Path;

use tokenizers::{AddedToken, Tokenizer};

use crate::error::{Cause, Result};
use crate::folder::settings::{Settings, Special, Specials};

/// Adds the folder's added tokens, then the special tokens, in transformers' order, which
/// determines new ids.
fn add_tokens(
    tokenizer: &mut Tokenizer,
    settings: &Settings,
    specials: &Specials,
) -> tokenizers::Result<()> {
    add(
        tokenizer,
        settings.added.iter().map(|(id, token)| (*id, token.clone())).collect(),
        specials,
    )
}

fn add(
    tokenizer: &mut Tokenizer,
    mut added: Vec<(u32, AddedToken)>,
    specials: &Specials,
) -> tokenizers::Result<()> {
    added.sort_by_key(|(id, _)| *id);
    let known: Vec<String> = tokenizer
        .get_added_tokens_decoder()
        .values()
        .chain(added.iter().map(|(_, token)| token))
        .map(|token| token.content.clone())
        .collect();
    let mut tokens: Vec<AddedToken> = added.into_iter().map(|(_, token)| token).collect();
    let mut missing = Vec::new();
    for special in specials.unique() {
        match special {
            Special::Text(text) if !known.contains(text) => {
                missing.push(AddedToken::from(text.clone(), true))
            }
            Special::Token(token) if !tokens.contains(token) => missing.push(token.clone()),
            Special::Text(_) | Special::Token(_) => {}
        }
    }
    tokens.extend(missing);
    let special: Vec<&str> = specials.unique().into_iter().map(Special::text).collect();
    for token in &mut tokens {
        token.special |= special.contains(&token.content.as_str());
    }
    tokenizer.add_tokens(tokens)?;
    Ok(())
}

/// Runs the library; its errors name the file.
fn guard<T>(path: &Path, call: impl FnOnce() -> tokenizers::Result<T>) -> Result<T> {
    let refused = |reason| Cause::Refused { file: path.display().to_string(), reason };
    Ok(crate::library::guarded(call).map_err(refused)?)
}
