//! The question, and PyTorch's tensors to compare the answer with.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rten_tensor::prelude::*;
use rten_tensor::{NdTensor, Tensor};
use safetensors::SafeTensors;
use serde::Deserialize;

#[derive(Deserialize)]
pub struct Question {
    pub layout: String,
    pub graphs: PathBuf,
    golden: PathBuf,
    pub heads: usize,
    pub head_size: usize,
    pub start: i32,
    pub eos: i32,
    pub pad: i32,
    pub forced_eos: Option<i32>,
    pub max_new_tokens: usize,
}

/// Token ids are i32: rten converts ONNX's i64 to i32.
pub struct Cell {
    pub question: Question,
    /// `[batch, src]`
    pub input_ids: NdTensor<i32, 2>,
    pub attention_mask: NdTensor<i32, 2>,
    /// `[batch, tgt]`
    pub decoder_input_ids: NdTensor<i32, 2>,
    /// `[batch, length]`, including the start token
    greedy: NdTensor<i32, 2>,
    states: Tensor<f32>,
    logits: Tensor<f32>,
}

impl Cell {
    pub fn read(path: &Path) -> Result<Cell> {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let question: Question = serde_json::from_str(&text)?;
        let file = fs::read(&question.golden).with_context(|| question.golden.display().to_string())?;
        let tensors = SafeTensors::deserialize(&file)?;
        let ids = |name: &str| -> Result<NdTensor<i32, 2>> {
            let view = tensors.tensor(name)?;
            let shape = view.shape().try_into().with_context(|| format!("{name}: expected a matrix"))?;
            let values = view.data().chunks_exact(8).map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")) as i32);
            Ok(NdTensor::from_data(shape, values.collect::<Vec<_>>()))
        };
        let floats = |name: &str| -> Result<Tensor<f32>> {
            let view = tensors.tensor(name)?;
            let values = view.data().chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")));
            Ok(Tensor::from_data(view.shape(), values.collect::<Vec<_>>()))
        };
        Ok(Cell {
            input_ids: ids("input_ids")?,
            attention_mask: ids("attention_mask")?,
            decoder_input_ids: ids("decoder_input_ids")?,
            greedy: ids("greedy")?,
            states: floats("encoder_last_hidden_state")?,
            logits: floats("logits")?,
            question,
        })
    }

    /// Compares unpadded positions only; the values at others are never read.
    pub fn encoder_error(&self, states: &Tensor<f32>) -> Result<f32> {
        let width = states.size(states.ndim() - 1);
        let mask = self.attention_mask.to_vec();
        difference(states, &self.states, |index| mask[index / width] == 1)
    }

    pub fn logits_error(&self, logits: &Tensor<f32>) -> Result<f32> {
        difference(logits, &self.logits, |_| true)
    }

    pub fn same_tokens(&self, rows: &[Vec<i32>]) -> bool {
        rows.concat() == self.greedy.to_vec()
    }
}

/// The largest absolute difference of the elements for which `counts` returns true.
fn difference(found: &Tensor<f32>, expected: &Tensor<f32>, counts: impl Fn(usize) -> bool) -> Result<f32> {
    ensure!(found.shape() == expected.shape(), "expected shape {:?}, found {:?}", expected.shape(), found.shape());
    let mut largest = 0.0f32;
    for (index, (found, expected)) in found.iter().zip(expected.iter()).enumerate().filter(|(index, _)| counts(*index)) {
        ensure!(found.is_finite(), "expected finite values, found another at {index}");
        largest = largest.max((found - expected).abs());
    }
    Ok(largest)
}
