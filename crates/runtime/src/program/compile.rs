//! Finds the operations of a graph that a [`Program`] computes, and replaces them by one node.
//!
//! An operation has a level: the number of times that the path to it leaves programs for other
//! operations. The operations of a level form one program: it reads the results of other operations
//! of its level and below, and nothing that depends on its own outputs.

use super::attention::{CachedAttention, MaskSource, MemoryAttention, SelfAttention};
use super::constants::{Constants, Precision};
use super::convolution::{Convolution, Convolutions};
use super::embedding::{Embedding, Numbers, Positions, PositionsOfRows, Table};
use super::feed_forward::join;
use super::gate::Gate;
use super::grown::GrownAttention;
use super::heads::{Heads, divide};
use super::linear::Linear;
use super::operation::{
    Among, ConvolutionOf, MaskOf, Operation, PositionsFrom, PositionsOf, TableOf,
};
use super::output_layer::{Floats, LOGITS, LOGITS_SCALE, LayerWeights, OutputLayer};
use super::places::Places;
use super::product::Source;
use super::rotation::Rotation;
use super::rows::{BetweenProducts, Largest, RowNorm};
use super::sizes::Size;
use super::{Buffer, Place, Program, Step, View};
use crate::{BEST, SHORTLIST};
use cognate_export::proto::{GraphProto, NodeProto, TensorProto};
use cognate_kernels::{Activation, IntegerWeights, Screen};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// A graph whose programs are nodes.
pub(crate) struct Compiled {
    pub(crate) graph: GraphProto,
    pub(crate) programs: Vec<Arc<Program>>,
}

/// Rows before they were reshaped or sliced into columns.
#[derive(Clone, Copy)]
struct Base<'g> {
    tensor: &'g str,
    offset: usize,
    /// The width of the columns, and of the whole rows.
    width: usize,
    whole: usize,
}

impl Base<'_> {
    fn is_whole(&self) -> bool {
        self.width == self.whole
    }
}

/// Compiles the operations of `graph` that `read` recognises. `node` creates the node of a program.
pub(crate) fn compile(
    graph: &GraphProto,
    constants: &mut Constants,
    read: impl for<'g> Fn(&Places<'g>, &'g NodeProto) -> Option<Operation<'g>>,
    node: impl Fn(usize, Vec<String>, Vec<String>) -> NodeProto,
) -> Compiled {
    let places = Places::new(graph);
    let mut operations: Vec<_> = graph
        .node
        .iter()
        .map(|node| read(&places, node).filter(|operation| fits(&places, operation)))
        .collect();
    with_ends(&places, &mut operations);
    let mut needed = needed_of(&places, &operations);
    // Programs return rows in two axes; rows that others read in more axes are left to the engine.
    while let Some(wide) = operations.iter_mut().find(|operation| {
        let rows = operation.as_ref().map_or(Vec::new(), |operation| operation.outputs().0);
        rows.iter().any(|rows| needed.outside.contains(rows) && !places.has_axes(rows, 2))
    }) {
        *wide = None;
        needed = needed_of(&places, &operations);
    }
    let levels = levels(&places, &operations);
    let beams = operations.iter().flatten().filter_map(|operation| match operation {
        Operation::Cached { beams, .. } => Some(*beams),
        _ => None,
    });
    let beams: BTreeSet<_> = beams.collect();
    let mut made = GraphProto { node: Vec::new(), ..graph.clone() };
    let mut programs = Vec::new();
    for level in 0..=levels.iter().copied().max().unwrap_or(0) {
        let here: Vec<usize> = (0..graph.node.len())
            .filter(|&index| levels[index] == level && needed.nodes.contains(&index))
            .collect();
        let (inside, outside): (Vec<_>, Vec<_>) =
            here.into_iter().partition(|&index| operations[index].is_some());
        made.node.extend(outside.into_iter().map(|index| graph.node[index].clone()));
        if inside.is_empty() {
            continue;
        }
        let others = |tensor: &str| {
            needed.outside.contains(tensor)
                || needed
                    .readers
                    .get(tensor)
                    .is_some_and(|readers| readers.iter().any(|&at| levels[at] != level))
        };
        let steps: Vec<_> = inside.iter().filter_map(|&index| operations[index].as_ref()).collect();
        match Builder::build((&places, &beams), constants, &steps, &others) {
            Some((program, inputs, outputs)) => {
                made.node.push(node(programs.len(), inputs, outputs));
                programs.push(Arc::new(program));
            }
            None => return Compiled { graph: graph.clone(), programs: Vec::new() },
        }
    }
    Compiled { graph: made, programs }
}

