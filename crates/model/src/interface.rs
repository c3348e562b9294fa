//! The interface of exported graphs: the names of inputs and outputs, and which of them belong
//! together. These names are part of the contract of exported files.

/// Token ids: i64 `[batch, src]` of an encoder, `[batch, beams, tgt]` of a decoder.
pub const INPUT_IDS: &str = "input_ids";
/// Log-mel frames of audio: f32 `[batch, n_mels, frames]`.
pub const INPUT_FEATURES: &str = "input_features";
/// Normalised pixels of images: f32 `[batch, channels, height, width]`.
pub const PIXEL_VALUES: &str = "pixel_values";
/// 1 for tokens and 0 for padding: i64 `[batch, src]`.
pub const ATTENTION_MASK: &str = "attention_mask";
/// The segments of tokens, counted from 0: i64 `[batch, src]`.
pub const TOKEN_TYPE_IDS: &str = "token_type_ids";
/// The positions of a decoder's tokens, counted from 0: i64 `[batch, tgt]`; an input of a
/// decoder-only model in the Hugging Face layout.
pub const POSITION_IDS: &str = "position_ids";
/// The pooler's output of an encoder-only model: `[batch, d_model]`.
pub const POOLER_OUTPUT: &str = "pooler_output";
/// The decoder's ids in teacher forcing: i64 `[batch, tgt]`.
pub const DECODER_INPUT_IDS: &str = "decoder_input_ids";
/// The tokens to predict, ignored if below 0: i64 `[batch, tgt]`.
pub const LABELS: &str = "labels";
/// The source's mask in the decoder of the Hugging Face layout.
pub const ENCODER_ATTENTION_MASK: &str = "encoder_attention_mask";
/// The encoder's output `[batch, src, d_model]`; an input of the decoder in the
/// Hugging Face layout.
pub const ENCODER_HIDDEN_STATES: &str = "encoder_hidden_states";
/// The encoder's output in the Hugging Face layout and in encoder-only models.
pub const LAST_HIDDEN_STATE: &str = "last_hidden_state";
/// The decoder's output `[batch, beams, tgt, vocab]`.
pub const LOGITS: &str = "logits";
/// The factor of the logits, if the caller must apply it.
pub const LOGITS_SCALE: &str = "logits_scale";
/// The beam of a sentence that holds each position of shared caches: i64 `[batch, beams, past]`; -1
/// at the padding of a decoder-only model.
pub const CACHE_BEAMS: &str = "cache_beams";

const CROSS: &str = "cross.";
const PAST: &str = "past.";
const PRESENT: &str = "present.";
const PAST_KEY_VALUES: &str = "past_key_values.";
const PARTS: [&str; 4] = ["decoder.key", "decoder.value", "encoder.key", "encoder.value"];

/// The names of per-layer inputs and outputs.
#[derive(Debug)]
pub struct Names;

impl Names {
    /// `cross.{layer}.key` and `cross.{layer}.value`: `[batch, heads, src, d_k]`
    pub fn cross(layer_index: usize) -> [String; 2] {
        key_and_value(CROSS, layer_index)
    }

    /// `past.{layer}.key` and `past.{layer}.value`: `[batch, beams, heads, past, d_k]`
    pub fn past(layer_index: usize) -> [String; 2] {
        key_and_value(PAST, layer_index)
    }

    /// `present.{layer}.key` and `present.{layer}.value`: `[batch, beams, heads, past + tgt, d_k]`
    pub fn present(layer_index: usize) -> [String; 2] {
        key_and_value(PRESENT, layer_index)
    }

    /// `encoder_attentions.{layer}`: `[batch, heads, src, src]`
    pub fn encoder_attentions(layer_index: usize) -> String {
        format!("encoder_attentions.{layer_index}")
    }

    /// `decoder_attentions.{layer}`: `[batch, beams, heads, tgt, past + tgt]`
    pub fn decoder_attentions(layer_index: usize) -> String {
        format!("decoder_attentions.{layer_index}")
    }

    /// `cross_attentions.{layer}`: `[batch, beams, heads, tgt, src]`, in teacher forcing
    /// `[batch, heads, tgt, src]`
    pub fn cross_attentions(layer_index: usize) -> String {
        format!("cross_attentions.{layer_index}")
    }
}

/// The names of per-layer inputs and outputs of the Hugging Face layout: decoder key, decoder
/// value, encoder key, encoder value.
#[derive(Debug)]
pub struct HuggingFaceNames;

impl HuggingFaceNames {
    /// `past_key_values.{layer}.decoder.{key,value}: [batch_size, heads,
    /// past_decoder_sequence_length, d_k]` and `past_key_values.{layer}.encoder.{key,value}:
    /// [batch_size, heads, past_encoder_sequence_length, d_k]`
    pub fn past(layer_index: usize) -> [String; 4] {
        PARTS.map(|part| format!("{PAST_KEY_VALUES}{layer_index}.{part}"))
    }

    /// `present.{layer}.decoder.{key,value}` and `present.{layer}.encoder.{key,value}`.
    pub fn present(layer_index: usize) -> [String; 4] {
        PARTS.map(|part| format!("{PRESENT}{layer_index}.{part}"))
    }

    /// `past_key_values.{layer}.key` and `past_key_values.{layer}.value` of a decoder-only model.
    pub fn past_alone(layer_index: usize) -> [String; 2] {
        key_and_value(PAST_KEY_VALUES, layer_index)
    }

    /// Prefix of the names of all pasts.
    pub const PAST: &str = PAST_KEY_VALUES;
}

fn key_and_value(prefix: &str, layer_index: usize) -> [String; 2] {
    ["key", "value"].map(|part| format!("{prefix}{layer_index}.{part}"))
}

/// Whether the input is a past, in any layout.
pub fn is_past(name: &str) -> bool {
    name.starts_with(PAST) || name.starts_with(PAST_KEY_VALUES)
}

/// Whether the name is that of a cross key or value.
pub fn is_cross(name: &str) -> bool {
    name.starts_with(CROSS)
}

/// The output that is the next step's past, in any layout; `None` if the input is not a past.
pub fn present_of(past: &str) -> Option<String> {
    let rest = past.strip_prefix(PAST).or_else(|| past.strip_prefix(PAST_KEY_VALUES))?;
    Some(format!("{PRESENT}{rest}"))
}

/// The past of the same layer as a cross key, cross value or present.
pub fn past_of(name: &str) -> Option<String> {
    let rest = name.strip_prefix(CROSS).or_else(|| name.strip_prefix(PRESENT))?;
    Some(format!("{PAST}{rest}"))
}

/// The cross key or value of the same layer as a past.
pub fn cross_of(past: &str) -> Option<String> {
    Some(format!("{CROSS}{}", past.strip_prefix(PAST)?))
}

/// Replaces the layer in the name of an input, output or parameter by `{l}`:
/// `encoder.layers.{l}.fc1.weight`.
pub fn without_layer(name: &str) -> String {
    let part = |part| if str::parse::<usize>(part).is_ok() { "{l}" } else { part };
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}
