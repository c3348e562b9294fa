//! `config.json` and tensor names of the decoder-only families.

use super::fields::Fields;
use super::{Family, Gpt};
use crate::config::{SizeNames, StackNames};
use crate::{
    AttentionScore, Biases, Config, EmbeddingNorm, Embeddings, Front, Norm, NormPlacement, OutputProjection, Parts, Positions, Stack,
    TokenTypes,
};

const fn sizes(d_model: &'static str, positions: &'static str, [n_layers, heads, d_ff]: [&'static str; 3]) -> SizeNames {
    let stack = StackNames { n_layers, heads, d_k: d_model, d_ff };
    SizeNames { source_vocab: "vocab_size", d_model, positions, encoder: stack, decoder: stack }
}

impl Gpt {
    fn sizes(self) -> SizeNames {
        match self {
            Gpt::Gpt2 => sizes("n_embd", "n_positions", ["n_layer", "n_head", "n_inner"]),
            Gpt::Opt => sizes("hidden_size", "max_position_embeddings", ["num_hidden_layers", "num_attention_heads", "ffn_dim"]),
        }
    }
}

pub(super) fn config(family: Gpt, class: &str, fields: &Fields) -> Config {
    let names = family.sizes();
    check_class(class, fields);
    let (d_model, vocab) = (fields.size(names.d_model), fields.size("vocab_size"));
    let d_ff = match family {
        Gpt::Gpt2 => fields.optional_size(names.decoder.d_ff).unwrap_or(d_model.saturating_mul(4)),
        Gpt::Opt => fields.size(names.decoder.d_ff),
    };
    let decoder = Stack {
        n_layers: fields.size(names.decoder.n_layers),
        heads: fields.size(names.decoder.heads),
        d_k: fields.width_of_heads(d_model, &names.decoder),
        d_ff,
    };
    let eos_token = fields.optional_size("eos_token_id").unwrap_or(if family == Gpt::Gpt2 { 50_256 } else { 2 });
    let (mut placement, mut score, mut biases) = (NormPlacement::Pre, AttentionScore::ScaledDot, Biases::All);
    match family {
        Gpt::Gpt2 => {
            if !fields.flag("scale_attn_weights", true) {
                score = AttentionScore::Dot;
            }
            fields.refuse_other("scale_attn_by_inverse_layer_idx", false);
            fields.refuse_other("add_cross_attention", false);
        }
        Gpt::Opt => {
            if !fields.flag("do_layer_norm_before", true) {
                placement = NormPlacement::Post;
            }
            biases = fields.flag("enable_bias", true).into();
            fields.refuse_other("_remove_final_layer_norm", false);
            fields.refuse_other("layer_norm_elementwise_affine", true);
            if let Some(width) = fields.optional_size("word_embed_proj_dim").filter(|width| *width != d_model) {
                fields.refuse(format!("word_embed_proj_dim {width} is not supported; expected hidden_size {d_model}"));
            }
        }
    }
    let (field, default) = if family == Gpt::Gpt2 { ("activation_function", "gelu_new") } else { ("activation_function", "relu") };
    let config = Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab: vocab,
        d_model,
        max_positions: Some(fields.size(names.positions)),
        parts: Parts::Decoder,
        encoder: Stack { n_layers: 0, ..decoder },
        decoder,
        activation: fields.activation(field, fields.text(field).unwrap_or(default)),
        gated: false,
        biases,
        score,
        positions: Positions::Learned { offset: if family == Gpt::Opt { 2 } else { 0 } },
        norm: Norm::Layer,
        placement,
        embedding_norm: EmbeddingNorm::None,
        epsilon: fields.positive("layer_norm_epsilon", 1e-5),
        embeddings: Embeddings::Separate,
        token_types: TokenTypes::None,
        scale_embedding: false,
        output: if fields.flag("tie_word_embeddings", true) { OutputProjection::Tied } else { OutputProjection::Own },
        scale_output: false,
        output_bias: false,
        start_token: fields.optional_size("bos_token_id").unwrap_or(eos_token),
        eos_token,
        pad_token: fields.optional_size("pad_token_id").unwrap_or(if family == Gpt::Opt { 1 } else { eos_token }),
    };
    config.check(&names, |problem| fields.contradict(problem));
    config
}

