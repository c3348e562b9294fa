//! What `config.json` calls activations: the names of transformers' `ACT2FN` that have no weights of their own.

use super::fields::Fields;
use crate::Activation;

/// The first name of each is the one that is written.
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

/// The activation that `field` calls `name`; an unknown one is recorded as wrong.
pub(super) fn activation(fields: &Fields, field: &str, name: &str) -> Activation {
    let known = ACTIVATIONS.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation);
    known.unwrap_or_else(|| {
        fields.refuse(format!("{field} {name:?} is not supported; expected one of {}", ACTIVATIONS.map(|(name, _)| name).join(", ")));
        Activation::Relu
    })
}

/// What `config.json` calls the activation.
pub(super) fn name(activation: Activation) -> &'static str {
    let known = ACTIVATIONS.iter().find(|(_, known)| *known == activation);
    known.expect("every activation has a name").0
}
