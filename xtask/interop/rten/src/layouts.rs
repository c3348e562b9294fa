//! The two layouts from a caller's view.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use rten::{Model, Value};
use rten_tensor::prelude::*;
use rten_tensor::{Layout as _, NdTensor, Tensor};
use serde_json::json;

use crate::cell::Cell;

/// Encoder states, teacher-forced logits, and greedy decoding with a past.
pub fn measure(cell: &Cell) -> Result<serde_json::Value> {
    let mut model = Translator::load(cell)?;
    let encoder = cell.encoder_error(&model.encode()?)?;
    let logits = cell.logits_error(&model.decode(&cell.decoder_input_ids)?)?;
    model.encode()?;
    let tokens = greedy(&mut model, cell)?;
    Ok(json!({ "encoder": encoder, "logits": logits, "greedy": cell.same_tokens(&tokens) }))
}

/// Rows of token ids, including the start token, as from transformers' `generate(num_beams=1)`.
fn greedy(model: &mut Translator<'_>, cell: &Cell) -> Result<Vec<Vec<i32>>> {
    let question = &cell.question;
    let batch = cell.input_ids.size(0);
    let mut tokens = vec![vec![question.start]; batch];
    let mut running = vec![true; batch];
    for step in 1..=question.max_new_tokens {
        let last: Vec<i32> = tokens.iter().filter_map(|row| row.last().copied()).collect();
        let logits = model.decode(&NdTensor::from_data([batch, 1], last))?.to_vec();
        let forced = question.forced_eos.filter(|_| step == question.max_new_tokens);
        for (row, scores) in logits.chunks_exact(logits.len() / batch).enumerate() {
            let chosen = forced.unwrap_or_else(|| largest(scores));
            tokens[row].push(if running[row] { chosen } else { question.pad });
            running[row] &= chosen != question.eos;
        }
        if !running.contains(&true) {
            break;
        }
    }
    Ok(tokens)
}

/// The index of the first maximum.
fn largest(scores: &[f32]) -> i32 {
    let best = (0..scores.len()).reduce(|best, index| if scores[index] > scores[best] { index } else { best });
    best.unwrap_or_default() as i32
}

enum Layout {
    /// encoder.onnx and decoder.onnx; `input_ids` of the decoder is `[batch, beams, tgt]`,
    /// one beam here.
    Cognate,
    /// encoder_model.onnx and decoder_model_merged.onnx, of Cognate or Optimum (which has
    /// `use_cache_branch`).
    HuggingFace { branches: bool },
}

struct Translator<'a> {
    cell: &'a Cell,
    layout: Layout,
    encoder: Graph,
    decoder: Graph,
    /// The decoder inputs that do not change between steps.
    fixed: HashMap<String, Value>,
    past: HashMap<String, Value>,
    first: bool,
}

impl<'a> Translator<'a> {
    fn load(cell: &'a Cell) -> Result<Translator<'a>> {
        let graph = |name: &str| Graph::load(cell, name);
        let (layout, encoder, decoder) = match cell.question.layout.as_str() {
            "cognate" => (Layout::Cognate, graph("encoder.onnx")?, graph("decoder.onnx")?),
            "hugging-face" => {
                let decoder = graph("decoder_model_merged.onnx")?;
                let branches = decoder.inputs.iter().any(|name| name == "use_cache_branch");
                (Layout::HuggingFace { branches }, graph("encoder_model.onnx")?, decoder)
            }
            other => bail!("{other}: unknown layout"),
        };
        Ok(Translator { cell, layout, encoder, decoder, fixed: HashMap::new(), past: HashMap::new(), first: true })
    }

    /// Returns `[batch, src, d_model]` and resets the past.
    fn encode(&mut self) -> Result<Tensor<f32>> {
        let Cell { question, input_ids, attention_mask, .. } = self.cell;
        let mask = || Value::from(attention_mask.clone());
        let feeds = [("input_ids".to_owned(), Value::from(input_ids.clone())), ("attention_mask".to_owned(), mask())];
        let mut outputs = self.encoder.run(&feeds.into())?;
        let batch = input_ids.size(0);
        let (states, empty): (_, &[usize]) = match &self.layout {
            Layout::Cognate => {
                let states = outputs.remove("encoder_hidden_states").context("no encoder_hidden_states")?;
                self.fixed = outputs;
                self.fixed.insert("attention_mask".into(), mask());
                (states, &[batch, 1, question.heads, 0, question.head_size])
            }
            Layout::HuggingFace { .. } => {
                let states = outputs.remove("last_hidden_state").context("no last_hidden_state")?;
                self.fixed = [("encoder_attention_mask".to_owned(), mask()), ("encoder_hidden_states".to_owned(), states.clone())].into();
                (states, &[batch, question.heads, 0, question.head_size])
            }
        };
        let past = self.decoder.inputs.iter().filter(|name| name.starts_with("past"));
        self.past = past.map(|name| (name.clone(), Value::from(Tensor::<f32>::zeros(empty)))).collect();
        self.first = true;
        Ok(states.try_into()?)
    }

    /// `ids` `[batch, tgt]` -> logits `[batch, tgt, vocab]`; appends `tgt` positions to the past.
    fn decode(&mut self, ids: &NdTensor<i32, 2>) -> Result<Tensor<f32>> {
        let [batch, tgt] = ids.shape();
        let mut feeds: HashMap<String, Value> = self.fixed.iter().chain(&self.past).map(|(name, value)| (name.clone(), value.clone())).collect();
        let branches = match self.layout {
            Layout::Cognate => {
                feeds.insert("input_ids".into(), NdTensor::from_data([batch, 1, tgt], ids.to_vec()).into());
                false
            }
            Layout::HuggingFace { branches } => {
                feeds.insert("input_ids".into(), ids.clone().into());
                feeds.insert("use_cache_branch".into(), NdTensor::from_data([1], vec![i32::from(!self.first)]).into());
                branches
            }
        };
        feeds.retain(|name, _| self.decoder.inputs.contains(name));
        let mut outputs = self.decoder.run(&feeds)?;
        for (name, value) in &mut self.past {
            let present = name.replace("past_key_values", "present").replace("past", "present");
            // The branch with a past does not compute cross keys: those of the first step are kept.
            if self.first || !branches || !name.contains(".encoder.") {
                *value = outputs.remove(&present).with_context(|| format!("no output {present}"))?;
            }
        }
        self.first = false;
        let logits: Tensor<f32> = outputs.remove("logits").context("no logits")?.try_into()?;
        let vocab = logits.size(logits.ndim() - 1);
        Ok(Tensor::from_data(&[batch, tgt, vocab], logits.to_vec()))
    }
}

/// A loaded graph and the names of its inputs and outputs.
struct Graph {
    model: Model,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Graph {
    fn load(cell: &Cell, file: &str) -> Result<Graph> {
        let model = Model::load_file(cell.question.graphs.join(file)).with_context(|| file.to_owned())?;
        let names = |ids: &[rten::NodeId]| ids.iter().filter_map(|id| Some(model.node_info(*id)?.name()?.to_owned())).collect();
        let (inputs, outputs) = (names(model.input_ids()), names(model.output_ids()));
        Ok(Graph { model, inputs, outputs })
    }

    fn run(&self, feeds: &HashMap<String, Value>) -> Result<HashMap<String, Value>> {
        let mut inputs = Vec::new();
        for (name, value) in feeds {
            inputs.push((self.model.node_id(name)?, value.into()));
        }
        let outputs = self.model.run(inputs, self.model.output_ids(), None)?;
        Ok(self.outputs.iter().cloned().zip(outputs).collect())
    }
}
