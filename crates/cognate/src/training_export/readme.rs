//! The page beside an exported training step.

use super::{EXAMPLE, GRAPH, WEIGHTS};
use cognate_graph::Graph;
use cognate_model::{Loss, LossNames, Model, StoredTensor};
use cognate_train::{Adam, UpdateNames};
use std::fmt;

/// What the page tells.
pub(super) struct Readme<'a> {
    pub(super) name: &'a str,
    pub(super) graph: &'a Graph,
    pub(super) model: &'a Model,
    pub(super) stored: &'a [StoredTensor],
    pub(super) loss: Loss,
    pub(super) adam: Adam,
}

impl Readme<'_> {
    /// The meaning of what has one name in every such graph.
    fn meaning(&self, name: &str) -> Option<String> {
        let config = self.model.config();
        Some(match name {
            LossNames::SOURCE => {
                format!("token ids of the sources, each with its end token ({}), padded with {}", config.eos_token, config.pad_token)
            }
            LossNames::SOURCE_MASK => "1 for tokens of `input_ids`, 0 for padding".into(),
            LossNames::TARGET => {
                format!("what the decoder reads: {}, then the target without its last token; padded with any id", config.start_token)
            }
            LossNames::LABELS => {
                "what it is to predict: the target with its end token; any number below 0 where nothing counts, as for padding".into()
            }
            LossNames::DROPOUT_SEED => "decides what is left out: another number at each step, the same one for the same result".into(),
            UpdateNames::LEARNING_RATE => "the rate of this step".into(),
            UpdateNames::STEP => "steps so far; 0 at first".into(),
            LossNames::LOSS => {
                format!("the sum of the losses of all labels that count{}; over `tokens`, it is that of one", self.smoothed())
            }
            LossNames::NEGATIVE_LOG_LIKELIHOOD => {
                "the same without smoothing: `exp(negative_log_likelihood / tokens)` is the perplexity".into()
            }
            LossNames::TOKENS => "labels that count".into(),
            UpdateNames::GRADIENT_NORM => "the norm of the gradient of `loss / tokens` by all weights, before it is shortened".into(),
            _ if name == UpdateNames::next(UpdateNames::STEP) => "`step` + 1".into(),
            _ => return None,
        })
    }

    fn smoothed(&self) -> String {
        match self.loss.label_smoothing {
            0.0 => String::new(),
            share => format!(", smoothed by {share}"),
        }
    }

    /// Rows of what is not a weight's, then those that every weight has.
    fn table(&self, f: &mut fmt::Formatter<'_>, rows: impl Iterator<Item = (String, String)>, weights: &[(&str, &str)]) -> fmt::Result {
        writeln!(f, "| name | type and shape | meaning |\n| --- | --- | --- |")?;
        for (name, ty) in rows {
            if let Some(meaning) = self.meaning(&name) {
                writeln!(f, "| `{name}` | `{ty}` | {meaning} |")?;
            }
        }
        for (name, meaning) in weights {
            writeln!(f, "| `{name}` | f32, as the weight | {meaning} |")?;
        }
        writeln!(f)
    }

    /// The weights that are learned, as the checkpoint calls them.
    fn learned(&self) -> impl Iterator<Item = &StoredTensor> {
        let is_input = |tensor: &&StoredTensor| self.graph.inputs().any(|(_, node)| node.name == tensor.name);
        self.stored.iter().filter(is_input)
    }
}

impl fmt::Display for Readme<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, graph, model, loss, adam, .. } = self;
        let (learned, values) = (self.learned().count(), model.parameters());
        writeln!(
            f,
            "# A training step of {name}\n\n\
             `{GRAPH}` is one step of training as one ONNX graph of standard operators: the loss of a batch, its gradients by {learned} weights\n\
             ({values} numbers), and what Adam makes of the weights by them. It keeps nothing between runs: every output `next.NAME` is what\n\
             the input `NAME` wants at the next step.\n\n\
             | file | what |\n| --- | --- |\n\
             | `{GRAPH}` | the step |\n\
             | `{WEIGHTS}` | the weights to begin with, under the names of the inputs; moments begin with zeros, `step` with 0 |\n\
             | `{}` | an example with onnxruntime and numpy: `python {} pairs.txt --updates 100` |\n\
             | `config.json` and others | with the weights, a checkpoint: write the learned ones into `{WEIGHTS}`, and the folder holds the trained model |\n",
            EXAMPLE.0, EXAMPLE.0
        )?;
        let rates = loss.dropout;
        writeln!(
            f,
            "Chosen at the export: label smoothing {}; dropout {} of embeddings, {} of sublayers, {} of attention, {} inside the feed-forward;\n\
             Adam with β {} and {}, ε {:e}, weight decay {}, gradients {}.\n",
            loss.label_smoothing,
            rates.embedding,
            rates.sublayer,
            rates.attention,
            rates.activation,
            adam.betas[0],
            adam.betas[1],
            adam.epsilon,
            adam.weight_decay,
            adam.clip_norm.map_or("of any norm".into(), |limit| format!("shortened to the norm {limit}")),
        )?;
        writeln!(f, "## Inputs\n\n`batch`, `src` and `tgt` may differ from step to step.\n")?;
        let inputs = graph.inputs().map(|(_, node)| (node.name.clone(), node.ty.to_string()));
        self.table(
            f,
            inputs,
            &[
                ("WEIGHT", "a weight"),
                ("first_moment.WEIGHT", "its mean gradient; zeros at first"),
                ("second_moment.WEIGHT", "its mean squared gradient; zeros at first"),
            ],
        )?;
        writeln!(f, "## Outputs\n")?;
        let outputs = graph.outputs().iter().map(|output| (output.name.clone(), graph.node(output.node).ty.to_string()));
        self.table(
            f,
            outputs,
            &[
                ("next.WEIGHT", "the weight after the step"),
                ("next.first_moment.WEIGHT", "its mean gradient then"),
                ("next.second_moment.WEIGHT", "its mean squared gradient then"),
            ],
        )?;
        writeln!(f, "## Weights\n\n| WEIGHT | shape |\n| --- | --- |")?;
        for tensor in self.learned() {
            writeln!(f, "| `{}` | `{:?}` |", tensor.name, tensor.shape)?;
        }
        Ok(())
    }
}
