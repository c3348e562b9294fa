//! `config.json` and tensor names of the decoder-only families.

use super::fields::{Fields, Tokens};
use super::rotary::rotary;
use super::{Family, Gpt};
use crate::config::{ROTARY_BASE, SizeNames, StackNames};
use crate::{
    AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Norm, NormPlacement,
    OutputBias, OutputProjection, Parts, Positions, RotaryScaling, Stack, TokenTypes,
};

const fn sizes(
    d_model: &'static str,
    positions: &'static str,
    [n_layers, heads, d_ff]: [&'static str; 3],
) -> SizeNames {
    let stack = StackNames { n_layers, heads, d_k: d_model, d_ff };
    SizeNames { source_vocab: "vocab_size", d_model, positions, encoder: stack, decoder: stack }
}

impl Gpt {
    fn sizes(self) -> SizeNames {
        match self {
            Gpt::Gpt2 => sizes("n_embd", "n_positions", ["n_layer", "n_head", "n_inner"]),
            Gpt::Gemma | Gpt::Gemma2 | Gpt::Llama | Gpt::Mistral | Gpt::Qwen2 => sizes(
                "hidden_size",
                "max_position_embeddings",
                ["num_hidden_layers", "num_attention_heads", "intermediate_size"],
            ),
            Gpt::Opt => sizes(
                "hidden_size",
                "max_position_embeddings",
                ["num_hidden_layers", "num_attention_heads", "ffn_dim"],
            ),
        }
    }
}

pub(super) fn config(family: Gpt, class: &str, fields: &Fields) -> Config {
    let config = unchecked(family, class, fields);
    config.check(&family.sizes(), |problem| fields.contradict(problem));
    config
}

fn unchecked(family: Gpt, class: &str, fields: &Fields) -> Config {
    let names = family.sizes();
    check_class(class, fields);
    let (d_model, vocab) = (fields.size(names.d_model), fields.size("vocab_size"));
    let is_llama = !matches!(family, Gpt::Gpt2 | Gpt::Opt);
    let is_gemma = matches!(family, Gpt::Gemma | Gpt::Gemma2);
    let heads = fields.size(names.decoder.heads);
    let decoder = Stack {
        n_layers: fields.size(names.decoder.n_layers),
        heads,
        key_heads: fields.optional_size("num_key_value_heads").filter(|_| is_llama).unwrap_or(
            match family {
                Gpt::Gemma => 16,
                Gpt::Gemma2 => 4,
                _ => heads,
            },
        ),
        d_k: match fields.optional_size("head_dim").filter(|_| is_llama) {
            Some(width) => width,
            None if is_gemma => 256,
            None => fields.width_of_heads(d_model, &names.decoder),
        },
        d_ff: match fields.optional_size(names.decoder.d_ff) {
            None if family == Gpt::Gpt2 => d_model.saturating_mul(4),
            _ => fields.size(names.decoder.d_ff),
        },
    };
    let max_positions = fields.size(names.positions);
    let choices = choices(family, decoder.n_layers, d_model, fields);
    let (rotary_base, rotary_scaling) =
        if is_llama { rotary(fields, max_positions) } else { (ROTARY_BASE, RotaryScaling::None) };
    let [epsilon, field, activation] = match family {
        Gpt::Gemma => ["rms_norm_eps", "hidden_act", "gelu_pytorch_tanh"],
        Gpt::Gemma2 => ["rms_norm_eps", "hidden_activation", "gelu_pytorch_tanh"],
        Gpt::Gpt2 => ["layer_norm_epsilon", "activation_function", "gelu_new"],
        Gpt::Opt => ["layer_norm_epsilon", "activation_function", "relu"],
        Gpt::Llama | Gpt::Mistral | Gpt::Qwen2 => ["rms_norm_eps", "hidden_act", "silu"],
    };
    // The tokens of transformers' classes.
    let (bos, eos, pad) = match family {
        Gpt::Gemma | Gpt::Gemma2 => (Some(2), Some(1), Some(0)),
        Gpt::Gpt2 => (Some(50_256), Some(50_256), None),
        Gpt::Llama | Gpt::Mistral => (Some(1), Some(2), None),
        Gpt::Opt => (Some(2), Some(2), Some(1)),
        Gpt::Qwen2 => (None, None, None),
    };
    let eos_token =
        fields.first_token("eos_token_id").or(eos).unwrap_or_else(|| fields.size("eos_token_id"));
    Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab: vocab,
        d_model,
        max_positions: Some(max_positions),
        parts: Parts::Decoder,
        encoder: Stack { n_layers: 0, ..decoder },
        decoder,
        activation: fields.activation(field, fields.text(field).unwrap_or(activation)),
        gated: is_llama,
        biases: choices.biases,
        score: choices.score,
        score_width: choices.score_width,
        caps: choices.caps,
        positions: choices.positions,
        rotary_base,
        rotary_scaling,
        table_width: choices.table_width,
        windows: choices.windows,
        norm: if is_llama { Norm::Rms } else { Norm::Layer },
        norm_from_one: is_gemma,
        placement: choices.placement,
        embedding_norm: EmbeddingNorm::None,
        epsilon: fields.positive(epsilon, if is_llama { 1e-6 } else { 1e-5 }),
        embeddings: Embeddings::Separate,
        token_types: TokenTypes::None,
        scale_embedding: is_gemma,
        output: if fields.flag("tie_word_embeddings", !is_llama || is_gemma) {
            OutputProjection::Tied
        } else {
            OutputProjection::Own
        },
        scale_output: false,
        output_transform: None,
        output_bias: OutputBias::None,
        start_token: fields.optional_size("bos_token_id").or(bos).unwrap_or(eos_token),
        eos_token,
        pad_token: fields.optional_size("pad_token_id").or(pad).unwrap_or(eos_token),
    }
}

