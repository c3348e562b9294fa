//! Joins elementwise operations that read each other's results.

use super::{TRANSPOSED, gemm, transposes};
use crate::program::{Places, own};
use cognate_export::proto::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, NodeProto,
};
use cognate_kernels::{Elementwise, Extent, Function, Instruction};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap};

/// The operator, with the inputs and outputs of [`Elementwise`].
const ELEMENTWISE: &str = "Elementwise";
/// Its attributes: the extent of each input, function and operands of each instruction, and the
/// instructions with outputs.
pub(in crate::ort) const EXTENTS: &str = "extents";
pub(in crate::ort) const INSTRUCTIONS: &str = "instructions";
pub(in crate::ort) const OUTPUTS: &str = "outputs";

const EXTENTS_BY_NUMBER: [Extent; 6] = [
    Extent::All,
    Extent::Rows,
    Extent::Columns,
    Extent::One,
    Extent::RowFours,
    Extent::ColumnFours,
];
/// Of products of matrices only [sums of four](sums).
const FUNCTIONS: [(Function, &str); 9] = [
    (Function::Add, "Add"),
    (Function::Sub, "Sub"),
    (Function::Mul, "Mul"),
    (Function::Div, "Div"),
    (Function::LessOrEqual, "LessOrEqual"),
    (Function::Sqrt, "Sqrt"),
    (Function::Floor, "Floor"),
    (Function::Relu, "Relu"),
    (Function::Inner, "Gemm"),
];

/// The operations that the attributes of a node describe.
pub(in crate::ort) fn decoded(
    [extents, instructions, outputs]: [Vec<i64>; 3],
) -> Option<(Vec<Extent>, Elementwise)> {
    let at = |number: &i64| usize::try_from(*number).ok();
    let extents: Option<Vec<_>> =
        extents.iter().map(|number| EXTENTS_BY_NUMBER.get(at(number)?).copied()).collect();
    let instructions: Option<Vec<_>> = instructions
        .as_chunks()
        .0
        .iter()
        .map(|[function, left, right]| {
            let (function, _) = *FUNCTIONS.get(at(function)?)?;
            Some(Instruction { function, operands: [at(left)?, at(right)?] })
        })
        .collect();
    let outputs: Option<Vec<_>> = outputs.iter().map(at).collect();
    let extents = extents?;
    let work = Elementwise::new(extents.clone(), instructions?, outputs?)?;
    Some((extents, work))
}

/// Whether a node computes one of the functions.
pub(super) fn has_function(node: &NodeProto) -> bool {
    node.domain.is_empty() && FUNCTIONS.iter().any(|(_, name)| *name == node.op_type)
}

/// Replaces groups of elementwise operations by one node each; returns their number.
pub(super) fn join(graph: &mut GraphProto) -> usize {
    let (mut made, mut replaced) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
    let places = Places::new(graph);
    for group in Groups::of(&places).groups {
        if group.operations.len() > 1 && !group.is_late {
            let nodes = group.operations.iter().flat_map(|operation| &operation.nodes);
            replaced.extend(nodes.clone().copied());
            let last = nodes.max().copied().unwrap_or_default();
            made.entry(last).or_default().push(group.node(&places));
        }
    }
    let n_made = made.len();
    insert(graph, made, &replaced);
    n_made
}

/// Inserts nodes before others, by their index, removes some, and sorts.
pub(super) fn insert(
    graph: &mut GraphProto,
    mut made: BTreeMap<usize, Vec<NodeProto>>,
    removed: &BTreeSet<usize>,
) {
    for (index, node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        graph.node.extend(made.remove(&index).unwrap_or_default());
        if !removed.contains(&index) {
            graph.node.push(node);
        }
    }
    sort(graph);
}

/// An elementwise operation of f32.
struct Operation<'g> {
    function: usize,
    /// Names of the operands, and their numbers relative to the result.
    operands: Vec<(&'g str, Extent)>,
    result: &'g str,
    shape: &'g [DimensionProto],
    /// What it replaces; the last computes the result.
    nodes: Vec<usize>,
}

