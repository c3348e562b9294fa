//! The files of a run.
//!
//! `OUT/` itself is a checkpoint in Hugging Face form: the best so far. `OUT/checkpoint-N/` is the
//! state after update N: the model, and what is needed to resume. Each is written completely or not
//! at all, and previous ones are removed afterwards, so there is a valid one at every moment.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};

use cognate_export::{Additions, Existing, Folder, remove_leftovers};
use cognate_graph::Recipe;
use cognate_model::Model;
use cognate_runtime::Value;
use ndarray::{ArrayD, IxDyn};
use safetensors::tensor::{Dtype, View};
use safetensors::{SafeTensors, serialize};
use serde::{Deserialize, Serialize};

use super::model::Start;
use super::step::Step;
use crate::batches::Position;
use crate::error::{Cause, Error, Result};

const MODEL: &str = "model.safetensors";
const STATE: &str = "training_state.safetensors";
const RUN: &str = "training.json";
const PREFIX: &str = "checkpoint-";
pub(super) const LOG: &str = "log.jsonl";
/// What a run writes before its first checkpoint.
const UNSAVED: [&str; 3] = [LOG, "training.toml", "tensorboard"];

/// The version of the format of [`Run`].
const FORMAT: u32 = 1;

/// The state of a run besides its weights: `training.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// The version of this file's format.
    pub(super) format: u32,
    pub(super) update: u64,
    /// The next batch.
    pub(super) position: Position,
    pub(super) seconds: f64,
    /// The update of the last validation; `None` in runs of earlier versions.
    #[serde(default)]
    pub(super) validated: Option<u64>,
    pub(super) best: Option<Best>,
    /// Validations since the best one.
    pub(super) worse: u64,
    /// Since the last line of the log: the bits of the sums of losses, with and without smoothing,
    /// and the number of tokens.
    pub(super) unlogged: [u64; 3],
    /// The fingerprint of the text.
    pub(super) corpus: String,
    /// That of the validation text; `None` in runs of earlier versions.
    #[serde(default)]
    pub(super) valid: Option<String>,
    /// That of the weights for which adapters are learned.
    #[serde(default)]
    pub(super) base: Option<String>,
    /// All settings.
    pub(super) config: serde_json::Value,
}

/// The best validation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Best {
    pub(super) update: u64,
    /// Loss per label, or BLEU.
    pub(super) value: f64,
}

impl Run {
    pub(super) fn new(config: serde_json::Value) -> Self {
        Self {
            format: FORMAT,
            update: 0,
            position: Position::default(),
            seconds: 0.0,
            validated: Some(0),
            best: None,
            worse: 0,
            unlogged: [0; 3],
            corpus: String::new(),
            valid: None,
            base: None,
            config,
        }
    }

    /// Whether the last update was not validated.
    pub(super) fn is_unvalidated(&self) -> bool {
        self.validated.is_some_and(|update| update < self.update)
    }
}

/// The folder of a run.
#[derive(Debug)]
pub(super) struct Output {
    path: PathBuf,
    /// Locked until the run ends; `None` where folders have no locks.
    lock: Option<File>,
}

impl Output {
    /// Returns an error unless the folder is empty, does not exist, or only contains a run that ended
    /// before its first checkpoint, which is removed.
    pub(super) fn check_vacant(path: &Path) -> Result<()> {
        let mut output = Self::at(path);
        output.lock()?;
        output.expect_vacant()
    }

    fn expect_vacant(&self) -> Result<()> {
        remove_leftovers(&self.path, None);
        let entries: Vec<_> = match fs::read_dir(&self.path) {
            Ok(entries) => entries.flatten().collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => Err(self.problem(format!("expected a folder to write into: {error}")))?,
        };
        let names: Vec<_> = entries.iter().map(|entry| entry.file_name()).collect();
        let is_of_run = |name: &OsString| UNSAVED.iter().any(|unsaved| name == unsaved);
        if self.path.join(LOG).is_file() && names.iter().all(is_of_run) {
            for path in entries.iter().map(|entry| entry.path()) {
                let removed =
                    if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(|error| self.problem(error.to_string()))?;
            }
        } else if !names.is_empty() {
            let way = if self.checkpoints()?.is_empty() {
                "expected an empty folder or none; name another"
            } else {
                "contains a training run; resume it with --resume, or name another folder"
            };
            Err(self.problem(way))?;
        }
        Ok(())
    }