/// GPT-2 with cross-attention.
pub(super) fn decoder(class: &str, fields: &Fields) -> Config {
    let alone = unchecked(Gpt::Gpt2, class, fields);
    let (eos, pad) = (Some(alone.eos_token), Some(alone.pad_token));
    let [start_token, eos_token, pad_token] =
        fields.tokens(Tokens { start: None, bos: eos, eos, pad });
    let (parts, encoder) = (Parts::Both, alone.decoder);
    let config = Config { parts, encoder, start_token, eos_token, pad_token, ..alone };
    config.check(&Gpt::Gpt2.sizes(), |problem| fields.contradict(problem));
    config
}

/// The differences between the families.
struct Choices {
    placement: NormPlacement,
    score: AttentionScore,
    score_width: Option<f32>,
    caps: Caps,
    biases: Biases,
    positions: Positions,
    table_width: Option<usize>,
    windows: Vec<Option<usize>>,
}

fn choices(family: Gpt, n_layers: usize, d_model: usize, fields: &Fields) -> Choices {
    let (placement, score, positions) =
        (NormPlacement::Pre, AttentionScore::ScaledDot, Positions::Rotary);
    let mut choices = Choices {
        placement,
        score,
        score_width: None,
        caps: Caps::default(),
        biases: Biases::None,
        positions,
        table_width: None,
        windows: Vec::new(),
    };
    match family {
        Gpt::Gemma | Gpt::Gemma2 => {
            fields.refuse_other("use_bidirectional_attention", false);
            if fields.flag("attention_bias", false) {
                choices.biases = Biases::OnlyAttention;
            }
            if family == Gpt::Gemma2 {
                choices.placement = NormPlacement::Around;
                choices.score_width = Some(fields.positive("query_pre_attn_scalar", 256.0));
                let cap =
                    |field, default| fields.unless_null(field, || fields.positive(field, default));
                choices.caps = Caps {
                    scores: cap("attn_logit_softcapping", 50.0),
                    logits: cap("final_logit_softcapping", 30.0),
                };
                choices.windows =
                    typed_windows(sliding_window(fields), n_layers, fields, |layer_index| {
                        layer_index % 2 == 0
                    });
            }
        }
        Gpt::Gpt2 => {
            (choices.positions, choices.biases) = (Positions::Learned { offset: 0 }, Biases::All);
            if !fields.flag("scale_attn_weights", true) {
                choices.score = AttentionScore::Dot;
            }
            fields.refuse_other("scale_attn_by_inverse_layer_idx", false);
            fields.refuse_other("add_cross_attention", false);
        }
        Gpt::Opt => {
            (choices.positions, choices.biases) =
                (Positions::Learned { offset: 2 }, fields.flag("enable_bias", true).into());
            if !fields.flag("do_layer_norm_before", true) {
                choices.placement = NormPlacement::Post;
            }
            fields.refuse_other("_remove_final_layer_norm", false);
            fields.refuse_other("layer_norm_elementwise_affine", true);
            choices.table_width =
                fields.optional_size("word_embed_proj_dim").filter(|width| *width != d_model);
        }
        Gpt::Llama => {
            choices.biases =
                match [fields.flag("attention_bias", false), fields.flag("mlp_bias", false)] {
                    [false, false] => Biases::None,
                    [true, true] => Biases::All,
                    [true, false] => Biases::OnlyAttention,
                    [false, true] => {
                        fields.refuse(
                            "mlp_bias true is not supported without attention_bias; expected false",
                        );
                        Biases::None
                    }
                };
        }
        Gpt::Mistral => {
            choices.windows = windows(sliding_window(fields), n_layers, |_| true);
        }
        Gpt::Qwen2 => {
            choices.biases = Biases::OnlyInputs;
            if fields.flag("use_sliding_window", false) {
                let first = fields.optional_size("max_window_layers").unwrap_or(28);
                choices.windows =
                    typed_windows(sliding_window(fields), n_layers, fields, |layer_index| {
                        layer_index >= first
                    });
            }
        }
    }
    if choices.windows.contains(&Some(0)) {
        fields.contradict("sliding_window: expected at least 1, found 0");
    }
    choices
}