impl<'g> Operation<'g> {
    fn of(places: &Places<'g>, index: usize) -> Option<Self> {
        let last = &places.graph.node[index];
        let (mut nodes, mut node) = (vec![index], last);
        if last.op_type == "Cast" {
            // Whether a number is less, as a number.
            let compared = places.source(&last.input[0])?;
            node = places.node(compared, "LessOrEqual")?;
            places.only_reader(&node.output[0], "Cast")?;
            nodes.insert(0, compared);
        } else if last.op_type == "LessOrEqual" {
            return None;
        }
        let function = FUNCTIONS.iter().position(|(_, name)| *name == node.op_type)?;
        let result = last.output[0].as_str();
        let shape = places.shape(result)?;
        let is_float = |tensor: &str| match places.constant(tensor) {
            Some(constant) => constant.data_type == DataType::Float as i32,
            None => places.has_elements(tensor, DataType::Float),
        };
        if !node.domain.is_empty() || !is_float(result) || shape.iter().all(is_one) {
            return None;
        }
        if node.op_type == "Gemm" {
            let [rows, columns] = sums(places, index)?;
            let operands = vec![(rows, Extent::RowFours), (columns, Extent::ColumnFours)];
            return Some(Self { function, operands, result, shape, nodes });
        }
        let operand = |name: &'g String| {
            let extent = extent(places, name, shape).filter(|_| is_float(name))?;
            Some((name.as_str(), extent))
        };
        let operands: Vec<_> = node.input.iter().map(operand).collect::<Option<_>>()?;
        let has_all = operands.iter().any(|(_, extent)| *extent == Extent::All);
        has_all.then_some(Self { function, operands, result, shape, nodes })
    }
}

fn is_one(size: &DimensionProto) -> bool {
    size.dim_value == Some(1)
}

/// What a tensor has numbers for in operations whose results have this shape.
fn extent(places: &Places<'_>, tensor: &str, shape: &[DimensionProto]) -> Option<Extent> {
    let constant = places.constant(tensor).map(|constant| {
        let size = |&size: &i64| DimensionProto { dim_value: Some(size), dim_param: None };
        constant.dims.iter().map(size).collect::<Vec<_>>()
    });
    let found = match &constant {
        Some(sizes) => sizes.as_slice(),
        None => places.shape(tensor)?,
    };
    let (width, rows) = shape.split_last()?;
    if found == shape {
        return Some(Extent::All);
    }
    if found.iter().all(is_one) {
        return Some(Extent::One);
    }
    let (last, before) = found.split_last()?;
    if is_one(last) && before == rows {
        return Some(Extent::Rows);
    }
    let is_columns = last == width && before.iter().all(is_one) && found.len() <= shape.len();
    is_columns.then_some(Extent::Columns)
}

/// Operations on numbers of one shape.
struct Group<'g> {
    operations: Vec<Operation<'g>>,
    /// Whether it becomes a part of the first group that reads it: it computes nothing but factors of
    /// dropout or comparisons, which would take memory until then.
    is_late: bool,
    /// The groups whose results reach its operands by other nodes, or are its operands.
    after: BTreeSet<usize>,
}

#[derive(Default)]
struct Groups<'g> {
    groups: Vec<Group<'g>>,
    /// The group of each result.
    of_result: HashMap<&'g str, usize>,
    /// The groups that each other tensor is computed from.
    reached: HashMap<&'g str, BTreeSet<usize>>,
}

impl<'g> Groups<'g> {
    fn of(places: &Places<'g>) -> Self {
        let mut groups = Self::default();
        for (index, node) in places.graph.node.iter().enumerate() {
            match Operation::of(places, index) {
                Some(operation) => groups.add(operation),
                None => {
                    let inputs = node.input.iter().map(String::as_str);
                    let reached: BTreeSet<_> =
                        inputs.flat_map(|input| groups.before(input)).collect();
                    for output in &node.output {
                        groups.reached.insert(output, reached.clone());
                    }
                }
            }
        }
        groups
    }

