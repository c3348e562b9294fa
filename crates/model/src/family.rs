//! `config.json`: the only place that knows families.
//!
//! Each family's mapping reads the fields that its `config.json` has in Hugging Face's transformers, with the defaults they
//! have there, and refuses what is not supported by naming the field. Unknown fields are ignored, as transformers does; in our own family they are refused.

mod bart;
mod cognate;
mod fields;
mod names;
mod render;
mod t5;

use crate::{Config, Error, ErrorKind};
use fields::Fields;
use serde_json::Value;

pub(crate) use names::{Naming, Rows};
pub(crate) use render::render;

impl Config {
    /// Reads the text of a `config.json` of a supported family.
    ///
    /// # Errors
    /// If the text is malformed, contradicts itself or asks for what is not supported; the message names the field.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        parse(text).map(|(_, config)| config)
    }

    /// The text of a `config.json` that says the same: of a family that transformers has, wherever one says it.
    ///
    /// # Errors
    /// If the configuration contradicts itself, with the field as `config.json` calls it, or no family says it.
    pub fn to_json(&self) -> Result<String, Error> {
        render(self)
    }
}

/// A family, told by `model_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Those built as BART is (Lewis et al. 2020).
    Bart(Bart),
    /// Cognate's own: the paper's, and other choices.
    Cognate,
    /// Those built as T5 is (Raffel et al. 2020).
    T5(T5),
}

/// Families whose tensors are called as BART's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bart {
    /// BART (Lewis et al. 2020).
    Original,
    /// Blenderbot (Roller et al. 2021).
    Blenderbot,
    /// Blenderbot's small form.
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
}

/// Families whose tensors are called as T5's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum T5 {
    /// mT5 (Xue et al. 2021).
    Mt5,
    /// T5 (Raffel et al. 2020), its version 1.1 and Flan-T5 (Chung et al. 2022).
    Original,
    /// UMT5 (Chung et al. 2023).
    Umt5,
}

/// Families by what `model_type` calls them, in the order of the alphabet.
const FAMILIES: [(&str, Family); 12] = [
    ("bart", Family::Bart(Bart::Original)),
    ("blenderbot", Family::Bart(Bart::Blenderbot)),
    ("blenderbot-small", Family::Bart(Bart::BlenderbotSmall)),
    ("cognate", Family::Cognate),
    ("m2m_100", Family::Bart(Bart::M2m100)),
    ("marian", Family::Bart(Bart::Marian)),
    ("mbart", Family::Bart(Bart::Mbart)),
    ("mt5", Family::T5(T5::Mt5)),
    ("pegasus", Family::Bart(Bart::Pegasus)),
    ("plbart", Family::Bart(Bart::Plbart)),
    ("t5", Family::T5(T5::Original)),
    ("umt5", Family::T5(T5::Umt5)),
];

/// Reads the text of a `config.json`.
///
/// # Errors
/// Everything that is wrong with it, in one error.
pub(crate) fn parse(text: &str) -> Result<(Family, Config), Error> {
    let wrong = |message: String| Error::new(ErrorKind::Config, "config.json", message);
    let value: Value = serde_json::from_str(text).map_err(|error| wrong(format!("not JSON: {error}")))?;
    let Value::Object(object) = value else { return Err(wrong("expected a JSON object".into())) };
    let names = || FAMILIES.map(|(name, _)| name).join(", ");
    let family = match object.get("model_type") {
        Some(found) => FAMILIES
            .iter()
            .find(|(name, _)| found.as_str() == Some(name))
            .map(|&(_, family)| family)
            .ok_or_else(|| wrong(format!("model_type {found} is not supported; expected one of {}", names())))?,
        None => return Err(wrong(format!("model_type is missing; expected one of {}", names()))),
    };
    let fields = Fields::new(object);
    for (field, wanted) in [("is_encoder_decoder", true), ("tie_encoder_decoder", false)] {
        fields.refuse_other(field, wanted);
    }
    let config = match family {
        Family::Bart(bart) => bart::config(bart, &fields),
        Family::Cognate => cognate::config(&fields),
        Family::T5(t5) => t5::config(t5, &fields),
    };
    fields.finish().map_err(wrong)?;
    Ok((family, config))
}
