//! The tree of beam search, as text.

use crate::Beams;
use std::io::{Result, Write};

/// Prints the tree and the finished hypotheses.
pub(super) fn print(beams: &Beams, out: &mut dyn Write) -> Result<()> {
    for line in lines(beams) {
        writeln!(out, "  {line}")?;
    }
    for (rank, hypothesis) in beams.finished.iter().enumerate() {
        writeln!(out, "  #{}  {:.4}  {}", rank + 1, hypothesis.score, hypothesis.text)?;
    }
    writeln!(
        out,
        "  The number after a token is the model's log-probability of all tokens up to it. # is the rank of a finished hypothesis, with its\n  \
         score; × is a hypothesis that was dropped."
    )?;
    Ok(())
}

/// A line for each branch and each end.
fn lines(beams: &Beams) -> Vec<String> {
    let mut lines = Vec::new();
    if !beams.nodes.is_empty() {
        branch(beams, 0, "", "", &mut lines);
    }
    lines
}

/// The line of a node and its only successors, then the branches below.
fn branch(beams: &Beams, node: usize, first: &str, rest: &str, lines: &mut Vec<String>) {
    let (mut line, mut at) = (first.to_owned(), node);
    let children = loop {
        let known = &beams.nodes[at];
        line.push_str(&known.token.piece);
        if known.parent.is_some() {
            line.push_str(&format!(" {:.2}", known.log_probability));
        }
        if let Some((rank, finished)) =
            known.rank.and_then(|rank| Some((rank, beams.finished.get(rank)?)))
        {
            line.push_str(&format!("  #{} {:.4}", rank + 1, finished.score));
        }
        let children: Vec<usize> = beams.children(at).collect();
        match children[..] {
            [only] => {
                line.push_str("  ");
                at = only;
            }
            [] if known.rank.is_none() => {
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
        branch(beams, child, &format!("{rest}{elbow}"), &format!("{rest}{bar}"), lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Finished, Node, Token};

    #[test]
    fn a_tree_is_drawn() {
        let node = |id: i64, parent, log_probability, rank| Node {
            token: Token { piece: format!("w{id}"), id },
            parent,
            log_probability,
            rank,
        };
        let nodes = vec![
            node(0, None, 0.0, None),
            node(1, Some(0), -0.1, None),
            node(2, Some(1), -0.5, None),
            node(3, Some(1), -0.7, None),
            node(4, Some(2), -0.9, Some(0)),
            node(5, Some(2), -1.5, None),
        ];
        let beams = Beams {
            width: 2,
            nodes,
            finished: vec![Finished { text: "w1 w2".into(), score: -0.3 }],
        };
        assert_eq!(
            lines(&beams),
            [
                "w0  w1 -0.10",
                "├─ w2 -0.50",
                "│  ├─ w4 -0.90  #1 -0.3000",
                "│  └─ w5 -1.50  ×",
                "└─ w3 -0.70  ×"
            ]
        );
    }
}