    /// The groups that a tensor is computed from, directly or through nodes of no group.
    fn before(&self, tensor: &str) -> BTreeSet<usize> {
        match self.of_result.get(tensor) {
            Some(&group) => BTreeSet::from([group]),
            None => self.reached.get(tensor).cloned().unwrap_or_default(),
        }
    }

    /// Whether one of the groups is `group` or follows it.
    fn follow(&self, groups: &BTreeSet<usize>, group: usize) -> bool {
        let (mut seen, mut next) = (BTreeSet::new(), Vec::from_iter(groups.iter().copied()));
        while let Some(found) = next.pop() {
            if found == group {
                return true;
            }
            if seen.insert(found) {
                next.extend(&self.groups[found].after);
            }
        }
        false
    }

    /// Whether a tensor is a result of the group, or not computed from its results.
    fn is_apart(&self, tensor: &str, group: usize) -> bool {
        self.of_result.get(tensor) == Some(&group) || !self.follow(&self.before(tensor), group)
    }

    /// Adds an operation to the group of an operand, if none of its other operands is computed from
    /// the results of that group, or to a new one.
    fn add(&mut self, operation: Operation<'g>) {
        let operands = || operation.operands.iter().rev();
        let group_of = |(operand, extent): &(&str, Extent)| {
            let &group = self.of_result.get(operand).filter(|_| *extent == Extent::All)?;
            (self.groups[group].operations[0].shape == operation.shape).then_some(group)
        };
        let is_free = |&group: &usize| {
            let is_late = |found: &usize| *found != group && self.groups[*found].is_late;
            operands().all(|operand| match group_of(operand).filter(is_late) {
                // It would become a part of the group.
                Some(late) => {
                    let operations = &self.groups[late].operations;
                    operations.iter().flat_map(|each| &each.operands).all(|&(read, _)| {
                        self.of_result.get(read) == Some(&late) || self.is_apart(read, group)
                    })
                }
                None => self.is_apart(operand.0, group),
            })
        };
        let found: Vec<usize> = operands().filter_map(group_of).filter(is_free).collect();
        let (late, mut others): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|&group| self.groups[group].is_late);
        let compares = FUNCTIONS[operation.function].0 == Function::LessOrEqual;
        if compares {
            others.clear();
        }
        let is_of_late = |(operand, extent): &(&str, Extent)| {
            *extent != Extent::All
                || self.of_result.get(operand).is_some_and(|group| late.contains(group))
        };
        let is_late = others.is_empty() && (compares || operands().all(is_of_late));
        let after: BTreeSet<_> = operands().flat_map(|(operand, _)| self.before(operand)).collect();
        let group = others.first().or(late.first()).copied().unwrap_or_else(|| {
            self.groups.push(Group { operations: Vec::new(), is_late, after: BTreeSet::new() });
            self.groups.len() - 1
        });
        for other in late.into_iter().filter(|&other| other != group) {
            for operation in std::mem::take(&mut self.groups[other].operations) {
                self.of_result.insert(operation.result, group);
                self.groups[group].operations.push(operation);
            }
            let after = std::mem::replace(&mut self.groups[other].after, BTreeSet::from([group]));
            self.groups[group].after.extend(after);
        }
        self.of_result.insert(operation.result, group);
        let found = &mut self.groups[group];
        found.is_late = is_late;
        found.after.extend(after);
        found.after.remove(&group);
        found.operations.push(operation);
    }
}