fn sliding_window(fields: &Fields) -> Option<usize> {
    fields.unless_null("sliding_window", || fields.optional_size("sliding_window").unwrap_or(4096))
}

/// The windows of the layers for which `is_windowed` is true; empty if no layer has one.
fn windows(
    window: Option<usize>,
    n_layers: usize,
    is_windowed: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    // A number of layers that is rejected elsewhere must not take memory.
    let windows: Vec<_> = (0..n_layers.min(crate::config::MOST_LAYERS))
        .map(|index| window.filter(|_| is_windowed(index)))
        .collect();
    if windows.iter().any(Option::is_some) { windows } else { Vec::new() }
}

/// As [`windows`], unless `layer_types` lists the layers.
fn typed_windows(
    window: Option<usize>,
    n_layers: usize,
    fields: &Fields,
    is_windowed: impl Fn(usize) -> bool,
) -> Vec<Option<usize>> {
    let Some(types) = fields.texts("layer_types") else {
        return windows(window, n_layers, is_windowed);
    };
    if types.len() != n_layers {
        fields.contradict(format!(
            "layer_types: expected num_hidden_layers {n_layers}, found {}",
            types.len()
        ));
    }
    if let Some(other) =
        types.iter().find(|kind| !["sliding_attention", "full_attention"].contains(*kind))
    {
        fields.refuse(format!(
            "layer_types {other:?} is not supported; expected sliding_attention or full_attention"
        ));
    }
    windows(window, n_layers, |layer_index| types.get(layer_index) == Some(&"sliding_attention"))
}

/// Rejects classes that do not continue a text.
fn check_class(class: &str, fields: &Fields) {
    let kinds = ["LMHeadModel", "ForCausalLM", "Model"];
    if let Some(found) = fields
        .architecture()
        .filter(|found| found.strip_prefix(class).is_none_or(|kind| !kinds.contains(&kind)))
    {
        fields.refuse(format!(
            "architectures {found:?} is not supported; expected {class}{} or {class}{}",
            kinds[0], kinds[1]
        ));
    }
}

