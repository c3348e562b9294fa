//! A diagram with boxes open to a depth; deeper boxes are drawn as their ancestors.

use super::{Arrow, Diagram};
use std::collections::BTreeMap;

impl Diagram {
    /// The box or ancestor of `index` at most at `depth`.
    pub(super) fn shown(&self, mut index: usize, depth: usize) -> usize {
        while self.depth(index) > depth {
            let Some(parent) = self.boxes[index].parent else { break };
            index = parent;
        }
        index
    }

    /// Whether a box is drawn with its children.
    pub(super) fn is_open(&self, index: usize, depth: usize) -> bool {
        self.depth(index) < depth && self.children(Some(index)).next().is_some()
    }

    /// The arrows between drawn boxes; several between the same two become one with all distinct
    /// labels.
    pub(super) fn shown_arrows(&self, depth: usize) -> Vec<Arrow> {
        let mut found: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
        for arrow in &self.arrows {
            let ends = (self.shown(arrow.from, depth), self.shown(arrow.to, depth));
            if ends.0 != ends.1 {
                let labels = found.entry(ends).or_default();
                if !labels.contains(&arrow.label.as_str()) {
                    labels.push(&arrow.label);
                }
            }
        }
        found
            .into_iter()
            .map(|((from, to), labels)| Arrow { from, to, label: labels.join(", ") })
            .collect()
    }
}
