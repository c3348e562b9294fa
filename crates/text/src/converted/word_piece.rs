//! Families with WordPiece (Schuster & Nakajima 2012): `vocab.txt`, a piece a line.

use std::path::Path;

use tokenizers::decoders::wordpiece::WordPiece as Decoder;
use tokenizers::models::bpe::Vocab;
use tokenizers::models::wordpiece::WordPiece;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::pre_tokenizers::bert::BertPreTokenizer;
use tokenizers::{AddedToken, Tokenizer};

use super::sentence_piece::Converted;
use super::{add_tokens, guard};
use crate::error::Result;
use crate::folder::settings::{BERT_SPECIALS, MPNET_SPECIALS, Settings, Special};
use crate::lines::Lines;
use crate::tokenizer_file;

const EXPECTED: &str = "vocab.txt: a piece a line";

/// BERT, DistilBERT and MPNet, which differ in their special tokens.
pub(crate) fn open(folder: &Path, settings: &Settings, is_mpnet: bool) -> Result<Converted> {
    let defaults = if is_mpnet { &MPNET_SPECIALS[..] } else { &BERT_SPECIALS };
    let specials = settings.specials(defaults, |name, text| match (is_mpnet, name) {
        (true, "mask_token") => Special::Token(AddedToken::from(text, true).lstrip(true)),
        _ => Special::Text(text),
    })?;
    let path = folder.join("vocab.txt");
    let bytes = tokenizer_file::read(&path, EXPECTED)?;
    let lines =
        Lines::new(bytes.as_slice(), path.display().to_string()).collect::<Result<Vec<_>>>()?;
    let pieces: Vocab = lines.into_iter().zip(0..).collect();
    let unknown = specials.get("unk_token").unwrap_or("[UNK]").to_owned();
    let lowercase = settings.flag("do_lower_case")?.unwrap_or(true);
    let [chinese, accents] =
        ["tokenize_chinese_chars", "strip_accents"].map(|name| settings.flag(name));
    let normalizer = BertNormalizer::new(true, chinese?.unwrap_or(true), accents?, lowercase);
    let tokenizer = guard(&path, || {
        let mut tokenizer =
            Tokenizer::new(WordPiece::builder().vocab(pieces).unk_token(unknown).build()?);
        tokenizer.with_normalizer(Some(normalizer))?;
        tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
        tokenizer.with_decoder(Some(Decoder::new("##".to_owned(), true)));
        add_tokens(&mut tokenizer, settings, &specials)?;
        Ok(tokenizer)
    })?;
    Ok(Converted { tokenizer, specials })
}
