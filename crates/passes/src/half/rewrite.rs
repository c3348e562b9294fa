//! The program rebuilt by a plan, with casts where a node reads the other type.

use super::LARGEST;
use super::plan::Plan;
use cognate_graph::{
    Builder, DType, Element, Error, Graph, NodeId, Op, Program, Recipe, Scalar, Tensor, Type, f16,
};
use std::collections::{BTreeSet, HashMap};

/// The program with the nodes of `plan` and the parameters `in_half` in f16; inputs and outputs
/// only if `may` allows it.
pub(super) fn rewrite(
    program: &Program,
    plan: &Plan,
    in_half: &BTreeSet<String>,
    may: impl Fn(&str) -> bool,
) -> Result<Program, Error> {
    let graph = program.graph();
    let builder = Builder::new(graph.name());
    let mut made = Made { graph, builder: &builder, values: Vec::new(), cast: HashMap::new() };
    for (id, node) in graph.iter() {
        let dtype = |half: bool| if half { DType::F16 } else { DType::F32 };
        let value = if node.op == Op::Input && node.ty.dtype.is_float() {
            Some(builder.input(&node.name, plan.wants(id), node.ty.shape.clone()))
        } else if node.op == Op::Parameter {
            Some(builder.parameter(
                &node.name,
                Type::new(dtype(in_half.contains(&node.name)), node.ty.shape.clone()),
            ))
        } else if matches!(node.op, Op::Scalar(Scalar::F32(_))) {
            // Created at its readers, in the type that they need.
            None
        } else {
            Some(builder.copy(node, |input| made.value(input, plan.wants(id))))
        };
        if node.ty.dtype == DType::F16 {
            builder.fail(format_args!("{}: is already f16; expected a program in f32", node.name));
        }
        made.values.push(value);
    }
    for output in graph.outputs() {
        let wanted = if may(&output.name) { DType::F16 } else { DType::F32 };
        let value = made.value(output.node, wanted);
        builder.output(&output.name, value);
    }
    drop(made);
    let weights = program
        .weights()
        .iter()
        .map(|(path, recipe)| (path.to_string(), element_of(recipe, in_half.contains(path))))
        .collect();
    Program::new(builder.finish()?, weights)
}

fn element_of(recipe: &Recipe, half: bool) -> Recipe {
    if half { recipe.to(Element::F16) } else { recipe.clone() }
}

struct Made<'g, 'b> {
    graph: &'g Graph,
    builder: &'b Builder,
    /// By node of the old graph; `None` for constants.
    values: Vec<Option<Tensor<'b>>>,
    /// Constants, and values converted to the other type.
    cast: HashMap<(NodeId, DType), Tensor<'b>>,
}

impl<'b> Made<'_, 'b> {
    /// The value of an old node, in the type `wanted` if it is floating point.
    fn value(&mut self, id: NodeId, wanted: DType) -> Tensor<'b> {
        let node = self.graph.node(id);
        let value = self.values[id.index()];
        if let Some(value) =
            value.filter(|value| !node.ty.dtype.is_float() || value.ty().dtype == wanted)
        {
            return value;
        }
        *self.cast.entry((id, wanted)).or_insert_with(|| match (&node.op, value) {
            (Op::Scalar(Scalar::F32(number)), _) if wanted == DType::F16 => {
                // A mask's constant stays finite, because a product with 0 is 0.
                let number = f16::from_f32(number.clamp(-LARGEST, LARGEST));
                self.builder.node(&node.name, Op::Scalar(Scalar::F16(number)), &[])
            }
            (op, None) => self.builder.node(&node.name, op.clone(), &[]),
            (_, Some(value)) => {
                // In the scope of the value; for a parameter, its path without the last part.
                let scope = if node.op == Op::Parameter {
                    node.name.rsplit_once('.')
                } else {
                    node.name.rsplit_once('/')
                };
                let name = scope.map_or("Cast".into(), |(scope, _)| format!("{scope}/Cast"));
                self.builder.node(&name, Op::Cast(wanted), &[value])
            }
        })
    }
}
