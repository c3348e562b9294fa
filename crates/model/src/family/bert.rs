//! `config.json` and tensor names of the encoder-only families derived from BERT.

use super::Bert;
use super::fields::{Fields, Tokens};
use crate::config::{ROTARY_BASE, SizeNames, StackNames};
use crate::{
    Activation, AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Front, Head, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, Positions, RotaryScaling, Stack,
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
    positions: "max_position_embeddings",
    encoder: ENCODER,
    decoder: ENCODER,
};
const DISTIL: StackNames =
    StackNames { n_layers: "n_layers", heads: "n_heads", d_k: "dim", d_ff: "hidden_dim" };
const DISTIL_NAMES: SizeNames =
    SizeNames { d_model: "dim", encoder: DISTIL, decoder: DISTIL, ..NAMES };

pub(super) fn config(family: Bert, class: &str, fields: &Fields) -> Config {
    let is_distil = family == Bert::Distil;
    let names = if is_distil { DISTIL_NAMES } else { NAMES };
    let (d_model, vocab) = (fields.size(names.d_model), fields.size("vocab_size"));
    let pad_token = fields
        .optional_size("pad_token_id")
        .unwrap_or(if matches!(family, Bert::Mpnet | Bert::Roberta) { 1 } else { 0 });
    let rows = fields.size("max_position_embeddings");
    let relative = (family == Bert::Mpnet).then_some([32, 128]);
    if let Some(buckets) = fields
        .optional_size("relative_attention_num_buckets")
        .filter(|buckets| relative.is_some() && *buckets != 32)
    {
        // transformers ignores the field and uses 32.
        fields.refuse(format!(
            "relative_attention_num_buckets {buckets} is not supported; expected 32"
        ));
    }
    let (positions, max_positions) = match family {
        Bert::Distil | Bert::Generation | Bert::Original => {
            (Positions::Learned { offset: 0 }, rows)
        }
        // The rows before that of position 0 are never read.
        Bert::Mpnet | Bert::Roberta => {
            (Positions::LearnedCounted { relative }, rows.saturating_sub(pad_token + 1))
        }
    };
    fields.choice("position_embedding_type", &[("absolute", ())]);
    for field in ["is_decoder", "add_cross_attention"] {
        fields.refuse_other(field, false);
    }
    let act = if is_distil { "activation" } else { "hidden_act" };
    let activation = fields.activation(act, fields.text(act).unwrap_or("gelu"));
    let encoder = super::bart::stack(fields, d_model, &names.encoder);
    let config = Config {
        front: Front::Tokens,
        encoder_model: None,
        vocab,
        source_vocab: vocab,
        d_model,
        max_positions: Some(max_positions),
        parts: Parts::Encoder(head(family, class, activation, fields)),
        encoder,
        decoder: Stack { n_layers: 0, ..encoder },
        activation,
        gated: false,
        biases: Biases::All,
        score: AttentionScore::ScaledDot,
        score_width: None,
        caps: Caps::default(),
        positions,
        rotary_base: ROTARY_BASE,
        rotary_scaling: RotaryScaling::None,
        table_width: None,
        windows: Vec::new(),
        norm: Norm::Layer,
        norm_from_one: false,
        placement: NormPlacement::Post,
        embedding_norm: EmbeddingNorm::Sum,
        epsilon: if is_distil { 1e-12 } else { fields.positive("layer_norm_eps", 1e-12) },
        embeddings: Embeddings::Shared,
        token_types: match family {
            Bert::Original => {
                TokenTypes::Given(fields.optional_size("type_vocab_size").unwrap_or(2))
            }
            Bert::Roberta => {
                TokenTypes::First(fields.optional_size("type_vocab_size").unwrap_or(2))
            }
            Bert::Distil | Bert::Generation | Bert::Mpnet => TokenTypes::None,
        },
        scale_embedding: false,
        output: if fields.flag("tie_word_embeddings", true) {
            OutputProjection::Tied
        } else {
            OutputProjection::Own
        },
        scale_output: false,
        output_transform: None,
        output_bias: OutputBias::None,
        start_token: pad_token,
        eos_token: pad_token,
        pad_token,
    };
    config.check(&names, |problem| fields.contradict(problem));
    config
}

