//! The nodes that stay f32 in an export in f16.

use cognate_model::without_layer;
use cognate_passes::half::{Kept, Why};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nodes that stay f32 in an export in f16; equal nodes of all layers are one entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptInF32 {
    /// `encoder` or `decoder`.
    pub graph: String,
    /// The operation, parameter, input or output, with `{l}` for the layer.
    pub node: String,
    /// The number of nodes.
    pub places: usize,
    /// The reason.
    pub why: String,
    /// The largest magnitude found there; `None` if there is none or it is NaN.
    pub largest: Option<f32>,
}

impl KeptInF32 {
    /// The nodes that a pass kept, by reason.
    pub fn of(kept: &[Kept]) -> Vec<Self> {
        let mut kept: Vec<_> = kept.iter().collect();
        kept.sort_by_key(|kept| kept.why);
        let mut entries: Vec<Self> = Vec::new();
        for Kept { program, node, why, largest } in kept {
            let (graph, node, why) = (
                if *program == 0 { "encoder" } else { "decoder" },
                without_layer(node),
                reason(*why),
            );
            match entries
                .iter_mut()
                .find(|known| known.graph == graph && known.node == node && known.why == why)
            {
                Some(known) => {
                    known.places += 1;
                    // `None` is less than any number.
                    known.largest = if *largest > known.largest { *largest } else { known.largest };
                }
                None => entries.push(Self {
                    graph: graph.into(),
                    node,
                    places: 1,
                    why: why.into(),
                    largest: *largest,
                }),
            }
        }
        entries
    }
}

impl fmt::Display for KeptInF32 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { graph, node, places, why, largest } = self;
        write!(f, "{graph}: {node}")?;
        if *places > 1 {
            write!(f, " x {places}")?;
        }
        write!(f, ": {why}")?;
        largest.map_or(Ok(()), |largest| write!(f, ", up to {largest:.1e}"))
    }
}

fn reason(why: Why) -> &'static str {
    match why {
        Why::Range => "near or beyond the limit of f16",
        Why::Weight => "weights beyond the limit of f16",
        Why::Reads => "input exceeds the range of f16",
        Why::Precision => "greedy tokens would change",
        Why::Unseen => "values not observed in any run",
        Why::Mask => "mask",
        Why::Softmax => "softmax",
        Why::Normalisation => "normalisation",
    }
}
