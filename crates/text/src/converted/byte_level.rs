//! Families with byte-level BPE: `vocab.json` and `merges.txt`.

use std::path::Path;

use tokenizers::decoders::byte_level::ByteLevel;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, Tokenizer};

use super::sentence_piece::Converted;
use super::{add_tokens, guard};
use crate::classic::Vocabulary;
use crate::error::Result;
use crate::folder::merges::{self, OddLines};
use crate::folder::settings::{Settings, Special};

/// BART, LED, MVP, Blenderbot, Whisper; they differ in their templates, special tokens, and in
/// `normalizes_mask`.
pub(crate) fn open(
    folder: &Path,
    settings: &Settings,
    specials: &[(&str, &str)],
    normalizes_mask: bool,
) -> Result<Converted> {
    let specials = settings.specials(specials, |name, text| {
        let token = AddedToken::from(text, false);
        Special::Token(match name {
            "mask_token" => token.lstrip(true).normalized(normalizes_mask),
            _ => token,
        })
    })?;
    let vocabulary = Vocabulary::read(&folder.join("vocab.json"))?.into_ids();
    let path = folder.join("merges.txt");
    let merges = merges::read(&path, OddLines::Refuse)?;
    let spaced = settings.flag("add_prefix_space")?.unwrap_or(false);
    let tokenizer = guard(&path, || {
        let cutter = BPE::builder()
            .vocab_and_merges(vocabulary.into_iter().collect::<Vocab>(), merges)
            .build();
        // Either file can be the wrong one.
        let cutter = cutter.map_err(|error| format!("with the pieces of vocab.json: {error}"))?;
        let mut tokenizer = Tokenizer::new(cutter);
        tokenizer.with_pre_tokenizer(Some(ByteLevel::new(spaced, true, true)));
        tokenizer.with_decoder(Some(ByteLevel::default()));
        add_tokens(&mut tokenizer, settings, &specials)?;
        Ok(tokenizer)
    })?;
    Ok(Converted { tokenizer, specials })
}
