//! Equalisation: gives the channels of a normalisation and of the layer that reads it similar
//! ranges before both are rounded to 8 bits.
//!
//! In 8 bits the step size of a row is determined by its largest element. A channel whose
//! normalisation has a large scale and whose weights are small reduces the precision of all others,
//! and a channel of large weights does so in the columns of the weight. Dividing a channel of the
//! normalisation by `f` and multiplying the weights that read it by `f` changes no result. The
//! factors are those of cross-layer equalisation (Nagel et al. 2019, section 4.1), which needs no
//! data, and of SmoothQuant (Xiao et al. 2023, equation 4, α = 0.5), with the range of a normalised
//! value estimated from its scale and bias. They are powers of 2, so in f32 no result changes a
//! bit.
//!
//! ```text
//! f_j ≈ √(r_j / max_i |W_ij|),  r_j = 3 |scale_j| + |bias_j|
//! ```

use cognate_graph::{
    Builder, DType, Error, Generator, Graph, Node, NodeId, Op, Program, Recipe, Type, Weights,
};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The assumed range of a normalised value, in standard deviations.
const DEVIATIONS: f32 = 3.0;

/// The program with each normalisation equalised with the layer that reads it, if only that layer
/// reads it.
///
/// # Errors
/// Never for a graph that [`Builder::finish`](cognate_graph::Builder::finish) returned.
pub fn equalize(program: &Program) -> Result<Program, Error> {
    let graph = program.graph();
    // By reader and parameter: a weight may also be a table of tokens, which is unchanged.
    let scaled: BTreeMap<(NodeId, NodeId), Recipe> =
        pairs(graph).iter().flat_map(|pair| pair.scaled(graph, program.weights())).collect();
    let builder = Builder::new(graph.name());
    let mut weights: BTreeMap<String, Recipe> =
        program.weights().iter().map(|(path, recipe)| (path.into(), recipe.clone())).collect();
    let mut values = Vec::new();
    for (id, node) in graph.iter() {
        let value = builder.copy(node, |input| match scaled.get(&(id, input)) {
            Some(recipe) => {
                let path = format!("{}.equalized", graph.node(input).name);
                weights.insert(path.clone(), recipe.clone());
                builder.parameter(&path, Type::new(DType::F32, recipe.shape()))
            }
            None => values[input.index()],
        });
        values.push(value);
    }
    for output in graph.outputs() {
        builder.output(&output.name, values[output.node.index()]);
    }
    drop(values);
    Program::new(builder.finish()?, weights.into_iter().collect())
}

/// A normalisation and the layer that reads it.
struct Pair {
    norm: NodeId,
    layer: NodeId,
}

impl Pair {
    /// The new value of each parameter by its reader: those of the normalisation are divided, the
    /// layer's weight is multiplied.
    fn scaled(&self, graph: &Graph, weights: &Weights) -> Vec<((NodeId, NodeId), Recipe)> {
        let recipe = |id: NodeId| {
            weights
                .get(&graph.node(id).name)
                .expect("a program has a weight for each parameter")
                .clone()
        };
        let (parameters, weight) =
            (&graph.node(self.norm).inputs[1..], graph.node(self.layer).inputs[1]);
        let (scale, bias) = (recipe(parameters[0]), parameters.get(1).copied().map(recipe));
        let factors =
            Arc::new(Factors { scale, bias, weight: recipe(weight), values: OnceLock::new() });
        let scaled = |id: NodeId, divides| {
            let (parameter, factors) = (recipe(id), factors.clone());
            let shape = parameter.shape().to_vec();
            Recipe::generated(Arc::new(Scaled { parameter, factors, divides }), &shape)
        };
        let divided = parameters.iter().map(|&id| ((self.norm, id), scaled(id, true)));
        divided.chain([((self.layer, weight), scaled(weight, false))]).collect()
    }
}

/// The pairs whose parameters are not read by another pair, normalisation or layer.
fn pairs(graph: &Graph) -> Vec<Pair> {
    let is_norm = |node: &Node| matches!(node.op, Op::LayerNorm { .. } | Op::RmsNorm { .. });
    let is_plain =
        |id: &NodeId| graph.node(*id).op == Op::Parameter && graph.node(*id).ty.dtype == DType::F32;
    let readers = |id: NodeId| graph.iter().filter(move |(_, node)| node.inputs.contains(&id));
    let is_alone = |id: NodeId| {
        readers(id).filter(|(_, node)| is_norm(node) || node.op == Op::Linear).count() == 1
    };
    let pair = |(norm, node): (NodeId, &Node)| {
        let is_output = graph.outputs().iter().any(|output| output.node == norm);
        let (layer, reader) =
            readers(norm).next().filter(|_| !is_output && readers(norm).count() == 1)?;
        let is_layer = reader.op == Op::Linear
            && reader.inputs[0] == norm
            && is_plain(&reader.inputs[1])
            && is_alone(reader.inputs[1]);
        (is_layer && node.inputs[1..].iter().all(|id| is_plain(id) && is_alone(*id)))
            .then_some(Pair { norm, layer })
    };
    graph.iter().filter(|(_, node)| is_norm(node)).filter_map(pair).collect()
}

/// The factor of each channel.
#[derive(Debug)]
struct Factors {
    scale: Recipe,
    bias: Option<Recipe>,
    weight: Recipe,
    values: OnceLock<Vec<f32>>,
}

impl Factors {
    fn get(&self) -> &[f32] {
        self.values.get_or_init(|| {
            let &[outputs, channels] = self.weight.shape() else {
                unreachable!("verified: a layer's weight is a matrix")
            };
            let read = |recipe: &Recipe, first| {
                let mut row = vec![0f32; channels];
                recipe.read(first, &mut row);
                row
            };
            let mut largest = vec![0f32; channels];
            for output in 0..outputs {
                let row = read(&self.weight, output * channels);
                largest
                    .iter_mut()
                    .zip(row)
                    .for_each(|(largest, value)| *largest = largest.max(value.abs()));
            }
            let scale = read(&self.scale, 0);
            let bias = self.bias.as_ref().map_or_else(|| vec![0.0; channels], |bias| read(bias, 0));
            let factor = |((scale, bias), largest): ((&f32, &f32), &f32)| {
                let ratio = (DEVIATIONS * scale.abs() + bias.abs()) / largest;
                // A channel of zeros, on either side, is not equalised.
                if ratio.is_normal() { (0.5 * ratio.log2()).round().exp2() } else { 1.0 }
            };
            scale.iter().zip(&bias).zip(&largest).map(factor).collect()
        })
    }
}

/// A parameter `[.., channels]` multiplied or divided by the factors of its channels.
#[derive(Debug)]
struct Scaled {
    parameter: Recipe,
    factors: Arc<Factors>,
    divides: bool,
}

impl Generator for Scaled {
    fn fill(&self, first: usize, values: &mut [f32]) {
        self.parameter.read(first, values);
        let factors = self.factors.get().iter().cycle().skip(first % self.factors.get().len());
        for (value, factor) in values.iter_mut().zip(factors) {
            *value = if self.divides { *value / factor } else { *value * factor };
        }
    }
}
