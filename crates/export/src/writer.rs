//! Writes graphs that share their weights as ONNX external data.
//!
//! Weights are written to the weights file piece by piece, or stay in their files, so memory use is
//! small for models of any size.

use crate::destination::Destination;
use crate::error::{Context, Problem};
use crate::flush::write_early;
use crate::loose::{LooseAxis, loosen};
use crate::lower::Target;
use crate::model::{Metadata, model, parameters};
use crate::placement::Placement;
use crate::{Additions, Error, Existing, Folder, Limits, Report, check_model};
use cognate_graph::Program;
use prost::Message;
use std::path::Path;
use std::thread;

/// Graphs to be written together.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// File names, such as `encoder.onnx`, and their graphs.
    pub graphs: &'a [(&'a str, &'a Program)],
    /// The name of the weights file, such as `weights.onnx_data`. Some engines require
    /// this extension.
    pub weights_file: &'a str,
    /// Description and metadata of each model.
    pub metadata: &'a Metadata,
    /// Inputs whose declared shape may be wrong while they are empty.
    pub loose: Option<LooseAxis<'a>>,
    /// The engines that the graphs are written for.
    pub target: Target,
}

impl<'a> Export<'a> {
    /// Graphs for every engine.
    pub fn new(
        graphs: &'a [(&'a str, &'a Program)],
        weights_file: &'a str,
        metadata: &'a Metadata,
    ) -> Self {
        Self { graphs, weights_file, metadata, loose: None, target: Target::Portable }
    }

    /// Writes graphs and weights to `folder`. Without parameters there is no weights file.
    ///
    /// # Errors
    /// If a graph is invalid or ONNX cannot represent it, if two graphs have different weights with
    /// one name, if a file name is used or invalid, or on errors of the system.
    pub fn write(&self, folder: &mut Folder) -> Result<(), Error> {
        let placement = Placement::packed(self.graphs)?;
        self.write_files(&placement, folder)?;
        // Graphs that engines would reject are not written.
        let limits = Limits::from_environment()?;
        self.graphs
            .iter()
            .try_for_each(|(name, _)| check_model(&folder.path().join(name), &limits).map(drop))
    }

    /// Writes graphs that point to existing files of weights; only computed weights are written to
    /// the weights file. Reads no stored weights.
    ///
    /// # Errors
    /// As [`Export::write`]; also if weights have another type than in the graphs, or are in
    /// another folder or behind a link; these are reported together.
    pub fn write_in_place(&self, folder: &mut Additions) -> Result<(), Error> {
        let placement = Placement::in_place(self.graphs, folder.destination())?;
        let names = || self.graphs.iter().map(|(name, _)| *name).chain([self.weights_file]);
        if let Some(name) = placement.files().find(|file| names().any(|name| name == *file)) {
            return Err(Problem::SameFile { name: name.into() }.into());
        }
        self.write_files(&placement, folder)
    }

    /// Writes the graphs and the weights file, if needed, and records their hashes.
    fn write_files(
        &self,
        placement: &Placement<'_>,
        folder: &mut impl Destination,
    ) -> Result<(), Error> {
        for (name, bytes) in self.files(placement)? {
            folder.write(&name, &bytes)?;
            folder.hashed(blake3::hash(&bytes));
        }
        if placement.has_weights_file() {
            let mut hash = None;
            folder.write_with(self.weights_file, |file, path| {
                hash =
                    Some(write_early(file, |file| placement.write(file)).context("write", path)?);
                Ok(())
            })?;
            hash.into_iter().for_each(|hash| folder.hashed(hash));
        }
        Ok(())
    }

    /// Names and bytes of the graphs that [`Export::write`] would write, without the weights file.
    ///
    /// # Errors
    /// As [`Export::write`], except for errors of the system.
    pub fn graph_files(&self) -> Result<Vec<(String, Vec<u8>)>, Error> {
        self.files(&Placement::packed(self.graphs)?)
    }

    /// A thread per graph: graphs of a large model take tens of milliseconds, most of the time of
    /// an in-place export.
    fn files(&self, placement: &Placement<'_>) -> Result<Vec<(String, Vec<u8>)>, Error> {
        thread::scope(|scope| {
            let threads: Vec<_> = self
                .graphs
                .iter()
                .map(|&(file, program)| {
                    (file, scope.spawn(move || self.graph_file(program, placement)))
                })
                .collect();
            let join = |(file, thread): (&str, thread::ScopedJoinHandle<'_, _>)| {
                let bytes =
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                Ok((file.to_owned(), bytes))
            };
            threads.into_iter().map(join).collect()
        })
    }

    fn graph_file(&self, program: &Program, placement: &Placement<'_>) -> Result<Vec<u8>, Error> {
        let tensors = parameters(program)
            .map(|(name, recipe)| placement.tensor(name, recipe, self.weights_file))
            .collect();
        let mut model = model(program.graph(), self.target, self.metadata, tensors)?;
        if let Some(loose) = self.loose {
            loosen(&mut model, loose);
        }
        Ok(model.encode_to_vec())
    }
}

/// Writes `export` and small `files` (names and bytes) to a folder that is complete or absent.
///
/// # Errors
/// As [`Folder::create`], [`Export::write`] and [`Folder::commit`].
pub fn write_folder(
    destination: &Path,
    export: &Export<'_>,
    files: &[(&str, &[u8])],
    existing: Existing,
) -> Result<Report, Error> {
    let mut folder = Folder::create(destination, existing)?;
    export.write(&mut folder)?;
    for (name, bytes) in files {
        folder.write(name, bytes)?;
    }
    folder.commit()
}
