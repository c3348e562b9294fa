//! Weights as lazy recipes: nothing is read or copied until it is streamed.

use crate::{DType, Error, ErrorKind, Graph, Shape};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes that live elsewhere, as a mapped file.
pub trait Storage: fmt::Debug + Send + Sync {
    /// All of them.
    fn bytes(&self) -> &[u8];
}

/// Values that a formula gives, as sinusoids or a seeded initialisation.
pub trait Generator: fmt::Debug + Send + Sync {
    /// Fills `values` with the elements from position `first` on, in row-major order.
    fn fill(&self, first: usize, values: &mut [f32]);
}

/// How to obtain one f32 weight, little-endian and row-major. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recipe {
    shape: Vec<usize>,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Stored { storage: Arc<dyn Storage>, range: Range<usize> },
    Generated(Arc<dyn Generator>),
}

/// Elements that one step of [`Recipe::stream`] generates: 256 KiB.
const CHUNK: usize = 1 << 16;

impl Recipe {
    /// The bytes `range` of `storage`, as f32 of the given shape.
    ///
    /// # Errors
    /// If the range does not lie in the storage or its length is not the shape's.
    pub fn stored(storage: Arc<dyn Storage>, range: Range<usize>, shape: &[usize]) -> Result<Self, Error> {
        let wrong = |message| Error::new(ErrorKind::Weights, "stored weight", message);
        let wanted = byte_len(shape).ok_or_else(|| wrong(format!("shape {shape:?} is too large")))?;
        let held = storage.bytes().get(range.clone()).map(<[u8]>::len);
        if held != Some(wanted) {
            return Err(wrong(format!("shape {shape:?} wants {wanted} bytes, found the range {range:?} of {}", storage.bytes().len())));
        }
        Ok(Self { shape: shape.to_vec(), source: Source::Stored { storage, range } })
    }

    /// What `generator` gives, under the given shape.
    pub fn generated(generator: Arc<dyn Generator>, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), source: Source::Generated(generator) }
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The same values under another shape of as many elements.
    ///
    /// # Errors
    /// If the number of elements differs.
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, Error> {
        if shape.iter().product::<usize>() != self.elements() {
            return Err(Error::new(ErrorKind::Weights, "weight", format!("cannot reshape {:?} to {shape:?}", self.shape)));
        }
        Ok(Self { shape: shape.to_vec(), source: self.source.clone() })
    }

    /// Gives the little-endian bytes to `sink`, piece by piece; stored bytes are lent, not copied.
    ///
    /// # Errors
    /// The first error of `sink`.
    pub fn stream<E>(&self, mut sink: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        match &self.source {
            Source::Stored { storage, range } => sink(&storage.bytes()[range.clone()]),
            Source::Generated(generator) => {
                let elements = self.elements();
                let mut values = vec![0f32; CHUNK.min(elements)];
                let mut bytes = Vec::with_capacity(values.len() * DType::F32.size());
                for first in (0..elements).step_by(CHUNK) {
                    let values = &mut values[..CHUNK.min(elements - first)];
                    generator.fill(first, values);
                    bytes.clear();
                    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                    sink(&bytes)?;
                }
                Ok(())
            }
        }
    }

    /// The values, converted as they come.
    pub fn values<T: From<f32>>(&self) -> Vec<T> {
        let mut values = Vec::with_capacity(self.elements());
        let Ok(()) = self.stream(|bytes| {
            let (quads, _) = bytes.as_chunks::<4>();
            values.extend(quads.iter().map(|&quad| T::from(f32::from_le_bytes(quad))));
            Ok::<_, std::convert::Infallible>(())
        });
        values
    }

    /// Whether both give the same values from the same place.
    pub fn same_source(&self, other: &Recipe) -> bool {
        match (&self.source, &other.source) {
            (Source::Stored { storage: a, range: x }, Source::Stored { storage: b, range: y }) => Arc::ptr_eq(a, b) && x == y,
            (Source::Generated(a), Source::Generated(b)) => Arc::ptr_eq(a, b) && self.shape == other.shape,
            (Source::Stored { .. }, Source::Generated(_)) | (Source::Generated(_), Source::Stored { .. }) => false,
        }
    }
}

fn byte_len(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(DType::F32.size(), |len, &size| len.checked_mul(size))
}

/// The recipes of a model, by parameter path. Cheap to clone; shared by all its graphs.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    recipes: Arc<BTreeMap<String, Recipe>>,
}

impl Weights {
    /// The recipe of the parameter at `path`.
    pub fn get(&self, path: &str) -> Option<&Recipe> {
        self.recipes.get(path)
    }

    /// All of them, in the order of their paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Recipe)> {
        self.recipes.iter().map(|(path, recipe)| (path.as_str(), recipe))
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
    /// Lists every parameter whose weight is missing or has another shape.
    pub fn new(graph: Graph, weights: Weights) -> Result<Self, Error> {
        let problems: Vec<_> = graph
            .parameters()
            .filter_map(|(_, node)| match weights.get(&node.name) {
                None => Some(format!("{}: missing, expected {}", node.name, node.ty.shape)),
                Some(recipe) if Shape::from(recipe.shape()) != node.ty.shape => {
                    Some(format!("{}: expected {}, found {:?}", node.name, node.ty.shape, recipe.shape()))
                }
                Some(_) => None,
            })
            .collect();
        if problems.is_empty() {
            Ok(Self { graph, weights })
        } else {
            Err(Error::new(ErrorKind::Weights, &graph.name, format!("weights do not fit\n  {}", problems.join("\n  "))))
        }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The weights; they may be more than the graph needs.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }
}
