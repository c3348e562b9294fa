//! The golden models as checkpoints with a tokenizer, and their exports.
//!
//! Pipelines from text to text need a tokenizer, which the golden folders lack. A tokenizer of
//! words is added: `t5 t17` is 5, 17, and `<pad>` and `</s>` are the special tokens.

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::programs::{Programs, shortened};
use super::runtime::Layout;
use super::task::{Kind, Task};
use crate::workspace::{files, shown};

/// PyTorch's outputs, in the folder of a golden model.
pub const ANSWERS: [&str; 2] = ["golden.safetensors", "answers.safetensors"];

/// A golden model, with a tokenizer if it translates text.
pub struct Checkpoint {
    folder: PathBuf,
    golden: PathBuf,
    config: Value,
    generation: Value,
    pub task: &'static Task,
}

impl Checkpoint {
    /// Copies the golden model in `golden` to `folder` and adds the
    /// tokenizer.
    pub fn prepare(golden: &Path, folder: &Path) -> Result<Checkpoint> {
        fresh(folder)?;
        fs::create_dir_all(folder)?;
        for entry in fs::read_dir(golden)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // Copies configuration and weights without PyTorch's outputs.
            if (name.ends_with(".json") || name.starts_with("model")) && !name.starts_with("golden")
            {
                fs::copy(&path, folder.join(name))?;
            }
        }
        let read = |name: &str| read_json(&folder.join(name));
        let config = read("config.json")?;
        let answers = ANSWERS.iter().map(|name| golden.join(name)).find(|path| path.is_file());
        let checkpoint = Checkpoint {
            folder: folder.to_owned(),
            golden: answers.with_context(|| {
                format!("{}: expected {}", golden.display(), ANSWERS.join(" or "))
            })?,
            generation: if folder.join(GENERATION).is_file() {
                read(GENERATION)?
            } else {
                Value::Null
            },
            task: Task::of(&config).with_context(|| golden.display().to_string())?,
            config,
        };
        if !checkpoint.task.is_text_to_text() {
            return Ok(checkpoint);
        }
        let (pad, eos) = (checkpoint.number("pad_token_id")?, checkpoint.number("eos_token_id")?);
        let vocab = checkpoint.number("vocab_size")?;
        let write = |name: &str, value: Value| {
            fs::write(folder.join(name), value.to_string()).with_context(|| name.to_owned())
        };
        write("tokenizer.json", tokenizer(vocab, pad, eos))?;
        write("tokenizer_config.json", tokenizer_config())?;
        Ok(checkpoint)
    }

    /// The question for a driver about the export in `folder`.
    pub fn question(&self, layout: Layout, folder: &Path) -> Result<Value> {
        let inside = folder.join("onnx");
        let kind = self.task.kind;
        let (heads, head_size) = if kind == Kind::Encoder { (0, 0) } else { self.heads()? };
        let eos = self.number("eos_token_id").ok();
        Ok(json!({
            "layout": layout.calls(),
            "kind": kind.name(),
            "auto_class": self.task.auto_class,
            "graphs": if inside.is_dir() { &inside } else { folder },
            "folder": folder,
            "golden": self.golden,
            "heads": heads,
            "head_size": head_size,
            // T5Gemma has no name for it.
            "start": self.number("decoder_start_token_id").or_else(|_| self.number("bos_token_id")).ok(),
            "eos": eos,
            "pad": self.number("pad_token_id").ok().or(eos),
            "forced_eos": self.number("forced_eos_token_id").ok(),
            "max_new_tokens": kind.max_new_tokens(),
        }))
    }

    /// The number and size of the heads of keys in the decoder's past.
    fn heads(&self) -> Result<(u64, u64)> {
        let first = |names: &[&str]| names.iter().find_map(|name| self.number(name).ok());
        let expected = |what| format!("{}: config.json: expected {what}", self.folder.display());
        let heads =
            first(&["decoder_attention_heads", "num_attention_heads", "num_heads", "n_head"]);
        let heads = heads
            .filter(|heads| *heads > 0)
            .with_context(|| expected("at least one attention head"))?;
        let width =
            first(&["d_model", "hidden_size", "n_embd"]).with_context(|| expected("a width"))?;
        Ok((
            self.number("num_key_value_heads").unwrap_or(heads),
            first(&["d_kv", "head_dim"]).unwrap_or(width / heads),
        ))
    }

    /// A number of generation_config.json, or of config.json, there of its decoder first.
    fn number(&self, name: &str) -> Result<u64> {
        let places = [&self.generation, &self.config["decoder"], &self.config];
        let found = places.iter().find_map(|place| place.get(name)).and_then(Value::as_u64);
        found.with_context(|| {
            format!("{}: config.json: expected a number {name}", self.folder.display())
        })
    }
}

