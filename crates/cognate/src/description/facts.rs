//! A description of a configuration.

use crate::amounts;
use cognate_model::{
    AttentionScore, Biases, Config, EmbeddingNorm, Embeddings, Front, Head, Model, Norm,
    NormPlacement, OutputBias, OutputProjection, Parts, Patches, Positions, RelativeLayers,
    Sinusoids, Stack,
};

/// The description, by name.
pub(super) fn facts(model: &Model, family: &str) -> Vec<(&'static str, String)> {
    let config = model.config();
    let Config { start_token, eos_token, pad_token, .. } = config;
    let n_parameters = model.parameters();
    let size = amounts::bytes(4 * n_parameters as u64);
    let mut facts = vec![
        ("family", family.into()),
        ("d_model", config.d_model.to_string()),
        ("encoder", stack(config.encoder)),
        ("decoder", stack(config.decoder)),
        ("feed-forward", feed_forward(config)),
        ("normalised", norm(config)),
        ("vocabulary", vocabulary(config)),
        ("positions", positions(config)),
        ("tokens", format!("{start_token} starts, {eos_token} ends, {pad_token} pads")),
        ("parameters", format!("{}, {size} in f32", amounts::thousands(n_parameters))),
    ];
    if let Parts::Encoder(head) = config.parts {
        facts.retain(|(name, _)| *name != "decoder");
        facts.insert(3, ("output", self::head(head)));
        facts.retain(|(name, _)| *name != "tokens");
        match config.front {
            Front::Pixels(Patches { image: [height, width], patch: [rows, columns], .. }) => {
                facts.retain(|(name, _)| *name != "vocabulary");
                facts.push((
                    "images",
                    format!("{height} x {width} pixels in patches of {rows} x {columns}"),
                ));
            }
            _ => facts.push(("tokens", format!("{pad_token} pads"))),
        }
    }
    if config.parts == Parts::Decoder {
        facts.retain(|(name, _)| *name != "encoder");
    }
    if let Some(attention) = attention(config) {
        facts.insert(5, ("attention", attention));
    }
    let windows: Vec<_> = config
        .windows
        .iter()
        .enumerate()
        .filter_map(|(layer, window)| Some((layer, (*window)?)))
        .collect();
    if let Some((_, window)) = windows.first() {
        let layers: Vec<_> = windows.iter().map(|(layer, _)| layer.to_string()).collect();
        let of = if layers.len() == config.windows.len() {
            "all layers".into()
        } else {
            format!("layers {}", layers.join(", "))
        };
        facts.push(("window", format!("{window} positions in {of}")));
    }
    facts
}

/// What reads the states of an encoder alone.
fn head(head: Head) -> String {
    match head {
        Head::None => "the states".into(),
        Head::Pooler => "the states, and a pooler of the first".into(),
        Head::Text { labels, .. } => format!("{labels} classes of the text"),
        Head::Image { labels, .. } => format!("{labels} classes of the image"),
        Head::Tokens { labels } => format!("{labels} classes of each token"),
        Head::Vocabulary { .. } => "the token at each position".into(),
    }
}

fn stack(stack: Stack) -> String {
    let keys = if stack.key_heads == stack.heads {
        String::new()
    } else {
        format!(" on {} of keys", stack.key_heads)
    };
    format!(
        "{} layers, {} heads{keys} of {}, d_ff {}",
        stack.n_layers, stack.heads, stack.d_k, stack.d_ff
    )
}

fn vocabulary(config: &Config) -> String {
    let tokens = amounts::thousands(config.vocab);
    let tables = match (config.embeddings, config.output) {
        _ if matches!(config.parts, Parts::Encoder(Head::Vocabulary { .. }))
            && config.output == OutputProjection::Tied =>
        {
            format!("{tokens} tokens, one table for input and output")
        }
        _ if config.parts == Parts::Decoder => match config.output {
            OutputProjection::Tied => format!("{tokens} tokens, one table for input and output"),
            OutputProjection::Own | OutputProjection::Source => {
                format!("{tokens} tokens, a table each for input and output")
            }
        },
        _ if config.parts != Parts::Both => format!("{tokens} tokens"),
        (Embeddings::Shared, OutputProjection::Tied | OutputProjection::Source) => {
            format!("{tokens} tokens, one table for source, target and output")
        }
        (Embeddings::Shared, OutputProjection::Own) => {
            format!("{tokens} tokens, one table for source and target, one for the output")
        }
        (Embeddings::Separate, output) => {
            let source = amounts::thousands(config.source_vocab);
            let output = match output {
                OutputProjection::Tied => "target and output share a table",
                OutputProjection::Source => "source and output share a table",
                OutputProjection::Own => "a table each, and one for the output",
            };
            format!("{source} tokens of the source, {tokens} of the target, {output}")
        }
    };
    let scaled = if config.scale_embedding {
        format!(", multiplied by √{}", config.d_model)
    } else {
        String::new()
    };
    let bias = match config.output_bias {
        OutputBias::None => "",
        OutputBias::Fixed | OutputBias::Learned => ", and a bias on the output",
    };
    format!("{tables}{scaled}{bias}")
}

