//! `cognate export-training`: the training step as one ONNX graph, for programs that are not Cognate.
//!
//! The folder is a checkpoint as well: a program that writes the weights it has learned into `model.safetensors` leaves a model that
//! every other command takes.

mod readme;

use crate::layout;
use crate::source::ModelSource;
use crate::unused::Unused;
use crate::{amounts, tokenizer_files};
use anyhow::{Result, bail};
use cognate_export::{Existing, Folder, Metadata, to_onnx_bytes};
use cognate_graph::{Element, Program};
use cognate_model::{DropoutRates, Loss, Model, StoredTensor};
use cognate_passes::join::rename;
use cognate_text::Tokenizer;
use cognate_train::{Adam, training_step};
use readme::Readme;
use serde_json::{Map, json};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

const GRAPH: &str = "train_step.onnx";
const WEIGHTS: &str = "model.safetensors";
const EXAMPLE: (&str, &str) = ("train.py", include_str!("export_training/train.py"));

/// Export the training step to ONNX, for programs of your own
///
/// Writes train_step.onnx: forward pass, loss, gradients and Adam's update in one graph of standard operators. Any program with ONNX
/// Runtime trains with it: token ids, labels and state go in; the loss and the next state come out. Beside it are README.md, with
/// tables of all inputs and outputs; train.py, an example of less than 60 lines; and the weights in model.safetensors: once the learned
/// ones are written there, OUT is a checkpoint for every other command. The folder appears whole or not at all. To train with Cognate
/// itself, see `cognate train`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder (config.json, model.safetensors), as `cognate train` leaves one; or preset:tiny, preset:base,
    /// preset:big with seeded initial weights
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The folder to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Replace OUT if it is an earlier export
    #[arg(long)]
    force: bool,
    /// The share of probability that labels give to all tokens alike; 0 for the plain loss
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = below_one)]
    label_smoothing: f64,
    /// The share of embeddings, and of what each sublayer adds, that is left out at random; 0 for none
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = below_one)]
    dropout: f64,
    /// The same of attention weights
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = below_one)]
    attention_dropout: f64,
    /// The same inside the feed-forward
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = below_one)]
    activation_dropout: f64,
    /// How much of the mean of gradients, and of their squares, stays from step to step
    #[arg(long, num_args = 2, value_names = ["BETA1", "BETA2"], default_values = ["0.9", "0.98"], value_parser = below_one)]
    betas: Vec<f64>,
    /// Added to the root of the mean of squares
    #[arg(long, value_name = "NUMBER", default_value = "1e-9", value_parser = positive)]
    epsilon: f64,
    /// The share of a weight that is taken away at each step, times the learning rate (AdamW)
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = below_one)]
    weight_decay: f64,
    /// Shorten the gradient of all weights together to this norm [default: as it is]
    #[arg(long, value_name = "NORM", value_parser = positive)]
    clip_norm: Option<f64>,
    /// The seed of a preset's initial weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    unused: Unused,
}

const EXAMPLES: &str = "\
Examples:
  cognate export-training testdata/multi30k-en-de step
  cognate export-training preset:base step --seed 7
  cognate export-training my-checkpoint step --dropout 0.3 --label-smoothing 0 --clip-norm 1