/// The decoder with cross-attention, BERT's stack with the head of a masked language model
/// (transformers' `BertLMHeadModel`), or without its transform (`BertGenerationDecoder`).
pub(super) fn decoder(family: Bert, class: &str, fields: &Fields) -> Config {
    let encoder = config(family, class, fields);
    let pad = Some(encoder.pad_token);
    let [bos, eos] = if family == Bert::Generation { [Some(2), Some(1)] } else { [None; 2] };
    let [start_token, eos_token, pad_token] = fields.tokens(Tokens { start: None, bos, eos, pad });
    let output_transform = match family {
        Bert::Generation => None,
        Bert::Roberta => Some(Activation::Gelu),
        _ => Some(encoder.activation),
    };
    let config = Config {
        parts: Parts::Both,
        decoder: encoder.encoder,
        output_transform,
        output_bias: OutputBias::Learned,
        start_token,
        eos_token,
        pad_token,
        ..encoder
    };
    config.check(&NAMES, |problem| fields.contradict(problem));
    config
}

/// The head of transformers' class, such as `BertForMaskedLM`.
fn head(family: Bert, class: &str, activation: Activation, fields: &Fields) -> Head {
    let Some(found) = fields.architecture() else {
        return if family == Bert::Generation { Head::None } else { Head::Pooler };
    };
    let labels = fields.labels();
    let kinds: &[&str] = match family {
        Bert::Generation => &["Encoder"],
        _ => &["Model", "ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"],
    };
    match found.strip_prefix(class).filter(|kind| kinds.contains(kind)) {
        Some("Encoder") => Head::None,
        Some("Model") if family == Bert::Distil => Head::None,
        Some("Model") => Head::Pooler,
        Some("ForSequenceClassification") => Head::Text {
            labels,
            activation: if family == Bert::Distil { Activation::Relu } else { Activation::Tanh },
        },
        Some("ForTokenClassification") => Head::Tokens { labels },
        Some("ForMaskedLM") => Head::Vocabulary {
            activation: if matches!(family, Bert::Mpnet | Bert::Roberta) {
                Activation::Gelu
            } else {
                activation
            },
        },
        _ => {
            let known: Vec<_> = kinds.iter().map(|kind| format!("{class}{kind}")).collect();
            fields.refuse(format!(
                "architectures {found:?} is not supported; expected one of {}",
                known.join(", ")
            ));
            Head::None
        }
    }
}

/// The tensor names of a stack of BERT and RoBERTa, of DistilBERT, and of MPNet.
const PARTS: [(&str, [&str; 3]); 19] = [
    ("embed_tokens", ["embeddings.word_embeddings"; 3]),
    ("embed_positions", ["embeddings.position_embeddings"; 3]),
    ("embed_types", ["embeddings.token_type_embeddings"; 3]),
    ("layernorm_embedding", ["embeddings.LayerNorm"; 3]),
    ("self_attn.q_proj", ["attention.self.query", "attention.q_lin", "attention.attn.q"]),
    ("self_attn.k_proj", ["attention.self.key", "attention.k_lin", "attention.attn.k"]),
    ("self_attn.v_proj", ["attention.self.value", "attention.v_lin", "attention.attn.v"]),
    ("self_attn.out_proj", ["attention.output.dense", "attention.out_lin", "attention.attn.o"]),
    (
        "self_attn_layer_norm",
        ["attention.output.LayerNorm", "sa_layer_norm", "attention.LayerNorm"],
    ),
    ("encoder_attn.q_proj", ["crossattention.self.query", "", ""]),
    ("encoder_attn.k_proj", ["crossattention.self.key", "", ""]),
    ("encoder_attn.v_proj", ["crossattention.self.value", "", ""]),
    ("encoder_attn.out_proj", ["crossattention.output.dense", "", ""]),
    ("encoder_attn_layer_norm", ["crossattention.output.LayerNorm", "", ""]),
    ("fc1", ["intermediate.dense", "ffn.lin1", "intermediate.dense"]),
    ("fc2", ["output.dense", "ffn.lin2", "output.dense"]),
    ("final_layer_norm", ["output.LayerNorm", "output_layer_norm", "output.LayerNorm"]),
    ("pooler", ["pooler.dense"; 3]),
    ("self_attn.relative_attention_bias", ["encoder.relative_attention_bias"; 3]),
];

