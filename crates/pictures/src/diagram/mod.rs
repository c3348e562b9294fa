//! Diagrams of graphs: boxes within boxes, and what flows from one to another.
//!
//! A [`Diagram`] becomes a page in which boxes open ([`Diagram::to_html`]), or text for Graphviz ([`Diagram::to_dot`]) and Mermaid
//! ([`Diagram::to_mermaid`]), in which all are open down to a depth.

mod dot;
mod mermaid;
mod page;
mod view;

use serde::Serialize;

/// Boxes and arrows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagram {
    /// What is drawn.
    pub title: String,
    /// What the numbers are for, as `batch 1, src 32`.
    pub note: String,
    /// The boxes, in the order of evaluation; one that holds others stands before them.
    pub boxes: Vec<Block>,
    /// The arrows between boxes that hold no others.
    pub arrows: Vec<Arrow>,
}

/// A box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Block {
    /// Its name within the box that holds it.
    pub name: String,
    /// The box that holds it, by its place in [`Diagram::boxes`].
    pub parent: Option<usize>,
    /// What it stands for.
    pub kind: Kind,
    /// What it computes, as a formula or a sentence; empty where its name says it.
    pub equation: String,
    /// Numbers that were learned, those of the boxes in it included.
    pub parameters: u64,
    /// Floating-point operations, those of the boxes in it included.
    pub operations: u64,
}

/// What a box stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What is given.
    Input,
    /// A part of the model.
    Module,
    /// One operation.
    Operation,
    /// What comes out.
    Output,
}

/// An arrow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Arrow {
    /// Where it begins, by its place in [`Diagram::boxes`].
    pub from: usize,
    /// Where it ends.
    pub to: usize,
    /// The type of what flows, as `f32 [batch, src, 512]`.
    pub label: String,
}

impl Diagram {
    /// How deep a box lies: 0 for those that no other holds.
    pub(crate) fn depth(&self, mut index: usize) -> usize {
        let mut depth = 0;
        while let Some(parent) = self.boxes[index].parent {
            (index, depth) = (parent, depth + 1);
        }
        depth
    }

    /// The boxes that a box holds itself, or those that none holds.
    pub(crate) fn children(&self, parent: Option<usize>) -> impl Iterator<Item = usize> {
        self.boxes.iter().enumerate().filter(move |(_, block)| block.parent == parent).map(|(index, _)| index)
    }
}
