//! `config.json` and tensor names of ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021).

use super::Vit;
use super::bart::stack;
use super::fields::Fields;
use crate::config::{ROTARY_BASE, SizeNames, StackNames};
use crate::{
    AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Head, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, Patches, Positions, RotaryScaling, Stack,
    TokenTypes,
};

const ENCODER: StackNames = StackNames {
    n_layers: "num_hidden_layers",
    heads: "num_attention_heads",
    d_k: "hidden_size",
    d_ff: "intermediate_size",
};
const NAMES: SizeNames = SizeNames {
    source_vocab: "vocab_size",
    d_model: "hidden_size",
    positions: "image_size",
    encoder: ENCODER,
    decoder: ENCODER,
};

/// The largest sides of images and patches, in pixels.
const LARGEST_SIDE: usize = 4096;
const MOST_CHANNELS: usize = 1024;
/// The places of the positions are written into the graph.
const MOST_PATCHES: usize = 1 << 16;

pub(super) fn config(family: Vit, class: &str, fields: &Fields) -> Config {
    let d_model = fields.size("hidden_size");
    if let Some(width) =
        fields.optional_size("pooler_output_size").filter(|width| *width != d_model)
    {
        fields.refuse(format!(
            "pooler_output_size {width} is not supported; expected hidden_size {d_model}"
        ));
    }
    fields.choice("pooler_act", &[("tanh", ())]);
    let encoder = stack(fields, d_model, &ENCODER);
    let config = Config {
        front: Front::Pixels(patches(family, fields)),
        encoder_model: None,
        // The model reads no tokens.
        vocab: 1,
        source_vocab: 1,
        d_model,
        max_positions: None,
        parts: Parts::Encoder(head(class, fields)),
        encoder,
        decoder: Stack { n_layers: 0, ..encoder },
        activation: fields.activation("hidden_act", fields.text("hidden_act").unwrap_or("gelu")),
        gated: false,
        biases: if fields.flag("qkv_bias", true) { Biases::All } else { Biases::ExceptInputs },
        score: AttentionScore::ScaledDot,
        score_width: None,
        caps: Caps::default(),
        positions: Positions::Learned { offset: 0 },
        rotary_base: ROTARY_BASE,
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: Norm::Layer,
        norm_from_one: false,
        placement: NormPlacement::Pre,
        embedding_norm: EmbeddingNorm::None,
        epsilon: fields.positive("layer_norm_eps", 1e-12),
        embeddings: Embeddings::Shared,
        token_types: TokenTypes::None,
        scale_embedding: false,
        output: OutputProjection::Tied,
        scale_output: false,
        output_transform: None,
        output_bias: OutputBias::None,
        start_token: 0,
        eos_token: 0,
        pad_token: 0,
    };
    config.check(&NAMES, |problem| fields.contradict(problem));
    config
}

fn patches(family: Vit, fields: &Fields) -> Patches {
    let [image, patch] = [("image_size", 224), ("patch_size", 16)]
        .map(|(field, default)| fields.sides(field, default));
    let channels = fields.optional_size("num_channels").unwrap_or(3);
    for (field, sizes, largest) in
        [("patch_size", &patch[..], LARGEST_SIDE), ("num_channels", &[channels], MOST_CHANNELS)]
    {
        if let Some(size) = sizes.iter().find(|size| !(1..=largest).contains(*size)) {
            fields.contradict(format!("{field}: expected 1 to {largest}, found {size}"));
        }
    }
    if image.iter().zip(patch).any(|(side, patch)| !(patch..=LARGEST_SIDE).contains(side)) {
        fields.contradict(format!(
            "image_size: expected patch_size {patch:?} to {LARGEST_SIDE}, found {image:?}"
        ));
    }
    let n_patches: usize = image
        .iter()
        .zip(patch)
        .map(|(side, patch)| side.checked_div(patch).unwrap_or(0).min(LARGEST_SIDE))
        .product();
    if n_patches > MOST_PATCHES {
        fields.contradict(format!(
            "image_size and patch_size: expected at most {MOST_PATCHES} patches, found {n_patches}"
        ));
    }
    let bounded = |size: usize| size.clamp(1, LARGEST_SIDE);
    Patches {
        channels: channels.clamp(1, MOST_CHANNELS),
        image: image.map(bounded),
        patch: patch.map(bounded),
        distilled: family == Vit::Deit,
    }
}

/// The head of transformers' class, such as `ViTForImageClassification`.
fn head(class: &str, fields: &Fields) -> Head {
    let Some(found) = fields.architecture() else { return Head::Pooler };
    let labels = fields.labels();
    match found.strip_prefix(class) {
        Some("Model") => Head::Pooler,
        Some("ForImageClassification") => Head::Image { labels, distilled: false },
        Some("ForImageClassificationWithTeacher") if class == "DeiT" => {
            Head::Image { labels, distilled: true }
        }
        _ => {
            fields.refuse(format!("architectures {found:?} is not supported; expected {class}Model or {class}ForImageClassification"));
            Head::None
        }
    }
}

/// The tensor names of the encoder.
const PARTS: [(&str, &str); 14] = [
    ("encoder.class_token", "embeddings.cls_token"),
    ("encoder.distillation_token", "embeddings.distillation_token"),
    ("encoder.embed_positions", "embeddings.position_embeddings"),
    ("encoder.embed_patches", "embeddings.patch_embeddings.projection"),
    ("encoder.layer_norm", "layernorm"),
    ("pooler", "pooler.dense"),
    ("self_attn.q_proj", "attention.attention.query"),
    ("self_attn.k_proj", "attention.attention.key"),
    ("self_attn.v_proj", "attention.attention.value"),
    ("self_attn.out_proj", "attention.output.dense"),
    ("self_attn_layer_norm", "layernorm_before"),
    ("fc1", "intermediate.dense"),
    ("fc2", "output.dense"),
    ("final_layer_norm", "layernorm_after"),
];

/// Possible names of the tensor at `path`, the usual one first.
pub(super) fn names(family: Vit, head: Head, path: &str) -> Vec<String> {
    let Some((part, kind)) = path.rsplit_once('.') else { return Vec::new() };
    match (part, head) {
        ("classifier", Head::Image { distilled: true, .. }) => return vec![format!("cls_{path}")],
        ("classifier" | "distillation_classifier", _) => return vec![path.into()],
        _ => {}
    }
    let layer = part.strip_prefix("encoder.layers.").and_then(|rest| rest.split_once('.'));
    let Some((_, theirs)) =
        PARTS.iter().find(|(ours, _)| *ours == layer.map_or(part, |(_, part)| part))
    else {
        return Vec::new();
    };
    let bare = match layer {
        Some((index, _)) => format!("encoder.layer.{index}.{theirs}.{kind}"),
        None if PARTS[..3].iter().any(|(ours, _)| *ours == part) => (*theirs).to_owned(),
        None => format!("{theirs}.{kind}"),
    };
    let prefixed = format!("{}.{bare}", if family == Vit::Deit { "deit" } else { "vit" });
    // The last is that of the encoder of a model with a decoder.
    let of_half = format!("encoder.{bare}");
    if matches!(head, Head::Image { .. }) {
        vec![prefixed, bare]
    } else {
        vec![bare, prefixed, of_half]
    }
}

/// Whether checkpoints are known to contain this tensor without using it.
pub(super) fn is_left_over(head: Head, name: &str) -> bool {
    let is_pooler = name.ends_with("pooler.dense.weight") || name.ends_with("pooler.dense.bias");
    is_pooler && head != Head::Pooler
}
