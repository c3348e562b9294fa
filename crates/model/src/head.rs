//! The heads of encoder-only models: pooler and classifiers of BERT (Devlin et al. 2019), of vision
//! Transformers, and of their descendants.

use crate::decoder::Projection;
use crate::interface::{LAST_HIDDEN_STATE, LOGITS, POOLER_OUTPUT};
use crate::layers::{linear, transformed};
use crate::{Activation, Config, Head};
use cognate_graph::{Scope, Tensor};

/// The outputs of the model by name: `hidden: [batch, src, d_model]`, or
/// `logits: [batch, (src,) classes]` if there is a classifier.
pub(crate) fn head<'g>(
    root: &Scope<'g>,
    config: &Config,
    head: Head,
    hidden: Tensor<'g>,
) -> Vec<(&'static str, Tensor<'g>)> {
    let classify =
        |x, labels: usize| vec![(LOGITS, linear(&root.at("classifier"), config, x, labels))];
    match head {
        Head::None => vec![(LAST_HIDDEN_STATE, hidden)],
        Head::Pooler => vec![
            (LAST_HIDDEN_STATE, hidden),
            (POOLER_OUTPUT, pool(root, config, Activation::Tanh, hidden)),
        ],
        Head::Text { labels, activation } => {
            classify(pool(root, config, activation, hidden), labels)
        }
        Head::Image { labels, distilled } => {
            let of = |name: &str, place| {
                linear(&root.at(name), config, state(hidden, config, place), labels)
            };
            let logits = of("classifier", 0);
            vec![(
                LOGITS,
                if distilled { (logits + of("distillation_classifier", 1)) * 0.5 } else { logits },
            )]
        }
        Head::Tokens { labels } => classify(hidden, labels),
        Head::Vocabulary { activation } => {
            let Projection { weight, bias } = Projection::of(root, config);
            vec![(LOGITS, transformed(root, config, activation, hidden).linear(weight, bias))]
        }
    }
}

/// `act(W h_0 + b)` of the first token's state `h_0`: `[batch, src, d_model]` -> `[batch, d_model]`
fn pool<'g>(
    root: &Scope<'g>,
    config: &Config,
    activation: Activation,
    hidden: Tensor<'g>,
) -> Tensor<'g> {
    let scope = root.at("pooler");
    let _scope = scope.enter();
    activation.apply(linear(&scope, config, state(hidden, config, 0), config.d_model))
}

/// The state at a place: `[batch, src, d_model]` -> `[batch, d_model]`
fn state<'g>(hidden: Tensor<'g>, config: &Config, place: usize) -> Tensor<'g> {
    hidden.slice(1, place, place + 1).reshape([hidden.dim(0), config.d_model.into()])
}
