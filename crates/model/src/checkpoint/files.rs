//! The files of a checkpoint: one `model.safetensors`, or several with an index that says which holds a tensor.
//!
//! Only headers are read; tensors stay in the mapped files. Pickles (`pytorch_model.bin`) are never read.

use crate::reading::{open_file, read_text};
use crate::{Error, ErrorKind};
use cognate_graph::Storage;
use memmap2::Mmap;
use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::fs::Metadata;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const PICKLES: [&str; 2] = ["pytorch_model.bin", "pytorch_model.bin.index.json"];

/// The file by which the weights of the checkpoint in `folder` are found: `model.safetensors` or, without it,
/// `model.safetensors.index.json`; `None` if there are no weights.
///
/// # Errors
/// If the weights are only there as a pickle; the message says how to convert them.
pub fn weights_file(folder: &Path) -> Result<Option<PathBuf>, Error> {
    if let Some(found) = [SINGLE, INDEX].map(|name| folder.join(name)).into_iter().find(|path| path.exists()) {
        return Ok(Some(found));
    }
    let Some(pickle) = PICKLES.into_iter().find(|name| folder.join(name).exists()) else { return Ok(None) };
    let place = folder.display();
    let message = format!(
        "the weights are in {pickle}, which is not read: a pickle runs code; convert it once with transformers: \
         python -c \"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('{place}').save_pretrained('{place}')\""
    );
    Err(Error::new(ErrorKind::Weights, place, message))
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    path: PathBuf,
    bytes: Mmap,
    /// Size and time of the last change when it was opened.
    opened: (u64, Option<SystemTime>),
}

fn state(metadata: &Metadata) -> (u64, Option<SystemTime>) {
    (metadata.len(), metadata.modified().ok())
}

impl Storage for Mapped {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn has_changed(&self) -> bool {
        std::fs::metadata(&self.path).map_or(true, |now| state(&now) != self.opened)
    }
}

/// A tensor in a file.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) storage: Arc<Mapped>,
    pub(super) range: Range<usize>,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: Dtype,
}

pub(super) type Tensors = BTreeMap<String, Stored>;

/// The tensors of the checkpoint in `folder`, and the file that names them.
pub(super) fn open(folder: &Path) -> Result<(PathBuf, Tensors), Error> {
    let path = weights_file(folder)?.unwrap_or_else(|| folder.join(SINGLE));
    let tensors = if path.ends_with(INDEX) { indexed(folder, &path)? } else { header(&path)? };
    Ok((path, tensors))
}

/// Maps a safetensors file and reads its header.
fn header(path: &Path) -> Result<Tensors, Error> {
    let file = open_file(path).map_err(|error| Error::file(path, &error))?;
    let opened = state(&file.metadata().map_err(|error| Error::file(path, &error))?);
    // SAFETY: the mapping is read-only and private. A program that truncates the file meanwhile makes later reads
    // fail with a signal; that is the stated exception of mapped files.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|error| Error::file(path, &error))?;
    let (length, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| {
        let message = format!("no safetensors file of {} bytes: {error}; was it truncated on its way?", bytes.len());
        Error::new(ErrorKind::Weights, path.display(), message)
    })?;
    check_names(path, &bytes[std::mem::size_of::<u64>()..][..length])?;
    // The header's length, a 64-bit number, stands before the header.
    let start = length + std::mem::size_of::<u64>();
    let storage = Arc::new(Mapped { path: path.into(), bytes, opened });
    let stored = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (first, last) = info.data_offsets;
        let range = start + first..start + last;
        (name, Stored { storage: storage.clone(), range, shape: info.shape.clone(), dtype: info.dtype })
    };
    Ok(metadata.tensors().into_iter().map(stored).collect())
}

/// Refuses a header that has a name twice: of the two, readers take one or the other.
fn check_names(path: &Path, header: &[u8]) -> Result<(), Error> {
    let checked = serde_json::from_slice::<Unique>(header).map(drop);
    checked.map_err(|error| Error::new(ErrorKind::Weights, path.display(), format!("no safetensors file: {error}")))
}

/// An object whose keys differ.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Unique)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, IgnoredAny)) = object.next_entry::<String, IgnoredAny>()? {
            if let Some(name) = names.replace(name) {
                return Err(serde::de::Error::custom(format!("the name {name} stands twice")));
            }
        }
        Ok(self)
    }
}

#[derive(Deserialize)]
struct Index {
    /// By the tensor's name, the file that holds it.
    weight_map: BTreeMap<String, String>,
}

/// The tensors of all files that an index names. What is in a file, but not in the index, belongs to the checkpoint too.
fn indexed(folder: &Path, path: &Path) -> Result<Tensors, Error> {
    let text = read_text(path).map_err(|error| Error::file(path, &error))?;
    let wrong = |message: String| Error::new(ErrorKind::Weights, path.display(), message);
    let Index { weight_map } = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("no index of a checkpoint, which has an object weight_map of tensors and their files: {error}")))?;
    let (mut tensors, mut problems) = (Tensors::new(), Vec::new());
    for name in weight_map.values().collect::<BTreeSet<_>>() {
        let promised = || weight_map.iter().filter(|(_, file)| *file == name).map(|(tensor, _)| tensor);
        if !is_inside(name) {
            problems.push(format!("{name:?}: expected the name of a file in the checkpoint's folder"));
            continue;
        }
        let shard = folder.join(name);
        if matches!(shard.metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            problems.push(format!("{name}: missing, and with it {} of the tensors", promised().count()));
            continue;
        }
        match header(&shard) {
            Err(error) => problems.push(error.to_string()),
            Ok(found) => {
                let missing = promised().filter(|tensor| !found.contains_key(*tensor));
                problems.extend(missing.map(|tensor| format!("{tensor}: not in {name}, where the index has it")));
                let is_here = |tensor: &String| weight_map.get(tensor).is_none_or(|file| file == name);
                tensors.extend(found.into_iter().filter(|(tensor, _)| is_here(tensor)));
            }
        }
    }
    match problems.as_slice() {
        [] => Ok(tensors),
        _ => Err(wrong(format!("the checkpoint is not whole\n  {}", problems.join("\n  ")))),
    }
}

fn is_inside(name: &str) -> bool {
    !name.is_empty() && Path::new(name).components().all(|component| matches!(component, Component::Normal(_)))
}
