//! Activation functions of the feed-forward and their names in transformers.

use cognate_graph::{Tensor, Unary};

/// Activation functions of the feed-forward, as in PyTorch and transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `max(x, 0)²` (So et al. 2021)
    SquaredRelu,
    /// `min(max(x, 0), 6)`
    Relu6,
    /// `max(x, 0) + 0.01 min(x, 0)`
    LeakyRelu,
    /// `x Φ(x)`, with Φ the CDF of the normal distribution (Hendrycks & Gimpel 2016)
    Gelu,
    /// `x Φ(x)`, clipped to [-10, 10].
    ClippedGelu,
    /// `x Φ(x)`, with Φ approximated by the hyperbolic tangent.
    TanhGelu,
    /// `x σ(1.702 x)`
    QuickGelu,
    /// `x σ(x)`, also called SiLU.
    Swish,
    /// `x tanh(ln(1 + eˣ))` (Misra 2019)
    Mish,
    /// The Laplace function: `½ (1 + erf((x - √½) / (σ √2)))`, σ = 0.282095 (Ma et al. 2022)
    Laplace,
    /// `1 / (1 + e⁻ˣ)`
    Sigmoid,
    /// `tanh(x)`
    Tanh,
    /// `x`
    Identity,
}

/// The names in transformers' `ACT2FN` of functions without weights. The first name of an
/// activation is the one written.
const ACTIVATIONS: [(&str, Activation); 20] = [
    ("gelu", Activation::Gelu),
    ("gelu_10", Activation::ClippedGelu),
    ("gelu_new", Activation::TanhGelu),
    ("gelu_accurate", Activation::TanhGelu),
    ("gelu_fast", Activation::TanhGelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_python_tanh", Activation::TanhGelu),
    ("gelu_pytorch_tanh", Activation::TanhGelu),
    ("laplace", Activation::Laplace),
    ("leaky_relu", Activation::LeakyRelu),
    ("linear", Activation::Identity),
    ("mish", Activation::Mish),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::SquaredRelu),
    ("relu6", Activation::Relu6),
    ("sigmoid", Activation::Sigmoid),
    ("swish", Activation::Swish),
    ("silu", Activation::Swish),
    ("tanh", Activation::Tanh),
];

impl Activation {
    /// The activation that transformers' `ACT2FN` calls `name`; `None` if the name is unknown or
    /// the activation has weights.
    pub fn named(name: &str) -> Option<Self> {
        ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation)
    }

    /// All names that [`Activation::named`] accepts.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ACTIVATIONS.iter().map(|(name, _)| *name)
    }

    /// The name in `config.json`.
    pub fn name(self) -> &'static str {
        let known = ACTIVATIONS.iter().find(|(_, known)| *known == self);
        known.expect("every activation has a name").0
    }

    /// Applies the activation to each element of `x`.
    #[must_use]
    pub fn apply<'g>(self, x: Tensor<'g>) -> Tensor<'g> {
        use std::f32::consts::{FRAC_2_PI, SQRT_2};
        // Both forms of GELU have the structure that ONNX Runtime fuses into one operator.
        let gelu = || x * ((x / SQRT_2).map(Unary::Erf) + 1.0) * 0.5;
        let number = |value| x.builder().scalar(value);
        let at_most =
            |x: Tensor<'g>, bound| x.less_or_equal(number(bound)).select(x, number(bound));
        let at_least =
            |x: Tensor<'g>, bound| x.less_or_equal(number(bound)).select(number(bound), x);
        match self {
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
                // transformers' constants, rounded to six digits as there.
                #[allow(clippy::approx_constant)]
                let (mean, deviation) = (0.707_107, 0.282_095);
                (((x - mean) / (deviation * SQRT_2)).map(Unary::Erf) + 1.0) * 0.5
            }
            Activation::Sigmoid => x.map(Unary::Sigmoid),
            Activation::Tanh => x.map(Unary::Tanh),
            Activation::Identity => x,
        }
    }
}
