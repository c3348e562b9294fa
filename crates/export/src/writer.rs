//! Graphs that share one file of weights, as ONNX external data.
//!
//! Every distinct weight is stored once, however many graphs and names use it (tied embeddings), and goes from its
//! recipe to the file piece by piece: memory stays small however large the model.

use crate::error::{Context, Problem};
use crate::flush::write_early;
use crate::model::{Metadata, entry, inline, model, parameter, parameters};
use crate::proto::{DataLocation, TensorProto};
use crate::{Error, Existing, Folder, Report};
use cognate_graph::{Program, Recipe};
use prost::Message;
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;

/// Graphs to be written side by side.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// File names, as `encoder.onnx`, with what they hold.
    pub graphs: &'a [(&'a str, &'a Program)],
    /// The name of the weights file, as `weights.onnx_data`. Some engines want this ending.
    pub weights_file: &'a str,
    /// What each model says about itself.
    pub metadata: &'a Metadata,
}

impl Export<'_> {
    /// Writes graphs and weights into `folder`. Without parameters there is no weights file.
    ///
    /// # Errors
    /// If a graph is not legal or ONNX cannot say it, if two graphs want different weights of one name, if a file name
    /// is taken or is not one, or if the system refuses.
    pub fn write(&self, folder: &mut Folder) -> Result<(), Error> {
        let layout = Layout::new(self.graphs)?;
        for (name, bytes) in self.files(&layout)? {
            folder.write(&name, &bytes)?;
        }
        if !layout.slots.is_empty() {
            folder.write_with(self.weights_file, |file, path| write_early(file, |file| layout.write(file)).context("write", path))?;
        }
        Ok(())
    }

    /// The graphs as [`Export::write`] would write them, without the weights file to which they point: names and bytes.
    ///
    /// # Errors
    /// As [`Export::write`], save for the system's.
    pub fn graph_files(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.files(&Layout::new(self.graphs)?)
    }

    fn files(&self, layout: &Layout<'_>) -> Result<Vec<(String, Vec<u8>)>, Error> {
        let mut files = Vec::new();
        for &(file, program) in self.graphs {
            let tensors = parameters(program).map(|(name, recipe)| layout.tensor(name, recipe, self.weights_file)).collect();
            let bytes = model(program.graph(), self.metadata, tensors)?.encode_to_vec();
            files.push((file.to_owned(), bytes));
        }
        Ok(files)
    }
}

/// Writes `export` and small `files` (names and bytes) beside it into a folder that appears whole or not at all.
///
/// # Errors
/// As [`Folder::create`], [`Export::write`] and [`Folder::commit`].
pub fn write_folder(destination: &Path, export: &Export<'_>, files: &[(&str, &[u8])], existing: Existing) -> Result<Report, Error> {
    let mut folder = Folder::create(destination, existing)?;
    export.write(&mut folder)?;
    for (name, bytes) in files {
        folder.write(name, bytes)?;
    }
    folder.commit()
}

/// Where each weight lies in the weights file.
struct Layout<'a> {
    slots: Vec<Slot<'a>>,
    /// By parameter name: the index in `slots`.
    by_name: HashMap<&'a str, usize>,
}

struct Slot<'a> {
    recipe: &'a Recipe,
    /// The graph that used it first.
    graph: &'a str,
    offset: u64,
}

/// Weights from this size on begin on a page, so that engines can map them.
const LARGE: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Smaller ones begin on a cache line.
const LINE: u64 = 64;

impl<'a> Layout<'a> {
    fn new(graphs: &[(&str, &'a Program)]) -> Result<Self, Error> {
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
                    let length = recipe.byte_len();
                    let offset = end.next_multiple_of(if length < LARGE { LINE } else { PAGE });
                    slots.push(Slot { recipe, graph, offset });
                    end = offset + length;
                }
            }
        }
        Ok(Self { slots, by_name })
    }

    /// The parameter `name`, pointing into the weights file; one without elements has nothing to point at.
    fn tensor(&self, name: &str, recipe: &Recipe, weights_file: &str) -> TensorProto {
        let Some(&slot) = self.by_name.get(name) else { return inline(name, recipe) };
        let external_data =
            vec![entry("location", weights_file), entry("offset", self.slots[slot].offset), entry("length", recipe.byte_len())];
        TensorProto { external_data, data_location: DataLocation::External.into(), ..parameter(name, recipe) }
    }

    fn write(&self, file: &mut impl Write) -> std::io::Result<()> {
        let mut position = 0;
        for slot in &self.slots {
            let gap = (slot.offset - position) as usize;
            file.write_all(&[0; PAGE as usize][..gap])?;
            slot.recipe.stream(|bytes| file.write_all(bytes))?;
            position = slot.offset + slot.recipe.byte_len();
        }
        Ok(())
    }
}
