//! The operations of a graph that programs compute.

use super::sizes::Size;
use cognate_export::proto::TensorProto;
use cognate_kernels::Activation;

/// An operation on rows, as named by the substitution of subgraphs, or a product.
#[derive(Clone)]
pub(crate) enum Operation<'g> {
    /// With weights in f32, or in bfloat16, to which rows are rounded.
    Product {
        x: &'g str,
        weight: &'g TensorProto,
        bias: Option<&'g str>,
        out: &'g str,
    },
    IntegerProduct {
        x: &'g str,
        weight: &'g TensorProto,
        step: f32,
        scale: &'g TensorProto,
        /// The factor of the rows of an output layer, and the bias that is added afterwards.
        end: Option<[&'g str; 2]>,
        out: &'g str,
    },
    Rows {
        inputs: [&'g str; 6],
        epsilon: f32,
        activation: Activation,
        outputs: [&'g str; 3],
    },
    Cached {
        news: [&'g str; 3],
        caches: [&'g str; 2],
        beams: &'g str,
        bias: Option<&'g str>,
        scores: Scores,
        outputs: [&'g str; 3],
    },
    Memory {
        inputs: [&'g str; 3],
        mask: Option<MaskOf<'g>>,
        scale: f32,
        out: &'g str,
        weights: Option<&'g str>,
    },
    /// Queries, keys and values are separate rows, or side by side in the same.
    SelfAttention {
        rows: [&'g str; 3],
        among: Among<MaskOf<'g>, Size<&'g str>>,
        heads: usize,
        scale: f32,
        out: &'g str,
    },
    /// Outputs are the rows, and the keys and values of the past and of the new positions.
    Grown {
        news: [&'g str; 3],
        pasts: [&'g str; 2],
        mask: Option<MaskOf<'g>>,
        scale: f32,
        outputs: [&'g str; 3],
    },
    /// `tables` are cosines and sines of positions.
    Rotation {
        x: &'g str,
        tables: [&'g TensorProto; 2],
        positions: PositionsFrom<&'g str>,
        out: &'g str,
    },
    Gate {
        x: &'g str,
        gate: &'g str,
        activation: Activation,
        out: &'g str,
    },
    Heads {
        x: &'g str,
        sizes: Vec<Size<&'g str>>,
        /// In half precision if `half`.
        out: &'g str,
        half: bool,
    },
    /// Of the input `frames`; `positions` are rows that are added.
    Convolutions {
        frames: &'g str,
        layers: Vec<ConvolutionOf<'g>>,
        positions: Option<&'g TensorProto>,
        out: &'g str,
    },
    Embedding {
        ids: &'g str,
        tokens: TableOf<'g>,
        factor: f32,
        positions: Option<PositionsOf<'g>>,
        out: &'g str,
    },
    Largest {
        x: &'g str,
        least: f32,
        sizes: Vec<Size<&'g str>>,
        out: &'g str,
    },
}

/// The scores of attention to caches: see [`CachedAttention`](cognate_graph::CachedAttention).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scores {
    pub(crate) scale: f32,
    pub(crate) cap: Option<f32>,
    pub(crate) window: Option<usize>,
}

/// A table of f32 or bfloat16, or of 8 bits with the step sizes of rows.
#[derive(Clone, Copy)]
pub(crate) struct TableOf<'g> {
    pub(crate) table: &'g TensorProto,
    pub(crate) steps: Option<&'g TensorProto>,
}

/// A convolution over time.
#[derive(Clone, Copy)]
pub(crate) struct ConvolutionOf<'g> {
    pub(crate) weight: &'g TensorProto,
    pub(crate) bias: &'g TensorProto,
    pub(crate) sizes: ConvolutionSizes,
    pub(crate) activation: Activation,
}

/// The sizes of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConvolutionSizes {
    pub(crate) channels: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    /// Zeros on each side.
    pub(crate) padding: usize,
}

/// A table of positions, and the rows that ids read.
#[derive(Clone)]
pub(crate) struct PositionsOf<'g> {
    pub(crate) table: &'g TensorProto,
    pub(crate) from: PositionsFrom<&'g str>,
}

/// The rows of positions in a table; each id reads one.
#[derive(Clone)]
pub(crate) enum PositionsFrom<I = usize> {
    /// From the first size to the second.
    Sizes { sizes: [Size<I>; 2], counted: Option<Counted> },
    /// The number of earlier positions that a beam holds, in the input `[batch, beams, past]`, plus
    /// `offset`.
    Held { beams: I, offset: usize },
}

impl<I> PositionsFrom<I> {
    /// The inputs.
    pub(super) fn inputs(&self) -> Vec<&I> {
        match self {
            Self::Sizes { sizes, .. } => sizes.iter().flat_map(Size::inputs).collect(),
            Self::Held { beams, .. } => vec![beams],
        }
    }
}

/// Positions that count tokens except padding: those of the `n`th token are in the row `pad + n`,
/// those of padding in the row `pad`.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    pub(crate) pad: i64,
    /// Whether each id is counted individually, not the rows of ids.
    pub(crate) is_single: bool,
}

/// The rows that attend to each other.
#[derive(Clone)]
pub(crate) enum Among<M, S> {
    /// Those of a sentence, whose length is the last axis of the mask.
    Masked(M),
    /// This number of rows, all of them.
    All(S),
}

/// A mask, or the input `i64 [batch, src]` whose zeros it hides, and the number that is added
/// there.
#[derive(Clone, Copy)]
pub(crate) struct MaskOf<'g> {
    pub(crate) tensor: &'g str,
    pub(crate) hidden: Option<f32>,
}

impl<'g> Operation<'g> {
    /// The rows that it reads, and the tensors that it reads in their original shape.
    pub(super) fn inputs(&self) -> (Vec<&'g str>, Vec<&'g str>) {
        let (rows, tensors) = match self {
            Self::Product { x, .. } => (vec![*x], vec![]),
            Self::IntegerProduct { x, end, .. } => {
                ([*x].into_iter().chain(end.map(|[scale, _]| scale)).collect(), vec![])
            }
            Self::Rows { inputs: [x, scale, _, residual, ..], .. } => {
                (vec![*x, *scale, *residual], vec![])
            }
            Self::Cached { news, caches, beams, bias, .. } => {
                (news.to_vec(), caches.iter().chain([beams]).chain(bias).copied().collect())
            }
            Self::Memory { inputs: [query, others @ ..], mask, .. } => {
                (vec![*query], others.iter().copied().chain(mask.map(|mask| mask.tensor)).collect())
            }
            Self::SelfAttention { rows, among: Among::Masked(mask), .. } => {
                (rows.to_vec(), vec![mask.tensor])
            }
            Self::SelfAttention { rows, among: Among::All(_), .. } => (rows.to_vec(), vec![]),
            Self::Grown { news, pasts, mask, .. } => {
                (news.to_vec(), pasts.iter().copied().chain(mask.map(|mask| mask.tensor)).collect())
            }
            Self::Rotation { x, positions, .. } => {
                (vec![*x], positions.inputs().into_iter().copied().collect())
            }
            Self::Gate { x, gate, .. } => (vec![*x, *gate], vec![]),
            Self::Heads { x, sizes, .. } | Self::Largest { x, sizes, .. } => {
                (vec![*x], of_sizes(sizes))
            }
            Self::Convolutions { frames, .. } => (vec![], vec![*frames]),
            Self::Embedding { ids, positions, .. } => (
                vec![],
                [*ids]
                    .into_iter()
                    .chain(positions.iter().flat_map(|positions| positions.from.inputs()).copied())
                    .collect(),
            ),
        };
        (rows.into_iter().filter(|rows| !rows.is_empty()).collect(), tensors)
    }

    /// The tensors that it computes: rows, and others.
    pub(super) fn outputs(&self) -> (Vec<&'g str>, Vec<&'g str>) {
        let (rows, tensors) = match self {
            Self::Product { out, .. } | Self::IntegerProduct { out, .. } => (vec![*out], vec![]),
            Self::Memory { out, weights, .. } => (vec![*out], weights.iter().copied().collect()),
            Self::SelfAttention { out, .. } => (vec![*out], vec![]),
            Self::Rows { outputs, .. } => (outputs.to_vec(), vec![]),
            Self::Cached { outputs: [out, caches @ ..], .. }
            | Self::Grown { outputs: [out, caches @ ..], .. } => (vec![*out], caches.to_vec()),
            Self::Embedding { out, .. }
            | Self::Convolutions { out, .. }
            | Self::Rotation { out, .. }
            | Self::Gate { out, .. } => (vec![*out], vec![]),
            Self::Heads { out, .. } | Self::Largest { out, .. } => (vec![], vec![*out]),
        };
        (rows.into_iter().filter(|rows| !rows.is_empty()).collect(), tensors)
    }
}

fn of_sizes<'g>(sizes: &[Size<&'g str>]) -> Vec<&'g str> {
    sizes.iter().flat_map(Size::inputs).copied().collect()
}
