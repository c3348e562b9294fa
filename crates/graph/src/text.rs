//! The canonical text of a graph: stable, for snapshots, `cognate show` and error context.
//!
//! ```text
//! graph attention
//!   input q: f32 [tgt, 3]
//!   input k: f32 [src, 3]
//!   %2 = Transpose %1 order=[1, 0] : f32 [3, src]
//!   %3 = MatMul %0 %2 : f32 [tgt, src]
//!   output scores = %3
//! ```
//!
//! Inputs and parameters are referenced by name, other nodes by number; a line `in PATH` opens each
//! scope. The body of a loop follows it, indented.

use crate::{Class, Graph, Op};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl Graph {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        writeln!(f, "{indent}graph {}", self.name)?;
        for (_, node) in self.inputs() {
            let default = self
                .defaults
                .get(&node.name)
                .map(|default| format!(" = {default}"))
                .unwrap_or_default();
            writeln!(f, "{indent}  input {}: {}{default}", node.name, node.ty)?;
        }
        for (_, node) in self.parameters() {
            writeln!(f, "{indent}  parameter {}: {}", node.name, node.ty)?;
        }
        let mut scope = "";
        for (id, node) in self.iter() {
            if node.op.class() == Class::Declared {
                continue;
            }
            let path = node.name.rsplit_once('/').map_or("", |(path, _)| path);
            if path != scope {
                writeln!(
                    f,
                    "{indent}  in {}",
                    if path.is_empty() { self.name.as_str() } else { path }
                )?;
                scope = path;
            }
            write!(f, "{indent}  {id} = {}", node.op.name())?;
            for &input in &node.inputs {
                let read = self.node(input);
                if read.op.class() == Class::Declared {
                    write!(f, " {}", read.name)?
                } else {
                    write!(f, " {input}")?
                }
            }
            node.op.attributes().iter().try_for_each(|attribute| write!(f, "{attribute}"))?;
            writeln!(f, " : {}", node.ty)?;
            if let Op::Loop(repeat) = &node.op {
                repeat.body.write(f, &format!("{indent}    "))?;
            }
        }
        for output in &self.outputs {
            writeln!(f, "{indent}  output {} = {}", output.name, output.node)?;
        }
        Ok(())
    }
}
