//! The grammar of valid graphs.

use crate::infer::infer;
use crate::{Class, Dim, Error, ErrorKind, Graph, Loop, Node, Op, Symbol};
use std::collections::BTreeSet;

impl Graph {
    /// Checks the whole grammar: every node reads earlier nodes, its type is the inferred one,
    /// names are unique, and every symbol can be read from the shape of an input or an earlier
    /// node.
    ///
    /// # Errors
    /// The first violated rule, with the node's name.
    pub fn verify(&self) -> Result<(), Error> {
        let grammar =
            |place: &str, message: String| Err(Error::new(ErrorKind::Grammar, place, message));
        let mut known: BTreeSet<Symbol> =
            self.inputs().flat_map(|(_, node)| read_symbols(node)).collect();
        let mut names = BTreeSet::new();
        for (id, node) in self.iter() {
            if !names.insert(node.name.as_str()) {
                return grammar(&node.name, "two nodes have this name".into());
            }
            if let Some(input) = node.inputs.iter().find(|&&input| input >= id) {
                return grammar(
                    &node.name,
                    format!("reads {input}, which is not computed before {id}"),
                );
            }
            if node.op.class() == Class::Declared {
                if !node.inputs.is_empty() {
                    return grammar(
                        &node.name,
                        "an input or a parameter must have no inputs".into(),
                    );
                }
                if node.op == Op::Parameter && node.ty.shape.as_constant().is_none() {
                    return grammar(
                        &node.name,
                        format!(
                            "expected a constant shape for a parameter, found {}",
                            node.ty.shape
                        ),
                    );
                }
            } else {
                let inputs: Vec<_> =
                    node.inputs.iter().map(|&input| &self.node(input).ty).collect();
                let expected = infer(&node.op, &inputs)
                    .map_err(|message| Error::new(ErrorKind::Type, &node.name, message))?;
                if node.ty != expected {
                    return grammar(&node.name, format!("expected {expected}, found {}", node.ty));
                }
            }
            if let Op::Indices(symbol) = &node.op
                && !known.insert(symbol.clone())
            {
                return grammar(&node.name, format!("the size {symbol} is known already"));
            }
            if let Op::Loop(repeat) = &node.op {
                repeat.body.verify()?;
                if let Some(symbol) =
                    self.growing(node, repeat).find(|symbol| known.contains(*symbol))
                {
                    return grammar(&node.name, format!("the size {symbol} is known already"));
                }
            }
            if let Op::LoopResult { index, ty } = &node.op {
                let source = &self.node(node.inputs[0]).op;
                let Op::Loop(repeat) = source else {
                    return grammar(
                        &node.name,
                        format!("expected a loop, found {}", source.name()),
                    );
                };
                let given = repeat.body.inputs().nth(index + 1).filter(|_| *index < repeat.carried);
                if given.is_none_or(|(_, given)| given.ty != **ty) {
                    return grammar(
                        &node.name,
                        format!("the loop carries no value {index} of type {ty}"),
                    );
                }
                let loop_node = self.node(node.inputs[0]);
                known.extend(
                    self.growing(loop_node, repeat)
                        .filter(|symbol| ty.shape.dims().contains(&Dim::symbol(symbol)))
                        .cloned(),
                );
            }
            let op_dims = node.op.dims();
            let mut symbols =
                op_dims.iter().chain(node.ty.shape.dims()).flat_map(|dim| dim.symbols());
            if let Some(symbol) = symbols.find(|symbol| !known.contains(*symbol)) {
                return grammar(&node.name, format!("no input has an axis {symbol}"));
            }
        }
        let mut outputs = BTreeSet::new();
        for output in &self.outputs {
            if output.node.0 >= self.nodes.len() {
                return grammar(&output.name, format!("output {} does not exist", output.node));
            }
            if !outputs.insert(&output.name) {
                return grammar(&output.name, "two outputs have this name".into());
            }
        }
        if outputs.is_empty() {
            grammar(&self.name, "the graph has no output".into())
        } else {
            Ok(())
        }
    }
}

impl Graph {
    /// The symbols of a loop's body that have other values after each iteration.
    fn growing<'a>(&'a self, node: &'a Node, repeat: &'a Loop) -> impl Iterator<Item = &'a Symbol> {
        let given = node.inputs.iter().map(|&input| &self.node(input).ty.shape);
        let inside = repeat.body.inputs().map(|(_, node)| &node.ty.shape);
        let dims = given.zip(inside).skip(1).take(repeat.carried);
        dims.flat_map(|(given, inside)| given.dims().iter().zip(inside.dims()))
            .filter(|(given, inside)| given != inside)
            .filter_map(|(_, inside)| inside.as_symbol())
    }
}

/// The symbols that can be read from an input's shape.
fn read_symbols(input: &Node) -> impl Iterator<Item = Symbol> {
    input.ty.shape.dims().iter().filter_map(Dim::as_linear).map(|linear| linear.symbol.clone())
}
