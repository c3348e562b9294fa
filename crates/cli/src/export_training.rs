//! `cognate export-training`.

use crate::model_options::UnusedOption;
use crate::{amounts, messages};
use anyhow::Result;
use cognate::train::{DropoutRates, Loss, Optimiser};
use cognate::{ExportedStep, ModelSource, TrainingExport};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Export the training step to ONNX
///
/// Writes train_step.onnx: forward pass, loss, gradients and Adam's update in one graph of standard
/// operators. Any program with ONNX Runtime can train with it: inputs are token ids, labels and the
/// state, outputs are the loss and the next state. README.md lists all inputs and outputs, train.py
/// is an example of less than 60 lines, and model.safetensors has the weights. After training, OUT
/// is a checkpoint for every other command. The folder appears complete or not at all. To train
/// with Cognate itself, see `cognate train`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A checkpoint's folder (config.json, model.safetensors), such as the output of
    /// `cognate train`; or preset:tiny, preset:base, preset:big with seeded initial weights
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// Folder to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Replace OUT if it is an earlier export
    #[arg(long)]
    force: bool,
    /// Label smoothing; 0 for none
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = below_one)]
    label_smoothing: f64,
    /// Dropout of embeddings and of the output of each sublayer; 0 for none
    #[arg(long, value_name = "SHARE", default_value = "0.1", value_parser = dropout)]
    dropout: f64,
    /// Dropout of attention weights
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = dropout)]
    attention_dropout: f64,
    /// Dropout inside the feed-forward
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = dropout)]
    activation_dropout: f64,
    /// Adam's decay rates of the mean of gradients and of their squares
    #[arg(long, num_args = 2, value_names = ["BETA1", "BETA2"], default_values = ["0.9", "0.98"], value_parser = below_one)]
    betas: Vec<f64>,
    /// Adam's epsilon
    #[arg(long, value_name = "NUMBER", default_value = "1e-9", value_parser = positive)]
    epsilon: f64,
    /// Weight decay, decoupled from the gradient (AdamW)
    #[arg(long, value_name = "SHARE", default_value = "0", value_parser = below_one)]
    weight_decay: f64,
    /// Maximum norm of the gradient of all weights [default: none]
    #[arg(long, value_name = "NORM", value_parser = positive)]
    clip_norm: Option<f64>,
    /// Random seed of a preset's initial weights [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    unused: UnusedOption,
}

const EXAMPLES: &str = "\
Examples:
  cognate export-training testdata/multi30k-en-de step
  cognate export-training preset:base step --seed 7
  cognate export-training my-checkpoint step --dropout 0.3 --label-smoothing 0 --clip-norm 1

Train with onnxruntime and numpy:
  cognate tokenize --model step --ids --input train.en > source.ids
  cognate tokenize --model step --ids --target --input train.de > target.ids
  paste source.ids target.ids > pairs.ids
  python step/train.py pairs.ids --updates 100
  cognate export step out";

/// Runs the command.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<ExitCode> {
    let source = ModelSource::find(&options.model)?.into_checkpoint();
    let mut export = TrainingExport::open(&source, options.seed, options.unused.ignore_unused)?;
    messages::notices(export.notices());
    (export.loss, export.optimiser, export.force) =
        (options.loss(), options.optimiser(), options.force);
    let ExportedStep { n_nodes, bytes, .. } = export.write(&options.out)?;
    let place = options.out.display();
    writeln!(
        out,
        "{source} to {place}: train_step.onnx ({} nodes, {}), {} parameters\n{place}/README.md lists inputs and outputs, \
         {place}/train.py is an example",
        amounts::thousands(n_nodes),
        amounts::bytes(bytes),
        amounts::thousands(export.model().parameters()),
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
            ..Loss::default()
        }
    }

    fn optimiser(&self) -> Optimiser {
        let betas = [self.betas[0], self.betas[1]];
        let Self { epsilon, weight_decay, clip_norm, .. } = *self;
        Optimiser { betas, epsilon, weight_decay, clip_norm, ..Optimiser::default() }
    }
}

fn below_one(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..1.0).contains(&number))
        .ok_or_else(|| "expected a number from 0 to less than 1".into())
}

fn dropout(text: &str) -> Result<f64, String> {
    number(text, |number| (0.0..=DropoutRates::LARGEST).contains(&(number as f32)))
        .ok_or_else(|| format!("expected a number from 0 to {}", DropoutRates::LARGEST))
}

fn positive(text: &str) -> Result<f64, String> {
    number(text, |number| number > 0.0 && number.is_finite())
        .ok_or_else(|| "expected a number above 0".into())
}

fn number(text: &str, is_allowed: impl Fn(f64) -> bool) -> Option<f64> {
    text.parse().ok().filter(|&number| is_allowed(number))
}
