//! Export of the training step: forward pass, loss, gradients and Adam's update as one ONNX graph.
//!
//! The folder is also a checkpoint: with the trained weights in `model.safetensors` it is read by
//! everything else in Cognate.

mod readme;

use self::readme::Readme;
use cognate_export::{Existing, Folder, Metadata, Report, to_onnx_bytes};
use cognate_folder::{CONFIG, GENERATION_CONFIG, ModelSource, copy_tokenizer, read_if_there};
use cognate_graph::{Element, Program};
use cognate_model::{Loss, Model, StoredTensor};
use cognate_passes::join::rename;
use cognate_pipeline::{Error, ErrorKind, Notice, Result};
use cognate_text::Tokenizer;
use cognate_train::{Optimiser, training_step};
use serde_json::{Map, json};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

const GRAPH: &str = "train_step.onnx";
const WEIGHTS: &str = "model.safetensors";
const EXAMPLE: (&str, &str) = ("train.py", include_str!("training_export/train.py"));

/// A checkpoint or preset whose training step is exported.
pub struct TrainingExport {
    source: ModelSource,
    model: Model,
    notices: Vec<Notice>,
    /// The loss.
    pub loss: Loss,
    /// The optimiser.
    pub optimiser: Optimiser,
    /// Whether an earlier export is replaced.
    pub force: bool,
}

/// A training step that was written.
#[derive(Clone, Debug)]
pub struct ExportedStep {
    /// Names and sizes of the files.
    pub files: Report,
    /// The number of nodes of the graph.
    pub n_nodes: usize,
    /// The size of the graph.
    pub bytes: u64,
}

impl TrainingExport {
    /// Opens a checkpoint, whose unused tensors can be ignored, or a preset with a random seed.
    ///
    /// # Errors
    /// If it cannot be read, or a seed is given for a checkpoint.
    pub fn open(source: &ModelSource, seed: Option<u64>, ignore_unused: bool) -> Result<Self> {
        let (model, notices) = crate::export::open_model(source, seed, ignore_unused)?;
        Ok(Self {
            source: source.clone(),
            model,
            notices,
            loss: Loss::default(),
            optimiser: Optimiser::default(),
            force: false,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Notices about the model.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Writes the folder `out`, which appears complete or not at all.
    ///
    /// # Errors
    /// If the step has no graph, `out` exists and `force` is not set, or a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<ExportedStep> {
        let model = &self.model;
        let mut folder =
            Folder::create(out, if self.force { Existing::Replace } else { Existing::Refuse })?;
        folder.replaces(&Tokenizer::FILES);
        folder.replaces(&[GENERATION_CONFIG]);
        let stored: Vec<StoredTensor> = model.tensors()?.collect();
        let step = self.step(&stored)?;
        let name = match &self.source {
            ModelSource::Preset(_) => self.source.to_string(),
            ModelSource::Checkpoint(_) | ModelSource::Exported(_) | ModelSource::File(_) => {
                self.source.name()
            }
        };
        let config = model.config();
        let metadata = Metadata {
            doc: format!(
                "One training step of {name}: loss, gradients and Adam. README.md lists all inputs and outputs."
            ),
            properties: BTreeMap::from([
                (
                    "cognate.pad_token".into(),
                    config.source_pad(config.pad_token as i64).to_string(),
                ),
                ("cognate.start_token".into(), config.start_token.to_string()),
                ("cognate.eos_token".into(), config.eos_token.to_string()),
            ]),
        };
        folder.write(GRAPH, &to_onnx_bytes(&step, &metadata)?)?;
        write_weights(model, &stored, &mut folder)?;
        folder.write(CONFIG, model.config_json().as_bytes())?;
        if let ModelSource::Checkpoint(checkpoint) = &self.source {
            if let Some(text) = read_if_there(&checkpoint.join(GENERATION_CONFIG))? {
                folder.write(GENERATION_CONFIG, text.as_bytes())?;
            }
            copy_tokenizer(checkpoint, &mut folder, &[])?;
        }
        folder.write(EXAMPLE.0, EXAMPLE.1.as_bytes())?;
        let readme = Readme {
            name: &name,
            graph: step.graph(),
            model,
            stored: &stored,
            loss: self.loss,
            optimiser: self.optimiser,
        };
        folder.write("README.md", readme.to_string().as_bytes())?;
        let files = folder.commit()?;
        let bytes =
            files.files.iter().find(|(file, _)| file == GRAPH).map_or(0, |(_, bytes)| *bytes);
        Ok(ExportedStep { files, n_nodes: step.graph().nodes().len(), bytes })
    }

    /// The step, with the checkpoint's names of weights.
    fn step(&self, stored: &[StoredTensor]) -> Result<Program> {
        let learned: Vec<&str> = self.model.learned().collect();
        let program = training_step(&self.model.loss(&self.loss)?, &learned, &self.optimiser)
            .map_err(failed)?;
        let names: HashMap<&str, &str> =
            stored.iter().map(|tensor| (tensor.path.as_str(), tensor.name.as_str())).collect();
        let name_of = |name: &str| {
            let (next, state) =
                name.strip_prefix("next.").map_or(("", name), |state| ("next.", state));
            let moment = ["first_moment.", "second_moment."]
                .into_iter()
                .find(|moment| state.starts_with(moment))
                .unwrap_or("");
            let path = &state[moment.len()..];
            format!("{next}{moment}{}", names.get(path).unwrap_or(&path))
        };
        let graph = rename(program.graph(), name_of).map_err(failed)?;
        Program::new(graph, program.weights().clone()).map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Engine, error)
}

/// Writes the weights as safetensors in f32: a header with their offsets, then their values.
fn write_weights(model: &Model, stored: &[StoredTensor], folder: &mut Folder) -> Result<()> {
    let recipe = |tensor: &StoredTensor| {
        model.weights().get(&tensor.path).expect("a model's tensors are weights").to(Element::F32)
    };
    // transformers requires this field.
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut begin = 0;
    for tensor in stored {
        let end = begin + recipe(tensor).byte_len();
        header.insert(
            tensor.name.clone(),
            json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end] }),
        );
        begin = end;
    }
    let mut header = serde_json::to_vec(&header).expect("names and numbers are JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(folder.write_pieces(WEIGHTS, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        stored.iter().try_for_each(|tensor| recipe(tensor).stream(|piece| file.write_all(piece)))
    })?)
}
