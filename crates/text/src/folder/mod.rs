//! Reads the tokenizer of a checkpoint's folder.
//!
//! A `tokenizer.json` is read unchanged. Otherwise the files of a family are read, which is named
//! by `tokenizer_class` in `tokenizer_config.json`, or by `tokenizer_class` or `model_type` in
//! `config.json`.
//!
//! Source: transformers 4.57.6, `AutoTokenizer.from_pretrained`.

pub(crate) mod merges;
pub(crate) mod settings;

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::classic::{BertGeneration, BlenderbotSmall, ByT5, Classic, M2m100, Marian, PlBart};
use crate::codes;
use crate::converted::{byte_level, sentence_piece, word_piece};
use crate::error::{Cause, Result};
use crate::language::{Languages, SourcePlace, TargetPlace, Template};
use crate::sentencepiece;
use crate::tokenizer::{Engine, Spaces, Tokenizer};
use crate::tokenizer_file::{self, TARGET_TOKENIZER};

use settings::{BART_SPECIALS, Settings, Specials, WHISPER_SPECIALS};

const CONFIG: &str = "Hugging Face's config.json";

/// The families of tokenizers, by transformers' classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Marian,
    M2m100,
    MBart,
    MBart50,
    Nllb,
    PlBart,
    Pegasus,
    T5,
    Bart,
    Blenderbot,
    BlenderbotSmall,
    Whisper,
    Bert,
    BertGeneration,
    Mpnet,
    ByT5,
}

/// The classes of each family without `Fast`, and the values of `model_type` of models that name no
/// class.
const FAMILIES: [(Family, &[&str], &[&str]); 16] = [
    (Family::Marian, &["MarianTokenizer"], &["marian"]),
    (Family::M2m100, &["M2M100Tokenizer"], &["m2m_100"]),
    (Family::MBart, &["MBartTokenizer"], &["mbart"]),
    (Family::MBart50, &["MBart50Tokenizer"], &["mbart50"]),
    (Family::Nllb, &["NllbTokenizer"], &["nllb", "nllb-moe"]),
    (Family::PlBart, &["PLBartTokenizer"], &["plbart"]),
    (Family::Pegasus, &["PegasusTokenizer"], &["pegasus", "pegasus_x", "bigbird_pegasus"]),
    (
        Family::T5,
        &["T5Tokenizer", "MT5Tokenizer"],
        &["t5", "mt5", "umt5", "longt5", "switch_transformers"],
    ),
    (
        Family::Bart,
        &["BartTokenizer", "LEDTokenizer", "MvpTokenizer", "RobertaTokenizer"],
        &["bart", "led", "mvp", "roberta"],
    ),
    (Family::Blenderbot, &["BlenderbotTokenizer"], &["blenderbot"]),
    (Family::BlenderbotSmall, &["BlenderbotSmallTokenizer"], &["blenderbot-small"]),
    (Family::Whisper, &["WhisperTokenizer"], &["whisper"]),
    (Family::Bert, &["BertTokenizer", "DistilBertTokenizer"], &["bert", "distilbert"]),
    (Family::BertGeneration, &["BertGenerationTokenizer"], &["bert-generation"]),
    (Family::Mpnet, &["MPNetTokenizer"], &["mpnet"]),
    (Family::ByT5, &["ByT5Tokenizer"], &[]),
];

impl Family {
    /// The family of a class of transformers, without `Fast`.
    fn of_class(class: &str) -> Option<Self> {
        FAMILIES.iter().find(|(_, classes, _)| classes.contains(&class)).map(|(family, ..)| *family)
    }

    /// The family of a model that names no class.
    fn of_model(model_type: &str) -> Option<Self> {
        FAMILIES
            .iter()
            .find(|(_, _, models)| models.contains(&model_type))
            .map(|(family, ..)| *family)
    }

    /// The files of the family's tokenizer; errors name the first one.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Marian => &["source.spm", "target.spm", "vocab.json"],
            Self::M2m100 => &["sentencepiece.bpe.model", "vocab.json"],
            Self::MBart | Self::MBart50 | Self::Nllb | Self::PlBart => &["sentencepiece.bpe.model"],
            Self::BertGeneration | Self::Pegasus | Self::T5 => &["spiece.model"],
            Self::Bart | Self::Blenderbot | Self::BlenderbotSmall | Self::Whisper => {
                &["vocab.json", "merges.txt"]
            }
            Self::Bert | Self::Mpnet => &["vocab.txt"],
            // Its pieces are bytes.
            Self::ByT5 => &[],
        }
    }

    /// The source language if the folder names none.
    fn default_source(self, codes: &[&str]) -> Option<&'static str> {
        match self {
            Self::M2m100 => Some("en"),
            Self::MBart | Self::MBart50 => Some("en_XX"),
            Self::Nllb => Some("eng_Latn"),
            // The base vocabulary works without a language.
            Self::PlBart => (codes.len() > codes::PLBART_BASE.len()).then_some("en_XX"),
            Self::Marian | Self::Pegasus | Self::T5 | Self::ByT5 | Self::Whisper => None,
            Self::Bart
            | Self::Blenderbot
            | Self::BlenderbotSmall
            | Self::Bert
            | Self::BertGeneration
            | Self::Mpnet => None,
        }
    }
}

