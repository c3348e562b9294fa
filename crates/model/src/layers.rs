//! Linear layers, feed-forward, residuals and normalisation.

use crate::dropout::Dropout;
use crate::{Activation, Biases, Config, Norm, NormPlacement};
use cognate_graph::{Dim, Scope, Tensor, Unary};

/// `x Wᵀ (+ b)`: `[..., in]` -> `[..., out]`
pub(crate) fn linear<'g>(
    scope: &Scope<'g>,
    config: &Config,
    x: Tensor<'g>,
    out: impl Into<Dim>,
) -> Tensor<'g> {
    let _scope = scope.enter();
    let out = out.into();
    let width = x.ty().shape.dims().last().cloned().unwrap_or_default();
    let weight = scope.parameter("weight", [&out, &width]);
    let has_bias = match config.biases {
        Biases::None => false,
        Biases::All => true,
        Biases::ExceptKeys => !scope.path().ends_with("k_proj"),
        Biases::ExceptInputs => !is_input(scope),
        Biases::OnlyInputs => is_input(scope),
        Biases::OnlyAttention => is_input(scope) || scope.path().ends_with("out_proj"),
    };
    x.linear(weight, has_bias.then(|| scope.parameter("bias", [out])))
}

/// Whether a layer projects queries, keys or values.
fn is_input(scope: &Scope<'_>) -> bool {
    ["q_proj", "k_proj", "v_proj"].iter().any(|name| scope.path().ends_with(name))
}

/// Normalises each row: `[..., d_model]` -> `[..., d_model]`
pub(crate) fn normalise<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>) -> Tensor<'g> {
    let _scope = scope.enter();
    let scale = scope.parameter("weight", [config.d_model]);
    let scale = if config.norm_from_one { scale + 1.0 } else { scale };
    match config.norm {
        Norm::Layer => {
            x.layer_norm(scale, scope.parameter("bias", [config.d_model]), config.epsilon)
        }
        Norm::Rms => x.rms_norm(scale, config.epsilon),
    }
}

/// `norm(act(W h + b))`, the input of BERT's output projection: `[..., d_model]` -> `[..., d_model]`
pub(crate) fn transformed<'g>(
    root: &Scope<'g>,
    config: &Config,
    activation: Activation,
    hidden: Tensor<'g>,
) -> Tensor<'g> {
    let scope = root.at("lm_head");
    let dense = activation.apply(linear(&scope.at("dense"), config, hidden, config.d_model));
    normalise(&scope.at("layer_norm"), config, dense)
}

/// `cap · tanh(x / cap)`, or `x` without a cap.
pub(crate) fn capped(x: Tensor<'_>, cap: Option<f32>) -> Tensor<'_> {
    cap.map_or(x, |cap| (x / cap).map(Unary::Tanh) * cap)
}

/// A sublayer with its residual connection (Vaswani et al. 2017, section 3.1), and the
/// normalisation of `layer` named after the sublayer, placed as in the model. Also returns the
/// sublayer's other output.
pub(crate) fn residual<'g, T>(
    (layer, name): (&Scope<'g>, &str),
    config: &Config,
    x: Tensor<'g>,
    dropout: &Dropout<'g>,
    sublayer: impl FnOnce(Tensor<'g>) -> (Tensor<'g>, T),
) -> (Tensor<'g>, T) {
    let norm = &layer.at(format!("{name}_layer_norm"));
    let input = match config.placement {
        NormPlacement::Post => x,
        NormPlacement::Pre | NormPlacement::Around => normalise(norm, config, x),
    };
    let (changed, rest) = sublayer(input);
    let changed = match config.placement {
        NormPlacement::Post | NormPlacement::Pre => changed,
        NormPlacement::Around => {
            normalise(&layer.at(format!("{name}_post_layer_norm")), config, changed)
        }
    };
    // The sum is named after the normalisation that reads it.
    let _scope = norm.enter();
    let sum = x + dropout.sublayer(changed);
    match config.placement {
        NormPlacement::Post => (normalise(norm, config, sum), rest),
        NormPlacement::Pre | NormPlacement::Around => (sum, rest),
    }
}

/// The final normalisation of a pre-norm stack.
pub(crate) fn after_stack<'g>(stack: &Scope<'g>, config: &Config, x: Tensor<'g>) -> Tensor<'g> {
    match config.placement {
        NormPlacement::Post => x,
        NormPlacement::Pre | NormPlacement::Around => normalise(&stack.at("layer_norm"), config, x),
    }
}

/// `FFN(x) = act(x W_1 + b_1) W_2 + b_2`   (Vaswani et al. 2017, eq. 2), or with a gate
/// `FFN(x) = (act(x W_1) ⊙ x V) W_2`   (Shazeer 2020): `[..., d_model]` -> `[..., d_model]`
pub(crate) fn feed_forward<'g>(
    layer: &Scope<'g>,
    config: &Config,
    d_ff: usize,
    x: Tensor<'g>,
    dropout: &Dropout<'g>,
) -> Tensor<'g> {
    let hidden = linear(&layer.at("fc1"), config, x, d_ff);
    let _scope = layer.at("activation_fn").enter();
    let mut hidden = config.activation.apply(hidden);
    if config.gated {
        hidden = hidden * linear(&layer.at("fc_gate"), config, x, d_ff);
    }
    linear(&layer.at("fc2"), config, dropout.activation(hidden), config.d_model)
}
