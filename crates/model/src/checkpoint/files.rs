//! The files of a checkpoint: one `model.safetensors`, or several with an index of their tensors.
//!
//! Only headers are read; tensors stay in the mapped files. Pickles (`pytorch_model.bin`)
//! are never read.

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

/// The path of the weights in `folder`: `model.safetensors` or, without it,
/// `model.safetensors.index.json`; `None` if neither exists.
///
/// # Errors
/// If the only weights are a pickle. The message says how to convert them.
pub fn weights_file(folder: &Path) -> Result<Option<PathBuf>, Error> {
    if let Some(found) =
        [SINGLE, INDEX].map(|name| folder.join(name)).into_iter().find(|path| path.exists())
    {
        return Ok(Some(found));
    }
    let Some(pickle) = PICKLES.into_iter().find(|name| folder.join(name).exists()) else {
        return Ok(None);
    };
    let place = folder.display();
    let message = format!(
        "the weights are in {pickle}, a pickle, which can run code and is never read; convert it with transformers: \
         python -c \"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('{place}').save_pretrained('{place}')\""
    );
    Err(Error::new(ErrorKind::Weights, place, message))
}

/// A mapped file.
#[derive(Debug)]
pub(super) struct Mapped {
    path: PathBuf,
    bytes: Mmap,
    /// Size and modification time when the file was opened.
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

/// Returns the tensors of the checkpoint in `folder` and the path of the file or index
/// that lists them.
pub(super) fn open(folder: &Path) -> Result<(PathBuf, Tensors), Error> {
    let path = weights_file(folder)?.unwrap_or_else(|| folder.join(SINGLE));
    let tensors = if path.ends_with(INDEX) { indexed(folder, &path)? } else { header(&path)? };
    Ok((path, tensors))
}

/// Maps a safetensors file and reads its header.
fn header(path: &Path) -> Result<Tensors, Error> {
    let file = open_file(path).map_err(|error| Error::file(path, &error))?;
    let opened = state(&file.metadata().map_err(|error| Error::file(path, &error))?);
    // SAFETY: the mapping is read-only and private. A program that truncates the file makes later
    // reads fail with a signal, the documented exception of mapped files.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|error| Error::file(path, &error))?;
    let (length, metadata) = SafeTensors::read_metadata(&bytes).map_err(|error| {
        let message =
            format!("not a safetensors file ({} bytes): {error}; is it complete?", bytes.len());
        Error::new(ErrorKind::Weights, path.display(), message)
    })?;
    check_names(path, &bytes[std::mem::size_of::<u64>()..][..length])?;
    // The header follows its length, a 64-bit number.
    let start = length + std::mem::size_of::<u64>();
    let storage = Arc::new(Mapped { path: path.into(), bytes, opened });
    let stored = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (first, last) = info.data_offsets;
        let range = start + first..start + last;
        (
            name,
            Stored {
                storage: storage.clone(),
                range,
                shape: info.shape.clone(),
                dtype: info.dtype,
            },
        )
    };
    Ok(metadata.tensors().into_iter().map(stored).collect())
}

/// Rejects a header with duplicate names, which readers resolve differently.
fn check_names(path: &Path, header: &[u8]) -> Result<(), Error> {
    let checked = serde_json::from_slice::<Unique>(header).map(drop);
    checked.map_err(|error| {
        Error::new(ErrorKind::Weights, path.display(), format!("not a safetensors file: {error}"))
    })
}

/// An object without duplicate keys.
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
                return Err(serde::de::Error::custom(format!("duplicate name {name}")));
            }
        }
        Ok(self)
    }
}

#[derive(Deserialize)]
struct Index {
    /// The file of each tensor.
    weight_map: BTreeMap<String, String>,
}

/// The tensors of all files in an index, including those that the index does not list.
fn indexed(folder: &Path, path: &Path) -> Result<Tensors, Error> {
    let text = read_text(path).map_err(|error| Error::file(path, &error))?;
    let wrong = |message: String| Error::new(ErrorKind::Weights, path.display(), message);
    let Index { weight_map } = serde_json::from_str(&text).map_err(|error| {
        wrong(format!(
            "expected an index with an object weight_map of tensors and their files: {error}"
        ))
    })?;
    let (mut tensors, mut problems) = (Tensors::new(), Vec::new());
    for name in weight_map.values().collect::<BTreeSet<_>>() {
        let promised =
            || weight_map.iter().filter(|(_, file)| *file == name).map(|(tensor, _)| tensor);
        if !is_inside(name) {
            problems
                .push(format!("{name:?}: expected the name of a file in the checkpoint's folder"));
            continue;
        }
        let shard = folder.join(name);
        if matches!(shard.metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound) {
            problems.push(format!("{name}: missing ({} of the tensors)", promised().count()));
            continue;
        }
        match header(&shard) {
            Err(error) => problems.push(error.to_string()),
            Ok(found) => {
                let missing = promised().filter(|tensor| !found.contains_key(*tensor));
                problems.extend(missing.map(|tensor| {
                    format!("{tensor}: missing in {name}, where the index lists it")
                }));
                let is_here =
                    |tensor: &String| weight_map.get(tensor).is_none_or(|file| file == name);
                tensors.extend(found.into_iter().filter(|(tensor, _)| is_here(tensor)));
            }
        }
    }
    match problems.as_slice() {
        [] => Ok(tensors),
        _ => Err(wrong(format!("the checkpoint is incomplete\n  {}", problems.join("\n  ")))),
    }
}

fn is_inside(name: &str) -> bool {
    !name.is_empty()
        && Path::new(name).components().all(|component| matches!(component, Component::Normal(_)))
}
