//! Checkpoints: memory-mapped safetensors files bound to a model's parameters.

mod files;

pub use self::files::weights_file;

use self::files::{Stored, Tensors};
use crate::family::{Naming, Rows};
use crate::{Error, ErrorKind};
use cognate_graph::{Element, Graph, Recipe, Weights};
use safetensors::tensor::Dtype;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The tensors of a checkpoint, by name.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The weights file, or the index of several, as errors name it.
    path: PathBuf,
    tensors: Tensors,
}

/// How tensors without a parameter in the model are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// Reported as an error, together with all other problems.
    Refuse,
    /// Skipped.
    Ignore,
}

impl Checkpoint {
    /// Maps the weights of the checkpoint in `folder` and reads their headers.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let (path, tensors) = files::open(folder)?;
        Ok(Self { path, tensors })
    }

    /// Whether the parameter at `path` is stored.
    pub(crate) fn holds(&self, naming: &Naming<'_>, path: &str) -> bool {
        naming.stored_names(path).iter().any(|name| self.tensors.contains_key(name))
    }

    /// Whether a tensor of this name is stored.
    pub(crate) fn stores(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Returns a recipe for each parameter of `graph`, stored or one of `generated`, and the names
    /// of the unused tensors.
    ///
    /// # Errors
    /// One error lists all tensors that are missing, of the wrong shape or an unsupported type, or
    /// unused and refused.
    pub(crate) fn bind(
        &self,
        naming: &Naming<'_>,
        graph: &Graph,
        generated: &BTreeMap<String, Recipe>,
        unused: Unused,
    ) -> Result<(Weights, Vec<String>), Error> {
        let (mut recipes, mut problems, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (_, node) in graph.parameters() {
            let shape = node.ty.shape.as_constant().expect("parameters have constant shapes");
            let names = naming.stored_names(&node.name);
            let present: Vec<_> =
                names.iter().filter_map(|name| self.tensors.get_key_value(name)).collect();
            used.extend(present.iter().map(|(name, _)| name.as_str()));
            let bound = match present.split_first() {
                Some(((name, stored), aliases)) => {
                    recipe(name, stored, &shape, naming.rows(&node.name)).inspect(|recipe| {
                        problems.extend(
                            aliases
                                .iter()
                                .filter_map(|(name, stored)| unlike(name, stored, recipe)),
                        );
                    })
                }
                None => match generated
                    .get(&node.name)
                    .cloned()
                    .or_else(|| naming.where_missing(&node.name, &shape))
                {
                    Some(recipe) => Ok(recipe),
                    None => match naming
                        .stand_ins(&node.name)
                        .iter()
                        .find_map(|name| self.tensors.get_key_value(name))
                    {
                        Some((name, stored)) => recipe(name, stored, &shape, Rows::All),
                        None => Err(format!("{}: missing, expected {shape:?}", names[0])),
                    },
                },
            };
            match bound {
                Ok(recipe) => recipes.push((node.name.clone(), recipe)),
                Err(problem) => problems.push(problem),
            }
        }
        let mut left: Vec<_> = self
            .tensors
            .keys()
            .filter(|name| !used.contains(name.as_str()) && !naming.is_left_over(name))
            .cloned()
            .collect();
        if unused == Unused::Refuse {
            problems.extend(
                left.drain(..).map(|name| {
                    format!("{name}: in the file, but not in the model of config.json")
                }),
            );
        }
        if problems.is_empty() {
            return Ok((recipes.into_iter().collect(), left));
        }
        let message =
            format!("weights do not match config.json\n  {}", listed(&problems).join("\n  "));
        Err(Error::new(ErrorKind::Weights, self.path.display(), message))
    }
}

/// The maximum number of problems listed; more usually have one cause.
const MOST_PROBLEMS: usize = 20;
const SHOWN_PROBLEMS: usize = 8;

/// The problems, shortened to the first and a count if there are very many.
fn listed(problems: &[String]) -> Vec<String> {
    if problems.len() <= MOST_PROBLEMS {
        return problems.to_vec();
    }
    let more = problems.len() - SHOWN_PROBLEMS;
    let rest = format!("and {more} more: config.json and the weights are of different models");
    problems[..SHOWN_PROBLEMS].iter().cloned().chain([rest]).collect()
}

/// The tensor as a parameter of `shape`. The number of leading axes of size 1 may differ
/// (`final_logits_bias`).
fn recipe(name: &str, stored: &Stored, shape: &[usize], rows: Rows) -> Result<Recipe, String> {
    let Some(element) = element(stored.dtype) else {
        return Err(format!(
            "{name}: {:?} is not supported; expected F32, F16 or BF16: save the checkpoint in float32",
            stored.dtype
        ));
    };
    let significant =
        |shape: &[usize]| shape.iter().copied().skip_while(|&size| size == 1).collect::<Vec<_>>();
    let mut range = stored.range.clone();
    let as_recipe = |range, shape: &[usize]| {
        Recipe::stored_as(element, stored.storage.clone(), range, shape)
            .map_err(|error| format!("{name}: {error}"))
    };
    match (rows, stored.shape.as_slice(), shape) {
        (Rows::Columns { index, of }, &[inputs, width], &[wanted, same])
            if inputs == same && width == of * wanted =>
        {
            let matrix = as_recipe(range, &stored.shape)?;
            return Recipe::columns(&matrix, index * wanted..(index + 1) * wanted)
                .map_err(|error| format!("{name}: {error}"));
        }
        (Rows::Columns { index, of }, &[width], &[wanted]) if width == of * wanted => {
            let part = range.len() / of;
            range = range.start + index * part..range.start + (index + 1) * part;
        }
        (Rows::Columns { of, .. }, _, &[wanted, inputs]) => {
            return Err(format!(
                "{name}: expected {:?}, found {:?}",
                [inputs, of * wanted],
                stored.shape
            ));
        }
        (Rows::Columns { of, .. }, _, _) => {
            return Err(format!(
                "{name}: expected {:?}, found {:?}",
                [of * shape.iter().product::<usize>()],
                stored.shape
            ));
        }
        _ if significant(&stored.shape) == significant(shape) => {}
        (Rows::First, [found, width], [wanted, same]) if found > wanted && width == same => {
            range.end = range.start + range.len() / found * wanted
        }
        _ => return Err(format!("{name}: expected {shape:?}, found {:?}", stored.shape)),
    }
    as_recipe(range, shape)
}

/// Returns the difference between a tensor and `original`; `None` if the values are equal.
fn unlike(name: &str, stored: &Stored, original: &Recipe) -> Option<String> {
    match recipe(name, stored, original.shape(), Rows::All) {
        Ok(repeated) if repeated.distance(original) == 0.0 => None,
        Ok(_) => Some(format!("{name}: differs from the tensor that it is tied to")),
        Err(problem) => Some(problem),
    }
}

fn element(dtype: Dtype) -> Option<Element> {
    match dtype {
        Dtype::F32 => Some(Element::F32),
        Dtype::F16 => Some(Element::F16),
        Dtype::BF16 => Some(Element::Bf16),
        _ => None,
    }
}
