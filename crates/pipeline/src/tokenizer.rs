//! Opens a folder's tokenizer and checks that it belongs to the model.

use std::path::Path;

use cognate_model::Config;
use cognate_text::Tokenizer;

use crate::error::{Cause, Result};
use crate::notice::Notice;

/// The tokenizer in `folder`, for a model with this configuration.
///
/// # Errors
/// If it is missing, cannot be read, or belongs to another model.
pub fn open_tokenizer(folder: &Path, config: &Config) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_folder(folder)?;
    check_tokenizer(folder, &tokenizer, config)?;
    Ok(tokenizer)
}

/// The tokenizer in `folder` if it can be read, otherwise a notice with the consequence.
///
/// # Errors
/// If it belongs to another model.
pub fn open_tokenizer_if_readable(
    folder: &Path,
    config: &Config,
    consequence: &'static str,
) -> Result<(Option<Tokenizer>, Option<Notice>)> {
    match Tokenizer::from_folder(folder) {
        Ok(tokenizer) => {
            check_tokenizer(folder, &tokenizer, config)?;
            Ok((Some(tokenizer), None))
        }
        Err(error) => {
            Ok((None, Some(Notice::NoTokenizer { reason: error.to_string(), consequence })))
        }
    }
}

/// Rejects a tokenizer with ids that have no embeddings. Fewer ids than rows are common: tables are
/// padded.
///
/// Special tokens beyond the table are accepted, because published checkpoints have them
/// (`facebook/bart-large-cnn`: 50,264 rows and `<mask>` at 50,264; mT5's sentinels); a sentence
/// that contains one is rejected by [`SourceEncoder`](crate::SourceEncoder).
///
/// # Errors
/// If a piece of text has such an id.
pub fn check_tokenizer(folder: &Path, tokenizer: &Tokenizer, config: &Config) -> Result<()> {
    let rows = config.source_vocab.max(config.vocab);
    let required = tokenizer.required_vocab();
    if required <= rows {
        return Ok(());
    }
    let around = tokenizer.encode("").unwrap_or_default();
    // Special tokens have no text.
    let is_text = |id: &i64| {
        around.contains(id) || tokenizer.decode(&[*id]).is_ok_and(|text| !text.is_empty())
    };
    let Some(id) = (rows as i64..required as i64).find(is_text) else { return Ok(()) };
    let there: Vec<&str> =
        Tokenizer::PIECES.into_iter().filter(|name| folder.join(name).exists()).collect();
    // The others are not read if there is a tokenizer.json.
    let there = if there.contains(&Tokenizer::PIECES[0]) { &there[..1] } else { &there };
    let piece = tokenizer.piece(id).unwrap_or_default();
    Err(Cause::Rows {
        folder: folder.display().to_string(),
        rows,
        files: there.join(" with "),
        required,
        piece,
        id,
    })?
}
