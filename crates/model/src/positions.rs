//! Positions in self-attention; `embedding` has those that are added to embeddings.

use crate::embedding::{Side, SinusoidTable};
use crate::relative::{self, Ranges};
use crate::rotary::{self, Rotation};
use crate::span::{HIDDEN, Span};
use crate::{Config, Positions, RelativeLayers, alibi};
use cognate_graph::{Dim, Recipe, Scope, Tensor};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The positions of one layer's self-attention.
#[derive(Clone, Copy)]
pub(crate) struct Order<'g> {
    /// Added to the scores `[..., heads, tgt, past + tgt]`.
    pub(crate) mask: Option<Tensor<'g>>,
    /// The rotation of queries and keys.
    pub(crate) rotation: Option<Rotation<'g>>,
    /// Number of positions that a query reads, including its own; `None` for all. The mask hides
    /// the others, except for keys in caches.
    pub(crate) window: Option<usize>,
}

/// The positions of each layer, with `mask` added.
pub(crate) fn orders<'g>(
    root: &Scope<'g>,
    config: &Config,
    side: Side,
    mask: Option<Tensor<'g>>,
    span: Span<'_, 'g>,
) -> Vec<Order<'g>> {
    let n_layers = side.stack(config).n_layers;
    let Span { past, tgt, .. } = span;
    let masked = |mask| Order { mask: Some(mask), rotation: None, window: None };
    let relative = |ranges| {
        relative::masks(root, config, side, ranges, mask, [past, tgt])
            .into_iter()
            .map(masked)
            .collect()
    };
    let orders = match config.positions {
        Positions::Sinusoidal(_)
        | Positions::Learned { .. }
        | Positions::Counted
        | Positions::LearnedCounted { relative: None } => {
            vec![Order { mask, rotation: None, window: None }; n_layers]
        }
        Positions::Relative { buckets, max_distance, of } => {
            relative(Ranges { buckets, max_distance, of })
        }
        Positions::LearnedCounted { relative: Some([buckets, max_distance]) } => {
            relative(Ranges { buckets, max_distance, of: RelativeLayers::First })
        }
        Positions::Rotary => {
            vec![
                Order {
                    mask,
                    rotation: Some(Rotation::new(root, config, side, span)),
                    window: None
                };
                n_layers
            ]
        }
        Positions::Alibi => {
            vec![masked(alibi::mask(root, config, side, mask, [past, tgt])); n_layers]
        }
    };
    let mut within = BTreeMap::new();
    let mut windowed = |(layer_index, order): (usize, Order<'g>)| match config.window(layer_index) {
        Some(window) if span.cached => Order { window: Some(window), ..order },
        Some(window) => {
            let is_near =
                *within.entry(window).or_insert_with(|| is_near(root, side, window, [past, tgt]));
            let builder = root.builder();
            let scores = order.mask.unwrap_or_else(|| builder.scalar(0.0));
            Order {
                mask: Some(is_near.select(scores, builder.scalar(HIDDEN))),
                window: Some(window),
                ..order
            }
        }
        None => order,
    };
    orders.into_iter().enumerate().map(&mut windowed).collect()
}

/// Whether a key is within the window of a query: bool `[tgt, past + tgt]`. Keys after the query
/// are hidden by the decoder's other masks.
fn is_near<'g>(root: &Scope<'g>, side: Side, window: usize, [past, tgt]: [&Dim; 2]) -> Tensor<'g> {
    let builder = root.builder();
    let _scope = side.at(root).at("window").enter();
    let queries = builder.range(past, past + tgt).reshape([tgt.clone(), 1.into()]);
    let distance = builder.range(0, past + tgt) - queries;
    let farthest = builder.integer(i64::try_from(window).unwrap_or(i64::MAX) - 1);
    let zero = builder.integer(0);
    let after = if side == Side::Encoder { distance } else { zero };
    distance.less_or_equal(zero).select(zero - distance, after).less_or_equal(farthest)
}

/// Weights computed by formulas, by path. Equal tables of both stacks share a recipe, so they
/// are stored once.
pub(crate) fn computed(config: &Config) -> BTreeMap<String, Recipe> {
    let [encoder, decoder] =
        [(Side::Encoder, config.of_encoder()), (Side::Decoder, config)].map(|(side, config)| {
            match config.positions {
                Positions::Sinusoidal(_) | Positions::Counted => SinusoidTable::of(config)
                    .map(|table| {
                        (
                            "embed_positions.weight",
                            Recipe::generated(
                                Arc::new(table),
                                &[config.position_rows(), config.d_model],
                            ),
                        )
                    })
                    .into_iter()
                    .collect(),
                Positions::Rotary => rotary::tables(config, side.stack(config).d_k),
                Positions::Alibi => {
                    vec![(alibi::SLOPES, alibi::slopes_recipe(side.stack(config).heads))]
                }
                Positions::Learned { .. }
                | Positions::LearnedCounted { .. }
                | Positions::Relative { .. } => Vec::new(),
            }
        });
    let is_equal = encoder
        .iter()
        .map(|(_, recipe)| recipe.shape())
        .eq(decoder.iter().map(|(_, recipe)| recipe.shape()));
    let decoder = if is_equal { encoder.clone() } else { decoder };
    let named = |side: Side, tables: Vec<(&'static str, Recipe)>| {
        tables.into_iter().map(move |(path, recipe)| (format!("{}.{path}", side.name()), recipe))
    };
    named(Side::Encoder, encoder).chain(named(Side::Decoder, decoder)).collect()
}