    /// The folder, which another rank creates.
    pub(super) fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), lock: None }
    }

    /// The folder, created if it does not exist.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let mut output = Self::at(path);
        fs::create_dir_all(path)
            .map_err(|error| output.problem(format!("cannot be created: {error}")))?;
        output.lock()?;
        // Another run may have used the folder since the first check.
        output.expect_vacant()?;
        // Fails now, not after hours of training.
        tempfile::tempfile_in(path)
            .map_err(|error| output.problem(format!("is not writable: {error}")))?;
        Ok(output)
    }

    /// The folder of a run to resume, and its last checkpoint. Only the leading rank locks it.
    pub(super) fn resume(path: &Path, leads: bool) -> Result<(Self, PathBuf)> {
        let mut output = Self::at(path);
        if leads {
            output.lock()?;
            // Left by a run that was killed, perhaps while it saved another update than the next
            // one.
            remove_leftovers(path, None);
        }
        let last = output.checkpoints()?.pop();
        let (_, folder) = last.ok_or_else(|| {
            output.problem("contains no checkpoint to resume from; start without --resume")
        })?;
        Ok((output, folder))
    }

    /// Locks the folder, if it exists, until the run ends.
    fn lock(&mut self) -> Result<()> {
        let Ok(folder) = File::open(&self.path) else { return Ok(()) };
        match folder.try_lock() {
            Ok(()) => self.lock = Some(folder),
            Err(TryLockError::WouldBlock) => {
                Err(self.problem("another training run is writing into it"))?
            }
            // Not every file system has locks.
            Err(TryLockError::Error(_)) => {}
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn problem(&self, problem: impl Into<String>) -> Error {
        Cause::Folder { folder: self.path.display().to_string(), problem: problem.into() }.into()
    }

    /// Updates and folders of the checkpoints, in order.
    pub(super) fn checkpoints(&self) -> Result<Vec<(u64, PathBuf)>> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => Err(self.problem(error.to_string()))?,
        };
        let mut found: Vec<(u64, PathBuf)> = entries
            .filter_map(|entry| {
                let entry = entry.ok()?;
                let update = entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
                entry.path().join(RUN).is_file().then(|| (update, entry.path()))
            })
            .collect();
        found.sort();
        Ok(found)
    }

    /// Saves the state; keeps the last `keep` checkpoints, of those that an interruption saved only
    /// the last, so that an average is that of an uninterrupted run.
    pub(super) fn save(
        &self,
        run: &Run,
        model: &Model,
        step: &Step<'_>,
        start: &Start,
        keep: usize,
    ) -> Result<PathBuf> {
        let path = self.path.join(format!("{PREFIX}{}", run.update));
        // A checkpoint saved before an interruption contains the same state.
        let mut folder = Folder::create(&path, Existing::Replace)?;
        for (name, bytes) in model_files(model, start)? {
            folder.write(&name, &bytes)?;
        }
        folder.write(STATE, &state_file(step)?)?;
        let text =
            serde_json::to_string_pretty(run).map_err(|error| self.problem(error.to_string()))?;
        folder.write(RUN, (text + "\n").as_bytes())?;
        folder.commit()?;
        let remove =
            |old: &Path| fs::remove_dir_all(old).map_err(|error| self.problem(error.to_string()));
        let mut checkpoints = self.checkpoints()?;
        for (_, interrupted) in checkpoints.extract_if(.., |(update, folder)| {
            *update < run.update && read_run(folder).is_ok_and(|former| former.is_unvalidated())
        }) {
            remove(&interrupted)?;
        }
        for (_, old) in &checkpoints[..checkpoints.len().saturating_sub(keep)] {
            remove(old)?;
        }
        Ok(path)
    }

    /// Makes `model` the model in the folder itself.
    pub(super) fn publish(&self, model: &Model, start: &Start) -> Result<()> {
        let mut files = Additions::create(&self.path, Existing::Replace)?;
        // The last file written appears first and is removed last.
        for (name, bytes) in model_files(model, start)?.into_iter().rev() {
            files.write(&name, &bytes)?;
        }
        files.commit()?;
        Ok(())
    }

    /// Writes a text file beside the model, completely or not at all.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let mut files = Additions::create(&self.path, Existing::Replace)?;
        files.write(name, text.as_bytes())?;
        files.commit()?;
        Ok(())
    }

    pub(super) fn has_model(&self) -> bool {
        self.path.join(MODEL).is_file()
    }
}

