//! The languages of a multilingual tokenizer: the places of the codes of source and target.
//!
//! | family | source | target |
//! |---|---|---|
//! | mBART-25, PLBart | `X </s> code` | decoding starts from the code |
//! | mBART-50, M2M100, NLLB | `code X </s>` | the code is forced to be decoded first |
//! | NLLB with `legacy_behaviour` | `X </s> code` | the code is forced to be decoded first |
//! | Marian | | `>>code<< X </s>`, in the source |

use crate::error::{Cause, Result};

/// The special tokens around the ids of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub(crate) prefix: Vec<u32>,
    pub(crate) suffix: Vec<u32>,
}

/// The way in which the decoder is conditioned on the target language. Marian's is not: its source
/// text contains the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetLanguage {
    /// `forced_bos_token_id`: the first decoded token (mBART-50, M2M100, NLLB).
    Forced(i64),
    /// `decoder_start_token_id`: decoding starts from this token instead of the model's (mBART-25,
    /// PLBart).
    Start(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourcePlace {
    First,
    Last,
    Nowhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetPlace {
    Forced,
    Start,
    InSource,
}

/// The languages of a vocabulary and the places of their tokens.
#[derive(Clone, Debug)]
pub(crate) struct Languages {
    /// Codes as users spell them, with their tokens' ids.
    pub(crate) known: Vec<(String, u32)>,
    pub(crate) source: SourcePlace,
    pub(crate) target: TargetPlace,
    pub(crate) eos: u32,
}

impl Languages {
    /// The token of a code, plain or spelt as in the vocabulary: `en`, `__en__`, `>>deu<<`.
    pub(crate) fn find(&self, file: &str, code: &str) -> Result<u32> {
        let bare = |left, right| code.strip_prefix(left).and_then(|rest| rest.strip_suffix(right));
        let spellings = [Some(code), bare("__", "__"), bare(">>", "<<"), bare("<2", ">")];
        let id = |spelling: &str| {
            self.known.iter().find(|(known, _)| known == spelling).map(|(_, id)| *id)
        };
        let unknown = || Cause::UnknownLanguage {
            file: file.to_owned(),
            code: code.to_owned(),
            known: self.like(code),
        };
        Ok(spellings.into_iter().flatten().find_map(id).ok_or_else(unknown)?)
    }

    /// The special tokens around a text of the source language.
    pub(crate) fn template(&self, source: u32) -> Template {
        match self.source {
            SourcePlace::First => Template { prefix: vec![source], suffix: vec![self.eos] },
            SourcePlace::Last => Template { prefix: vec![], suffix: vec![self.eos, source] },
            SourcePlace::Nowhere => Template { prefix: vec![], suffix: vec![self.eos] },
        }
    }

    /// The first codes in the order of similarity to the given one.
    fn like(&self, code: &str) -> String {
        const LIMIT: usize = 8;
        let common_prefix = |known: &str| {
            known
                .chars()
                .zip(code.chars())
                .take_while(|(one, other)| one.eq_ignore_ascii_case(other))
                .count()
        };
        let mut codes: Vec<&str> = self.known.iter().map(|(code, _)| code.as_str()).collect();
        codes.sort_by_key(|known| std::cmp::Reverse(common_prefix(known).min(2)));
        let n_more = codes.len().saturating_sub(LIMIT);
        codes.truncate(LIMIT);
        let codes = codes.join(", ");
        if n_more == 0 { codes } else { format!("{codes} and {n_more} more") }
    }
}
