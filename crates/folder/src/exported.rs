//! The model of an exported folder, read from its graphs and the weights files to which they refer.

use crate::error::AtPath;
use crate::{CONFIG, Error, ErrorKind, Result};
use cognate_export::proto::{DataType, TensorProto};
use cognate_export::read_model;
use cognate_graph::{Element, Recipe, Storage, Weights};
use cognate_model::{Config, Layout, Model, open_file, read_text};
use memmap2::Mmap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
struct Mapped(Mmap);

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The model of `folder`, from its `config.json` and the weights that the graphs of the layout
/// name; they are mapped, not copied.
///
/// # Errors
/// If a file is missing or malformed, a weight lies outside its file or the folder, or
/// configuration and weights do not fit each other.
pub fn open_exported(folder: &Path, layout: Layout) -> Result<Model> {
    let path = folder.join(CONFIG);
    let config = read_text(&path).at(&path, "read")?;
    let mut files = BTreeMap::new();
    let mut recipes = BTreeMap::new();
    let parts = Config::from_json(&config)
        .map_err(|error| Error::within(ErrorKind::Model, folder, error))?
        .parts;
    for name in layout.files_of(parts) {
        let path = folder.join(name);
        let folder = path.parent().unwrap_or(folder);
        let model = read_model(&path)?;
        let graph = model.graph.unwrap_or_default();
        for tensor in graph.initializer.iter().filter(|tensor| !tensor.external_data.is_empty()) {
            let recipe = stored(folder, tensor, &mut files).map_err(|message| {
                Error::new(
                    ErrorKind::Model,
                    format_args!("{}: {}", path.display(), tensor.name),
                    message,
                )
            })?;
            recipes.insert(tensor.name.clone(), recipe);
        }
    }
    Ok(Model::with_weights(config, recipes.into_iter().collect::<Weights>())?)
}

fn stored(
    folder: &Path,
    tensor: &TensorProto,
    files: &mut BTreeMap<PathBuf, Arc<dyn Storage>>,
) -> Result<Recipe, String> {
    let entry = |key: &str| {
        tensor.external_data.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
    };
    let number = |key: &str| match entry(key) {
        None => Err(format!("external data has no {key}")),
        Some(text) => text
            .parse::<usize>()
            .map_err(|_| format!("external data: {key}: expected a number, found {text:?}")),
    };
    let location = entry("location").ok_or("external data has no location")?;
    if Path::new(location).components().count() != 1 || Path::new(location).file_name().is_none() {
        return Err(format!(
            "external data: location: expected a file of the same folder, found {location:?}"
        ));
    }
    let path = folder.join(location);
    if !files.contains_key(&path) {
        let file = open_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // SAFETY: the mapping is read-only and private; see the same call for checkpoints.
        let mapped =
            unsafe { Mmap::map(&file) }.map_err(|error| format!("{}: {error}", path.display()))?;
        files.insert(path.clone(), Arc::new(Mapped(mapped)));
    }
    let shape: Option<Vec<usize>> =
        tensor.dims.iter().map(|&dim| usize::try_from(dim).ok()).collect();
    let shape = shape.ok_or_else(|| format!("shape {:?} is negative", tensor.dims))?;
    let element = match DataType::try_from(tensor.data_type) {
        Ok(DataType::Float) => Element::F32,
        Ok(DataType::Float16) => Element::F16,
        Ok(DataType::Bfloat16) => Element::Bf16,
        _ => {
            return Err(format!(
                "expected FLOAT, FLOAT16 or BFLOAT16, found type {}",
                tensor.data_type
            ));
        }
    };
    let (offset, length) = (number("offset")?, number("length")?);
    let end = offset.checked_add(length).ok_or("external data: offset and length are too large")?;
    Recipe::stored_as(element, files[&path].clone(), offset..end, &shape)
        .map_err(|error| format!("{location}: {error}"))
}