Then, with onnxruntime and numpy:
  python step/train.py pairs.txt --updates 100 && cognate export step out";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = ModelSource::find(&options.model)?.into_checkpoint();
    if let (ModelSource::Checkpoint(_), Some(_)) = (&source, options.seed) {
        bail!("--seed: {source} is a checkpoint, whose weights are given; leave it out, or name a preset");
    }
    let model = source.open(options.seed.unwrap_or(1), options.unused)?;
    let existing = if options.force { Existing::Replace } else { Existing::Refuse };
    let mut folder = Folder::create(&options.out, existing)?;
    folder.replaces(&Tokenizer::FILES);
    folder.replaces(&[layout::GENERATION]);
    let stored: Vec<StoredTensor> = model.tensors().collect();
    let step = options.step(&model, &stored)?;
    let name = match &source {
        ModelSource::Checkpoint(path) | ModelSource::Exported(path) | ModelSource::File(path) => layout::folder_name(path),
        ModelSource::Preset(preset) => format!("preset:{}", preset.name()),
    };
    let config = model.config();
    let metadata = Metadata {
        doc: format!("One step of training of {name}: loss, gradients and Adam. README.md beside it names all inputs and outputs."),
        properties: BTreeMap::from([
            ("cognate.pad_token".into(), config.pad_token.to_string()),
            ("cognate.start_token".into(), config.start_token.to_string()),
        ]),
    };
    folder.write(GRAPH, &to_onnx_bytes(&step, &metadata)?)?;
    write_weights(&model, &stored, &mut folder)?;
    folder.write(layout::CONFIG, model.config_json().as_bytes())?;
    if let ModelSource::Checkpoint(checkpoint) = &source {
        if let Some(text) = layout::read_if_there(&checkpoint.join(layout::GENERATION))? {
            folder.write(layout::GENERATION, text.as_bytes())?;
        }
        tokenizer_files::copy(checkpoint, &mut folder, &[])?;
    }
    folder.write(EXAMPLE.0, EXAMPLE.1.as_bytes())?;
    let readme = Readme { name: &name, graph: step.graph(), model: &model, stored: &stored, loss: options.loss(), adam: options.adam() };
    folder.write("README.md", readme.to_string().as_bytes())?;
    let report = folder.commit()?;
    let size = report.files.iter().find(|(file, _)| file == GRAPH).map_or(0, |(_, bytes)| *bytes);
    let place = options.out.display();
    writeln!(
        out,
        "{source} to {place}: {GRAPH} ({} nodes, {}), {} learned values\n{place}/README.md tells what goes in and comes out, {place}/{} trains",
        amounts::thousands(step.graph().nodes().len()),
        amounts::bytes(size),
        amounts::thousands(model.parameters()),
        EXAMPLE.0,
    )?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn loss(&self) -> Loss {
        Loss {
            label_smoothing: self.label_smoothing as f32,
            dropout: DropoutRates {
                attention: self.attention_dropout as f32,
                activation: self.activation_dropout as f32,
                ..DropoutRates::paper(self.dropout as f32)
            },
        }
    }

    fn adam(&self) -> Adam {
        let betas = [self.betas[0], self.betas[1]];
        Adam { betas, epsilon: self.epsilon, weight_decay: self.weight_decay, clip_norm: self.clip_norm, average: None }
    }

    /// The step, with weights called as the checkpoint calls them.
    fn step(&self, model: &Model, stored: &[StoredTensor]) -> Result<Program> {
        let learned: Vec<&str> = model.learned().collect();
        let program = training_step(&model.loss(&self.loss())?, &learned, &self.adam())?;
        let names: HashMap<&str, &str> = stored.iter().map(|tensor| (tensor.path.as_str(), tensor.name.as_str())).collect();
        let name_of = |name: &str| {
            let (next, state) = name.strip_prefix("next.").map_or(("", name), |state| ("next.", state));
            let moment = ["first_moment.", "second_moment."].into_iter().find(|moment| state.starts_with(moment)).unwrap_or("");
            let path = &state[moment.len()..];
            format!("{next}{moment}{}", names.get(path).unwrap_or(&path))
        };
        Ok(Program::new(rename(program.graph(), name_of)?, program.weights().clone())?)
    }
}

/// Writes the weights as safetensors, in f32: a header that says where each is, then their numbers.
fn write_weights(model: &Model, stored: &[StoredTensor], folder: &mut Folder) -> Result<()> {
    let recipe = |tensor: &StoredTensor| model.weights().get(&tensor.path).expect("a model's tensors are weights").to(Element::F32);
    // transformers wants to know who wrote it.
    let mut header = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut begin = 0;
    for tensor in stored {
        let end = begin + recipe(tensor).byte_len();
        header.insert(tensor.name.clone(), json!({ "dtype": "F32", "shape": tensor.shape, "data_offsets": [begin, end] }));
        begin = end;
    }
    let mut header = serde_json::to_vec(&header)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(folder.write_pieces(WEIGHTS, |file| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        stored.iter().try_for_each(|tensor| recipe(tensor).stream(|piece| file.write_all(piece)))
    })?)
}

fn below_one(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..1.0).contains(&number)).ok_or_else(|| "expected a number from 0 to less than 1".into())
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number.is_finite()).ok_or_else(|| "expected a number above 0".into())
}

fn number(text: &str, is_allowed: impl Fn(f64) -> bool) -> Option<f64> {
    text.parse().ok().filter(|&number| is_allowed(number))
}