/// Merges the operations after the product of an output layer into it: a factor for each row, and a
/// bias.
fn with_ends<'g>(places: &Places<'g>, operations: &mut [Option<Operation<'g>>]) {
    for at in 0..operations.len() {
        let Some(Operation::Rows {
            inputs: [x, scale, bias, residual, weight, _],
            activation,
            outputs: [out, bytes, _],
            ..
        }) = operations[at]
        else {
            continue;
        };
        let does_no_more = [residual, weight, bytes].iter().all(|name| name.is_empty())
            && activation == Activation::Identity;
        if !does_no_more || scale.is_empty() || bias.is_empty() || !is_output_layer(places, out) {
            continue;
        }
        let Some(product) = places.base(x).and_then(|base| places.source(base.tensor)) else {
            continue;
        };
        if let Some(Operation::IntegerProduct {
            x, weight, step, scale: factors, end: None, ..
        }) = operations[product]
        {
            operations[at] = Some(Operation::IntegerProduct {
                x,
                weight,
                step,
                scale: factors,
                end: Some([scale, bias]),
                out,
            });
        }
    }
}

/// Whether queries, keys and values are thirds of the same rows.
fn are_side_by_side(rows: &[&str; 3]) -> bool {
    [rows[1], rows[2]] == [rows[0]; 2]
}

/// Whether rows are logits and nothing else reads them.
fn is_output_layer(places: &Places<'_>, rows: &str) -> bool {
    rows == LOGITS && places.is_output(rows) && places.readers(rows).is_empty()
}

/// Whether the widths of the rows that an operation reads are known, and the rows are whole where
/// this is required.
fn fits<'g>(places: &Places<'g>, operation: &Operation<'g>) -> bool {
    let base = |rows: &'g str| places.base(rows);
    let whole = |rows: &'g str, width: Option<usize>| {
        base(rows)
            .is_some_and(|base| base.is_whole() && width.is_none_or(|width| base.width == width))
    };
    let size = |tensor: &TensorProto, axis: usize| {
        tensor.dims.get(axis).and_then(|&size| usize::try_from(size).ok())
    };
    match operation {
        Operation::Product { x, weight, .. } => {
            size(weight, 1).is_some_and(|inputs| whole(x, Some(inputs)))
        }
        Operation::IntegerProduct { x, weight, end, .. } => {
            let has_scale = end.is_none_or(|[scale, _]| whole(scale, Some(1)));
            has_scale && size(weight, 0).is_some_and(|inputs| whole(x, Some(inputs)))
        }
        Operation::Rows { inputs: [x, scale, _, residual, ..], .. } => {
            let width = base(x).map(|base| base.width);
            whole(x, None)
                && (scale.is_empty() || whole(scale, Some(1)))
                && (residual.is_empty() || whole(residual, width))
        }
        Operation::Cached { news, .. } => {
            let [_, key, value] = news.map(|rows| base(rows).map(|base| base.width));
            base(news[0]).is_some() && key.is_some() && key == value
        }
        Operation::Memory { inputs: [query, ..], .. } => base(query).is_some(),
        Operation::SelfAttention { rows, heads, .. } => match rows.map(base) {
            [Some(_), ..] if are_side_by_side(rows) => whole(rows[0], None),
            [Some(query), Some(key), Some(value)] => {
                [key.width, value.width] == [query.width; 2] && query.width.is_multiple_of(*heads)
            }
            _ => false,
        },
        Operation::Grown { news, .. } => {
            let [query, key, value] = news.map(|rows| base(rows).map(|base| base.width));
            query.is_some() && [key, value] == [query; 2]
        }
        Operation::Rotation { x, tables, .. } => {
            let d_k = size(tables[0], 1)
                .filter(|d_k| d_k.is_multiple_of(2) && size(tables[1], 1) == Some(*d_k));
            base(x).zip(d_k).is_some_and(|(base, d_k)| base.width.is_multiple_of(d_k))
        }
        Operation::Gate { x, gate, .. } => {
            base(x).zip(base(gate)).is_some_and(|(x, gate)| x.width == gate.width)
        }
        Operation::Heads { x, .. } => base(x).is_some(),
        Operation::Largest { x, .. } => whole(x, Some(1)),
        Operation::Convolutions { .. } | Operation::Embedding { .. } => true,
    }
}

