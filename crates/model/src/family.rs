//! `config.json` of each model family. Only this module knows families.
//!
//! A family's mapping reads the fields of its `config.json` in Hugging Face's transformers, with
//! the same defaults. Unsupported settings are rejected with an error that names the field. Unknown
//! fields are ignored, as in transformers; in Cognate's own family they are rejected.

mod bart;
mod bert;
mod cognate;
mod fields;
mod gemma;
mod gpt;
mod names;
mod pair;
mod render;
mod rotary;
mod t5;
mod vit;
mod whisper;

use crate::{Config, Error, ErrorKind, OutputBias};
use fields::Fields;
use serde_json::{Map, Value};

pub(crate) use names::{Naming, Rows};
pub(crate) use render::render;

impl Config {
    /// Reads a `config.json` of a supported family.
    ///
    /// # Errors
    /// If the text is malformed, inconsistent or contains unsupported settings; the message
    /// names the field.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        parse(text).map(|(_, config)| config)
    }

    /// Writes a `config.json` with the same meaning, of one of transformers' families if possible.
    ///
    /// # Errors
    /// If the configuration is inconsistent, with the field's name in `config.json`, or no family
    /// can represent it.
    pub fn to_json(&self) -> Result<String, Error> {
        render(self)
    }
}

/// A family, identified by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Families derived from BART (Lewis et al. 2020).
    Bart(Bart),
    /// Encoder-only families derived from BERT (Devlin et al. 2019).
    Bert(Bert),
    /// Cognate's own.
    Cognate,
    /// Decoder-only families.
    Gpt(Gpt),
    /// An encoder and a decoder of two families.
    Pair {
        /// The encoder's.
        encoder: &'static Family,
        /// The decoder's.
        decoder: &'static Family,
        /// Whether the decoder has the encoder's weights, where both have such a parameter.
        tied: bool,
    },
    /// Families derived from T5 (Raffel et al. 2020).
    T5(T5),
    /// T5Gemma (Zhang et al. 2025).
    T5Gemma,
    /// Vision Transformers.
    Vit(Vit),
    /// Whisper (Radford et al. 2022).
    Whisper,
}

/// Families with BART's tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bart {
    /// BART (Lewis et al. 2020).
    Original,
    /// Blenderbot (Roller et al. 2021).
    Blenderbot,
    /// Blenderbot-small.
    BlenderbotSmall,
    /// M2M100 (Fan et al. 2021) and NLLB-200 (NLLB team 2022).
    M2m100,
    /// MarianMT (Junczys-Dowmunt et al. 2018).
    Marian,
    /// mBART (Liu et al. 2020) and mBART-50 (Tang et al. 2020).
    Mbart,
    /// Pegasus (Zhang et al. 2020).
    Pegasus,
    /// PLBart (Ahmad et al. 2021).
    Plbart,
    /// The decoder of TrOCR (Li et al. 2023).
    Trocr,
}

/// Encoder-only families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bert {
    /// BERT (Devlin et al. 2019).
    Original,
    /// DistilBERT (Sanh et al. 2019).
    Distil,
    /// BERT of models that generate, without segments and pooler (Rothe et al. 2020).
    Generation,
    /// MPNet (Song et al. 2020).
    Mpnet,
    /// RoBERTa (Liu et al. 2019), CamemBERT (Martin et al. 2020) and XLM-RoBERTa
    /// (Conneau et al. 2020).
    Roberta,
}

/// Decoder-only families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpt {
    /// Gemma (Gemma Team 2024).
    Gemma,
    /// Gemma 2 (Gemma Team 2024).
    Gemma2,
    /// GPT-2 (Radford et al. 2019).
    Gpt2,
    /// Llama (Touvron et al. 2023).
    Llama,
    /// Mistral (Jiang et al. 2023).
    Mistral,
    /// OPT (Zhang et al. 2022).
    Opt,
    /// Qwen2 (Yang et al. 2024).
    Qwen2,
}

/// Families with T5's tensor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum T5 {
    /// mT5 (Xue et al. 2021).
    Mt5,
    /// T5 (Raffel et al. 2020), its version 1.1 and Flan-T5 (Chung et al. 2022).
    Original,
    /// UMT5 (Chung et al. 2023).
    Umt5,
}

/// Vision Transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vit {
    /// DeiT (Touvron et al. 2021).
    Deit,
    /// ViT (Dosovitskiy et al. 2021).
    Original,
}