impl Group<'_> {
    fn node(&self, places: &Places<'_>) -> NodeProto {
        let results: HashMap<&str, usize> =
            self.operations.iter().enumerate().map(|(at, each)| (each.result, at)).collect();
        let (mut inputs, mut extents) = (Vec::new(), Vec::new());
        for &(operand, extent) in self.operations.iter().flat_map(|each| &each.operands) {
            if !results.contains_key(operand) && !inputs.contains(&operand) {
                inputs.push(operand);
                extents.push(extent);
            }
        }
        let number = |operand: &str| match results.get(operand) {
            Some(result) => inputs.len() + result,
            None => inputs.iter().position(|input| *input == operand).expect("collected above"),
        };
        let mut instructions = Vec::new();
        for operation in &self.operations {
            let first = number(operation.operands[0].0);
            let second = operation.operands.get(1).map_or(first, |(operand, _)| number(operand));
            instructions.extend([operation.function, first, second].map(|part| part as i64));
        }
        let nodes: BTreeSet<_> = self.operations.iter().flat_map(|each| &each.nodes).collect();
        let is_read = |result: &str| {
            places.is_output(result)
                || places.readers(result).iter().any(|reader| !nodes.contains(reader))
        };
        let read = self.operations.iter().enumerate().filter(|(_, each)| is_read(each.result));
        let (places_of_outputs, outputs): (Vec<_>, Vec<_>) =
            read.map(|(at, each)| (at as i64, each.result.to_owned())).unzip();
        let extents = extents.into_iter().map(|extent| {
            let found = EXTENTS_BY_NUMBER.iter().position(|each| *each == extent);
            found.expect("every extent has a number") as i64
        });
        let attributes = vec![
            integers(EXTENTS, extents.collect()),
            integers(INSTRUCTIONS, instructions),
            integers(OUTPUTS, places_of_outputs),
        ];
        let inputs = inputs.into_iter().map(str::to_owned).collect();
        let name = format!("{ELEMENTWISE}.{}", self.operations[0].result);
        own(ELEMENTWISE, inputs, outputs, &name, attributes)
    }
}

fn integers(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        r#type: AttributeType::Ints as i32,
        ints,
        ..AttributeProto::default()
    }
}

/// Sorts nodes so that each follows those whose outputs it reads, otherwise in their order.
pub(super) fn sort(graph: &mut GraphProto) {
    let givers: HashMap<&str, usize> = graph
        .node
        .iter()
        .enumerate()
        .flat_map(|(index, node)| node.output.iter().map(move |output| (output.as_str(), index)))
        .collect();
    let mut waits = vec![0; graph.node.len()];
    let mut readers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (index, node) in graph.node.iter().enumerate() {
        let before: BTreeSet<_> =
            node.input.iter().filter_map(|input| givers.get(input.as_str())).collect();
        waits[index] = before.len();
        before.into_iter().for_each(|&giver| readers.entry(giver).or_default().push(index));
    }
    let ready = (0..waits.len()).filter(|&index| waits[index] == 0).map(Reverse);
    let (mut ready, mut order): (BinaryHeap<_>, Vec<_>) = (ready.collect(), Vec::new());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for &reader in readers.get(&index).into_iter().flatten() {
            waits[reader] -= 1;
            if waits[reader] == 0 {
                ready.push(Reverse(reader));
            }
        }
    }
    assert_eq!(order.len(), graph.node.len(), "groups are not joined if they read each other");
    let mut nodes: Vec<_> = std::mem::take(&mut graph.node).into_iter().map(Some).collect();
    graph.node = order.into_iter().filter_map(|index| nodes[index].take()).collect();
}

/// The operands of a matrix of sums of four products, `[rows, 4]` and `[width, 4]`, which only
/// elementwise operations read; `index` is that of the product.
pub(super) fn sums<'g>(places: &Places<'g>, index: usize) -> Option<[&'g str; 2]> {
    let product = gemm(places, index)?;
    let [rows, columns] = product.input.as_slice() else { return None };
    let has_four = |operand: &String| {
        let shape = places.shape(operand);
        shape.is_some_and(|shape| shape.len() == 2 && shape[1].dim_value == Some(4))
    };
    let is_elementwise = |&reader: &usize| has_function(&places.graph.node[reader]);
    let is_found = [rows, columns].into_iter().all(has_four)
        && TRANSPOSED.map(|name| transposes(product, name)) == [false, true]
        && places.readers(&product.output[0]).iter().all(is_elementwise);
    is_found.then_some([rows, columns])
}
