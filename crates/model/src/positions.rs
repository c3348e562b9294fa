//! Positions in self-attention; `embedding` has those that are added to embeddings.

use crate::embedding::{Side, SinusoidTable};
use crate::relative::{self, Ranges};
use crate::rotary::{self, Rotation};
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
}

/// The positions of each layer, for queries `past..past + tgt` and keys `0..past + tgt`,
/// with `mask` added.
pub(crate) fn orders<'g>(root: &Scope<'g>, config: &Config, side: Side, mask: Option<Tensor<'g>>, past: &Dim, tgt: &Dim) -> Vec<Order<'g>> {
    let n_layers = side.stack(config).n_layers;
    let masked = |mask| Order { mask: Some(mask), rotation: None };
    let relative = |ranges| relative::masks(root, config, side, ranges, mask, [past, tgt]).into_iter().map(masked).collect();
    match config.positions {
        Positions::Sinusoidal(_) | Positions::Learned { .. } | Positions::Counted | Positions::LearnedCounted { relative: None } => {
            vec![Order { mask, rotation: None }; n_layers]
        }
        Positions::Relative { buckets, max_distance, of } => relative(Ranges { buckets, max_distance, of }),
        Positions::LearnedCounted { relative: Some([buckets, max_distance]) } => {
            relative(Ranges { buckets, max_distance, of: RelativeLayers::First })
        }
        Positions::Rotary => vec![Order { mask, rotation: Some(Rotation::new(root, config, side, past, tgt)) }; n_layers],
        Positions::Alibi => vec![masked(alibi::mask(root, config, side, mask, [past, tgt])); n_layers],
    }
}

/// Weights computed by formulas, by path. Equal tables of both stacks share a recipe, so they
/// are stored once.
pub(crate) fn computed(config: &Config) -> BTreeMap<String, Recipe> {
    let [encoder, decoder] = [(Side::Encoder, config.of_encoder()), (Side::Decoder, config)].map(|(side, config)| match config.positions {
        Positions::Sinusoidal(_) | Positions::Counted => SinusoidTable::of(config)
            .map(|table| ("embed_positions.weight", Recipe::generated(Arc::new(table), &[config.position_rows(), config.d_model])))
            .into_iter()
            .collect(),
        Positions::Rotary => rotary::tables(config, side.stack(config).d_k),
        Positions::Alibi => vec![(alibi::SLOPES, alibi::slopes_recipe(side.stack(config).heads))],
        Positions::Learned { .. } | Positions::LearnedCounted { .. } | Positions::Relative { .. } => Vec::new(),
    });
    let is_equal = encoder.iter().map(|(_, recipe)| recipe.shape()).eq(decoder.iter().map(|(_, recipe)| recipe.shape()));
    let decoder = if is_equal { encoder.clone() } else { decoder };
    let named = |side: Side, tables: Vec<(&'static str, Recipe)>| {
        tables.into_iter().map(move |(path, recipe)| (format!("{}.{path}", side.name()), recipe))
    };
    named(Side::Encoder, encoder).chain(named(Side::Decoder, decoder)).collect()
}
