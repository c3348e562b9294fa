//! Linear layers, feed-forward, residuals and normalisation.

use crate::{Activation, Config, Norm, NormPlacement};
use cognate_graph::{Dim, Scope, Tensor, Unary};

/// `x Wᵀ (+ b)`: `[..., in]` -> `[..., out]`
pub(crate) fn linear<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>, out: impl Into<Dim>) -> Tensor<'g> {
    let _scope = scope.enter();
    let out = out.into();
    let width = x.ty().shape.dims().last().cloned().unwrap_or_default();
    let weight = scope.parameter("weight", [&out, &width]);
    x.linear(weight, config.biases.then(|| scope.parameter("bias", [out])))
}

/// Normalisation of each row: `[..., d_model]` -> `[..., d_model]`
pub(crate) fn normalise<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>) -> Tensor<'g> {
    let _scope = scope.enter();
    let scale = scope.parameter("weight", [config.d_model]);
    match config.norm {
        Norm::Layer => x.layer_norm(scale, scope.parameter("bias", [config.d_model]), config.epsilon),
        Norm::Rms => x.rms_norm(scale, config.epsilon),
    }
}

/// A sublayer in its residual connection (Vaswani et al. 2017, section 3.1), with the normalisation `norm` where the model
/// places it; and what else the sublayer gives.
pub(crate) fn residual<'g, T>(
    norm: &Scope<'g>,
    config: &Config,
    x: Tensor<'g>,
    sublayer: impl FnOnce(Tensor<'g>) -> (Tensor<'g>, T),
) -> (Tensor<'g>, T) {
    let input = match config.placement {
        NormPlacement::Post => x,
        NormPlacement::Pre => normalise(norm, config, x),
    };
    let (changed, rest) = sublayer(input);
    // The sum belongs to the normalisation that it is made for.
    let _scope = norm.enter();
    let sum = x + changed;
    match config.placement {
        NormPlacement::Post => (normalise(norm, config, sum), rest),
        NormPlacement::Pre => (sum, rest),
    }
}

/// What follows the last layer of a stack: a normalisation where layers begin with theirs.
pub(crate) fn after_stack<'g>(stack: &Scope<'g>, config: &Config, x: Tensor<'g>) -> Tensor<'g> {
    match config.placement {
        NormPlacement::Post => x,
        NormPlacement::Pre => normalise(&stack.at("layer_norm"), config, x),
    }
}

/// `FFN(x) = act(x W_1 + b_1) W_2 + b_2`   (Vaswani et al. 2017, eq. 2), or with a gate
/// `FFN(x) = (act(x W_1) ⊙ x V) W_2`   (Shazeer 2020): `[..., d_model]` -> `[..., d_model]`
pub(crate) fn feed_forward<'g>(layer: &Scope<'g>, config: &Config, d_ff: usize, x: Tensor<'g>) -> Tensor<'g> {
    let hidden = linear(&layer.at("fc1"), config, x, d_ff);
    let _scope = layer.at("activation_fn").enter();
    let mut hidden = activate(config.activation, hidden);
    if config.gated {
        hidden = hidden * linear(&layer.at("fc_gate"), config, x, d_ff);
    }
    linear(&layer.at("fc2"), config, hidden, config.d_model)
}

fn activate<'g>(activation: Activation, x: Tensor<'g>) -> Tensor<'g> {
    use std::f32::consts::{FRAC_2_PI, SQRT_2};
    // Both forms of GELU are spelt as ONNX Runtime recognises them and computes them in one pass.
    let gelu = || x * ((x / SQRT_2).map(Unary::Erf) + 1.0) * 0.5;
    let number = |value| x.builder().scalar(value);
    let at_most = |x: Tensor<'g>, bound| x.less_or_equal(number(bound)).select(x, number(bound));
    let at_least = |x: Tensor<'g>, bound| x.less_or_equal(number(bound)).select(number(bound), x);
    match activation {
        Activation::Relu => x.map(Unary::Relu),
        Activation::SquaredRelu => {
            let positive = x.map(Unary::Relu);
            positive * positive
        }
        Activation::Relu6 => at_most(x.map(Unary::Relu), 6.0),
        Activation::LeakyRelu => x.less_or_equal(number(0.0)).select(x * 0.01, x),
        Activation::Gelu => gelu(),
        Activation::ClippedGelu => at_least(at_most(gelu(), 10.0), -10.0),
        Activation::TanhGelu => {
            let inner = (x * 0.044_715 * x + 1.0) * (x * FRAC_2_PI.sqrt());
            (inner.map(Unary::Tanh) + 1.0) * (x * 0.5)
        }
        Activation::QuickGelu => x * (x * 1.702).map(Unary::Sigmoid),
        Activation::Swish => x * x.map(Unary::Sigmoid),
        Activation::Mish => {
            // tanh(ln(1 + eˣ)) = (1 - q²) / (1 + q²) with q = σ(-x).
            let q = (x * -1.0).map(Unary::Sigmoid);
            let square = q * q;
            x * ((number(1.0) - square) / (square + 1.0))
        }
        Activation::Laplace => {
            // The constants are transformers' own, six digits as there.
            let (mean, deviation) = (0.707_107, 0.282_095);
            (((x - mean) / (deviation * SQRT_2)).map(Unary::Erf) + 1.0) * 0.5
        }
        Activation::Sigmoid => x.map(Unary::Sigmoid),
        Activation::Tanh => x.map(Unary::Tanh),
        Activation::Identity => x,
    }
}
