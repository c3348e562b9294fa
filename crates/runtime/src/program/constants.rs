//! The constants of a graph, in its file or in files beside it.

use cognate_export::proto::{DataLocation, DataType, TensorProto};
use memmap2::Mmap;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads constants; files stay mapped while this or bytes of them exist.
pub(crate) struct Constants {
    folder: PathBuf,
    files: HashMap<String, Arc<Mmap>>,
}

/// The bytes of a constant.
pub(crate) enum Bytes {
    Here(prost::bytes::Bytes),
    Mapped(Arc<Mmap>, Range<usize>),
}

impl Bytes {
    pub(crate) fn all(&self) -> &[u8] {
        match self {
            Bytes::Here(bytes) => bytes,
            Bytes::Mapped(file, range) => &file[range.clone()],
        }
    }

    /// Frees the memory of a mapped file's pages; they are read again when used.
    pub(crate) fn release(&self) {
        self.release_part(0..self.all().len());
    }

    /// [`Self::release`] for some of the bytes.
    pub(crate) fn release_part(&self, part: Range<usize>) {
        #[cfg(unix)]
        if let Bytes::Mapped(file, range) = self {
            // SAFETY: the pages are those of a file that nobody writes to. If the call has no
            // effect, they stay in memory.
            let _ = unsafe {
                file.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    range.start + part.start,
                    part.len(),
                )
            };
        }
        #[cfg(not(unix))]
        let _ = part;
    }
}

impl Constants {
    /// The constants of a file in `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.into(), files: HashMap::new() }
    }

    /// The bytes of a tensor; `None` if they cannot be read, or are fewer than its shape requires.
    pub(crate) fn bytes(&mut self, tensor: &TensorProto) -> Option<Bytes> {
        let size = match DataType::try_from(tensor.data_type).ok()? {
            DataType::Float => 4,
            DataType::Bfloat16 => 2,
            DataType::Int8 | DataType::Uint8 => 1,
            _ => return None,
        };
        let len = tensor
            .dims
            .iter()
            .try_fold(size, |len: usize, &dim| len.checked_mul(usize::try_from(dim).ok()?))?;
        if tensor.data_location != DataLocation::External as i32 {
            return tensor.raw_data.clone().filter(|bytes| bytes.len() == len).map(Bytes::Here);
        }
        let entry = |key: &str| {
            tensor
                .external_data
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| entry.value.as_str())
        };
        let start = entry("offset").map_or(Some(0), |offset| offset.parse().ok())?;
        let file = self.file(entry("location")?)?;
        let end = len.checked_add(start).filter(|&end| end <= file.len())?;
        Some(Bytes::Mapped(file, start..end))
    }

    /// The numbers of a tensor of f32.
    pub(crate) fn floats(&mut self, tensor: &TensorProto) -> Option<Vec<f32>> {
        if tensor.data_type != DataType::Float as i32 {
            return None;
        }
        Some(numbers(self.bytes(tensor)?.all()).collect())
    }

    fn file(&mut self, name: &str) -> Option<Arc<Mmap>> {
        if let Some(file) = self.files.get(name) {
            return Some(file.clone());
        }
        let file = File::open(self.folder.join(name)).ok()?;
        // SAFETY: the caller has checked the files of the model, and checks afterwards that none
        // has changed.
        let file = Arc::new(unsafe { Mmap::map(&file) }.ok()?);
        self.files.insert(name.into(), file.clone());
        Some(file)
    }
}

/// The numbers in bytes that are the upper halves of f32, in ONNX's order.
pub(crate) fn bf16_numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<2>().0.iter().map(|&[low, high]| f32::from_le_bytes([0, 0, low, high]))
}

/// The numbers in bytes in ONNX's order.
pub(crate) fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes))
}
