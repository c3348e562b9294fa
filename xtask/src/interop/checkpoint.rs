//! The golden models as checkpoints with a tokenizer, and their exports.
//!
//! Pipelines need a tokenizer, which the golden folders lack. A tokenizer of words is added:
//! `t5 t17` is 5, 17, and `<pad>` and `</s>` are the special tokens.

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use super::programs::{Programs, shortened};
use super::runtime::Layout;
use crate::workspace::{files, shown};

/// The limit with which the golden outputs were generated.
const MAX_NEW_TOKENS: u32 = 24;

/// A golden model with a tokenizer.
pub struct Checkpoint {
    folder: PathBuf,
    golden: PathBuf,
    config: Value,
    generation: Value,
}

impl Checkpoint {
    /// Copies the golden model in `golden` to `folder` and adds the tokenizer.
    pub fn prepare(golden: &Path, folder: &Path) -> Result<Checkpoint> {
        fresh(folder)?;
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(golden)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Copies configuration and weights without PyTorch's outputs.
            if (name.ends_with(".json") || name.starts_with("model")) && !name.starts_with("golden") {
                fs::copy(&path, folder.join(name))?;
            }
        }
        let read = |name: &str| -> Result<Value> {
            let path = folder.join(name);
            let text = fs::read_to_string(&path)?;
            serde_json::from_str(&text).with_context(|| path.display().to_string())
        };
        let checkpoint = Checkpoint {
            folder: folder.to_owned(),
            golden: golden.join("golden.safetensors"),
            config: read("config.json")?,
            generation: read("generation_config.json")?,
        };
        let (pad, eos) = (checkpoint.number("pad_token_id")?, checkpoint.number("eos_token_id")?);
        let vocab = checkpoint.number("vocab_size")?;
        let write = |name: &str, value: Value| fs::write(folder.join(name), value.to_string()).with_context(|| name.to_owned());
        write("tokenizer.json", tokenizer(vocab, pad, eos))?;
        write("tokenizer_config.json", tokenizer_config())?;
        Ok(checkpoint)
    }

    /// The question for a driver about the export in `folder`.
    pub fn question(&self, layout: Layout, folder: &Path) -> Result<Value> {
        let inside = folder.join("onnx");
        let d_model = self.number("d_model")?;
        let heads = self.number("decoder_attention_heads").or_else(|_| self.number("num_heads"))?;
        ensure!(heads > 0, "config.json: expected at least one attention head");
        Ok(json!({
            "layout": layout.calls(),
            "graphs": if inside.is_dir() { &inside } else { folder },
            "folder": folder,
            "golden": self.golden,
            "layers": self.number("decoder_layers").or_else(|_| self.number("num_decoder_layers"))?,
            "heads": heads,
            "head_size": self.number("d_kv").unwrap_or(d_model / heads),
            "start": self.number("decoder_start_token_id")?,
            "eos": self.number("eos_token_id")?,
            "pad": self.number("pad_token_id")?,
            "forced_eos": self.number("forced_eos_token_id").ok(),
            "max_new_tokens": MAX_NEW_TOKENS,
        }))
    }

    /// A number of generation_config.json, or of config.json if it is absent there.
    fn number(&self, name: &str) -> Result<u64> {
        let found = self.generation.get(name).or_else(|| self.config.get(name)).and_then(Value::as_u64);
        found.with_context(|| format!("{}: config.json: expected a number {name}", self.folder.display()))
    }
}

fn tokenizer(vocab: u64, pad: u64, eos: u64) -> Value {
    let word = |id: u64| match id {
        _ if id == pad => "<pad>".to_owned(),
        _ if id == eos => "</s>".to_owned(),
        _ => format!("t{id}"),
    };
    let special = |id: u64| {
        let flags = json!({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
        let mut token = Map::from_iter([("id".to_owned(), json!(id)), ("content".to_owned(), json!(word(id)))]);
        token.extend(flags.as_object().cloned().unwrap_or_default());
        token
    };
    let vocabulary: Map<String, Value> = (0..vocab).map(|id| (word(id), json!(id))).collect();
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [special(pad.min(eos)), special(pad.max(eos))],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        // The texts contain no unknown words.
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<pad>"}
    })
}

fn tokenizer_config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": "<pad>",
        "eos_token": "</s>",
        "unk_token": "<pad>",
        "clean_up_tokenization_spaces": false,
        "model_max_length": 512
    })
}

/// The programs and the folder for exports.
pub struct Exports<'a> {
    pub home: &'a Path,
    pub cognate: &'a Path,
    pub programs: &'a Programs,
}

impl Exports<'_> {
    /// Exports a checkpoint. Returns the folder, or the exporter's error.
    ///
    /// # Errors
    /// If the exporter cannot be started or files cannot be written.
    pub fn export(&self, checkpoint: &Checkpoint, layout: Layout) -> Result<Result<PathBuf, String>> {
        let family = checkpoint.folder.file_name().context("the checkpoint's folder has a name")?;
        // The last component is the same in every layout: transformers.js uses it as
        // the model's name.
        let folder = self.home.join(layout.slug()).join(family);
        fresh(&folder)?;
        let parent = folder.parent().context("the folder is below target")?;
        fs::create_dir_all(parent)?;
        let ours = |from: &Path| {
            let mut command = Command::new(self.cognate);
            command.arg("export").arg(from).arg("--no-verify");
            command
        };
        let mut command = match (layout, &self.programs.python) {
            (Layout::Cognate, _) => ours(&checkpoint.folder),
            (Layout::Hf, _) => {
                let mut command = ours(&checkpoint.folder);
                command.args(["--layout", "hf"]);
                command
            }
            (Layout::InPlace, _) => {
                fs::create_dir(&folder)?;
                for path in files(&checkpoint.folder)? {
                    let name = path.file_name().context("a file has a name")?;
                    fs::copy(&path, folder.join(name))?;
                }
                let mut command = ours(&folder);
                command.arg("--in-place");
                command
            }
            (Layout::Optimum, Ok(python)) => {
                let mut command = Command::new(python);
                command.args(["-m", "optimum.commands.optimum_cli", "export", "onnx", "--task", "text2text-generation-with-past"]);
                command.arg("--model").arg(&checkpoint.folder).env("HF_HUB_OFFLINE", "1");
                command
            }
            (Layout::Optimum, Err(reason)) => return Ok(Err(reason.clone())),
        };
        if layout != Layout::InPlace {
            command.arg(&folder);
        }
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("{}: cannot start", shown(&command)))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Ok(Err(shortened(said.trim_start().trim_start_matches("cognate: ").trim_start_matches("error: "))));
        }
        if layout == Layout::Optimum {
            into_subfolder(&folder)?;
        }
        Ok(Ok(folder))
    }
}

/// Moves the graphs to `onnx/`, where transformers.js expects them.
fn into_subfolder(folder: &Path) -> Result<()> {
    let inside = folder.join("onnx");
    fs::create_dir(&inside)?;
    for path in files(folder)? {
        let name = path.file_name().context("a file has a name")?;
        if name.to_string_lossy().contains(".onnx") {
            fs::rename(&path, inside.join(name))?;
        }
    }
    Ok(())
}

fn fresh(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    Ok(())
}
