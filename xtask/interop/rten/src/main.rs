//! A session of rten, a runtime in pure Rust, for `../python/run_rten.py`.
//!
//! `interop-rten GRAPH` writes a JSON list of the graph's inputs, then answers requests. Requests
//! and answers are tensors by name in the format of safetensors. Each message follows its length in
//! eight bytes.

use std::io::{self, Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use rten::{Model, NodeId, Value};
use rten_tensor::Tensor;
use rten_tensor::prelude::*;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let path = std::env::args().nth(1).context("usage: interop-rten GRAPH")?;
    let model = Model::load_file(&path).with_context(|| path.clone())?;
    let names = |ids: &[NodeId]| ids.iter().filter_map(|id| Some(model.node_info(*id)?.name()?.to_owned())).collect::<Vec<_>>();
    let outputs = names(model.output_ids());
    send(&serde_json::to_vec(&names(model.input_ids()))?)?;
    while let Some(request) = receive()? {
        let mut feeds = Vec::new();
        for (name, view) in SafeTensors::deserialize(&request)?.tensors() {
            feeds.push((model.node_id(&name)?, value(&view).with_context(|| name.clone())?));
        }
        let feeds = feeds.iter().map(|(id, value)| (*id, value.into())).collect();
        let mut answers = Vec::new();
        for (name, value) in outputs.iter().zip(model.run(feeds, model.output_ids(), None)?) {
            // rten converts ONNX's i64 to i32.
            let (dtype, bytes): (_, Vec<u8>) = match &value {
                Value::FloatTensor(tensor) => (Dtype::F32, tensor.iter().flat_map(|number| number.to_le_bytes()).collect()),
                Value::Int32Tensor(tensor) => (Dtype::I32, tensor.iter().flat_map(|number| number.to_le_bytes()).collect()),
                other => bail!("{name}: expected numbers in f32 or i32, found {:?}", other.dtype()),
            };
            answers.push((name, dtype, value.shape().to_vec(), bytes));
        }
        let views = answers.iter().map(|(name, dtype, shape, bytes)| Ok((*name, TensorView::new(*dtype, shape.clone(), bytes)?)));
        send(&safetensors::serialize(views.collect::<Result<Vec<_>>>()?, None)?)?;
    }
    Ok(())
}

fn value(view: &TensorView<'_>) -> Result<Value> {
    let (words, _) = view.data().as_chunks::<4>();
    Ok(match view.dtype() {
        Dtype::F32 => Tensor::from_data(view.shape(), words.iter().map(|word| f32::from_le_bytes(*word)).collect::<Vec<_>>()).into(),
        Dtype::I32 => Tensor::from_data(view.shape(), words.iter().map(|word| i32::from_le_bytes(*word)).collect::<Vec<_>>()).into(),
        other => bail!("expected F32 or I32, found {other:?}"),
    })
}

fn send(message: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&(message.len() as u64).to_le_bytes())?;
    out.write_all(message)?;
    Ok(out.flush()?)
}

/// The next message; `None` at the end.
fn receive() -> Result<Option<Vec<u8>>> {
    let (mut length, mut input) = ([0; 8], io::stdin().lock());
    if input.read_exact(&mut length).is_err() {
        return Ok(None);
    }
    let mut message = vec![0; u64::from_le_bytes(length).try_into()?];
    input.read_exact(&mut message)?;
    Ok(Some(message))
}