impl Tokenizer {
    /// Reads the tokenizer of a checkpoint's folder: `tokenizer.json` if it exists, otherwise the
    /// files of the family that `tokenizer_config.json` or `config.json` names.
    ///
    /// | family | files |
    /// |---|---|
    /// | Marian | `source.spm`, `target.spm`, `vocab.json` (and `target_vocab.json`) |
    /// | M2M100 | `sentencepiece.bpe.model`, `vocab.json` |
    /// | mBART-25, mBART-50, NLLB, PLBart | `sentencepiece.bpe.model` |
    /// | T5, mT5, UMT5, Pegasus | `spiece.model` |
    /// | BART, LED, MVP, RoBERTa | `vocab.json`, `merges.txt` |
    /// | Blenderbot, Blenderbot-small, Whisper | `vocab.json`, `merges.txt` |
    /// | BERT, DistilBERT, MPNet | `vocab.txt` |
    /// | BertGeneration | `spiece.model` |
    /// | ByT5 | none |
    ///
    /// A `target_tokenizer.json` beside `tokenizer.json`, written by
    /// [`crate::TrainedTokenizer::files`], is that of the target language. `tokenizer_config.json`,
    /// `special_tokens_map.json` and `added_tokens.json` are optional.
    ///
    /// Fails if a file is missing or invalid. Never panics.
    pub fn from_folder(folder: impl AsRef<Path>) -> Result<Self> {
        open(folder.as_ref())
    }

    /// Whether a checkpoint's folder has a tokenizer: pieces, or settings of a family whose pieces
    /// are bytes.
    pub fn is_in(folder: impl AsRef<Path>) -> bool {
        let folder = folder.as_ref();
        Self::PIECES.iter().any(|name| folder.join(name).exists()) || needs_no_pieces(folder)
    }
}

fn open(folder: &Path) -> Result<Tokenizer> {
    let settings = Settings::read(folder)?;
    let file = folder.join("tokenizer.json");
    if file.exists() {
        let mut tokenizer = Tokenizer::from_file(&file)?;
        tokenizer.spaces = spaces(&settings, None)?;
        let target = folder.join(TARGET_TOKENIZER);
        if target.exists() {
            tokenizer.target_engine = Some(Tokenizer::from_file(&target)?.engine);
        }
        if let Some(family) = family(folder, &settings)? {
            add_languages(&mut tokenizer, family, &settings)?;
        }
        return Ok(tokenizer);
    }
    settings.check_supported()?;
    let Some(family) = family(folder, &settings)? else { Err(no_family(folder, &settings))? };
    let missing: Vec<&str> =
        family.files().iter().copied().filter(|name| !folder.join(name).exists()).collect();
    if !missing.is_empty() && missing.len() == family.files().len() {
        Err(Cause::NoTokenizer { file: file.display().to_string() })?;
    }
    if let Some(first) = missing.first() {
        Err(Cause::NoFamilyFile {
            file: folder.join(first).display().to_string(),
            family: format!("{family:?}"),
            expected: family.files().join(", "),
        })?;
    }
    read(folder, family, &settings)
}

/// The family that a folder names, if it is supported.
fn family(folder: &Path, settings: &Settings) -> Result<Option<Family>> {
    if let Some(class) = settings.class() {
        return Ok(Family::of_class(class));
    }
    let config = settings::read_object(&folder.join("config.json"), CONFIG)?.unwrap_or_default();
    if let Some(class) = config.get("tokenizer_class").and_then(Value::as_str) {
        return Ok(Family::of_class(class.strip_suffix("Fast").unwrap_or(class)));
    }
    // As transformers, a model of two models of text has the tokenizer of its encoder.
    let named = match (config.get("model_type"), config.get("encoder")) {
        (Some(pair), Some(encoder)) if pair == "encoder-decoder" => encoder.get("model_type"),
        (named, _) => named,
    };
    if let Some(model_type) = named.and_then(Value::as_str) {
        return Ok(Family::of_model(model_type));
    }
    // No other family has this name.
    Ok(folder.join("source.spm").exists().then_some(Family::Marian))
}

/// Whether a folder names a family without files.
fn needs_no_pieces(folder: &Path) -> bool {
    let family = Settings::read(folder).and_then(|settings| family(folder, &settings));
    matches!(family, Ok(Some(Family::ByT5)))
}