/// Families by `model_type`, in alphabetical order, with the prefix of transformers' classes.
static FAMILIES: [(&str, &str, Family); 31] = [
    ("bart", "Bart", Family::Bart(Bart::Original)),
    ("bert", "Bert", Family::Bert(Bert::Original)),
    ("bert-generation", "BertGeneration", Family::Bert(Bert::Generation)),
    ("blenderbot", "Blenderbot", Family::Bart(Bart::Blenderbot)),
    ("blenderbot-small", "BlenderbotSmall", Family::Bart(Bart::BlenderbotSmall)),
    ("camembert", "Camembert", Family::Bert(Bert::Roberta)),
    ("cognate", "Cognate", Family::Cognate),
    ("deit", "DeiT", Family::Vit(Vit::Deit)),
    ("distilbert", "DistilBert", Family::Bert(Bert::Distil)),
    ("gemma", "Gemma", Family::Gpt(Gpt::Gemma)),
    ("gemma2", "Gemma2", Family::Gpt(Gpt::Gemma2)),
    ("gpt2", "GPT2", Family::Gpt(Gpt::Gpt2)),
    ("llama", "Llama", Family::Gpt(Gpt::Llama)),
    ("m2m_100", "M2M100", Family::Bart(Bart::M2m100)),
    ("marian", "Marian", Family::Bart(Bart::Marian)),
    ("mbart", "MBart", Family::Bart(Bart::Mbart)),
    ("mistral", "Mistral", Family::Gpt(Gpt::Mistral)),
    ("mpnet", "MPNet", Family::Bert(Bert::Mpnet)),
    ("mt5", "MT5", Family::T5(T5::Mt5)),
    ("opt", "OPT", Family::Gpt(Gpt::Opt)),
    ("pegasus", "Pegasus", Family::Bart(Bart::Pegasus)),
    ("plbart", "PLBart", Family::Bart(Bart::Plbart)),
    ("qwen2", "Qwen2", Family::Gpt(Gpt::Qwen2)),
    ("roberta", "Roberta", Family::Bert(Bert::Roberta)),
    ("t5", "T5", Family::T5(T5::Original)),
    ("t5gemma", "T5Gemma", Family::T5Gemma),
    ("trocr", "TrOCR", Family::Bart(Bart::Trocr)),
    ("umt5", "UMT5", Family::T5(T5::Umt5)),
    ("vit", "ViT", Family::Vit(Vit::Original)),
    ("whisper", "Whisper", Family::Whisper),
    ("xlm-roberta", "XLMRoberta", Family::Bert(Bert::Roberta)),
];

/// Reads a `config.json`.
///
/// # Errors
/// All problems, in one error.
pub(crate) fn parse(text: &str) -> Result<(Family, Config), Error> {
    let object = object(text)?;
    if is_pair(&object) {
        return parse_pair(&object);
    }
    let (name, class, family) = *family(&object, &pair::MODEL_TYPES).map_err(wrong)?;
    if family == Family::Bart(Bart::Trocr) {
        return Err(wrong(format!(
            "model_type {name:?} is only supported as the decoder of {:?}",
            pair::MODEL_TYPES[1]
        )));
    }
    if family == Family::T5Gemma {
        let (encoder, decoder) = (gemma::half(&object, "encoder"), gemma::half(&object, "decoder"));
        let [encoder, decoder] = [parse_half(encoder, "encoder")?, parse_half(decoder, "decoder")?]
            .map(|(_, config)| config);
        return Ok((
            family,
            gemma::join(Fields::new(object), class, encoder, decoder).map_err(wrong)?,
        ));
    }
    let fields = Fields::new(object);
    fields.refuse_other("tie_encoder_decoder", false);
    let is_alone = fields.is_encoder_alone();
    if !is_alone {
        fields.refuse_other(
            "is_encoder_decoder",
            !matches!(family, Family::Bert(_) | Family::Gpt(_) | Family::Vit(_)),
        );
    }
    let config = config(family, class, &fields);
    fields.finish().map_err(wrong)?;
    Ok((family, if is_alone { config.encoder_alone() } else { config }))
}

fn config(family: Family, class: &str, fields: &Fields) -> Config {
    match family {
        Family::Bart(bart) => bart::config(bart, fields),
        Family::Bert(bert) => bert::config(bert, class, fields),
        Family::Cognate => cognate::config(fields),
        Family::Gpt(gpt) => gpt::config(gpt, class, fields),
        // A half of a pair is not a pair itself.
        Family::Pair { decoder, .. } => config(*decoder, class, fields),
        Family::T5Gemma => config(Family::Gpt(Gpt::Gemma2), class, fields),
        Family::T5(t5) => t5::config(t5, fields),
        Family::Vit(vit) => vit::config(vit, class, fields),
        Family::Whisper => whisper::config(fields),
    }
}

fn is_pair(object: &Map<String, Value>) -> bool {
    let name = object.get("model_type").and_then(Value::as_str);
    name.is_some_and(|name| pair::MODEL_TYPES.contains(&name))
}

