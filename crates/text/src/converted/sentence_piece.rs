//! Families with a SentencePiece model; each has a different order of pieces.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::replace::ReplacePattern;
use tokenizers::normalizers::{NormalizerWrapper, Precompiled, Replace, Sequence, Strip};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::whitespace::WhitespaceSplit;
use tokenizers::{AddedToken, ModelWrapper, Tokenizer};

use super::{add, add_tokens, guard, merges};
use crate::codes;
use crate::error::Result;
use crate::folder::settings::{BART_SPECIALS, Settings, Special, Specials};
use crate::sentencepiece::{Algorithm, Kind, Model, SPACE};

/// A converted tokenizer with its special tokens.
pub(crate) struct Converted {
    pub(crate) tokenizer: Tokenizer,
    pub(crate) specials: Specials,
}

/// A family's conversion of a model.
struct Plan {
    /// Every piece with its score, in the order of ids.
    vocabulary: Vec<(String, f64)>,
    unk_id: usize,
    prepend: PrependScheme,
    /// Whether text is split at white space first (Pegasus).
    splits_whitespace: bool,
}

/// fairseq's first tokens, which replace a model's first three.
const FAIRSEQ: [&str; 4] = ["<s>", "<pad>", "</s>", "<unk>"];

/// T5, mT5, UMT5: the model's pieces, then the sentinels, `<extra_id_0>` last.
pub(crate) fn t5(path: &Path, model: &Model, settings: &Settings) -> Result<Converted> {
    let n_sentinels = settings.count("extra_ids")?.unwrap_or(100);
    let defaults = [("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")];
    let mut specials = settings.specials(&defaults, |name, text| match name {
        "eos_token" | "unk_token" | "pad_token" => Special::Token(AddedToken::from(text, true)),
        _ => Special::Text(text),
    })?;
    let given =
        specials.additional.iter().filter(|special| special.text().contains("<extra_id_")).count();
    if given == 0 {
        specials
            .additional
            .extend((0..n_sentinels).map(|index| Special::Text(format!("<extra_id_{index}>"))));
    } else if n_sentinels > 0 && given != n_sentinels {
        let expected = format!("as many as additional_special_tokens has <extra_id_...>, {given}");
        Err(settings.wrong("extra_ids", &Value::from(n_sentinels), &expected))?;
    }
    let sentinels = (0..n_sentinels).rev().map(|index| (format!("<extra_id_{index}>"), 0.0));
    let prefixed =
        !settings.has("add_prefix_space") || settings.flag("add_prefix_space")?.unwrap_or(false);
    let prepend = match (prefixed, settings.flag("legacy")?.unwrap_or(true)) {
        (false, _) => PrependScheme::Never,
        (true, true) => PrependScheme::Always,
        (true, false) => PrependScheme::First,
    };
    let plan = Plan {
        vocabulary: pieces(model, 0).chain(sentinels).collect(),
        unk_id: trained_unk(model, 0),
        prepend,
        splits_whitespace: false,
    };
    let mut tokenizer = convert(path, model, plan)?;
    guard(path, || add_tokens(&mut tokenizer, settings, &specials))?;
    Ok(Converted { tokenizer, specials })
}

/// mBART-25: fairseq's first tokens, the model's pieces, the languages, `<mask>`.
pub(crate) fn mbart(path: &Path, model: &Model, settings: &Settings) -> Result<Converted> {
    let mut specials = settings.specials(&BART_SPECIALS, |name, text| match name {
        "mask_token" => {
            Special::Token(AddedToken::from(text, false).lstrip(true).normalized(false))
        }
        _ => Special::Text(text),
    })?;
    let others = std::mem::take(&mut specials.additional);
    specials.additional =
        codes::MBART.iter().map(|code| Special::Text((*code).to_owned())).collect();
    let new: Vec<Special> =
        others.into_iter().filter(|other| !specials.additional.contains(other)).collect();
    specials.additional.extend(new);
    fairseq(path, model, settings, specials, codes::MBART.iter().copied().chain(["<mask>"]))
}

/// mBART-50: like mBART-25, with more languages.
pub(crate) fn mbart50(path: &Path, model: &Model, settings: &Settings) -> Result<Converted> {
    let defaults: Vec<(&str, &str)> =
        BART_SPECIALS.into_iter().filter(|(name, _)| *name != "bos_token").collect();
    let mut specials = settings.specials(&defaults, |name, text| match name {
        "mask_token" => Special::Token(AddedToken::from(text, false).lstrip(true)),
        _ => Special::Text(text),
    })?;
    let codes = codes::MBART50.iter().map(|code| Special::Text((*code).to_owned()));
    let new: Vec<Special> = codes.filter(|code| !specials.additional.contains(code)).collect();
    specials.additional.extend(new);
    fairseq(path, model, settings, specials, codes::MBART50.iter().copied().chain(["<mask>"]))
}

/// NLLB: fairseq's first tokens and the model's pieces; the languages are added tokens.
pub(crate) fn nllb(path: &Path, model: &Model, settings: &Settings) -> Result<Converted> {
    let mut specials = settings.specials(&BART_SPECIALS, |name, text| match name {
        "mask_token" => Special::Token(AddedToken::from(text, true).lstrip(true).normalized(true)),
        "bos_token" | "pad_token" | "eos_token" | "unk_token" => {
            Special::Token(AddedToken::from(text, true))
        }
        _ => Special::Text(text),
    })?;
    if settings.additional()?.is_none() {
        specials.additional =
            codes::NLLB.iter().map(|code| Special::Text((*code).to_owned())).collect();
    }
    fairseq(path, model, settings, specials, [].into_iter())
}

