//! The tree of a beam search, as text.

use crate::observed::{Observed, Seen};
use anyhow::Result;
use cognate_generate::BeamTree;
use std::io::Write;

/// Tells it, and the finished hypotheses.
pub(super) fn tell(observed: &Observed, seen: &Seen, out: &mut dyn Write) -> Result<()> {
    let (hypotheses, tree) = observed.beam_tree(&seen.source)?;
    for line in lines(&tree, &|id| observed.piece(id)) {
        writeln!(out, "  {line}")?;
    }
    for (rank, hypothesis) in hypotheses.iter().enumerate() {
        writeln!(out, "  #{}  {:.4}  {}", rank + 1, hypothesis.score, observed.text(&hypothesis.tokens)?)?;
    }
    writeln!(
        out,
        "  Numbers behind a word: the log-probability of all words up to it, under the model alone. # is a finished hypothesis, with the score\n  \
         that it is ranked by; × is one that was left."
    )?;
    Ok(())
}

/// A line for each place where hypotheses part, and for each of their ends.
fn lines(tree: &BeamTree, piece: &dyn Fn(i64) -> String) -> Vec<String> {
    let mut lines = Vec::new();
    if !tree.nodes.is_empty() {
        branch(tree, 0, "", "", piece, &mut lines);
    }
    lines
}

/// The line of a node and of what follows it alone, then the branches below.
fn branch(tree: &BeamTree, node: usize, first: &str, rest: &str, piece: &dyn Fn(i64) -> String, lines: &mut Vec<String>) {
    let (mut line, mut at) = (first.to_owned(), node);
    let children = loop {
        let known = &tree.nodes[at];
        line.push_str(&piece(known.token));
        if known.parent.is_some() {
            line.push_str(&format!(" {:.2}", known.log_probability));
        }
        if let Some((rank, score)) = known.finished {
            line.push_str(&format!("  #{} {score:.4}", rank + 1));
        }
        let children: Vec<usize> = tree.children(at).collect();
        match children[..] {
            [only] => {
                line.push_str("  ");
                at = only;
            }
            [] if known.finished.is_none() => {
                line.push_str("  ×");
                break children;
            }
            _ => break children,
        }
    };
    lines.push(line);
    for (index, &child) in children.iter().enumerate() {
        let is_last = index + 1 == children.len();
        let (elbow, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        branch(tree, child, &format!("{rest}{elbow}"), &format!("{rest}{bar}"), piece, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_generate::BeamNode;

    #[test]
    fn a_tree_is_drawn() {
        let node = |token, parent, log_probability, finished| BeamNode { token, parent, log_probability, finished };
        let nodes = vec![
            node(0, None, 0.0, None),
            node(1, Some(0), -0.1, None),
            node(2, Some(1), -0.5, None),
            node(3, Some(1), -0.7, None),
            node(4, Some(2), -0.9, Some((0, -0.3))),
            node(5, Some(2), -1.5, None),
        ];
        let found = lines(&BeamTree { nodes }, &|id| format!("w{id}"));
        assert_eq!(found, ["w0  w1 -0.10", "├─ w2 -0.50", "│  ├─ w4 -0.90  #1 -0.3000", "│  └─ w5 -1.50  ×", "└─ w3 -0.70  ×"]);
    }
}