/// The text of a checkpoint's `training.json`.
pub(super) fn read_run(folder: &Path) -> Result<Run> {
    let path = folder.join(RUN);
    let wrong = |reason: String| Cause::Unreadable { file: path.display().to_string(), reason };
    let text = cognate_model::read_text(&path).map_err(|error| wrong(error.to_string()))?;
    let run: Run = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    if run.format != FORMAT {
        Err(wrong(format!(
            "format is {}, expected {FORMAT}: it was written by another version",
            run.format
        )))?;
    }
    Ok(run)
}

/// The state of a checkpoint, which is read before graphs are built.
pub(super) struct State {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl State {
    /// Reads the state of the checkpoint in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut state = Self { path: folder.join(STATE), bytes: Vec::new() };
        let read = cognate_model::open_file(&state.path)
            .and_then(|mut file| file.read_to_end(&mut state.bytes));
        read.map_err(|error| state.wrong(error.to_string()))?;
        state.tensors()?;
        Ok(state)
    }

    /// Restores it after `update`.
    pub(super) fn restore(&self, update: u64, step: &mut Step<'_>) -> Result<()> {
        let tensors = self.tensors()?;
        step.restore(update, |name, shape| {
            let wrong = |reason: String| self.wrong(format!("{name}: {reason}"));
            let tensor = tensors.tensor(name).map_err(|error| wrong(error.to_string()))?;
            if tensor.dtype() != Dtype::F32 || tensor.shape() != shape {
                Err(wrong(format!(
                    "expected F32 {shape:?}, found {:?} {:?}",
                    tensor.dtype(),
                    tensor.shape()
                )))?;
            }
            let values = tensor
                .data()
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect();
            Ok(ArrayD::from_shape_vec(IxDyn(shape), values)
                .map_err(|error| wrong(error.to_string()))?)
        })
    }

    fn tensors(&self) -> Result<SafeTensors<'_>> {
        Ok(SafeTensors::deserialize(&self.bytes).map_err(|error| self.wrong(error.to_string()))?)
    }

    fn wrong(&self, reason: String) -> Cause {
        Cause::Unreadable { file: self.path.display().to_string(), reason }
    }
}

/// The files of a checkpoint in Hugging Face form, the configuration first.
fn model_files(model: &Model, start: &Start) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = vec![("config.json".to_owned(), model.config_json().as_bytes().to_vec())];
    files.extend(
        start
            .generation
            .as_ref()
            .map(|text| ("generation_config.json".to_owned(), text.as_bytes().to_vec())),
    );
    files.extend(start.files.iter().cloned());
    let weight = |path: &str| model.weights().get(path).expect("a model's tensors are weights");
    let tensors = model.tensors()?.map(|tensor| {
        (
            tensor.name,
            Tensor { numbers: Numbers::Weight(weight(&tensor.path)), shape: tensor.shape },
        )
    });
    files.push((MODEL.to_owned(), safetensors_file(tensors.collect())?));
    Ok(files)
}

fn state_file(step: &Step<'_>) -> Result<Vec<u8>> {
    let tensor = |(name, value): (&str, &Value)| {
        let shape = value.shape().to_vec();
        Ok((name.to_owned(), Tensor { numbers: Numbers::State(value.to_f32()?), shape }))
    };
    safetensors_file(step.state().map(tensor).collect::<Result<_>>()?)
}

fn safetensors_file(tensors: Vec<(String, Tensor<'_>)>) -> Result<Vec<u8>> {
    // transformers requires this key.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    Ok(serialize(tensors, Some(metadata))
        .map_err(|error| Cause::Model(format!("{MODEL}: {error}")))?)
}

/// Numbers in single precision for safetensors; their bytes are made when they are written.
struct Tensor<'n> {
    shape: Vec<usize>,
    numbers: Numbers<'n>,
}

enum Numbers<'n> {
    Weight(&'n Recipe),
    State(ArrayD<f32>),
}

impl View for Tensor<'_> {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let mut bytes = Vec::with_capacity(self.data_len());
        match &self.numbers {
            Numbers::State(array) => {
                bytes.extend(array.iter().flat_map(|value| value.to_le_bytes()))
            }
            Numbers::Weight(recipe) => {
                let Ok(()) = recipe.stream(|piece| {
                    bytes.extend_from_slice(piece);
                    Ok::<(), std::convert::Infallible>(())
                });
            }
        }
        Cow::Owned(bytes)
    }

    fn data_len(&self) -> usize {
        4 * self.shape.iter().product::<usize>()
    }
}
