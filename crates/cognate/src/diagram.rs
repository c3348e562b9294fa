//! Graphs as diagrams: modules as boxes, with equations, parameters and FLOPs.

mod equations;

use cognate_graph::{Bindings, Graph, NodeId, Op, Program, Symbol};
use cognate_model::Config;
use cognate_pictures::{Arrow, Block, Diagram, Kind};
use std::collections::HashMap;

/// The default number of tokens for which FLOPs are counted; a step decodes one token after 31.
const TOKENS: usize = 32;

/// The sizes of a graph's symbols: `given`, else defaults.
///
/// # Errors
/// The reason, if the graph does not have a symbol.
pub fn sizes(graph: &Graph, given: &[(String, usize)]) -> Result<Vec<(Symbol, usize)>, String> {
    let mut symbols: Vec<Symbol> = Vec::new();
    for (_, node) in graph.inputs() {
        for dim in node.ty.shape.dims() {
            symbols.extend(dim.as_symbol().filter(|symbol| !symbols.contains(symbol)).cloned());
        }
    }
    let named = || symbols.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if let Some((name, _)) =
        given.iter().find(|(name, _)| !symbols.iter().any(|symbol| symbol.to_string() == *name))
    {
        return Err(format!("{} has no {name}; expected one of {}", graph.name(), named()));
    }
    let twice = |at: &usize| given[..*at].iter().any(|(name, _)| *name == given[*at].0);
    if let Some(at) = (1..given.len()).find(twice) {
        return Err(format!("{} occurs twice", given[at].0));
    }
    let has_past = symbols.iter().any(|symbol| symbol.to_string() == "past");
    let size = |symbol: &Symbol| {
        let name = symbol.to_string();
        given.iter().find(|(given, _)| *given == name).map(|(_, size)| *size).unwrap_or(match name
            .as_str()
        {
            "batch" | "beams" => 1,
            "past" => TOKENS - 1,
            "tgt" if has_past => 1,
            _ => TOKENS,
        })
    };
    Ok(symbols.iter().map(|symbol| (symbol.clone(), size(symbol))).collect())
}

/// The diagram of a program with sizes.
pub fn diagram(
    program: &Program,
    config: &Config,
    title: String,
    sizes: &[(Symbol, usize)],
) -> Diagram {
    let graph = program.graph();
    let mut bindings = Bindings::default();
    for (symbol, size) in sizes {
        // Symbols are distinct.
        let _first = bindings.bind(symbol, *size);
    }
    let note: Vec<String> = sizes.iter().map(|(symbol, size)| format!("{symbol} {size}")).collect();
    let mut drawing = Drawing {
        diagram: Diagram { title, note: note.join(", "), boxes: Vec::new(), arrows: Vec::new() },
        modules: HashMap::new(),
    };
    let mut boxes: HashMap<NodeId, usize> = HashMap::new();
    for (id, node) in graph.iter() {
        if is_constant(&node.op) {
            continue;
        }
        let index = if node.op == Op::Input {
            drawing.add(node.name.clone(), None, Kind::Input, node.ty.to_string())
        } else {
            let (scope, name) = node.name.rsplit_once('/').unwrap_or(("", &node.name));
            let parent = drawing.module(scope, config);
            drawing.add(name.to_owned(), parent, Kind::Operation, node.op.formula().to_owned())
        };
        boxes.insert(id, index);
        drawing.count(index, 0, graph.operations(id, &bindings).unwrap_or_default());
        for input in &node.inputs {
            let read = graph.node(*input);
            if let Some(&from) = boxes.get(input) {
                drawing.diagram.arrows.push(Arrow { from, to: index, label: read.ty.to_string() });
            }
        }
    }
    for (id, parameter) in graph.parameters() {
        let elements =
            program.weights().get(&parameter.name).map_or(0, |recipe| recipe.elements() as u64);
        let own = parameter
            .name
            .rsplit_once('.')
            .and_then(|(module, _)| drawing.modules.get(module).copied());
        // A shared table belongs to the first module that reads it.
        let first = || {
            graph
                .iter()
                .find(|(_, node)| node.inputs.contains(&id))
                .and_then(|(reader, _)| boxes.get(&reader).copied())
        };
        let reader = || first().map(|index| drawing.diagram.boxes[index].parent.unwrap_or(index));
        if let Some(holder) = own.or_else(reader) {
            drawing.count(holder, elements, 0);
        }
    }
    for output in graph.outputs() {
        let node = graph.node(output.node);
        let index = drawing.add(output.name.clone(), None, Kind::Output, node.ty.to_string());
        if let Some(&from) = boxes.get(&output.node) {
            drawing.diagram.arrows.push(Arrow { from, to: index, label: node.ty.to_string() });
        }
    }
    drawing.in_order()
}

/// Constants are not drawn.
fn is_constant(op: &Op) -> bool {
    matches!(op, Op::Parameter | Op::Scalar(_) | Op::Integers(_))
}

struct Drawing {
    diagram: Diagram,
    /// Boxes of modules by path.
    modules: HashMap<String, usize>,
}

impl Drawing {
    fn add(&mut self, name: String, parent: Option<usize>, kind: Kind, equation: String) -> usize {
        self.diagram.boxes.push(Block {
            name,
            parent,
            kind,
            equation,
            parameters: 0,
            operations: 0,
        });
        self.diagram.boxes.len() - 1
    }

    /// The box of the module at a path, created with its ancestors if it does not exist.
    fn module(&mut self, path: &str, config: &Config) -> Option<usize> {
        if path.is_empty() {
            return None;
        }
        if let Some(&index) = self.modules.get(path) {
            return Some(index);
        }
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = self.module(parent, config);
        let index =
            self.add(name.to_owned(), parent, Kind::Module, equations::of_module(path, config));
        self.modules.insert(path.to_owned(), index);
        Some(index)
    }

    /// Adds counts to a box and its ancestors.
    fn count(&mut self, index: usize, parameters: u64, operations: u64) {
        let mut at = Some(index);
        while let Some(index) = at {
            let block = &mut self.diagram.boxes[index];
            block.parameters += parameters;
            block.operations = block.operations.saturating_add(operations);
            at = block.parent;
        }
    }

    /// The diagram with the boxes of each box ordered by their last operation, so that a box
    /// follows its inputs.
    fn in_order(self) -> Diagram {
        let Diagram { title, note, boxes, arrows } = self.diagram;
        let mut ends: Vec<usize> = (0..boxes.len()).collect();
        let mut within: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        // Boxes follow their parents.
        for index in (0..boxes.len()).rev() {
            if let Some(parent) = boxes[index].parent {
                ends[parent] = ends[parent].max(ends[index]);
            }
            within.entry(boxes[index].parent).or_default().push(index);
        }
        within.values_mut().for_each(|indices| indices.sort_by_key(|index| ends[*index]));
        let (mut order, mut open) =
            (Vec::with_capacity(boxes.len()), within.remove(&None).unwrap_or_default());
        open.reverse();
        while let Some(index) = open.pop() {
            order.push(index);
            open.extend(within.remove(&Some(index)).into_iter().flatten().rev());
        }
        let mut places = vec![0; boxes.len()];
        order.iter().enumerate().for_each(|(place, index)| places[*index] = place);
        let moved = |index: &usize| Block {
            parent: boxes[*index].parent.map(|parent| places[parent]),
            ..boxes[*index].clone()
        };
        let boxes = order.iter().map(moved).collect();
        let arrows = arrows
            .into_iter()
            .map(|arrow| Arrow { from: places[arrow.from], to: places[arrow.to], ..arrow })
            .collect();
        Diagram { title, note, boxes, arrows }
    }
}