fn positions(config: &Config) -> String {
    let kind = match config.positions {
        Positions::Sinusoidal(Sinusoids::Interleaved) => {
            "sinusoidal, sines and cosines alternating".into()
        }
        Positions::Sinusoidal(Sinusoids::Halves) => {
            "sinusoidal, all sines before all cosines".into()
        }
        Positions::Learned { offset: 0 } => "learned".into(),
        Positions::Learned { offset } => format!("learned, from row {offset} of the table on"),
        Positions::LearnedCounted { relative } => {
            let also = relative.map_or(String::new(), |[buckets, max]| {
                format!("; relative, {buckets} buckets to distance {max}")
            });
            format!("learned, counted over tokens that are not padding{also}")
        }
        Positions::Counted => "sinusoidal, counted over tokens that are not padding".into(),
        Positions::Relative { buckets, max_distance, of } => {
            let of = if of == RelativeLayers::First {
                "the first layer's for all"
            } else {
                "of each layer"
            };
            format!("relative, {buckets} buckets up to distance {max_distance}, {of}")
        }
        Positions::Rotary if config.rotary_base == 10_000.0 => {
            "rotary: queries and keys turned".into()
        }
        Positions::Rotary => {
            format!("rotary: queries and keys turned, base {}", config.rotary_base)
        }
        Positions::Alibi => "linear biases: scores fall with the distance".into(),
    };
    config.max_positions.map_or(kind.clone(), |limit| format!("{limit}, {kind}"))
}

/// The attention score, if it is not the paper's, and the bound of logits.
fn attention(config: &Config) -> Option<String> {
    let score = match (config.score, config.score_width) {
        (AttentionScore::ScaledDot, None) => None,
        (AttentionScore::ScaledDot, Some(width)) => {
            Some(format!("products of queries and keys by √{width}"))
        }
        (AttentionScore::Dot, _) => Some("products of queries and keys, not scaled".into()),
        (AttentionScore::Additive, _) => Some("additive: v·tanh(q + k)".into()),
    };
    let bound = |of: &str, cap: Option<f32>| cap.map(|cap| format!("{of} within ±{cap}"));
    let facts: Vec<_> =
        [score, bound("scores", config.caps.scores), bound("logits", config.caps.logits)]
            .into_iter()
            .flatten()
            .collect();
    (!facts.is_empty()).then(|| facts.join(", "))
}

fn norm(config: &Config) -> String {
    let kind =
        if config.norm == Norm::Layer { "mean and variance" } else { "root of the mean square" };
    let place = match config.placement {
        NormPlacement::Post => "after each sublayer",
        NormPlacement::Pre => "before each sublayer and after each stack",
        NormPlacement::Around => "before and after each sublayer, and after each stack",
    };
    let embeddings =
        if config.embedding_norm == EmbeddingNorm::None { "" } else { ", embeddings too" };
    format!("{kind}, {place}{embeddings}")
}

fn feed_forward(config: &Config) -> String {
    let gate = if config.gated { ", gated" } else { "" };
    let biases = match config.biases {
        Biases::None => "; no linear layer has a bias",
        Biases::All => "",
        Biases::ExceptKeys => "; keys have no bias",
        Biases::ExceptInputs => "; queries, keys and values have no bias",
        Biases::OnlyInputs => "; only queries, keys and values have a bias",
        Biases::OnlyAttention => "; only attention has biases",
    };
    format!("{}{gate}{biases}", config.activation.name())
}