/// Pegasus: two tokens, the masks and the unused tokens, then the model's pieces from the third on.
pub(crate) fn pegasus(path: &Path, model: &Model, settings: &Settings) -> Result<Converted> {
    let offset = settings.count("offset")?.unwrap_or(103);
    let defaults = [
        ("pad_token", "<pad>"),
        ("eos_token", "</s>"),
        ("unk_token", "<unk>"),
        ("mask_token", "<mask_2>"),
    ];
    let mut specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
    let sentence_mask = match settings.has("mask_token_sent") {
        true => settings.text("mask_token_sent")?,
        false => Some("<mask_1>"),
    };
    let text = |text: &str| Special::Text(text.to_owned());
    let unused = |index: usize| format!("<unk_{index}>");
    if settings.additional()?.is_none() {
        specials.additional = sentence_mask
            .map(text)
            .into_iter()
            .chain((2..offset).map(|index| Special::Text(unused(index))))
            .collect();
    } else {
        if let Some(mask) = sentence_mask
            .filter(|mask| !specials.additional.iter().any(|special| special.text() == *mask))
        {
            specials.additional.insert(0, text(mask));
        }
        let n_given = specials.additional.len();
        specials
            .additional
            .extend((n_given..offset.saturating_sub(1)).map(|index| Special::Text(unused(index))));
    }
    let first = [
        specials.get("pad_token"),
        specials.get("eos_token"),
        sentence_mask,
        specials.get("mask_token").filter(|_| sentence_mask.is_some()),
    ];
    let first: Vec<(String, f64)> =
        first.into_iter().flatten().map(|token| (token.to_owned(), 0.0)).collect();
    let vocabulary = first
        .into_iter()
        .chain((2..offset).map(|index| (unused(index), -100.0)))
        .chain(pieces(model, 2))
        .collect();
    let plan = Plan {
        vocabulary,
        unk_id: trained_unk(model, offset),
        prepend: PrependScheme::Always,
        splits_whitespace: true,
    };
    let mut tokenizer = convert(path, model, plan)?;
    guard(path, || add(&mut tokenizer, Vec::new(), &specials))?;
    Ok(Converted { tokenizer, specials })
}

fn fairseq<'a>(
    path: &Path,
    model: &Model,
    settings: &Settings,
    specials: Specials,
    last: impl Iterator<Item = &'a str>,
) -> Result<Converted> {
    let unscored = |token: &str| (token.to_owned(), 0.0);
    let vocabulary = FAIRSEQ
        .into_iter()
        .map(unscored)
        .chain(pieces(model, 3))
        .chain(last.map(unscored))
        .collect();
    let plan =
        Plan { vocabulary, unk_id: 3, prepend: PrependScheme::Always, splits_whitespace: false };
    let mut tokenizer = convert(path, model, plan)?;
    guard(path, || add_tokens(&mut tokenizer, settings, &specials))?;
    Ok(Converted { tokenizer, specials })
}

/// The model's pieces from `first` on.
fn pieces(model: &Model, first: usize) -> impl Iterator<Item = (String, f64)> {
    model.pieces.iter().skip(first).map(|piece| (piece.text.clone(), f64::from(piece.score)))
}

/// The unknown piece's id; an invalid one becomes `usize::MAX`, which the library rejects.
fn trained_unk(model: &Model, offset: usize) -> usize {
    usize::try_from(model.trained_unk_id())
        .ok()
        .and_then(|id| id.checked_add(offset))
        .unwrap_or(usize::MAX)
}

fn convert(path: &Path, model: &Model, plan: Plan) -> Result<Tokenizer> {
    guard(path, || {
        let cutter: ModelWrapper = match model.algorithm() {
            Algorithm::Unigram => Unigram::from(plan.vocabulary, Some(plan.unk_id), false)?.into(),
            Algorithm::Bpe => {
                let merges = merges::of(&plan.vocabulary, model)?;
                let ids: HashMap<String, u32> =
                    plan.vocabulary.into_iter().map(|(piece, _)| piece).zip(0..).collect();
                BPE::builder()
                    .vocab_and_merges(ids.into_iter().collect::<Vocab>(), merges)
                    .unk_token(model.trained_unk_piece())
                    .fuse_unk(true)
                    .build()?
                    .into()
            }
        };
        let mut tokenizer = Tokenizer::new(cutter);
        let added = model
            .pieces
            .iter()
            .filter(|piece| matches!(piece.kind(), Kind::Control | Kind::UserDefined));
        let added = added.map(|piece| {
            AddedToken::from(piece.text.clone(), piece.is(Kind::Control)).normalized(false)
        });
        tokenizer.add_tokens(added.collect::<Vec<_>>())?;
        let charsmap = model.rules().charsmap;
        let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
        if !charsmap.is_empty() {
            normalizers.push(Precompiled::from(&charsmap)?.into());
        }
        normalizers.push(Strip::new(false, true).into());
        normalizers.push(
            Replace::new(ReplacePattern::Regex(" {2,}".to_owned()), SPACE.to_string())?.into(),
        );
        tokenizer.with_normalizer(Some(Sequence::new(normalizers)))?;
        let metaspace = Metaspace::new(SPACE, plan.prepend, true);
        let before: PreTokenizerWrapper = match plan.splits_whitespace {
            true => {
                PreTokenizers::new(vec![WhitespaceSplit.into(), metaspace.clone().into()]).into()
            }
            false => metaspace.clone().into(),
        };
        tokenizer.with_pre_tokenizer(Some(before));
        tokenizer.with_decoder(Some(metaspace));
        Ok(tokenizer)
    })
}
