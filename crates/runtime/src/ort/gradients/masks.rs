//! Dropout's factors, which are computed wherever they are read.
//!
//! Each is a few operations on the sum of four products, of numbers of its row and of its column. Kept
//! from the forward to the backward pass, they would take as much memory as what they multiply.

use super::elementwise::{self, sums};
use crate::program::Places;
use cognate_export::proto::{GraphProto, NodeProto};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The nodes that compute factors from sums alone.
struct Factors<'g> {
    nodes: BTreeSet<usize>,
    result: &'g str,
    readers: Vec<usize>,
}

impl<'g> Factors<'g> {
    /// By the index of the [sums](sums).
    fn of(places: &Places<'g>, index: usize) -> Option<Self> {
        sums(places, index)?;
        let mut nodes = BTreeSet::from([index]);
        let (mut ends, mut next) = (Vec::new(), vec![index]);
        while let Some(node) = next.pop() {
            let result = places.graph.node[node].output[0].as_str();
            let is_inner = |input: &String| {
                places.constant(input).is_some()
                    || places.source(input).is_some_and(|giver| nodes.contains(&giver))
            };
            let (inside, outside): (Vec<_>, Vec<_>) =
                places.readers(result).iter().partition(|&&reader| {
                    let node = &places.graph.node[reader];
                    elementwise::has_function(node) && node.input.iter().all(is_inner)
                });
            next.extend(inside.iter().copied().filter(|reader| nodes.insert(*reader)));
            ends.push((result, outside));
        }
        // What waited for another of the nodes is not outside.
        for (_, readers) in &mut ends {
            readers.retain(|reader| !nodes.contains(reader));
        }
        ends.retain(|(_, readers)| !readers.is_empty());
        let (result, readers) = ends.pop().filter(|_| ends.is_empty())?;
        (!places.is_output(result)).then_some(Self { nodes, result, readers })
    }
}

/// Gives each reader of factors nodes of its own that compute them.
pub(super) fn repeat(graph: &mut GraphProto) {
    let (mut made, mut names, mut renamed) = (BTreeMap::<_, Vec<_>>::new(), Vec::new(), Vec::new());
    {
        let places = Places::new(graph);
        for factors in (0..graph.node.len()).filter_map(|index| Factors::of(&places, index)) {
            for (number, &reader) in factors.readers.iter().enumerate().skip(1) {
                let again = |name: &str| format!("{name}.again.{number}");
                let results: HashMap<&str, String> = factors
                    .nodes
                    .iter()
                    .map(|&node| places.graph.node[node].output[0].as_str())
                    .map(|result| (result, again(result)))
                    .collect();
                let renew = |name: &String| results.get(name.as_str()).unwrap_or(name).clone();
                made.entry(reader).or_default().extend(factors.nodes.iter().map(|&node| {
                    let node = &places.graph.node[node];
                    NodeProto {
                        input: node.input.iter().map(renew).collect(),
                        output: node.output.iter().map(renew).collect(),
                        name: again(&node.name),
                        ..node.clone()
                    }
                }));
                let result = factors.result.to_owned();
                renamed.push((reader, result, results[factors.result].clone()));
                names.extend(results.into_iter().map(|(from, to)| (from.to_owned(), to)));
            }
        }
    }
    for (reader, from, to) in renamed {
        let inputs = graph.node[reader].input.iter_mut();
        inputs.filter(|input| **input == from).for_each(|input| input.clone_from(&to));
    }
    for (from, to) in names {
        if let Some(value) = graph.value_info.iter().find(|value| value.name == from) {
            let mut value = value.clone();
            value.name = to;
            graph.value_info.push(value);
        }
    }
    elementwise::insert(graph, made, &BTreeSet::new());
}
