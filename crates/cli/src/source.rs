//! What the argument MODEL stands for: a checkpoint, an exported folder, one ONNX file, or a preset.

use crate::account::Account;
use crate::layout;
use crate::unused::Unused;
use anyhow::{Context, Result, bail};
use cognate_model::{Model, Preset, weights_file};
use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

const PRESET: &str = "preset:";

/// Names the model of `cognate translate` where `--model` does not.
const VARIABLE: &str = "COGNATE_MODEL";

/// The checkpoint that comes with the repository.
const BUNDLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/multi30k-en-de");

/// What MODEL stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelSource {
    /// A folder with `config.json` and `model.safetensors`, or several files and `model.safetensors.index.json`.
    Checkpoint(PathBuf),
    /// A folder with the graphs of a layout; if it was exported in place, it is a checkpoint as well.
    Exported(PathBuf),
    /// A file.
    File(PathBuf),
    /// `preset:NAME`
    Preset(Preset),
}

impl ModelSource {
    /// Looks at what is there.
    ///
    /// # Errors
    /// If it is nothing that this program reads; the message says what is expected.
    pub(crate) fn find(path: &Path) -> Result<Self> {
        if let Some(name) = path.to_str().and_then(|text| text.strip_prefix(PRESET)) {
            return Ok(Self::Preset(preset(name)?));
        }
        let place = path.display();
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!(
                    "{place}: no such file or folder; expected the folder of a checkpoint ({CHECKPOINT}) or of an export ({EXPORT}); \
                     models are not downloaded"
                )
            }
            Err(error) => return Err(error).with_context(|| format!("{place}: cannot be looked at")),
        };
        if metadata.is_file() {
            return Ok(Self::File(path.into()));
        }
        if !metadata.is_dir() {
            bail!("{place}: is no regular file; expected the folder of a checkpoint ({CHECKPOINT}) or of an export ({EXPORT})");
        }
        let has = |name: &str| path.join(name).exists();
        let has_graphs = layout::of(path).is_some() || layout::optimum(path).is_some();
        let weights = weights_file(path);
        // Graphs that somebody else put beside a checkpoint are not ours.
        if has_graphs && (!matches!(weights, Ok(Some(_))) || Account::is_in_place(path)?) {
            return Ok(Self::Exported(path.into()));
        }
        if weights?.is_some() {
            return Ok(Self::Checkpoint(path.into()));
        }
        if has("config.json") {
            bail!("{place}: model.safetensors is missing; expected a checkpoint: {CHECKPOINT}");
        }
        bail!("{place}: holds no model; expected a checkpoint ({CHECKPOINT}) or an export ({EXPORT})")
    }

    /// The same folder as a checkpoint, if it is one: that of an export in place.
    #[must_use]
    pub(crate) fn into_checkpoint(self) -> Self {
        match self {
            Self::Exported(folder) if matches!(weights_file(&folder), Ok(Some(_))) => Self::Checkpoint(folder),
            other => other,
        }
    }

    /// The model to translate with where none is named: that of `COGNATE_MODEL`, else the bundled checkpoint.
    pub(crate) fn default() -> Result<Self> {
        if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            return Self::find(Path::new(&path)).context(VARIABLE);
        }
        let Ok(path) = Path::new(BUNDLED).canonicalize() else {
            bail!("no model: pass --model DIR or set {VARIABLE}; the checkpoint of the repository is not at {BUNDLED} any more");
        };
        let here = env::current_dir().ok().and_then(|here| here.canonicalize().ok());
        let short = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
        Self::find(short.as_deref().unwrap_or(&path))
    }

    /// The model with its weights; `seed` is that of a preset's initial ones.
    ///
    /// # Errors
    /// If it is no checkpoint and no preset, or cannot be read.
    pub(crate) fn open(&self, seed: u64, unused: Unused) -> Result<Model> {
        match self {
            Self::Checkpoint(folder) => unused.open(folder),
            Self::Preset(preset) => Ok(Model::preset(*preset, seed)?),
            Self::Exported(folder) => bail!("{}: is an exported folder; expected a checkpoint: {CHECKPOINT}", folder.display()),
            Self::File(path) => bail!("{}: is a file; expected a checkpoint's folder: {CHECKPOINT}", path.display()),
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(path) | Self::Exported(path) | Self::File(path) => write!(f, "{}", path.display()),
            Self::Preset(preset) => write!(f, "{PRESET}{}", preset.name()),
        }
    }
}

const CHECKPOINT: &str = "config.json, model.safetensors, tokenizer files";
const EXPORT: &str = "encoder.onnx, decoder.onnx, config.json, tokenizer files";

fn preset(name: &str) -> Result<Preset> {
    let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    found.with_context(|| {
        let names: Vec<_> = Preset::ALL.iter().map(|preset| format!("{PRESET}{}", preset.name())).collect();
        format!("{PRESET}{name}: no such preset; expected one of {}", names.join(", "))
    })
}
