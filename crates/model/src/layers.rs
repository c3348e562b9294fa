//! Linear layers, feed-forward, residuals and layer normalisation.

use crate::{Activation, Config};
use cognate_graph::{Dim, Scope, Tensor, Unary};

/// `x Wᵀ + b`: `[..., in]` -> `[..., out]`
pub(crate) fn linear<'g>(scope: &Scope<'g>, x: Tensor<'g>, out: impl Into<Dim>) -> Tensor<'g> {
    let _scope = scope.enter();
    let out = out.into();
    let width = x.ty().shape.dims().last().cloned().unwrap_or_default();
    x.linear(scope.parameter("weight", [&out, &width]), Some(scope.parameter("bias", [out])))
}

/// `LayerNorm(x + Sublayer(x))`: the residual connection with the normalisation after it (Vaswani et al. 2017, section 5.4).
pub(crate) fn add_and_norm<'g>(scope: &Scope<'g>, config: &Config, x: Tensor<'g>, sublayer: Tensor<'g>) -> Tensor<'g> {
    let _scope = scope.enter();
    let (scale, bias) = (scope.parameter("weight", [config.d_model]), scope.parameter("bias", [config.d_model]));
    (x + sublayer).layer_norm(scale, bias, config.epsilon)
}

/// `FFN(x) = act(x W_1 + b_1) W_2 + b_2`   (Vaswani et al. 2017, eq. 2): `[..., d_model]` -> `[..., d_model]`
pub(crate) fn feed_forward<'g>(layer: &Scope<'g>, config: &Config, d_ff: usize, x: Tensor<'g>) -> Tensor<'g> {
    let hidden = linear(&layer.at("fc1"), x, d_ff);
    let _scope = layer.at("activation_fn").enter();
    let hidden = activate(config.activation, hidden);
    linear(&layer.at("fc2"), hidden, config.d_model)
}

fn activate(activation: Activation, x: Tensor<'_>) -> Tensor<'_> {
    match activation {
        Activation::Relu => x.map(Unary::Relu),
        Activation::Gelu => x * ((x * std::f32::consts::FRAC_1_SQRT_2).map(Unary::Erf) + 1.0) * 0.5,
        Activation::Swish => x * x.map(Unary::Sigmoid),
        Activation::Tanh => x.map(Unary::Tanh),
    }
}
