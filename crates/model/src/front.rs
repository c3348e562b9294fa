//! Input fronts of the encoder: its inputs, and their conversion to rows of width `d_model`.
//!
//! Tokens are embedded (`embedding`). Log-mel frames pass through two convolutions over time, the
//! second of which halves their number (Radford et al. 2022, section 2.2):
//! `x = gelu(conv2(gelu(conv1(frames))))ᵀ + P`, with a stored table of positions `P`.
//!
//! `frames: [batch, n_mels, 2 · src]` -> `[batch, src, d_model]`, where `src` is at most the number
//! of rows of `P`
//!
//! `patches` is the front for images.

use crate::embedding::{Embedded, InputTokens, Side, embed};
use crate::interface::{ATTENTION_MASK, INPUT_FEATURES, INPUT_IDS, PIXEL_VALUES, TOKEN_TYPE_IDS};
use crate::patches::{embed_patches, image_sizes, n_positions};
use crate::{Activation, Config, Front, TokenTypes};
use cognate_graph::{Builder, Conv, DType, Dim, Scope, Tensor};

/// The frames of one position of the encoder.
const FRAMES_PER_POSITION: usize = 2;

/// The encoder's input.
#[derive(Clone, Copy)]
pub(crate) enum Source<'g> {
    /// Tokens, and `attention_mask: i64 [batch, src]`.
    Tokens(InputTokens<'g>, Tensor<'g>),
    /// Features, all of which are read.
    Features(Tensor<'g>),
}

impl<'g> Source<'g> {
    /// Declares the inputs of a graph, tokens with these names of the axes.
    pub(crate) fn declare(builder: &'g Builder, config: &Config, axes: [&str; 2]) -> Self {
        let config = config.of_encoder();
        match config.front {
            Front::Tokens => {
                let [ids, mask] =
                    [INPUT_IDS, ATTENTION_MASK].map(|name| builder.input(name, DType::I64, axes));
                let is_given = matches!(config.token_types, TokenTypes::Given(_));
                let types = is_given.then(|| builder.input(TOKEN_TYPE_IDS, DType::I64, axes));
                Source::Tokens(InputTokens { types, ..InputTokens::new(ids) }, mask)
            }
            Front::Frames { n_mels, .. } => {
                let shape =
                    [axes[0].into(), Dim::from(n_mels), Dim::from(axes[1]) * FRAMES_PER_POSITION];
                Source::Features(builder.input(INPUT_FEATURES, DType::F32, shape))
            }
            Front::Pixels(patches) => {
                let [height, width] = image_sizes(&patches);
                Source::Features(builder.input(
                    PIXEL_VALUES,
                    DType::F32,
                    [axes[0].into(), patches.channels.into(), height, width],
                ))
            }
        }
    }

    /// The number of the encoder's positions.
    pub(crate) fn len(self, config: &Config) -> Dim {
        match (self, config.front) {
            (Source::Features(frames), Front::Frames { .. }) => {
                frames.dim(2).divided(FRAMES_PER_POSITION as i64).expect("declared as a multiple")
            }
            (Source::Features(_), Front::Pixels(patches)) => n_positions(&patches),
            (Source::Tokens(tokens, _), _) => tokens.ids.dim(1),
            (Source::Features(features), Front::Tokens) => features.dim(1),
        }
    }

    /// The mask of tokens, `i64 [batch, src]`.
    pub(crate) fn attention_mask(self) -> Option<Tensor<'g>> {
        match self {
            Source::Tokens(_, mask) => Some(mask),
            Source::Features(_) => None,
        }
    }

    /// The same source with `change` applied to each input.
    pub(crate) fn map(self, change: impl Fn(Tensor<'g>) -> Tensor<'g>) -> Self {
        match self {
            Source::Tokens(InputTokens { ids, types, positions }, mask) => Source::Tokens(
                InputTokens {
                    ids: change(ids),
                    types: types.map(&change),
                    positions: positions.map(&change),
                },
                change(mask),
            ),
            Source::Features(features) => Source::Features(change(features)),
        }
    }

    /// The input of the first layer, `[batch, src, d_model]`, and its summands.
    pub(crate) fn embed(self, root: &Scope<'g>, config: &Config) -> Embedded<'g> {
        let config = config.of_encoder();
        match (self, config.front) {
            (Source::Features(frames), Front::Frames { positions, .. }) => {
                convolve(root, config, frames, [&positions.into(), &self.len(config)])
            }
            (Source::Features(pixels), Front::Pixels(patches)) => {
                embed_patches(root, config, &patches, pixels)
            }
            (Source::Tokens(tokens, _), _) => {
                embed(root, config, Side::Encoder, tokens, &Dim::from(0))
            }
            (Source::Features(_), Front::Tokens) => {
                unreachable!("sources are declared by the front")
            }
        }
    }
}

fn convolve<'g>(
    root: &Scope<'g>,
    config: &Config,
    frames: Tensor<'g>,
    [positions, src]: [&Dim; 2],
) -> Embedded<'g> {
    let stack = Side::Encoder.at(root);
    // GELU, regardless of the activation of the feed-forward.
    let layer = |name: &str, x: Tensor<'g>, stride| {
        let scope = stack.at(name);
        let _scope = scope.enter();
        let weight = scope.parameter("weight", [Dim::from(config.d_model), x.dim(1), 3.into()]);
        let bias = scope.parameter("bias", [config.d_model]);
        Activation::Gelu.apply(x.conv(
            weight,
            Some(bias),
            Conv { strides: vec![stride], pads: vec![1] },
        ))
    };
    let halved = layer("conv2", layer("conv1", frames, 1), 2);
    let scope = stack.at("embed_positions");
    let _scope = scope.enter();
    let tokens = halved.transpose(&[0, 2, 1]);
    let table = scope.parameter("weight", [positions, &config.d_model.into()]).slice(0, 0, src);
    Embedded { tokens, positions: Some(table), sum: tokens + table }
}
