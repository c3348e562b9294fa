//! The source of a model: a checkpoint, an exported folder, an ONNX file, or a preset.

use crate::error::AtPath;
use crate::graphs::{find_layout, optimum};
use crate::{CONFIG, Configuration, Error, ErrorKind, Manifest, Result};
use cognate_model::{Layout, Model, Preset, weights_file};
use std::fmt;
use std::path::{Path, PathBuf};

const PRESET: &str = "preset:";
const CHECKPOINT: &str = "config.json, model.safetensors, tokenizer files";
const EXPORT: &str = "encoder.onnx, decoder.onnx, config.json, tokenizer files";

/// The source of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// A folder with `config.json` and `model.safetensors`, or several files and
    /// `model.safetensors.index.json`.
    Checkpoint(PathBuf),
    /// A folder with the graphs of a layout; an export in place is also a checkpoint.
    Exported(PathBuf),
    /// A file, such as a graph that decodes; see [`ModelSource::search_graph`].
    File(PathBuf),
    /// `preset:NAME`
    Preset(Preset),
}

impl ModelSource {
    /// Finds the model at `path`.
    ///
    /// # Errors
    /// If there is no model.
    pub fn find(path: &Path) -> Result<Self> {
        if let Some(name) = path.to_str().and_then(|text| text.strip_prefix(PRESET)) {
            return Ok(Self::Preset(preset(name)?));
        }
        let no_model =
            |message: String| Err(Error::new(ErrorKind::NoModel, path.display(), message));
        let metadata = match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return no_model(format!(
                    "no such file or folder; expected the folder of a checkpoint ({CHECKPOINT}) or of an export ({EXPORT}); {}",
                    download(path)
                ));
            }
            metadata => metadata.at(path, "read")?,
        };
        if metadata.is_file() {
            return Ok(Self::File(path.into()));
        }
        if !metadata.is_dir() {
            return no_model(format!(
                "not a regular file; expected the folder of a checkpoint ({CHECKPOINT}) or of an export ({EXPORT})"
            ));
        }
        path.read_dir().at(path, "read")?;
        let has_graphs = find_layout(path).is_some() || optimum(path).is_some();
        let weights = weights_file(path);
        // Graphs that another program wrote beside a checkpoint are not used.
        if has_graphs && (!matches!(weights, Ok(Some(_))) || Manifest::is_in_place(path)?) {
            return Ok(Self::Exported(path.into()));
        }
        if weights?.is_some() {
            return Ok(Self::Checkpoint(path.into()));
        }
        if path.join(CONFIG).exists() {
            // A model that is not supported needs no weights.
            Configuration::read(path)?;
            return no_model(format!(
                "model.safetensors is missing; expected a checkpoint: {CHECKPOINT}"
            ));
        }
        no_model(format!(
            "contains no model; expected a checkpoint ({CHECKPOINT}) or an export ({EXPORT})"
        ))
    }

    /// The same folder as a checkpoint, if it is an export in place.
    #[must_use]
    pub fn into_checkpoint(self) -> Self {
        match self {
            Self::Exported(folder) if matches!(weights_file(&folder), Ok(Some(_))) => {
                Self::Checkpoint(folder)
            }
            other => other,
        }
    }

    /// The file, if it is called `generate.onnx`: a graph that decodes, which can lie in the folder
    /// `onnx` beside the configuration.
    pub fn search_graph(&self) -> Option<&Path> {
        let Self::File(path) = self else { return None };
        let is_named = |name: &&&str| path.file_name().is_some_and(|file| file == **name);
        Layout::Generate.files().first().filter(is_named).map(|_| path.as_path())
    }

    /// The folder with the configuration and the tokenizer.
    ///
    /// # Errors
    /// If there is none.
    pub fn folder(&self) -> Result<&Path> {
        match self {
            Self::Checkpoint(folder) | Self::Exported(folder) => Ok(folder),
            Self::File(path) if self.search_graph().is_some() => {
                let beside = path.parent().unwrap_or(Path::new(""));
                let above = beside
                    .parent()
                    .filter(|_| beside.ends_with("onnx") && !beside.join(CONFIG).exists());
                // The folder of a bare file name.
                Ok(above.unwrap_or(if beside == Path::new("") { Path::new(".") } else { beside }))
            }
            Self::File(_) => Err(Error::new(
                ErrorKind::NoModel,
                self,
                "is a file; expected the folder of a checkpoint or of an export",
            )),
            Self::Preset(_) => Err(Error::new(
                ErrorKind::NoModel,
                self,
                "has random weights and no tokenizer; expected a checkpoint or an export",
            )),
        }
    }

    /// The model with its weights, and the names of a checkpoint's unused tensors. `seed` is that
    /// of a preset's initial weights.
    ///
    /// # Errors
    /// If the source is neither a checkpoint nor a preset, cannot be read, or has unused tensors
    /// and `ignore_unused` is false.
    pub fn open(&self, seed: u64, ignore_unused: bool) -> Result<(Model, Vec<String>)> {
        match self {
            Self::Checkpoint(folder) if ignore_unused => Ok(Model::open_ignoring_unused(folder)?),
            Self::Checkpoint(folder) => match Model::open(folder) {
                Ok(model) => Ok((model, Vec::new())),
                Err(error) if Model::open_ignoring_unused(folder).is_ok() => {
                    Err(Error::unused_tensors(&error))
                }
                Err(error) => Err(error.into()),
            },
            Self::Preset(preset) => Ok((Model::preset(*preset, seed)?, Vec::new())),
            Self::Exported(_) => Err(Error::new(
                ErrorKind::NoModel,
                self,
                format_args!("is an exported folder; expected a checkpoint: {CHECKPOINT}"),
            )),
            Self::File(_) => Err(Error::new(
                ErrorKind::NoModel,
                self,
                format_args!("is a file; expected a checkpoint's folder: {CHECKPOINT}"),
            )),
        }
    }

    /// The name of the source in exported files, without its path.
    pub fn name(&self) -> String {
        match self {
            Self::Checkpoint(path) | Self::Exported(path) | Self::File(path) => folder_name(path),
            Self::Preset(preset) => preset.name().into(),
        }
    }
}

impl fmt::Display for ModelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint(path) | Self::Exported(path) | Self::File(path) => {
                write!(f, "{}", path.display())
            }
            Self::Preset(preset) => write!(f, "{PRESET}{}", preset.name()),
        }
    }
}

/// The name of a folder, also of `.`.
pub fn folder_name(folder: &Path) -> String {
    let path = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// How to download a model with a name of the Hugging Face Hub: `organisation/model`.
fn download(path: &Path) -> String {
    let is_name = |part: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !part.is_empty() && !part.starts_with('.') && part.chars().all(is_letter)
    };
    match path.to_str().and_then(|text| text.split_once('/')) {
        Some((organisation, model)) if is_name(organisation) && is_name(model) => {
            format!(
                "models are not downloaded; download one of the Hugging Face Hub with `hf download {organisation}/{model} --local-dir {model}`"
            )
        }
        _ => "models are not downloaded".into(),
    }
}

fn preset(name: &str) -> Result<Preset> {
    let found = Preset::ALL.into_iter().find(|preset| preset.name() == name);
    found.ok_or_else(|| {
        let names: Vec<_> =
            Preset::ALL.iter().map(|preset| format!("{PRESET}{}", preset.name())).collect();
        let message = format!("no such preset; expected one of {}", names.join(", "));
        Error::new(ErrorKind::NoModel, format_args!("{PRESET}{name}"), message)
    })
}
