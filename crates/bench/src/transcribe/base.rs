//! A checkpoint of the shape of Whisper base with seeded random weights, to measure the time of a
//! larger model. As in OpenAI's models, which were published in half precision, half precision
//! represents all weights.

use fs_err::{self as fs, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::checkpoint::{Tensor, header, write_json, write_rounded};
use half::f16;

const D_MODEL: usize = 512;
const D_FF: usize = 2048;
const LAYERS: usize = 6;
const HEADS: usize = 8;
/// Size of a filter along the time axis.
const FILTER: usize = 3;

/// The configuration, as the fields of the base shape.
const SIZES: [(&str, usize); 8] = [
    ("d_model", D_MODEL),
    ("encoder_ffn_dim", D_FF),
    ("decoder_ffn_dim", D_FF),
    ("encoder_layers", LAYERS),
    ("decoder_layers", LAYERS),
    ("num_hidden_layers", LAYERS),
    ("encoder_attention_heads", HEADS),
    ("decoder_attention_heads", HEADS),
];

/// Writes the checkpoint to `folder`, with vocabulary, positions, mels and tokenizer of the Whisper
/// checkpoint `model`. Its end token has weights of 0, so that its logit is never the largest: each
/// window has the maximum number of tokens.
pub(super) fn checkpoint(model: &Path, folder: &Path) -> Result<PathBuf> {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(model.join("config.json"))?)
        .context("config.json")?;
    SIZES.iter().for_each(|(field, size)| config[*field] = (*size).into());
    let number = |field: &str| -> Result<usize> {
        let found = config[field].as_u64().and_then(|number| usize::try_from(number).ok());
        found.with_context(|| {
            format!("{}: config.json: {field}: expected a number", model.display())
        })
    };
    let [vocab, end, mels] =
        [number("vocab_size")?, number("eos_token_id")?, number("num_mel_bins")?];
    let positions = [number("max_source_positions")?, number("max_target_positions")?];
    fs::create_dir_all(folder)?;
    for entry in fs::read_dir(model)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == "json") {
            fs::write(folder.join(name), fs::read(&path)?)?;
        }
    }
    write_json(&folder.join("config.json"), &config)?;
    let tensors = tensors(vocab, mels, positions);
    let (path, header) = (folder.join("model.safetensors"), header(&tensors)?);
    write_rounded(&path, &header, &tensors, |value| f16::from_f32(value).to_f32())?;
    let before: usize =
        tensors.iter().take_while(|tensor| tensor.name != TOKENS).map(Tensor::n_elements).sum();
    let mut file = OpenOptions::new().write(true).open(&path)?;
    file.seek(SeekFrom::Start((header.len() + 4 * (before + end * D_MODEL)) as u64))?;
    file.write_all(&[0; 4 * D_MODEL])?;
    Ok(folder.to_owned())
}

const TOKENS: &str = "model.decoder.embed_tokens.weight";

/// Every parameter, in the order of the file: by name.
fn tensors(vocab: usize, mels: usize, [source, target]: [usize; 2]) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let mut add = |name: &str, shape: &[usize]| {
        tensors.push(Tensor { name: format!("model.{name}"), shape: shape.to_vec() })
    };
    for (convolution, channels) in [("conv1", mels), ("conv2", D_MODEL)] {
        add(&format!("encoder.{convolution}.weight"), &[D_MODEL, channels, FILTER]);
        add(&format!("encoder.{convolution}.bias"), &[D_MODEL]);
    }
    add("decoder.embed_tokens.weight", &[vocab, D_MODEL]);
    for (side, positions, attentions) in [
        ("encoder", source, &["self_attn"][..]),
        ("decoder", target, &["self_attn", "encoder_attn"]),
    ] {
        add(&format!("{side}.embed_positions.weight"), &[positions, D_MODEL]);
        let mut affine = |name: &str, shape: &[usize]| {
            add(&format!("{side}.{name}.weight"), shape);
            // Keys have no bias.
            if !name.ends_with("k_proj") {
                add(&format!("{side}.{name}.bias"), &shape[..1]);
            }
        };
        affine("layer_norm", &[D_MODEL]);
        for layer in (0..LAYERS).map(|index| format!("layers.{index}")) {
            for attention in attentions {
                for projection in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                    affine(&format!("{layer}.{attention}.{projection}"), &[D_MODEL, D_MODEL]);
                }
                affine(&format!("{layer}.{attention}_layer_norm"), &[D_MODEL]);
            }
            affine(&format!("{layer}.fc1"), &[D_FF, D_MODEL]);
            affine(&format!("{layer}.fc2"), &[D_MODEL, D_FF]);
            affine(&format!("{layer}.final_layer_norm"), &[D_MODEL]);
        }
    }
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    tensors
}