impl<'g> Places<'g> {
    /// The rows that `tensor` was reshaped or sliced from.
    fn base(&self, tensor: &'g str) -> Option<Base<'g>> {
        let width = |tensor: &str| usize::try_from(self.shape(tensor)?.last()?.dim_value?).ok();
        let own = width(tensor)?;
        let mut base = Base { tensor, offset: 0, width: own, whole: own };
        loop {
            if let Some((_, node)) = self.giver(base.tensor, "Reshape") {
                if width(&node.input[0]) != Some(base.whole) {
                    return Some(base);
                }
                base.tensor = &node.input[0];
            } else if let Some((_, node)) = self.giver(base.tensor, "Slice") {
                let [from, start, _, axes] = node.input.as_slice() else { return Some(base) };
                let (Some(start), Some(axis), Some(shape)) =
                    (self.integer(start), self.integer(axes), self.shape(from))
                else {
                    return Some(base);
                };
                let (Some(whole), Ok(start)) = (width(from), usize::try_from(start)) else {
                    return Some(base);
                };
                if usize::try_from(axis) != Ok(shape.len() - 1) {
                    return Some(base);
                }
                base = Base { tensor: from, offset: base.offset + start, whole, ..base };
            } else {
                return Some(base);
            }
        }
    }
}

/// The level of every node; inputs precede their readers.
fn levels<'g>(places: &Places<'g>, operations: &[Option<Operation<'g>>]) -> Vec<usize> {
    let mut levels = Vec::with_capacity(operations.len());
    for (node, operation) in places.graph.node.iter().zip(operations) {
        let after = |tensor: &str, is_inside: bool, levels: &[usize]| match places.source(tensor) {
            Some(source) if !is_inside && operations[source].is_some() => levels[source] + 1,
            Some(source) => levels[source],
            None => 0,
        };
        let level = match operation {
            Some(operation) => {
                let (rows, tensors) = operation.inputs();
                let rows = rows
                    .into_iter()
                    .filter_map(|rows| places.base(rows))
                    .map(|base| after(base.tensor, true, &levels));
                rows.chain(tensors.into_iter().map(|tensor| after(tensor, false, &levels))).max()
            }
            None => node.input.iter().map(|tensor| after(tensor, false, &levels)).max(),
        };
        levels.push(level.unwrap_or(0));
    }
    levels
}

/// The tensors and operations that are needed.
struct Needed<'g> {
    nodes: BTreeSet<usize>,
    /// Outputs, and tensors that other operations read, or programs in their original shape.
    outside: BTreeSet<&'g str>,
    /// The operations that read rows.
    readers: HashMap<&'g str, Vec<usize>>,
}

