//! The models that translate text.

use fs_err::{self as fs, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::checkpoint::{BASE, Shape, TOKENIZER, checkpoint, generation_config, write, write_json};
use xtask::workspace::Workspace;

/// A model that translates English text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// That of testdata/multi30k-en-de, a student of 2.4 million parameters
    Bundled,
    /// The shape and the size of vocabulary of OPUS-MT's models, with seeded random weights
    MarianBase,
}

/// Vocabulary of OPUS-MT's models from English to German.
const VOCAB: usize = 58_101;
const END: usize = 0;
const PADDING: usize = 2;
/// Added to the logits of the end token and of padding: translations are about as long as Multi30k's references on average, and have no
/// padding.
const BIASES: [(usize, f32); 2] = [(END, 6.2), (PADDING, -1e9)];
/// The end token's weights for sinusoids whose period, divided by 2π, is within these bounds: its logit grows with the position, so that
/// translations differ in length, but hardly any goes on forever.
const END_WEIGHT: f32 = 0.6;
const PERIODS: std::ops::Range<f64> = 8.0..30.0;
/// Of translations, with the start token.
const MAX_LENGTH: usize = 64;

impl Model {
    /// Of its folder.
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

    /// Translates one of so many lines that the bundled model translates.
    pub fn share(self) -> usize {
        match self {
            Model::Bundled => 1,
            Model::MarianBase => 10,
        }
    }

    /// Whether it has learned to translate, so that a shortlist names what it may choose.
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

/// A checkpoint with the bundled tokenizer, whose vocabulary is filled up with words that no text has.
fn marian_base(workspace: &Workspace) -> Result<PathBuf> {
    let made = checkpoint(workspace, "text/marian-base/checkpoint", Shape { vocab: VOCAB, ..BASE }, write)?;
    let values = made.weights.metadata()?.len() - 4 * made.parameters;
    let mut weights = OpenOptions::new().write(true).open(&made.weights)?;
    let mut put = |place: usize, numbers: &[f32]| {
        weights.seek(SeekFrom::Start(values + 4 * place as u64))?;
        weights.write_all(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
    };
    // The bias of the logits comes first, the table of tokens last.
    BIASES.into_iter().try_for_each(|(token, bias)| put(token, &[bias]))?;
    put(made.parameters as usize - (VOCAB - END) * BASE.d_model, &end_weights(BASE.d_model))?;
    let mut settings = generation_config();
    settings["max_length"] = MAX_LENGTH.into();
    // As CTranslate2 ends a search. By transformers' default one with random weights would go on to the limit.
    settings["early_stopping"] = true.into();
    write_json(&made.folder.join("generation_config.json"), &settings)?;
    let path = made.folder.join(TOKENIZER[0]);
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let words = tokenizer["model"]["vocab"].as_array_mut().context("tokenizer.json: expected a list of pieces")?;
    let rarest = words.last().map_or(Value::Null, |last| last[1].clone());
    words.extend((words.len()..VOCAB).map(|id| json!([format!("▁unused{id}"), rarest])));
    write_json(&path, &tokenizer)?;
    Ok(made.folder)
}

/// Positive for sines, which come first and grow with the position, negative for cosines.
fn end_weights(width: usize) -> Vec<f32> {
    let weight = |place: usize| {
        let (is_cosine, place) = (place >= width / 2, place % (width / 2));
        let is_inside = PERIODS.contains(&1e4_f64.powf(2.0 * place as f64 / width as f64));
        if !is_inside {
            0.0
        } else if is_cosine {
            -END_WEIGHT
        } else {
            END_WEIGHT
        }
    };
    (0..width).map(weight).collect()
}
