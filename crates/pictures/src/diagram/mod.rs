//! Diagrams of graphs: nested boxes and arrows.
//!
//! A [`Diagram`] is written as a page with boxes that open ([`Diagram::to_html`]), or as text for
//! Graphviz ([`Diagram::to_dot`]) and Mermaid ([`Diagram::to_mermaid`]) with boxes open to a depth.

mod dot;
mod mermaid;
mod page;
mod view;

use serde::Serialize;

/// Boxes and arrows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagram {
    /// The title.
    pub title: String,
    /// The sizes for the numbers, such as `batch 1, src 32`.
    pub note: String,
    /// The boxes in the order of evaluation, parents before children.
    pub boxes: Vec<Block>,
    /// The arrows between boxes without children.
    pub arrows: Vec<Arrow>,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Its name within its parent.
    pub name: String,
    /// The index of its parent in [`Diagram::boxes`].
    pub parent: Option<usize>,
    /// Its kind.
    pub kind: Kind,
    /// Its equation or description; can be empty.
    pub equation: String,
    /// Number of parameters, those of children included.
    pub parameters: u64,
    /// Number of floating-point operations, those of children included.
    pub operations: u64,
}

/// The kind of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An input.
    Input,
    /// A module of the model.
    Module,
    /// An operation.
    Operation,
    /// An output.
    Output,
}

/// An arrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// The index of its start in [`Diagram::boxes`].
    pub from: usize,
    /// The index of its end.
    pub to: usize,
    /// The type of the tensor, such as `f32 [batch, src, 512]`.
    pub label: String,
}

impl Diagram {
    /// The depth of a box: 0 without a parent.
    pub(crate) fn depth(&self, mut index: usize) -> usize {
        let mut depth = 0;
        while let Some(parent) = self.boxes[index].parent {
            (index, depth) = (parent, depth + 1);
        }
        depth
    }

    /// The children of a box, or the boxes without a parent.
    pub(crate) fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> {
        self.boxes
            .iter()
            .enumerate()
            .filter(move |(_, block)| block.parent == parent)
            .map(|(index, _)| index)
    }
}
