//! The README of an exported training step.

use super::{EXAMPLE, GRAPH, WEIGHTS};
use cognate_graph::Graph;
use cognate_model::{Loss, LossNames, Model, StoredTensor};
use cognate_train::{Optimiser, UpdateNames};
use std::fmt;

/// The contents of the README.
pub(super) struct Readme<'a> {
    pub(super) name: &'a str,
    pub(super) graph: &'a Graph,
    pub(super) model: &'a Model,
    pub(super) stored: &'a [StoredTensor],
    pub(super) loss: Loss,
    pub(super) optimiser: Optimiser,
}

impl Readme<'_> {
    /// The meaning of an input or output other than the weights'.
    fn meaning(&self, name: &str) -> Option<String> {
        let config = self.model.config();
        Some(match name {
            LossNames::SOURCE => {
                format!("token ids of the sources with their end token ({}), padded with {}", config.eos_token, config.source_pad(config.pad_token as i64))
            }
            LossNames::SOURCE_MASK => "1 for tokens of `input_ids`, 0 for padding".into(),
            LossNames::TARGET => {
                format!("input of the decoder: {}, then the target without its last token; padded with any id", config.start_token)
            }
            LossNames::LABELS => "labels: the target with its end token; negative numbers are ignored, as for padding".into(),
            LossNames::DROPOUT_SEED => "random seed of dropout: a different number for each step".into(),
            UpdateNames::LEARNING_RATE => "learning rate of this step".into(),
            UpdateNames::STEP => "number of earlier steps; 0 at first".into(),
            LossNames::LOSS => {
                format!("sum of the losses of all labels{}; divided by `tokens`, the mean", self.smoothed())
            }
            LossNames::NEGATIVE_LOG_LIKELIHOOD => {
                "the loss without smoothing: `exp(negative_log_likelihood / tokens)` is the perplexity".into()
            }
            LossNames::TOKENS => "number of labels".into(),
            UpdateNames::GRADIENT_NORM => "norm of the gradient of `loss / tokens` with respect to all weights, before clipping".into(),
            _ if name == UpdateNames::next(UpdateNames::STEP) => "`step` + 1".into(),
            _ => return None,
        })
    }

    fn smoothed(&self) -> String {
        match self.loss.label_smoothing {
            0.0 => String::new(),
            share => format!(", with label smoothing {share}"),
        }
    }

    /// The rows of all inputs or outputs, then those of the weights.
    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        rows: impl Iterator<Item = (String, String)>,
        weights: &[(&str, &str)],
    ) -> fmt::Result {
        writeln!(f, "| name | type and shape | meaning |\n| --- | --- | --- |")?;
        for (name, ty) in rows {
            if let Some(meaning) = self.meaning(&name) {
                writeln!(f, "| `{name}` | `{ty}` | {meaning} |")?;
            }
        }
        for (name, meaning) in weights {
            writeln!(f, "| `{name}` | f32, shape of the weight | {meaning} |")?;
        }
        writeln!(f)
    }

    /// The learned weights with the checkpoint's names.
    fn learned(&self) -> impl Iterator<Item = &StoredTensor> {
        let is_input =
            |tensor: &&StoredTensor| self.graph.inputs().any(|(_, node)| node.name == tensor.name);
        self.stored.iter().filter(is_input)
    }
}

impl fmt::Display for Readme<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, graph, model, loss, optimiser, .. } = self;
        let (rule, learned, values) = (optimiser.rule, self.learned().count(), model.parameters());
        writeln!(
            f,
            "# A training step of {name}\n\n\
             `{GRAPH}` is one training step as an ONNX graph of standard operators: the loss of a batch, its gradients with respect to {learned}\n\
             weights ({values} values), and {rule:?}'s update. It is stateless: the output `next.NAME` is the input `NAME` of the next step.\n\n\
             | file | contents |\n| --- | --- |\n\
             | `{GRAPH}` | the step |\n\
             | `{WEIGHTS}` | the initial weights by the names of the inputs; moments and `step` are 0 at first |\n\
             | `{}` | an example with onnxruntime and numpy; `cognate tokenize --ids` makes its input |\n\
             | `config.json` and others | the rest of a checkpoint: with trained weights in `{WEIGHTS}` the folder is the trained model |\n",
            EXAMPLE.0
        )?;
        let rates = loss.dropout;
        writeln!(
            f,
            "Settings of the export: label smoothing {}; dropout {} of embeddings, {} of sublayers, {} of attention, {} inside the feed-forward;\n\
             {rule:?} with β {} and {}, ε {:e}, weight decay {}, gradients {}.\n",
            loss.label_smoothing,
            rates.embedding,
            rates.sublayer,
            rates.attention,
            rates.activation,
            optimiser.betas[0],
            optimiser.betas[1],
            optimiser.epsilon,
            optimiser.weight_decay,
            optimiser
                .clip_norm
                .map_or("not clipped".into(), |limit| format!("clipped to the norm {limit}")),
        )?;
        writeln!(f, "## Inputs\n\n`batch`, `src` and `tgt` can differ between steps.\n")?;
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
        let outputs = graph
            .outputs()
            .iter()
            .map(|output| (output.name.clone(), graph.node(output.node).ty.to_string()));
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