/// Reads the `config.json` of a model that consists of two models.
fn parse_pair(object: &Map<String, Value>) -> Result<(Family, Config), Error> {
    let family_of = |name: &str| {
        let half = pair::half(object, name).map_err(wrong)?;
        family(&half, &[]).map(|(.., family)| family).map_err(|problem| within(name, problem))
    };
    let (encoder, decoder) = (family_of("encoder")?, family_of("decoder")?);
    pair::check(encoder, decoder).map_err(wrong)?;
    let read = |name| parse_half(pair::half(object, name), name).map(|(_, config)| config);
    let (encoder_config, decoder_config) = (read("encoder")?, read("decoder")?);
    let is_sized = *decoder == Family::Bart(Bart::Trocr);
    let config = pair::join(object, encoder_config, decoder_config, is_sized).map_err(wrong)?;
    let tied = pair::is_tied(object, encoder, decoder).map_err(wrong)?;
    Ok((Family::Pair { encoder, decoder, tied }, config))
}

/// Reads the `config.json` of one half.
fn parse_half(
    half: Result<Map<String, Value>, String>,
    name: &str,
) -> Result<(&'static Family, Config), Error> {
    let within = |problem| within(name, problem);
    let half = half.map_err(wrong)?;
    let (_, class, family) = family(&half, &[]).map_err(within)?;
    let fields = Fields::new(half);
    let config = match *family {
        Family::Bert(bert) if name == "decoder" => bert::decoder(bert, class, &fields),
        Family::Gpt(Gpt::Gpt2) if name == "decoder" => gpt::decoder(class, &fields),
        // Classes of decoders alone lack `final_logits_bias`.
        Family::Bart(bart) => {
            Config { output_bias: OutputBias::None, ..bart::config(bart, &fields) }
        }
        _ => config(*family, class, &fields),
    };
    fields.finish().map_err(within)?;
    Ok((family, config))
}

/// Writes the `config.json` of a model's encoder, without decoder and head.
///
/// # Errors
/// If the text is not the `config.json` of a supported family.
pub(crate) fn encoder_alone(text: &str) -> Result<String, Error> {
    let mut object = object(text)?;
    if is_pair(&object) {
        object = pair::half(&object, "encoder").map_err(wrong)?;
    }
    let (_, class, family) = family(&object, &pair::MODEL_TYPES).map_err(wrong)?;
    let class = match family {
        Family::Bart(_)
        | Family::Bert(Bert::Generation)
        | Family::Cognate
        | Family::Pair { .. }
        | Family::Whisper => format!("{class}Encoder"),
        Family::Bert(_) | Family::Vit(_) => format!("{class}Model"),
        Family::Gpt(_) => return Err(Error::decoder_alone()),
        Family::T5(_) | Family::T5Gemma => format!("{class}EncoderModel"),
    };
    object.insert("architectures".into(), vec![class].into());
    object.insert("is_encoder_decoder".into(), false.into());
    Ok(format!("{:#}\n", Value::Object(object)))
}

/// The `config.json` of a model whose `lm_head` is stored, if the file says that it is tied.
/// transformers 5 writes this for every T5, saves no tensor twice, and does not tie what is stored.
///
/// # Errors
/// If the text is not the `config.json` of a supported family.
pub(crate) fn untied(text: &str) -> Result<Option<String>, Error> {
    let mut object = object(text)?;
    let (.., family) = family(&object, &pair::MODEL_TYPES).map_err(wrong)?;
    let version = object.get("transformers_version").and_then(Value::as_str).map_or(0, major);
    if !matches!(family, Family::Gpt(_) | Family::T5(_)) || version < 5 {
        return Ok(None);
    }
    object.insert("tie_word_embeddings".into(), false.into());
    Ok(Some(format!("{:#}\n", Value::Object(object))))
}

/// The first number of a version; 0 if there is none.
fn major(version: &str) -> u32 {
    version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0)
}

fn within(half: &str, problem: String) -> Error {
    wrong(format!("{half}: {problem}"))
}

fn wrong(message: String) -> Error {
    Error::new(ErrorKind::Config, "config.json", message)
}

fn object(text: &str) -> Result<Map<String, Value>, Error> {
    match serde_json::from_str(text).map_err(|error| wrong(format!("not JSON: {error}")))? {
        Value::Object(object) => Ok(object),
        _ => Err(wrong("expected a JSON object".into())),
    }
}

/// The row of the `model_type`, or an error message, which names the `pairs` too.
fn family(
    object: &Map<String, Value>,
    pairs: &[&str],
) -> Result<&'static (&'static str, &'static str, Family), String> {
    let names = || {
        FAMILIES
            .iter()
            .map(|(name, ..)| *name)
            .chain(pairs.iter().copied())
            .collect::<Vec<_>>()
            .join(", ")
    };
    match object.get("model_type") {
        Some(found) => {
            let known = FAMILIES.iter().find(|(name, ..)| found.as_str() == Some(name));
            known.ok_or_else(|| {
                format!("model_type {found} is not supported; expected one of {}", names())
            })
        }
        None => Err(format!("model_type is missing; expected one of {}", names())),
    }
}
