//! Checkpoints: safetensors files, mapped and never copied, bound to a model's parameters.

use crate::family::Naming;
use crate::{Error, ErrorKind};
use cognate_graph::{Graph, Recipe, Storage, Weights};
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A mapped safetensors file.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    storage: Arc<Mapped>,
    /// Bytes before the tensors: the header and its length.
    header: usize,
    metadata: Metadata,
}

#[derive(Debug)]
struct Mapped(Mmap);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Checkpoint {
    /// Maps the file at `path` and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::file(path, &error))?;
        // SAFETY: the mapping is read-only and private. A program that truncates the file meanwhile makes later reads
        // fail with a signal; that is the stated exception of mapped files.
        let mapped = unsafe { Mmap::map(&file) }.map_err(|error| Error::file(path, &error))?;
        let (header, metadata) = SafeTensors::read_metadata(&mapped).map_err(|error| {
            let message = format!("no safetensors file of {} bytes: {error}; was it truncated on its way?", mapped.len());
            Error::new(ErrorKind::Weights, path.display(), message)
        })?;
        Ok(Self { path: path.into(), storage: Arc::new(Mapped(mapped)), header: header + std::mem::size_of::<u64>(), metadata })
    }

    /// A recipe for each parameter of `graph`: stored, or one of `generated`.
    ///
    /// # Errors
    /// One error lists every tensor that is missing, misshapen, of an unsupported type, or in nobody's use.
    pub(crate) fn bind(&self, naming: &Naming<'_>, graph: &Graph, generated: &BTreeMap<String, Recipe>) -> Result<Weights, Error> {
        let tensors = self.metadata.tensors();
        let (mut recipes, mut problems, mut used) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (_, node) in graph.parameters() {
            let shape = node.ty.shape.as_constant().expect("parameters have constant shapes");
            let names = naming.stored_names(&node.name);
            let present: Vec<_> = names.iter().filter_map(|name| tensors.get_key_value(name).map(|(name, info)| (name, *info))).collect();
            used.extend(present.iter().map(|(name, _)| name.as_str()));
            if let Some(recipe) = generated.get(&node.name) {
                problems.extend(present.iter().filter_map(|(name, info)| self.unlike(name, info, recipe)));
                recipes.push((node.name.clone(), recipe.clone()));
                continue;
            }
            match present.split_first() {
                None => problems.push(format!("{}: missing, expected F32 {shape:?}", names[0])),
                Some(((name, info), aliases)) => match self.recipe(name, info, &shape) {
                    Ok(recipe) => {
                        problems.extend(aliases.iter().filter_map(|(name, info)| self.unlike(name, info, &recipe)));
                        recipes.push((node.name.clone(), recipe));
                    }
                    Err(problem) => problems.push(problem),
                },
            }
        }
        let unused = tensors.keys().filter(|name| !used.contains(name.as_str()) && !naming.is_left_over(name));
        problems.extend(
            unused.collect::<BTreeSet<_>>().into_iter().map(|name| format!("{name}: in the file, but not in the model of config.json")),
        );
        if problems.is_empty() {
            return Ok(recipes.into_iter().collect());
        }
        let message = format!("weights do not fit config.json\n  {}", problems.join("\n  "));
        Err(Error::new(ErrorKind::Weights, self.path.display(), message))
    }

    /// The tensor as a parameter of `shape`; axes of size 1 in front may be more or fewer (`final_logits_bias`).
    fn recipe(&self, name: &str, info: &TensorInfo, shape: &[usize]) -> Result<Recipe, String> {
        if info.dtype != Dtype::F32 {
            return Err(format!("{name}: expected F32, found {:?}; save the checkpoint in float32", info.dtype));
        }
        let significant = |shape: &[usize]| shape.iter().copied().skip_while(|&size| size == 1).collect::<Vec<_>>();
        if significant(&info.shape) != significant(shape) {
            return Err(format!("{name}: expected {shape:?}, found {:?}", info.shape));
        }
        let (first, last) = info.data_offsets;
        let range = self.header + first..self.header + last;
        Recipe::stored(self.storage.clone(), range, shape).map_err(|error| format!("{name}: {error}"))
    }

    /// What is wrong with a tensor that must hold the values of `recipe`.
    fn unlike(&self, name: &str, info: &TensorInfo, recipe: &Recipe) -> Option<String> {
        let stored = match self.recipe(name, info, recipe.shape()) {
            Ok(stored) => stored,
            Err(problem) => return Some(problem),
        };
        // Sinusoids of other programs are rounded on other ways.
        let close = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5;
        let equal = stored.same_source(recipe) || stored.values::<f32>().iter().zip(&recipe.values::<f32>()).all(close);
        (!equal).then(|| format!("{name}: differs from the tensor that it should repeat"))
    }
}