/// Rejects classes that do not continue a text.
fn check_class(class: &str, fields: &Fields) {
    let kinds = ["LMHeadModel", "ForCausalLM", "Model"];
    if let Some(found) = fields.architecture().filter(|found| found.strip_prefix(class).is_none_or(|kind| !kinds.contains(&kind))) {
        fields.refuse(format!("architectures {found:?} is not supported; expected {class}{} or {class}{}", kinds[0], kinds[1]));
    }
}

/// The tensor names of a decoder, of GPT-2 and of OPT.
const PARTS: [(&str, [&str; 2]); 12] = [
    ("decoder.embed_tokens", ["wte", "embed_tokens"]),
    ("decoder.embed_positions", ["wpe", "embed_positions"]),
    ("decoder.layer_norm", ["ln_f", "final_layer_norm"]),
    ("self_attn.q_proj", ["attn.c_attn", "self_attn.q_proj"]),
    ("self_attn.k_proj", ["attn.c_attn", "self_attn.k_proj"]),
    ("self_attn.v_proj", ["attn.c_attn", "self_attn.v_proj"]),
    ("self_attn.out_proj", ["attn.c_proj", "self_attn.out_proj"]),
    ("self_attn_layer_norm", ["ln_1", "self_attn_layer_norm"]),
    ("fc1", ["mlp.c_fc", "fc1"]),
    ("fc2", ["mlp.c_proj", "fc2"]),
    ("final_layer_norm", ["ln_2", "final_layer_norm"]),
    ("lm_head", ["lm_head", "lm_head"]),
];

/// Possible names of the tensor at `path`, the usual one first.
pub(super) fn names(family: Gpt, path: &str) -> Vec<String> {
    let Some((part, kind)) = path.rsplit_once('.') else { return Vec::new() };
    let (column, prefixes, layers) = match family {
        Gpt::Gpt2 => (0, ["transformer.", ""], "h"),
        Gpt::Opt => (1, ["model.decoder.", "decoder."], "layers"),
    };
    let layer = part.strip_prefix("decoder.layers.").and_then(|rest| rest.split_once('.'));
    let Some((_, theirs)) = PARTS.iter().find(|(ours, _)| *ours == layer.map_or(part, |(_, part)| part)) else { return Vec::new() };
    let name = theirs[column];
    match layer {
        _ if part == "lm_head" => vec![format!("{name}.{kind}")],
        Some((index, _)) => prefixes.map(|prefix| format!("{prefix}{layers}.{index}.{name}.{kind}")).into(),
        None => prefixes.map(|prefix| format!("{prefix}{name}.{kind}")).into(),
    }
}

/// Which part of the columns of a tensor is the parameter at `path`, and of how many: GPT-2 stores the weights of linear layers
/// transposed, and those of queries, keys and values as one.
pub(super) fn columns(family: Family, path: &str) -> Option<(usize, usize)> {
    let layer = path.strip_prefix("decoder.layers.").filter(|_| family == Family::Gpt(Gpt::Gpt2))?;
    let part = |name: &str| layer.contains(name);
    match ["q_proj", "k_proj", "v_proj"].into_iter().position(part) {
        Some(index) => Some((index, 3)),
        None => ["out_proj", "fc1", "fc2"].into_iter().any(part).then_some((0, 1)),
    }
}

/// Whether checkpoints keep a tensor that the model does not use: GPT-2's causal masks.
pub(super) fn is_left_over(family: Gpt, name: &str) -> bool {
    family == Gpt::Gpt2 && [".attn.bias", ".attn.masked_bias"].iter().any(|end| name.ends_with(end))
}