/// The tensor names of a decoder, of GPT-2, of OPT, and of Llama and its descendants; of Gemma 2
/// those of [`GEMMA2`] differ.
const PARTS: [(&str, [&str; 3]); 20] = [
    ("decoder.embed_tokens", ["wte", "embed_tokens", "embed_tokens"]),
    ("decoder.embed_positions", ["wpe", "embed_positions", "embed_positions"]),
    ("decoder.project_in", ["", "project_in", ""]),
    ("decoder.project_out", ["", "project_out", ""]),
    ("decoder.layer_norm", ["ln_f", "final_layer_norm", "norm"]),
    ("self_attn.q_proj", ["attn.c_attn", "self_attn.q_proj", "self_attn.q_proj"]),
    ("self_attn.k_proj", ["attn.c_attn", "self_attn.k_proj", "self_attn.k_proj"]),
    ("self_attn.v_proj", ["attn.c_attn", "self_attn.v_proj", "self_attn.v_proj"]),
    ("self_attn.out_proj", ["attn.c_proj", "self_attn.out_proj", "self_attn.o_proj"]),
    ("self_attn_layer_norm", ["ln_1", "self_attn_layer_norm", "input_layernorm"]),
    ("encoder_attn.q_proj", ["crossattention.q_attn", "", ""]),
    ("encoder_attn.k_proj", ["crossattention.c_attn", "", ""]),
    ("encoder_attn.v_proj", ["crossattention.c_attn", "", ""]),
    ("encoder_attn.out_proj", ["crossattention.c_proj", "", ""]),
    ("encoder_attn_layer_norm", ["ln_cross_attn", "", ""]),
    ("fc1", ["mlp.c_fc", "fc1", "mlp.gate_proj"]),
    ("fc_gate", ["", "", "mlp.up_proj"]),
    ("fc2", ["mlp.c_proj", "fc2", "mlp.down_proj"]),
    ("final_layer_norm", ["ln_2", "final_layer_norm", "post_attention_layernorm"]),
    ("lm_head", ["lm_head"; 3]),
];

const GEMMA2: [(&str, &str); 3] = [
    ("self_attn_post_layer_norm", "post_attention_layernorm"),
    ("final_layer_norm", "pre_feedforward_layernorm"),
    ("final_post_layer_norm", "post_feedforward_layernorm"),
];

/// Possible names of the tensor at `path`, the usual one first.
pub(super) fn names(family: Gpt, path: &str) -> Vec<String> {
    let Some((part, kind)) = path.rsplit_once('.') else { return Vec::new() };
    let (column, prefixes, layers) = match family {
        Gpt::Gpt2 => (0, ["transformer.", ""], "h"),
        Gpt::Opt => (1, ["model.decoder.", "decoder."], "layers"),
        Gpt::Gemma | Gpt::Gemma2 | Gpt::Llama | Gpt::Mistral | Gpt::Qwen2 => {
            (2, ["model.", ""], "layers")
        }
    };
    let layer = part.strip_prefix("decoder.layers.").and_then(|rest| rest.split_once('.'));
    let bare = layer.map_or(part, |(_, part)| part);
    let of_gemma2 = GEMMA2
        .iter()
        .find(|(ours, _)| family == Gpt::Gemma2 && *ours == bare)
        .map(|(_, theirs)| *theirs);
    let usual = || PARTS.iter().find(|(ours, _)| *ours == bare).map(|(_, theirs)| theirs[column]);
    let Some(name) = of_gemma2.or_else(usual) else { return Vec::new() };
    match layer {
        _ if part == "lm_head" => vec![format!("{name}.{kind}")],
        Some((index, _)) => {
            prefixes.map(|prefix| format!("{prefix}{layers}.{index}.{name}.{kind}")).into()
        }
        None => prefixes.map(|prefix| format!("{prefix}{name}.{kind}")).into(),
    }
}

/// The part of a tensor's columns that is the parameter at `path`, and the number of parts: GPT-2
/// stores the weights of linear layers transposed, and those of queries, keys and values as one
/// tensor.
pub(super) fn columns(family: Family, path: &str) -> Option<(usize, usize)> {
    let layer =
        path.strip_prefix("decoder.layers.").filter(|_| family == Family::Gpt(Gpt::Gpt2))?;
    let part = |name: &str| layer.contains(name);
    // Cross-attention's queries have a tensor of their own.
    let (joined, single) = match layer.contains("encoder_attn.") {
        true => (&["k_proj", "v_proj"][..], "q_proj"),
        false => (&["q_proj", "k_proj", "v_proj"][..], "out_proj"),
    };
    match joined.iter().position(|name| part(name)) {
        Some(index) => Some((index, joined.len())),
        None => [single, "out_proj", "fc1", "fc2"].into_iter().any(part).then_some((0, 1)),
    }
}

/// Whether checkpoints keep a tensor that the model does not use: GPT-2's causal masks, the
/// frequencies of rotary angles.
pub(super) fn is_left_over(family: Gpt, name: &str) -> bool {
    let ends: &[&str] = if family == Gpt::Gpt2 {
        &[".attn.bias", ".attn.masked_bias", ".crossattention.bias", ".crossattention.masked_bias"]
    } else {
        &["rotary_emb.inv_freq"]
    };
    ends.iter().any(|end| name.ends_with(end))
}
