//! The models that translate text.

use fs_err::{self as fs, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::checkpoint::{BASE, Shape, TOKENIZER, checkpoint, write, write_json};
use xtask::workspace::Workspace;

/// A model that translates English text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Model {
    /// That of testdata/multi30k-en-de, a student of 2.4 million parameters
    Bundled,
    /// The shape and the vocabulary of OPUS-MT's models, with seeded random weights
    MarianBase,
}

/// Vocabulary of OPUS-MT's models from English to German.
const VOCAB: usize = 58_101;
/// Added to the logit of the end token, so that the mean length of translations is about that of Multi30k's references.
const END_BIAS: f32 = 3.0;
/// The end token.
const END: usize = 0;

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
    // The bias of the logits comes first.
    weights.seek(SeekFrom::Start(values + 4 * END as u64))?;
    weights.write_all(&END_BIAS.to_le_bytes())?;
    let path = made.folder.join(TOKENIZER[0]);
    let mut tokenizer: Value = serde_json::from_str(&fs::read_to_string(&path)?)?;
    let words = tokenizer["model"]["vocab"].as_array_mut().context("tokenizer.json: expected a list of pieces")?;
    let rarest = words.last().map_or(Value::Null, |last| last[1].clone());
    words.extend((words.len()..VOCAB).map(|id| json!([format!("▁unused{id}"), rarest])));
    write_json(&path, &tokenizer)?;
    Ok(made.folder)
}
