//! The models that translate text.

use fs_err::{self as fs, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::checkpoint::{
    BASE, Shape, TOKENIZER, Tensor, checkpoint, generation_config, tensors, write, write_json,
};
use xtask::workspace::Workspace;

/// A model that translates English text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// The model in testdata/multi30k-en-de, a student of 2.36 million parameters
    Bundled,
    /// A model with the shape and vocabulary size of OPUS-MT and seeded random weights
    MarianBase,
}

/// Vocabulary size of OPUS-MT models from English to German.
const VOCAB: usize = 58_101;
const END: usize = 0;
/// Also the start token.
const PADDING: usize = 2;
/// The end token's weights for sinusoids whose period, divided by 2π, is within these bounds: its
/// logit grows with the position, so that translations differ in length, but few reach the limit.
const END_WEIGHT: f32 = 0.6;
const PERIODS: std::ops::Range<f64> = 8.0..30.0;
/// The last number of the decoder's output, which only the end token reads: translations have on
/// average about as many tokens as Multi30k's references.
const END_BIAS: f32 = 4.4;
/// Maximum length of translations, including the start token.
const MAX_LENGTH: usize = 64;

impl Model {
    /// The name of the model's folder.
    pub fn name(self) -> &'static str {
        match self {
            Model::Bundled => "bundled",
            Model::MarianBase => "marian-base",
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Model::Bundled => "The bundled model",
            Model::MarianBase => "Marian-base, random weights",
        }
    }

    /// The number of lines that the bundled model translates for each line of this one.
    pub fn share(self) -> usize {
        match self {
            Model::Bundled => 1,
            Model::MarianBase => 10,
        }
    }

    /// Whether the model was trained to translate, so that a shortlist is meaningful.
    pub fn has_shortlist(self) -> bool {
        self == Model::Bundled
    }

    /// The folder of the checkpoint.
    pub fn folder(self, workspace: &Workspace) -> Result<PathBuf> {
        match self {
            Model::Bundled => Ok(workspace.root().join("testdata/multi30k-en-de")),
            Model::MarianBase => marian_base(workspace),
        }
    }
}

/// A checkpoint with the bundled tokenizer, whose vocabulary is extended by words that occur in no
/// text.
fn marian_base(workspace: &Workspace) -> Result<PathBuf> {
    let (shape, width) = (Shape { vocab: VOCAB, ..BASE }, BASE.d_model);
    let made = checkpoint(workspace, "text/marian-base/checkpoint", shape, write)?;
    let place_of = |name: &str| {
        tensors(shape)
            .iter()
            .take_while(|tensor| tensor.name != name)
            .map(Tensor::n_elements)
            .sum::<usize>()
    };
    let values = made.weights.metadata()?.len() - 4 * made.parameters;
    let mut weights = OpenOptions::new().write(true).open(&made.weights)?;
    let mut put = |place: usize, numbers: &[f32]| {
        weights.seek(SeekFrom::Start(values + 4 * place as u64))?;
        weights
            .write_all(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
    };
    let last_bias = format!("model.decoder.layers.{}.final_layer_norm.bias", BASE.layers - 1);
    // As in OPUS-MT models.
    put(place_of("final_logits_bias"), &[0.0; VOCAB])?;
    put(place_of(&last_bias) + width - 1, &[END_BIAS])?;
    let table = place_of("model.shared.weight");
    (0..VOCAB).try_for_each(|token| put(table + (token + 1) * width - 1, &[0.0]))?;
    put(table + PADDING * width, &vec![0.0; width])?;
    put(table + END * width, &end_weights(width))?;
    let mut settings = generation_config();
    settings["max_length"] = MAX_LENGTH.into();
    // The condition by which CTranslate2 ends a search. With transformers' default a model with
    // random weights would search to the limit.
    settings["early_stopping"] = true.into();
    write_json(&made.folder.join("generation_config.json"), &settings)?;
    let path = made.folder.join(TOKENIZER[0]);
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let words = tokenizer["model"]["vocab"]
        .as_array_mut()
        .context("tokenizer.json: expected a list of pieces")?;
    let rarest = words.last().map_or(Value::Null, |last| last[1].clone());
    words.extend((words.len()..VOCAB).map(|id| json!([format!("▁unused{id}"), rarest])));
    write_json(&path, &tokenizer)?;
    Ok(made.folder)
}

/// Positive for sines, which come first and grow with the position, negative for cosines, 1 for the
/// last number.
fn end_weights(width: usize) -> Vec<f32> {
    let half = width / 2;
    let weight =
        |place: usize| match PERIODS.contains(&1e4_f64.powf((place % half) as f64 / half as f64)) {
            true if place < half => END_WEIGHT,
            true => -END_WEIGHT,
            false => f32::from(u8::from(place + 1 == width)),
        };
    (0..width).map(weight).collect()
}