fn no_family(folder: &Path, settings: &Settings) -> Cause {
    let file = folder.join("tokenizer.json").display().to_string();
    let names =
        ["source.spm", "sentencepiece.bpe.model", "spiece.model", "vocab.json", "vocab.txt"];
    let found: Vec<&str> = names.into_iter().filter(|name| folder.join(name).exists()).collect();
    match settings.class() {
        _ if found.is_empty() => Cause::NoTokenizer { file },
        Some(class) => Cause::UnknownClass { file, class: class.to_owned() },
        None => Cause::NoClass { file, found: found.join(", ") },
    }
}

fn read(folder: &Path, family: Family, settings: &Settings) -> Result<Tokenizer> {
    let name = folder.join(family.files().first().unwrap_or(&"tokenizer_config.json"));
    let file = name.display().to_string();
    let spaces = spaces(settings, Some(family))?;
    let (engine, specials) = match family {
        Family::Marian => classic(Marian::open(folder, settings)?),
        Family::M2m100 => classic(M2m100::open(folder, settings)?),
        Family::PlBart => classic(PlBart::open(folder, settings)?),
        Family::BlenderbotSmall => classic(BlenderbotSmall::open(folder, settings)?),
        Family::BertGeneration => classic(BertGeneration::open(folder, settings)?),
        Family::ByT5 => classic(ByT5::open(settings)?),
        Family::MBart | Family::MBart50 | Family::Nllb | Family::Pegasus | Family::T5 => {
            let model = sentencepiece::read(&name)?;
            let convert = match family {
                Family::MBart => sentence_piece::mbart,
                Family::MBart50 => sentence_piece::mbart50,
                Family::Nllb => sentence_piece::nllb,
                Family::Pegasus => sentence_piece::pegasus,
                _ => sentence_piece::t5,
            };
            library(convert(&name, &model, settings)?)
        }
        Family::Bart => library(byte_level::open(folder, settings, &BART_SPECIALS, true)?),
        Family::Bert | Family::Mpnet => {
            library(word_piece::open(folder, settings, family == Family::Mpnet)?)
        }
        Family::Blenderbot => library(byte_level::open(folder, settings, &BART_SPECIALS, false)?),
        Family::Whisper => library(byte_level::open(folder, settings, &WHISPER_SPECIALS, false)?),
    };
    let mut tokenizer = Tokenizer::new(engine, file, spaces);
    let id = |token: Option<&str>| {
        let token = token.unwrap_or("</s>");
        // The ids are those of `vocab.json` if the family has one.
        let table =
            family.files().iter().find(|name| **name == "vocab.json").or(family.files().first());
        let file = table.map_or(name.clone(), |table| folder.join(table)).display().to_string();
        let missing = || Cause::MissingToken { file, token: token.to_owned() };
        Ok::<_, crate::Error>(tokenizer.token_id(token).ok_or_else(missing)?)
    };
    let eos = specials.get("eos_token");
    tokenizer.template = Some(match family {
        Family::BertGeneration | Family::BlenderbotSmall => Template::default(),
        Family::Bart | Family::Bert | Family::Mpnet => Template {
            prefix: vec![id(specials.get("cls_token"))?],
            suffix: vec![id(specials.get("sep_token"))?],
        },
        // transformers always appends `</s>`, regardless of `eos_token`.
        // As transformers without a language and a task.
        Family::Whisper => Template {
            prefix: vec![id(Some("<|startoftranscript|>"))?, id(Some("<|notimestamps|>"))?],
            suffix: vec![id(eos)?],
        },
        Family::T5 | Family::ByT5 => Template { prefix: vec![], suffix: vec![id(Some("</s>"))?] },
        Family::Marian
        | Family::Pegasus
        | Family::Blenderbot
        | Family::M2m100
        | Family::MBart
        | Family::MBart50
        | Family::Nllb
        | Family::PlBart => Template { prefix: vec![], suffix: vec![id(eos)?] },
    });
    add_languages(&mut tokenizer, family, settings)?;
    Ok(tokenizer)
}

fn classic((classic, specials): (Classic, Specials)) -> (Engine, Specials) {
    (Engine::Classic(Arc::new(classic)), specials)
}

fn library(converted: sentence_piece::Converted) -> (Engine, Specials) {
    (Engine::Library(Arc::new(converted.tokenizer)), converted.specials)
}

/// The treatment of spaces before punctuation: the folder's setting, or the default of the family's
/// class.
fn spaces(settings: &Settings, family: Option<Family>) -> Result<Spaces> {
    let default = family == Some(Family::PlBart) && !settings.has(tokenizer_file::CLEAN_UP);
    Ok(match settings.flag(tokenizer_file::CLEAN_UP)?.unwrap_or(default) {
        true => Spaces::CleanUp,
        false => Spaces::Keep,
    })
}

