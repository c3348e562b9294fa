//! The location of each weight: a weights file to be written, or existing files.
//!
//! Every distinct weight has one location, even if several graphs and names use it
//! (tied embeddings).

use crate::Error;
use crate::check::names;
use crate::error::{Problem, some_of};
use crate::model::{entry, inline, parameter, parameters};
use crate::proto::{DataLocation, TensorProto};
use cognate_graph::{Program, Recipe};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// The location of each weight.
pub(crate) struct Placement<'a> {
    slots: Vec<Slot<'a>>,
    /// The index in `slots` of each parameter.
    by_name: HashMap<&'a str, usize>,
}

struct Slot<'a> {
    recipe: &'a Recipe,
    /// The first graph that uses it.
    graph: &'a str,
    /// The existing file; `None` for the weights file.
    file: Option<&'a str>,
    offset: u64,
}

/// Weights from this size on are aligned to pages, so that engines can map them.
const LARGE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Alignment of smaller weights, a cache line.
const LINE: u64 = 64;

impl<'a> Placement<'a> {
    /// Places all weights in the weights file.
    ///
    /// # Errors
    /// If two graphs have different weights with one name.
    pub(crate) fn packed(graphs: &[(&str, &'a Program)]) -> Result<Self, Error> {
        Self::new(graphs, |_, _| None)
    }

    /// Leaves stored weights in place, which must be files of `folder`, and places generated ones
    /// in the weights file.
    ///
    /// # Errors
    /// If two graphs have different weights with one name, or if weights cannot stay in place; all
    /// are reported together.
    pub(crate) fn in_place(graphs: &[(&str, &'a Program)], folder: &Path) -> Result<Self, Error> {
        let mut misplaced = Misplaced::default();
        let layout = Self::new(graphs, |name, recipe| {
            let place = recipe.place()?;
            if place.element != recipe.element() {
                misplaced
                    .elements
                    .entry((place.element.to_string(), recipe.element().to_string()))
                    .or_default()
                    .push(name.to_owned());
            }
            misplaced.look_at(place.file, folder);
            Some((place.file.file_name()?.to_str()?, place.range.start as u64))
        })?;
        match misplaced.problems() {
            problems if problems.is_empty() => Ok(layout),
            problems => Err(Problem::NotInPlace { folder: folder.into(), problems }.into()),
        }
    }

    fn new(
        graphs: &[(&str, &'a Program)],
        mut place: impl FnMut(&str, &'a Recipe) -> Option<(&'a str, u64)>,
    ) -> Result<Self, Error> {
        let mut slots: Vec<Slot<'a>> = Vec::new();
        let mut by_name = HashMap::new();
        let mut end = 0u64;
        for &(_, program) in graphs {
            let graph = program.graph().name();
            for (name, recipe) in parameters(program).filter(|(_, recipe)| recipe.elements() > 0) {
                if let Some(&slot) = by_name.get(name) {
                    let slot: &Slot<'_> = &slots[slot];
                    if !slot.recipe.same_source(recipe) {
                        let (first, second) = (slot.graph.to_owned(), graph.to_owned());
                        return Err(Problem::Conflict { name: name.into(), first, second }.into());
                    }
                    continue;
                }
                let same = slots.iter().position(|slot| slot.recipe.same_source(recipe));
                by_name.insert(name, same.unwrap_or(slots.len()));
                if same.is_none() {
                    let (file, offset) = match place(name, recipe) {
                        Some((file, offset)) => (Some(file), offset),
                        None => {
                            let offset = end.next_multiple_of(if recipe.byte_len() < LARGE {
                                LINE
                            } else {
                                PAGE
                            });
                            end = offset + recipe.byte_len();
                            (None, offset)
                        }
                    };
                    slots.push(Slot { recipe, graph, file, offset });
                }
            }
        }
        Ok(Self { slots, by_name })
    }

    /// The parameter `name`, pointing to its location unless it is empty.
    pub(crate) fn tensor(&self, name: &str, recipe: &Recipe, weights_file: &str) -> TensorProto {
        let Some(&slot) = self.by_name.get(name) else { return inline(name, recipe) };
        let Slot { file, offset, .. } = &self.slots[slot];
        // Relative to the graph's folder, which is also that of the weights file.
        let written = weights_file.rsplit('/').next().unwrap_or(weights_file);
        let external_data = vec![
            entry("location", file.unwrap_or(written)),
            entry("offset", offset),
            entry("length", recipe.byte_len()),
        ];
        TensorProto {
            external_data,
            data_location: DataLocation::External.into(),
            ..parameter(name, recipe)
        }
    }

    /// The existing files with weights.
    pub(crate) fn files(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().filter_map(|slot| slot.file)
    }

    /// Whether a weights file is needed.
    pub(crate) fn has_weights_file(&self) -> bool {
        self.written().next().is_some()
    }

    /// Writes the weights file.
    pub(crate) fn write(&self, file: &mut impl Write) -> io::Result<()> {
        let mut position = 0;
        for slot in self.written() {
            let gap = (slot.offset - position) as usize;
            file.write_all(&[0; PAGE as usize][..gap])?;
            slot.recipe.stream(|bytes| file.write_all(bytes))?;
            position = slot.offset + slot.recipe.byte_len();
        }
        Ok(())
    }

    fn written(&self) -> impl Iterator<Item = &Slot<'a>> {
        self.slots.iter().filter(|slot| slot.file.is_none())
    }
}

/// Why weights cannot stay in place.
#[derive(Default)]
struct Misplaced {
    /// Names of weights, by stored and required type.
    elements: BTreeMap<(String, String), Vec<String>>,
    /// The problem of each file, if any.
    files: BTreeMap<String, Option<&'static str>>,
}

impl Misplaced {
    fn look_at(&mut self, file: &Path, folder: &Path) {
        self.files.entry(file.display().to_string()).or_insert_with(|| {
            let is_plain = file.file_name().is_some_and(|name| name.to_str().is_some());
            match fs::symlink_metadata(file) {
                _ if file.parent() != Some(folder) => Some("is in another folder"),
                _ if !is_plain => Some("its name is not Unicode"),
                // `check_model` rejects it, as ONNX's checker does.
                Ok(metadata) if metadata.is_file() && names(&metadata) > 1 => {
                    Some("has several hard links, which ONNX does not allow for weights; copy the file there")
                }
                Ok(metadata) if metadata.is_file() => None,
                // ONNX's checker and some runtimes reject links.
                Ok(_) => Some("is a link, which ONNX does not allow for weights; copy the file there"),
                Err(_) => Some("is missing"),
            }
        });
    }

    fn problems(&self) -> Vec<String> {
        let files = self
            .files
            .iter()
            .filter_map(|(file, problem)| Some(format!("{file}: {}", (*problem)?)));
        let elements = self.elements.iter().map(|((stored, wanted), names)| {
            format!("{}: expected {wanted}, stored as {stored}", some_of(names))
        });
        files.chain(elements).collect()
    }
}
