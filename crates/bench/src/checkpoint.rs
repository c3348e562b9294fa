//! MarianMT checkpoints in Hugging Face's form: one of the base shape with seeded random weights
//! (60.6 million parameters, 242 MB), and one of the size of M2M100 with 1.2 billion (4.96 GB)
//! whose weights are a sparse file.
//!
//! Names and order are those of `save_pretrained`. The files are streamed: eight bytes of length, a
//! JSON header with the type, shape and position of each tensor, then the values.

use fs_err::{self as fs, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use xtask::workspace::Workspace;

/// The sizes of a model; the number of layers is that of each stack.
#[derive(Clone, Copy)]
pub struct Shape {
    pub d_model: usize,
    pub d_ff: usize,
    pub heads: usize,
    pub layers: usize,
    pub vocab: usize,
}

pub const BASE: Shape = Shape { d_model: 512, d_ff: 2048, heads: 8, layers: 6, vocab: 32_000 };
/// As M2M100 with 1.2 billion parameters (Fan et al. 2020).
pub const LARGE: Shape = Shape { d_model: 1024, d_ff: 8192, heads: 16, layers: 24, vocab: 128_112 };
pub const POSITIONS: usize = 512;

/// The tokenizer of the bundled checkpoint, whose 8,000 pieces are ids below 32,000.
pub const TOKENIZER: [&str; 3] =
    ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"];

/// The folder of the checkpoint and its weights file.
pub struct Checkpoint {
    pub folder: PathBuf,
    pub weights: PathBuf,
    pub parameters: u64,
}

/// The checkpoint of the base shape in the target folder, written unless it exists.
pub fn marian_base(workspace: &Workspace) -> Result<Checkpoint> {
    checkpoint(workspace, "marian-base", BASE, write)
}

/// The large checkpoint. Its weights are zeros that take no disk space and are never read.
pub fn marian_large(workspace: &Workspace) -> Result<Checkpoint> {
    checkpoint(workspace, "marian-large", LARGE, |path, header, tensors| {
        let mut file = File::create(path)?;
        file.write_all(header)?;
        file.set_len(
            header.len() as u64 + 4 * tensors.iter().map(Tensor::n_elements).sum::<usize>() as u64,
        )?;
        Ok(file.sync_all()?)
    })
}

pub fn checkpoint(
    workspace: &Workspace,
    name: &str,
    shape: Shape,
    fill: impl FnOnce(&Path, &[u8], &[Tensor]) -> Result<()>,
) -> Result<Checkpoint> {
    let folder = workspace.target("bench").join(name);
    let weights = folder.join("model.safetensors");
    let tensors = tensors(shape);
    let parameters = tensors.iter().map(Tensor::n_elements).sum::<usize>() as u64;
    let header = header(&tensors)?;
    let wanted = header.len() as u64 + 4 * parameters;
    fs::create_dir_all(&folder)?;
    if !weights.metadata().is_ok_and(|present| present.len() == wanted) {
        let partial = folder.join("model.safetensors.partial");
        fill(&partial, &header, &tensors).with_context(|| partial.display().to_string())?;
        fs::rename(&partial, &weights)?;
    }
    write_json(&folder.join("config.json"), &config(shape))?;
    write_json(&folder.join("generation_config.json"), &generation_config())?;
    for name in TOKENIZER {
        let bundled = workspace.root().join("testdata/multi30k-en-de").join(name);
        fs::copy(&bundled, folder.join(name))?;
    }
    Ok(Checkpoint { folder, weights, parameters })
}

pub fn config(shape: Shape) -> Value {
    let Shape { d_model, d_ff, heads, layers, vocab } = shape;
    json!({
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": d_model,
        "encoder_layers": layers,
        "decoder_layers": layers,
        "num_hidden_layers": layers,
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": d_ff,
        "decoder_ffn_dim": d_ff,
        "activation_function": "swish",
        "vocab_size": vocab,
        "decoder_vocab_size": vocab,
        "max_position_embeddings": POSITIONS,
        "scale_embedding": true,
        "share_encoder_decoder_embeddings": true,
        "is_encoder_decoder": true,
        "eos_token_id": 0,
        "pad_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 0,
        "dtype": "float32",
        "use_cache": true
    })
}

pub fn generation_config() -> Value {
    json!({ "decoder_start_token_id": 2, "eos_token_id": 0, "pad_token_id": 2, "forced_eos_token_id": 0, "max_length": POSITIONS, "num_beams": 1 })
}

pub fn write_json(path: &Path, value: &Value) -> Result<()> {
    Ok(fs::write(path, format!("{value:#}\n"))?)
}

/// A tensor's name in the checkpoint and its shape.
pub struct Tensor {
    pub name: String,
    pub shape: Vec<usize>,
}

impl Tensor {
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Every parameter, in the order of the file: by name.
pub fn tensors(shape: Shape) -> Vec<Tensor> {
    let Shape { d_model, d_ff, layers, vocab, .. } = shape;
    let mut tensors = Vec::new();
    let mut add =
        |name: String, shape: &[usize]| tensors.push(Tensor { name, shape: shape.to_vec() });
    add("final_logits_bias".into(), &[1, vocab]);
    add("model.shared.weight".into(), &[vocab, d_model]);
    for (side, attentions) in
        [("encoder", &["self_attn"][..]), ("decoder", &["self_attn", "encoder_attn"])]
    {
        for layer_index in 0..layers {
            let layer = format!("model.{side}.layers.{layer_index}");
            let mut affine = |name: &str, shape: &[usize]| {
                add(format!("{layer}.{name}.weight"), shape);
                add(format!("{layer}.{name}.bias"), &shape[..1]);
            };
            for attention in attentions {
                for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                    affine(&format!("{attention}.{projection}"), &[d_model, d_model]);
                }
                affine(&format!("{attention}_layer_norm"), &[d_model]);
            }
            affine("fc1", &[d_ff, d_model]);
            affine("fc2", &[d_model, d_ff]);
            affine("final_layer_norm", &[d_model]);
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}

/// The length in eight bytes, and the JSON padded with spaces so that the values start at a
/// multiple of eight.
pub fn header(tensors: &[Tensor]) -> Result<Vec<u8>> {
    let mut fields = Map::new();
    fields.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut offset = 0;
    for tensor in tensors {
        let end = offset + 4 * tensor.n_elements();
        fields.insert(
            tensor.name.clone(),
            json!({"dtype": "F32", "shape": tensor.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut json = serde_json::to_vec(&fields)?;
    json.resize(json.len().next_multiple_of(8), b' ');
    Ok([&(json.len() as u64).to_le_bytes()[..], &json].concat())
}

/// Uniform values of the magnitude of initial weights; norms about 1.
pub fn write(path: &Path, header: &[u8], tensors: &[Tensor]) -> Result<()> {
    write_rounded(path, header, tensors, |value| value)
}

/// As [`write()`], with values that are rounded.
pub fn write_rounded(
    path: &Path,
    header: &[u8],
    tensors: &[Tensor],
    rounded: impl Fn(f32) -> f32,
) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    file.write_all(header)?;
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for tensor in tensors {
        let middle = if tensor.name.ends_with("layer_norm.weight") { 1.0 } else { 0.0 };
        for _ in 0..tensor.n_elements() {
            file.write_all(&rounded(middle + 0.05 * random.draw()).to_le_bytes())?;
        }
    }
    file.into_inner()?.sync_all()?;
    Ok(())
}

/// Marsaglia's xorshift with 64 bits of state, which must not be 0.
pub struct Xorshift(pub u64);

impl Xorshift {
    /// Uniform in [-1, 1).
    pub fn draw(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper 24 bits fill the mantissa.
        (self.0 >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
