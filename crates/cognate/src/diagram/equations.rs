//! Equations of modules and operations (Vaswani et al. 2017, and the papers of the other choices).

use cognate_model::{
    Activation, AttentionScore, Biases, Config, Norm, NormPlacement, OutputBias, Positions,
};

/// The equation of the module at a path; empty if its boxes show it.
pub(super) fn of_module(path: &str, config: &Config) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    let norm = |of: &str| match config.norm {
        Norm::Layer => format!("LayerNorm({of})"),
        Norm::Rms => format!("RMSNorm({of})"),
    };
    let sublayer = |sublayer: &str| match config.placement {
        NormPlacement::Post => format!("x ← {}", norm(&format!("x + {sublayer}(x)"))),
        NormPlacement::Pre => format!("x ← x + {sublayer}({})", norm("x")),
        NormPlacement::Around => format!("x ← x + {}", norm(&format!("{sublayer}({})", norm("x")))),
    };
    let attention = || {
        let distances = matches!(config.positions, Positions::Relative { .. } | Positions::Alibi);
        let bias = if distances { " + B" } else { "" };
        let scores = match (config.score, config.score_width) {
            (AttentionScore::ScaledDot, None) => "Q Kᵀ / √d_k".to_owned(),
            (AttentionScore::ScaledDot, Some(width)) => format!("Q Kᵀ / √{width}"),
            (AttentionScore::Dot, _) => "Q Kᵀ".to_owned(),
            (AttentionScore::Additive, _) => "vᵀ tanh(q + k)".to_owned(),
        };
        format!("softmax({}{bias} + mask) V", capped(scores, config.caps.scores))
    };
    let linear = |product: &str, bias: &str| {
        if config.biases != Biases::None {
            format!("{product} + {bias}")
        } else {
            product.to_owned()
        }
    };
    match name {
        "self_attn" | "encoder_attn" => attention(),
        "q_proj" => format!("Q = {}, divided into heads", linear("x Wᵀ", "b")),
        "k_proj" => format!("K = {}, divided into heads", linear("x Wᵀ", "b")),
        "v_proj" => format!("V = {}, divided into heads", linear("x Wᵀ", "b")),
        "out_proj" => format!("concatenated heads, {}", linear("x Wᵀ", "b")),
        "fc1" => linear("x W₁ᵀ", "b₁"),
        "fc_gate" => linear("x Vᵀ", "c"),
        "activation_fn" if config.gated => {
            format!("h = {}, times the gate", activation(config.activation))
        }
        "activation_fn" => format!("h = {}", activation(config.activation)),
        "fc2" => linear("h W₂ᵀ", "b₂"),
        "layers" => "x ← layer(x) for each layer".to_owned(),
        "embed_tokens" | "shared" if config.scale_embedding => "E[ids] · √d_model".to_owned(),
        "embed_tokens" | "shared" => "E[ids]".to_owned(),
        "embed_positions" => match config.positions {
            Positions::Sinusoidal(_) | Positions::Counted => {
                "x + P, with sines and cosines of pos / 10000^(2i/d_model)".to_owned()
            }
            _ => "x + P[positions]".to_owned(),
        },
        _ if name.ends_with("layer_norm") || name == "layernorm_embedding" => {
            let scale = if config.norm_from_one { "(1 + γ)" } else { "γ" };
            match config.norm {
                Norm::Layer => format!("(x - μ) / √(σ² + ε) · {scale} + β"),
                Norm::Rms => format!("x / √(mean(x²) + ε) · {scale}"),
            }
        }
        "padding_mask" => "0 for tokens, -10⁹ for padding".to_owned(),
        "causal_mask" => "0 up to the position, -10⁹ after it".to_owned(),
        "lm_head" if config.output_bias != OutputBias::None => "logits = x Wᵀ + b".to_owned(),
        "lm_head" => format!("logits = {}", capped("x Wᵀ".to_owned(), config.caps.logits)),
        "encoder" => "hidden states of the source".to_owned(),
        "decoder" => {
            "logits of the next token from the previous tokens and the source's hidden states"
                .to_owned()
        }
        _ if name.bytes().all(|byte| byte.is_ascii_digit()) => {
            let cross = if path.starts_with("decoder") {
                format!(", {}", sublayer("CrossAttention"))
            } else {
                String::new()
            };
            format!("{}{cross}, {}", sublayer("SelfAttention"), sublayer("FFN"))
        }
        _ => String::new(),
    }
}

/// The bound of numbers, if there is one.
fn capped(numbers: String, cap: Option<f32>) -> String {
    cap.map_or(numbers.clone(), |cap| format!("{cap} tanh({numbers} / {cap})"))
}

fn activation(activation: Activation) -> &'static str {
    match activation {
        Activation::Relu => "max(0, ·)",
        other => other.name(),
    }
}