/// The head's tensor names of BERT, of DistilBERT, and of MPNet, RoBERTa and BertGeneration.
const HEADS: [(&str, [&str; 3]); 3] = [
    ("lm_head", ["cls.predictions.decoder", "vocab_projector", "lm_head.decoder"]),
    ("lm_head.dense", ["cls.predictions.transform.dense", "vocab_transform", "lm_head.dense"]),
    (
        "lm_head.layer_norm",
        ["cls.predictions.transform.LayerNorm", "vocab_layer_norm", "lm_head.layer_norm"],
    ),
];

/// Possible names of the tensor at `path`, the usual one first.
pub(super) fn names(family: Bert, head: Head, path: &str) -> Vec<String> {
    let Some((part, kind)) = path.rsplit_once('.') else { return Vec::new() };
    let (prefix, stack, [column, head_column]) = match family {
        Bert::Original => ("bert", "encoder", [0, 0]),
        Bert::Distil => ("distilbert", "transformer", [1, 1]),
        Bert::Generation => ("bert", "encoder", [0, 2]),
        Bert::Mpnet => ("mpnet", "encoder", [2, 2]),
        Bert::Roberta => ("roberta", "encoder", [0, 2]),
    };
    let is_text = matches!(head, Head::Text { .. });
    let of_head = match part {
        "lm_head" if kind == "bias" => vec![
            ["cls.predictions", "vocab_projector", "lm_head"][head_column],
            HEADS[0].1[head_column],
        ],
        "pooler" if is_text && head_column > 0 => {
            vec![["", "pre_classifier", "classifier.dense"][head_column]]
        }
        "classifier" if is_text => {
            vec![["classifier", "classifier", "classifier.out_proj"][head_column]]
        }
        "classifier" => vec![part],
        _ => HEADS
            .iter()
            .filter(|(ours, _)| *ours == part)
            .map(|(_, theirs)| theirs[head_column])
            .collect(),
    };
    if !of_head.is_empty() {
        return of_head.into_iter().flat_map(|name| spelt(name, kind)).collect();
    }
    let is_decoder = part.starts_with("decoder.");
    let of_stack = match part {
        "shared" => "embed_tokens",
        _ => part.strip_prefix("encoder.").or(part.strip_prefix("decoder.")).unwrap_or(part),
    };
    let layer = of_stack.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
    let Some((_, theirs)) =
        PARTS.iter().find(|(ours, _)| *ours == layer.map_or(of_stack, |(_, part)| part))
    else {
        return Vec::new();
    };
    let bare = match (layer, theirs[column]) {
        (Some((index, _)), name) if !name.starts_with("encoder.") => {
            spelt(&format!("{stack}.layer.{index}.{name}"), kind)
        }
        (_, name) => spelt(name, kind),
    };
    let with = |prefix: &str| bare.iter().map(|name| format!("{prefix}.{name}")).collect();
    let prefixed: Vec<_> = with(prefix);
    if matches!(head, Head::None | Head::Pooler) && !is_decoder {
        // The last are those of the encoder of a model with a decoder.
        [bare.clone(), prefixed, with("encoder")].concat()
    } else {
        [prefixed, bare].concat()
    }
}

/// Appends the kind; early BERT checkpoints use other names for it in layer norms.
fn spelt(name: &str, kind: &str) -> Vec<String> {
    let old = if kind == "weight" { "gamma" } else { "beta" };
    let kinds = if name.ends_with("LayerNorm") { vec![kind, old] } else { vec![kind] };
    kinds.into_iter().map(|kind| format!("{name}.{kind}")).collect()
}

/// Whether checkpoints keep a tensor that the model does not use: positions that are counted, the
/// head of another task.
pub(super) fn is_left_over(head: Head, name: &str) -> bool {
    let bare = ["bert.", "distilbert.", "mpnet.", "roberta."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    match bare {
        "embeddings.position_ids"
        | "embeddings.token_type_ids"
        | "cls.seq_relationship.weight"
        | "cls.seq_relationship.bias" => true,
        "pooler.dense.weight" | "pooler.dense.bias" => !matches!(head, Head::Pooler),
        _ => false,
    }
}
