//! A trie of byte strings: finds the strings of a set that are prefixes of a text.
//!
//! Nodes are in one vector; the children of a node are adjacent and sorted.

use std::collections::VecDeque;

/// Strings with their ids.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    byte: u8,
    n_children: u16,
    first_child: u32,
    id: Option<u32>,
}

impl Trie {
    /// A trie of distinct strings; empty strings are ignored.
    pub(crate) fn new<'a>(strings: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut sorted: Vec<(&[u8], u32)> =
            strings.into_iter().map(|(text, id)| (text.as_bytes(), id)).collect();
        sorted.retain(|(text, _)| !text.is_empty());
        sorted.sort_unstable();
        if sorted.is_empty() {
            return Self::default();
        }
        let mut nodes = vec![Node { byte: 0, n_children: 0, first_child: 0, id: None }];
        // Below a node: a range of the sorted strings that share the node's first `depth` bytes.
        let mut pending = VecDeque::from([(0, 0..sorted.len(), 0)]);
        while let Some((node, mut range, depth)) = pending.pop_front() {
            if node > 0 && sorted[range.start].0.len() == depth {
                nodes[node].id = Some(sorted[range.start].1);
                range.start += 1;
            }
            nodes[node].first_child = u32::try_from(nodes.len())
                .expect("a model has at most 2^20 pieces of 8,000 bytes in 2^28 bytes");
            while !range.is_empty() {
                let byte = sorted[range.start].0[depth];
                let end = range.start
                    + sorted[range.clone()].partition_point(|(text, _)| text[depth] == byte);
                pending.push_back((nodes.len(), range.start..end, depth + 1));
                nodes.push(Node { byte, n_children: 0, first_child: 0, id: None });
                nodes[node].n_children += 1;
                range.start = end;
            }
        }
        Self { nodes }
    }

    /// Every string that is a prefix of `text`, shortest first: its length in bytes and its id.
    pub(crate) fn prefixes<'a>(
        &'a self,
        text: &'a [u8],
    ) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = self.nodes.first();
        text.iter()
            .enumerate()
            .map_while(move |(index, byte)| {
                node = node.and_then(|parent| self.child(parent, *byte));
                node.map(|found| (index + 1, found.id))
            })
            .filter_map(|(length, id)| Some((length, id?)))
    }

    /// The length of the longest string that is a prefix of `text`.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<usize> {
        self.prefixes(text).last().map(|(length, _)| length)
    }

    fn child(&self, parent: &Node, byte: u8) -> Option<&Node> {
        let first = parent.first_child as usize;
        let children = &self.nodes[first..first + usize::from(parent.n_children)];
        let index = children.binary_search_by_key(&byte, |child| child.byte).ok()?;
        Some(&children[index])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prefix_is_found_and_nothing_else() {
        let trie = Trie::new([("a", 3), ("abc", 1), ("ab", 0), ("b", 7), ("ß", 9), ("", 4)]);
        let cases: &[(&str, &[(usize, u32)])] = &[
            ("abcd", &[(1, 3), (2, 0), (3, 1)]),
            ("ab", &[(1, 3), (2, 0)]),
            ("bab", &[(1, 7)]),
            ("ßa", &[(2, 9)]),
            ("Ca", &[]),
            ("", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(trie.prefixes(text.as_bytes()).collect::<Vec<_>>(), *expected, "{text:?}");
        }
        assert_eq!(trie.longest(b"abd"), Some(2));
        assert_eq!(Trie::new([]).longest(b"a"), None);
    }
}
