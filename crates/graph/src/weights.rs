//! Weights as lazy recipes: nothing is read or copied until it is streamed.

mod blocks;
mod element;
mod quantized;
mod recipe;

pub use blocks::QuantizedBlocks;
pub use element::Element;
pub use quantized::{Quantized, QuantizedTable};
pub use recipe::{Generator, Place, Recipe, Storage};

use crate::{DType, Error, ErrorKind, Graph, Shape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The recipes of a model by parameter path. Cheap to clone; shared by all its graphs.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    recipes: Arc<BTreeMap<String, Recipe>>,
}

impl Weights {
    /// The recipe of the parameter at `path`.
    pub fn get(&self, path: &str) -> Option<&Recipe> {
        self.recipes.get(path)
    }

    /// All recipes with their paths, in the order of the paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Recipe)> {
        self.recipes.iter().map(|(path, recipe)| (path.as_str(), recipe))
    }

    /// The same weights, of which generated ones, slow to read again and again, are those at the
    /// same path of `stored` if their values are equal, and [`Recipe::evaluated`] otherwise. Those
    /// with one source keep one.
    #[must_use]
    pub fn evaluated(&self, stored: &Self) -> Self {
        let mut known: Vec<(&Recipe, Recipe)> = Vec::new();
        let evaluated = self.iter().map(|(path, recipe)| {
            let place = known.iter().position(|(source, _)| source.same_source(recipe));
            let place = place.unwrap_or_else(|| {
                let stored = stored.get(path).filter(|stored| recipe.is_generated_as(stored));
                known.push((recipe, stored.cloned().unwrap_or_else(|| recipe.evaluated())));
                known.len() - 1
            });
            (path.to_owned(), known[place].1.clone())
        });
        evaluated.collect()
    }
}

impl FromIterator<(String, Recipe)> for Weights {
    fn from_iter<I: IntoIterator<Item = (String, Recipe)>>(recipes: I) -> Self {
        Self { recipes: Arc::new(recipes.into_iter().collect()) }
    }
}

/// A graph with a weight for each of its parameters.
#[derive(Clone, Debug)]
pub struct Program {
    graph: Graph,
    weights: Weights,
}

impl Program {
    /// Joins a graph to its weights.
    ///
    /// # Errors
    /// If the weight of a parameter is missing, or has another shape or type; the error lists all
    /// of them.
    pub fn new(graph: Graph, weights: Weights) -> Result<Self, Error> {
        let problems: Vec<_> = graph
            .all_parameters()
            .into_iter()
            .filter_map(|node| match weights.get(&node.name) {
                None => Some(format!("{}: missing, expected {}", node.name, node.ty.shape)),
                Some(recipe) if Shape::from(recipe.shape()) != node.ty.shape => Some(format!(
                    "{}: expected {}, found {:?}",
                    node.name,
                    node.ty.shape,
                    recipe.shape()
                )),
                Some(recipe) if dtype(recipe.element()) != Some(node.ty.dtype) => Some(format!(
                    "{}: expected {}, found {}",
                    node.name,
                    node.ty.dtype,
                    recipe.element()
                )),
                Some(_) => None,
            })
            .collect();
        if problems.is_empty() {
            Ok(Self { graph, weights })
        } else {
            Err(Error::new(
                ErrorKind::Weights,
                &graph.name,
                format!("weights do not fit\n  {}", problems.join("\n  ")),
            ))
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The weights, possibly more than the graph needs.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}

/// The type of the graph language for a weight of type `element`.
fn dtype(element: Element) -> Option<DType> {
    match element {
        Element::F32 => Some(DType::F32),
        Element::F16 => Some(DType::F16),
        Element::I8 => Some(DType::I8),
        Element::U8 => Some(DType::U8),
        Element::Bf16 => Some(DType::Bf16),
    }
}