/// Finds the languages of a multilingual tokenizer and sets its source language.
fn add_languages(tokenizer: &mut Tokenizer, family: Family, settings: &Settings) -> Result<()> {
    let (codes, source, target) = match family {
        Family::Marian => return add_target_languages(tokenizer, Marian::language),
        Family::T5 => return add_target_languages(tokenizer, madlad_language),
        Family::M2m100 => (M2m100::codes(settings)?, SourcePlace::First, TargetPlace::Forced),
        Family::MBart => (codes::MBART, SourcePlace::Last, TargetPlace::Start),
        Family::MBart50 => (codes::MBART50, SourcePlace::First, TargetPlace::Forced),
        Family::Nllb => {
            let legacy = settings.flag("legacy_behaviour")?.unwrap_or(false);
            (
                codes::NLLB,
                if legacy { SourcePlace::Last } else { SourcePlace::First },
                TargetPlace::Forced,
            )
        }
        Family::PlBart => (PlBart::codes(settings)?, SourcePlace::Last, TargetPlace::Start),
        Family::Pegasus
        | Family::ByT5
        | Family::Bart
        | Family::Blenderbot
        | Family::BlenderbotSmall
        | Family::Whisper
        | Family::Bert
        | Family::BertGeneration
        | Family::Mpnet => {
            return Ok(());
        }
    };
    let spelt = |code: &str| match family {
        Family::M2m100 | Family::PlBart => M2m100::token(code),
        _ => code.to_owned(),
    };
    let mut known: Vec<(String, u32)> = Vec::new();
    for code in codes {
        known.extend(tokenizer.token_id(&spelt(code)).map(|id| ((*code).to_owned(), id)));
    }
    // Languages that a checkpoint adds to those of the family.
    for special in settings.additional()?.into_iter().flatten() {
        let code = special.text();
        let is_new = matches!(family, Family::MBart | Family::MBart50 | Family::Nllb)
            && !known.iter().any(|(known, _)| known == code);
        if is_new && looks_like_a_code(code) {
            known.extend(tokenizer.token_id(code).map(|id| (code.to_owned(), id)));
        }
    }
    let eos_token = settings.text("eos_token")?.unwrap_or("</s>");
    let Some(eos) = tokenizer.token_id(eos_token).filter(|_| !known.is_empty()) else {
        return Ok(());
    };
    // A tokenizer.json keeps its template if transformers has no fast tokenizer of the family.
    let is_set = tokenizer.template.is_some() || !matches!(family, Family::M2m100 | Family::PlBart);
    tokenizer.languages = Some(Languages { known, source, target, eos });
    let chosen = settings.text("src_lang")?.or_else(|| family.default_source(codes));
    if let Some(code) = chosen.filter(|_| is_set) {
        let languages = tokenizer.languages.as_ref().expect("set above");
        tokenizer.template =
            match (languages.find(&tokenizer.file, code), tokenizer.template.is_some()) {
                (Ok(id), _) => Some(languages.template(id)),
                // A tokenizer.json of other languages keeps its own template.
                (Err(_), false) => None,
                (Err(error), true) => match family {
                    // As transformers: the vocabulary's unknown token.
                    Family::Nllb => {
                        let unk = settings.text("unk_token")?.unwrap_or("<unk>");
                        tokenizer.token_id(unk).map(|id| languages.template(id))
                    }
                    _ => return Err(error),
                },
            };
    }
    Ok(())
}

/// The language of a piece of MADLAD-400 such as `<2de>` (Kudugunta et al. 2023).
fn madlad_language(piece: &str) -> Option<&str> {
    piece
        .strip_prefix("<2")?
        .strip_suffix('>')
        .filter(|code| code.starts_with(|char: char| char.is_ascii_alphabetic()))
}

/// The languages of Marian and MADLAD-400: pieces of the vocabulary.
fn add_target_languages(
    tokenizer: &mut Tokenizer,
    language: fn(&str) -> Option<&str>,
) -> Result<()> {
    let mut known = tokenizer.pieces_like(|piece| language(piece).map(str::to_owned));
    known.sort_unstable_by_key(|(_, id)| *id);
    if !known.is_empty() {
        tokenizer.languages = Some(Languages {
            known,
            source: SourcePlace::Nowhere,
            target: TargetPlace::InSource,
            eos: 0,
        });
    }
    Ok(())
}

/// Whether a token looks like `eng_Latn` or `en_XX`.
fn looks_like_a_code(token: &str) -> bool {
    let is = |part: &str, lengths: [usize; 2]| {
        lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    token
        .split_once('_')
        .is_some_and(|(language, script)| is(language, [2, 3]) && is(script, [2, 4]))
}