/// The settings of decoding.
const GENERATION: &str = "generation_config.json";

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&fs::read_to_string(path)?).with_context(|| path.display().to_string())
}

fn tokenizer(vocab: u64, pad: u64, eos: u64) -> Value {
    let word = |id: u64| match id {
        _ if id == pad => "<pad>".to_owned(),
        _ if id == eos => "</s>".to_owned(),
        _ => format!("t{id}"),
    };
    let special = |id: u64| {
        let flags = json!({"single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
        let mut token =
            Map::from_iter([("id".to_owned(), json!(id)), ("content".to_owned(), json!(word(id)))]);
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
    pub fn export(
        &self,
        checkpoint: &Checkpoint,
        layout: Layout,
    ) -> Result<Result<PathBuf, String>> {
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
            (Layout::Generate, _) => return self.export_searches(checkpoint, &folder, &ours),
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
                command.args([
                    "-m",
                    "optimum.commands.optimum_cli",
                    "export",
                    "onnx",
                    "--task",
                    checkpoint.task.optimum,
                ]);
                command.arg("--model").arg(&checkpoint.folder).env("HF_HUB_OFFLINE", "1");
                command
            }
            (Layout::Optimum, Err(reason)) => return Ok(Err(reason.clone())),
        };
        if layout != Layout::InPlace {
            command.arg(&folder);
        }
        if let Err(reason) = completed(&mut command)? {
            return Ok(Err(reason));
        }
        if layout == Layout::Optimum {
            into_subfolder(&folder)?;
        }
        Ok(Ok(folder))
    }

    /// Exports `folder/greedy/generate.onnx` and `folder/beams/generate.onnx` with the settings of
    /// the golden outputs as defaults: some runtimes do not let a caller change them.
    fn export_searches(
        &self,
        checkpoint: &Checkpoint,
        folder: &Path,
        ours: &dyn Fn(&Path) -> Command,
    ) -> Result<Result<PathBuf, String>> {
        // The start token counts.
        let length = checkpoint.task.kind.max_new_tokens() + 1;
        let copy = folder.join("checkpoint");
        for (search, beams) in [("greedy", 1), ("beams", 4)] {
            fresh(&copy)?;
            fs::create_dir_all(&copy)?;
            for path in files(&checkpoint.folder)? {
                fs::copy(&path, copy.join(path.file_name().context("a file has a name")?))?;
            }
            let mut settings = checkpoint.generation.clone();
            let values = json!({
                "max_length": length, "num_beams": beams, "num_return_sequences": beams,
                "length_penalty": 1.0, "early_stopping": false,
            });
            let settings_map =
                settings.as_object_mut().context("generation_config.json: expected an object")?;
            settings_map.extend(values.as_object().cloned().unwrap_or_default());
            fs::write(copy.join(GENERATION), settings.to_string())?;
            let mut command = ours(&copy);
            command.args(["--layout", "generate"]).arg(folder.join(search));
            if let Err(reason) = completed(&mut command)? {
                return Ok(Err(reason));
            }
        }
        Ok(Ok(folder.to_owned()))
    }
}

/// Runs an exporter. Returns its error if it fails.
fn completed(command: &mut Command) -> Result<Result<(), String>> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{}: cannot start", shown(command)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    // Python's error is its last line.
    let error = match said.contains("Traceback") {
        true => said.trim_end().lines().next_back().unwrap_or_default(),
        false => said.trim_start().trim_start_matches("cognate: ").trim_start_matches("error: "),
    };
    Ok(if output.status.success() { Ok(()) } else { Err(shortened(error)) })
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