fn needed_of<'g>(places: &Places<'g>, operations: &[Option<Operation<'g>>]) -> Needed<'g> {
    let mut needed =
        Needed { nodes: BTreeSet::new(), outside: BTreeSet::new(), readers: HashMap::new() };
    needed.outside.extend(places.graph.output.iter().map(|output| output.name.as_str()));
    for (index, node) in places.graph.node.iter().enumerate().rev() {
        let is_needed = |output: &&String| {
            needed.outside.contains(output.as_str()) || needed.readers.contains_key(output.as_str())
        };
        if !node.output.iter().filter(|output| !output.is_empty()).any(|output| is_needed(&output))
        {
            continue;
        }
        needed.nodes.insert(index);
        match &operations[index] {
            Some(operation) => {
                let (rows, tensors) = operation.inputs();
                needed.outside.extend(tensors);
                for base in rows.into_iter().filter_map(|rows| places.base(rows)) {
                    needed.readers.entry(base.tensor).or_default().push(index);
                }
            }
            None => needed.outside.extend(node.input.iter().map(String::as_str)),
        }
    }
    needed
}

/// Builds a program.
struct Builder<'b, 'g> {
    places: &'b Places<'g>,
    /// The tensors that name the beam of each position.
    beams: &'b BTreeSet<&'g str>,
    constants: &'b mut Constants,
    /// Buffers by tensor.
    known: HashMap<&'g str, usize>,
    buffers: Vec<Buffer>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// The step that reads a tensor last.
    last: BTreeMap<&'g str, usize>,
    /// The rows `[n, 1]` that are the factor of logits, and their minimum.
    logits_scale: Option<(&'g str, f32)>,
}

impl<'b, 'g> Builder<'b, 'g> {
    fn build(
        (places, beams): (&'b Places<'g>, &'b BTreeSet<&'g str>),
        constants: &'b mut Constants,
        operations: &[&Operation<'g>],
        is_output: &dyn Fn(&str) -> bool,
    ) -> Option<(Program, Vec<String>, Vec<String>)> {
        let mut last = BTreeMap::new();
        for (at, operation) in operations.iter().enumerate() {
            let (rows, _) = operation.inputs();
            last.extend(rows.into_iter().filter_map(|rows| Some((places.base(rows)?.tensor, at))));
        }
        let logits_scale = operations.iter().find_map(|operation| match **operation {
            Operation::Largest { x, least, out, .. } if out == LOGITS_SCALE => Some((x, least)),
            _ => None,
        });
        let (known, buffers, inputs, outputs) =
            (HashMap::new(), Vec::new(), Vec::new(), Vec::new());
        let mut builder = Builder {
            places,
            beams,
            constants,
            known,
            buffers,
            inputs,
            outputs,
            last,
            logits_scale,
        };
        // Every buffer has its own memory until its last reader is known.
        for operation in operations {
            let (rows, tensors) = operation.outputs();
            for rows in rows.into_iter().filter(|rows| is_output(rows)) {
                if !places.has_axes(rows, 2) {
                    return None;
                }
                builder.outputs.push(rows.into());
            }
            builder.outputs.extend(tensors.into_iter().map(str::to_owned));
        }
        let mut steps = Vec::new();
        for (at, operation) in operations.iter().enumerate() {
            steps.push(builder.step(at, operation)?);
        }
        let Builder { buffers, inputs, outputs, .. } = builder;
        let caches = steps.iter().flat_map(|step| {
            if let Step::Cached(cached) = step { cached.caches.to_vec() } else { Vec::new() }
        });
        let (caches, is_bytes) = (caches.collect(), vec![false; buffers.len()]);
        let mut program = Program {
            caches,
            steps: divide(join(steps, &buffers), &buffers),
            buffers,
            is_bytes,
            released: Vec::new(),
            free: Mutex::default(),
        };
        program.share();
        Some((program, inputs, outputs))
    }

    fn step(&mut self, at: usize, operation: &Operation<'g>) -> Option<Step> {
        Some(match operation.clone() {
            Operation::Product { x, weight, bias, out } => {
                let [outputs, inputs] = [0, 1]
                    .map(|axis| weight.dims.get(axis).and_then(|&size| usize::try_from(size).ok()));
                let (outputs, inputs) = (outputs?, inputs?);
                let bias = match bias {
                    Some(bias) => Some(self.constant(bias).filter(|bias| bias.len() == outputs)?),
                    None => None,
                };
                let precision = Precision::of(weight)?;
                let source = Source {
                    bytes: self.constants.bytes(weight)?,
                    precision,
                    inputs,
                    outputs,
                    bias,
                };
                let (x, made) = (self.rows(x)?.buffer, self.made(out)?);
                match is_output_layer(self.places, out) {
                    true => Step::Output(Box::new(self.output_layer(
                        x,
                        made,
                        LayerWeights::Floats(Box::new(Floats::new(source))),
                    ))),
                    false => Step::Product { x, weights: Linear::Floats(source.pack()), out: made },
                }
            }
            Operation::IntegerProduct { x, weight, step, scale, end, out } => {
                let inputs = usize::try_from(*weight.dims.first()?).ok()?;
                let mut factors = self.constants.floats(scale)?;
                let bytes = self.constants.bytes(weight)?;
                if bytes.all().len() != inputs * factors.len() {
                    return None;
                }
                factors.iter_mut().for_each(|factor| *factor *= step);
                let weights = IntegerWeights::pack(inputs, bytes.all(), &factors);
                bytes.release();
                let end = match end {
                    Some([steps, bias]) => Some((
                        self.rows(steps)?.buffer,
                        self.constant(bias).filter(|bias| bias.len() == factors.len())?,
                    )),
                    None => None,
                };
                let (x, made) = (self.rows(x)?.buffer, self.made(out)?);
                match (is_output_layer(self.places, out), end) {
                    (true, end) => {
                        let (steps, bias) = end.unzip();
                        let layer = self.output_layer(
                            x,
                            made,
                            LayerWeights::Integers(Box::new(Screen::of(weights, bias.as_deref()))),
                        );
                        Step::Output(Box::new(OutputLayer { steps, ..layer }))
                    }
                    (false, _) => {
                        Step::Product { x, weights: Linear::Integers(weights), out: made }
                    }
                }
            }
            Operation::Rows {
                inputs: [x, scale, bias, residual, weight, norm_bias],
                epsilon,
                activation,
                outputs: [out, bytes, largest],
            } => {
                let base = self.places.base(x)?.tensor;
                let (x, width) = (self.rows(x)?.buffer, self.places.base(x)?.width);
                let mut wide = |name: &str| match name {
                    "" => Some(None),
                    name => Some(Some(self.constant(name)?))
                        .filter(|found| found.as_ref().is_some_and(|row| row.len() == width)),
                };
                let (bias, weight, norm_bias) = (wide(bias)?, wide(weight)?, wide(norm_bias)?);
                let norm = weight.map(|weight| RowNorm { weight, bias: norm_bias, epsilon });
                let [scale, residual] = [scale, residual].map(|rows| match rows {
                    "" => Some(None),
                    rows => Some(Some(self.rows(rows)?.buffer)),
                });
                let (scale, residual) = (scale?, residual?);
                let dies = self.last.get(base) == Some(&at)
                    && matches!(self.buffers[x].place, Place::Own(_));
                let out = match out {
                    "" => dies.then_some(x),
                    out if dies && !self.outputs.iter().any(|output| output == out) => {
                        self.known.insert(out, x);
                        Some(x)
                    }
                    out => Some(self.made(out)?),
                };
                let quantised = if bytes.is_empty() {
                    None
                } else {
                    Some([self.made(bytes)?, self.made(largest)?])
                };
                Step::Rows(BetweenProducts {
                    x,
                    scale,
                    bias,
                    residual,
                    norm,
                    activation,
                    out,
                    quantised,
                })
            }
            Operation::Cached {
                news,
                caches: [keys, values],
                beams,
                bias,
                scores,
                outputs: [out, keys_out, values_out],
            } => {
                let [query, key, value] = news.map(|rows| self.rows(rows));
                let caches = [(keys, keys_out), (values, values_out)]
                    .map(|(input, output)| [self.input(input), self.output(output)]);
                let (beams, bias) = (self.input(beams), bias.map(|bias| self.input(bias)));
                Step::Cached(CachedAttention {
                    news: [query?, key?, value?],
                    caches,
                    beams,
                    bias,
                    scores,
                    out: self.made(out)?,
                })
            }
            Operation::Memory { inputs: [query, keys, values], mask, scale, out, weights } => {
                let (keys, values, mask) =
                    (self.input(keys), self.input(values), mask.map(|mask| self.mask(mask)));
                let (query, weights) =
                    (self.rows(query)?, weights.map(|weights| self.output(weights)));
                Step::Memory(MemoryAttention {
                    query,
                    keys,
                    values,
                    mask,
                    scale,
                    out: self.made(out)?,
                    weights,
                })
            }
            Operation::SelfAttention { rows, among, heads, scale, out } => {
                let among = match among {
                    Among::Masked(mask) => Among::Masked(self.mask(mask)),
                    Among::All(n) => Among::All(self.size(n)),
                };
                let mut views = [self.rows(rows[0])?, self.rows(rows[1])?, self.rows(rows[2])?];
                if are_side_by_side(&rows) {
                    let width = views[0].width / 3;
                    for (third, view) in views.iter_mut().enumerate() {
                        (view.offset, view.width) = (third * width, width);
                    }
                }
                Step::SelfAttention(SelfAttention {
                    views,
                    among,
                    heads,
                    scale,
                    out: self.made(out)?,
                })
            }
            Operation::Grown { news, pasts, mask, scale, outputs: [out, keys, values] } => {
                let [query, key, value] = news.map(|rows| self.rows(rows));
                let grown = [(pasts[0], keys), (pasts[1], values)]
                    .map(|(past, all)| [self.input(past), self.output(all)]);
                Step::Grown(GrownAttention {
                    news: [query?, key?, value?],
                    grown,
                    mask: mask.map(|mask| self.mask(mask)),
                    scale,
                    out: self.made(out)?,
                })
            }
            Operation::Rotation { x, tables: [cosines, sines], positions, out } => {
                let [cosines, sines] =
                    [cosines, sines].map(|table| self.table(TableOf { table, steps: None }));
                let (x, tables) = (self.rows(x)?, [cosines?, sines?]);
                let positions = self.positions(positions);
                Step::Rotation(Rotation { x, tables, positions, out: self.made(out)? })
            }
            Operation::Gate { x, gate, activation, out } => Step::Gate(Gate {
                x: self.rows(x)?,
                gate: self.rows(gate)?,
                activation,
                out: self.made(out)?,
            }),
            Operation::Heads { x, sizes, out, half } => Step::Heads(Heads {
                x: self.rows(x)?,
                sizes: self.sizes(sizes),
                output: self.output(out),
                half,
            }),
            Operation::Largest { x, least, sizes, out } => Step::Largest(Largest {
                x: self.rows(x)?.buffer,
                least,
                sizes: self.sizes(sizes),
                output: self.output(out),
            }),
            Operation::Convolutions { frames, layers, positions, out } => {
                let layers = layers.into_iter().map(|layer| self.convolution(layer));
                let layers = layers.collect::<Option<_>>()?;
                let positions = match positions {
                    Some(table) => Some(self.table(TableOf { table, steps: None })?),
                    None => None,
                };
                Step::Convolutions(Convolutions {
                    frames: self.input(frames),
                    layers,
                    positions,
                    out: self.made(out)?,
                })
            }
            Operation::Embedding { ids, tokens, factor, positions, out } => {
                let (ids, table) = (self.input(ids), self.table(tokens)?);
                let positions = match positions {
                    Some(PositionsOf { table, from }) => {
                        let table = self.table(TableOf { table, steps: None })?;
                        Some(Positions { table, rows: self.positions(from) })
                    }
                    None => None,
                };
                let is_same =
                    positions.as_ref().is_none_or(|positions| positions.table.width == table.width);
                is_same.then_some(Step::Embedding(Embedding {
                    ids,
                    table,
                    factor,
                    positions,
                    out: self.made(out)?,
                }))?
            }
        })
    }

    fn convolution(&mut self, layer: ConvolutionOf<'g>) -> Option<Convolution> {
        let ConvolutionOf { weight, bias, sizes, activation } = layer;
        let (weights, bias) = (self.constants.floats(weight)?, self.constants.floats(bias)?);
        Some(Convolution::new(sizes, &weights, &bias, activation))
    }

    fn output_layer(&mut self, x: usize, out: usize, weights: LayerWeights) -> OutputLayer {
        let scale = self.logits_scale.and_then(|(rows, least)| {
            Some((*self.known.get(self.places.base(rows)?.tensor)?, least))
        });
        // The softmax is that of the scaled logits.
        let is_known = scale.is_some() == self.logits_scale.is_some();
        let best = (is_known && weights.finds_best()).then(|| self.input(BEST));
        OutputLayer { x, out, weights, steps: None, scale, shortlist: self.input(SHORTLIST), best }
    }

    fn mask(&mut self, MaskOf { tensor, hidden }: MaskOf<'g>) -> MaskSource {
        let input = self.input(tensor);
        hidden.map_or(MaskSource::Given(input), |hidden| MaskSource::Padding(input, hidden))
    }

    fn positions(&mut self, from: PositionsFrom<&'g str>) -> PositionsOfRows {
        let mut inputs = from.inputs().into_iter();
        let beams = inputs.find(|tensor| self.beams.contains(**tensor)).copied();
        let beams = beams.map(|beams| self.input(beams));
        let from = match from {
            PositionsFrom::Sizes { sizes, counted } => {
                PositionsFrom::Sizes { sizes: sizes.map(|size| self.size(size)), counted }
            }
            PositionsFrom::Held { beams, offset } => {
                PositionsFrom::Held { beams: self.input(beams), offset }
            }
        };
        PositionsOfRows { from, beams }
    }

    fn size(&mut self, size: Size<&'g str>) -> Size {
        size.with(&mut |tensor| self.input(tensor))
    }

    fn sizes(&mut self, sizes: Vec<Size<&'g str>>) -> Vec<Size> {
        sizes.into_iter().map(|size| self.size(size)).collect()
    }

    fn table(&mut self, TableOf { table, steps }: TableOf<'g>) -> Option<Table> {
        let (bytes, width) =
            (self.constants.bytes(table)?, usize::try_from(*table.dims.last()?).ok()?);
        let numbers = match steps {
            Some(steps) => Numbers::Integers(
                self.constants
                    .floats(steps)
                    .filter(|steps| steps.len() * width == bytes.all().len())?,
            ),
            None => Numbers::Floats(Precision::of(table)?),
        };
        Some(Table { bytes, numbers, width })
    }

    /// A constant, or one to which a number is added.
    fn constant(&mut self, name: &str) -> Option<Vec<f32>> {
        if let Some((_, add)) = self.places.giver(name, "Add") {
            let number = self.places.number(&add.input[1])?;
            let mut numbers = self.constants.floats(self.places.constant(&add.input[0])?)?;
            numbers.iter_mut().for_each(|given| *given += number);
            return Some(numbers);
        }
        self.constants.floats(self.places.constant(name)?)
    }

    /// The number of an input.
    fn input(&mut self, tensor: &str) -> usize {
        self.inputs.iter().position(|input| input == tensor).unwrap_or_else(|| {
            self.inputs.push(tensor.into());
            self.inputs.len() - 1
        })
    }

    fn output(&self, tensor: &str) -> usize {
        self.outputs.iter().position(|output| output == tensor).expect("listed before")
    }

    /// Rows that were computed before, or are an input.
    fn rows(&mut self, rows: &'g str) -> Option<View> {
        let base = self.places.base(rows)?;
        let buffer = match self.known.get(base.tensor) {
            Some(&buffer) => buffer,
            None => {
                let place = Place::Input(self.input(base.tensor));
                self.buffers.push(Buffer { width: base.whole, place });
                self.known.insert(base.tensor, self.buffers.len() - 1);
                self.buffers.len() - 1
            }
        };
        Some(View { buffer, offset: base.offset, width: base.width })
    }

    /// A buffer for rows that are computed here.
    fn made(&mut self, rows: &'g str) -> Option<usize> {
        let width = usize::try_from(self.places.shape(rows)?.last()?.dim_value?).ok()?;
        let place = self
            .outputs
            .iter()
            .position(|output| output == rows)
            .map_or(Place::Own(self.buffers.len()), Place::Output);
        self.buffers.push(Buffer { width, place });
        self.known.insert(rows, self.buffers.len() - 1);
        Some(self.buffers.len() - 1)
    }
}
