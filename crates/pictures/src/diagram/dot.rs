//! Diagrams as text for Graphviz (<https://graphviz.org/doc/info/lang.html>).

use super::{Diagram, Kind};
use std::fmt::Write;

impl Diagram {
    /// The diagram in Graphviz's language, with boxes open to `depth`: 0 draws only the outermost
    /// ones.
    pub fn to_dot(&self, depth: usize) -> String {
        let mut out = format!(
            "digraph {} {{\n  label={}\n  labelloc=t\n  rankdir=TB\n  node [shape=box, style=\"rounded,filled\", fillcolor=white, \
             fontname=\"sans-serif\"]\n  edge [fontname=\"sans-serif\", fontsize=9]\n",
            quoted(&self.title),
            quoted(&format!("{}\n{}", self.title, self.note))
        );
        self.dot_boxes(&mut out, None, depth, 1);
        for arrow in self.shown_arrows(depth) {
            let _ = writeln!(
                out,
                "  b{} -> b{} [label={}]",
                arrow.from,
                arrow.to,
                quoted(&arrow.label)
            );
        }
        out + "}\n"
    }

    fn dot_boxes(&self, out: &mut String, parent: Option<usize>, depth: usize, indent: usize) {
        let space = "  ".repeat(indent);
        for index in self.children(parent) {
            let block = &self.boxes[index];
            if self.is_open(index, depth) {
                let _ = writeln!(
                    out,
                    "{space}subgraph cluster_{index} {{\n{space}  label={}",
                    quoted(&block.name)
                );
                self.dot_boxes(out, Some(index), depth, indent + 1);
                let _ = writeln!(out, "{space}}}");
            } else {
                let label = if block.equation.is_empty() {
                    block.name.clone()
                } else {
                    format!("{}\n{}", block.name, block.equation)
                };
                let fill = match block.kind {
                    Kind::Input | Kind::Output => ", fillcolor=lightgrey",
                    Kind::Module => ", fillcolor=lightblue",
                    Kind::Operation => "",
                };
                let _ = writeln!(out, "{space}b{index} [label={}{fill}]", quoted(&label));
            }
        }
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
