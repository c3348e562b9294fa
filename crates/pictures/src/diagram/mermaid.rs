//! Diagrams as text for Mermaid (<https://mermaid.js.org/syntax/flowchart.html>).

use super::{Diagram, Kind};
use std::fmt::Write;

impl Diagram {
    /// The diagram as a Mermaid flowchart, with boxes open to `depth`: 0 draws only the outermost
    /// ones.
    pub fn to_mermaid(&self, depth: usize) -> String {
        // Strings of JSON are strings of YAML.
        let title = serde_json::Value::from(format!("{} ({})", self.title, self.note));
        let mut out = format!("---\ntitle: {title}\n---\nflowchart TB\n");
        self.mermaid_boxes(&mut out, None, depth, 1);
        for arrow in self.shown_arrows(depth) {
            let _ = writeln!(out, "  b{} -->|{}| b{}", arrow.from, quoted(&arrow.label), arrow.to);
        }
        out
    }

    fn mermaid_boxes(&self, out: &mut String, parent: Option<usize>, depth: usize, indent: usize) {
        let space = "  ".repeat(indent);
        for index in self.children(parent) {
            let block = &self.boxes[index];
            let name = quoted(&block.name);
            if self.is_open(index, depth) {
                let _ = writeln!(out, "{space}subgraph b{index}[{name}]");
                self.mermaid_boxes(out, Some(index), depth, indent + 1);
                let _ = writeln!(out, "{space}end");
            } else {
                let _ = match block.kind {
                    Kind::Input | Kind::Output => writeln!(out, "{space}b{index}([{name}])"),
                    Kind::Module => writeln!(out, "{space}b{index}[{name}]"),
                    Kind::Operation => writeln!(out, "{space}b{index}({name})"),
                };
            }
        }
    }
}

/// Quotes a text; special characters become entities.
fn quoted(text: &str) -> String {
    format!(
        "\"{}\"",
        text.replace('&', "#amp;").replace('"', "#quot;").replace('<', "#lt;").replace('\n', " ")
    )
}
