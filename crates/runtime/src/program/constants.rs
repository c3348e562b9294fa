//! The constants of a graph, in its file or in files beside it.

use cognate_export::proto::{DataLocation, DataType, TensorProto};
use cognate_graph::f16;
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
            DataType::Int8 | DataType::Uint8 => 1,
            _ => Precision::of(tensor)?.size(),
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

    /// The numbers of a tensor of f32 or f16.
    pub(crate) fn floats(&mut self, tensor: &TensorProto) -> Option<Vec<f32>> {
        let precision = Precision::of(tensor).filter(|precision| *precision != Precision::Bf16)?;
        let bytes = self.bytes(tensor)?;
        let mut numbers = vec![0.0; bytes.all().len() / precision.size()];
        precision.read(bytes.all(), &mut numbers, |to, number| *to = number);
        Some(numbers)
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

/// How numbers are stored, in ONNX's order of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    F16,
    Bf16,
}

impl Precision {
    pub(crate) fn of(tensor: &TensorProto) -> Option<Self> {
        Some(match DataType::try_from(tensor.data_type).ok()? {
            DataType::Float => Self::F32,
            DataType::Float16 => Self::F16,
            DataType::Bfloat16 => Self::Bf16,
            _ => return None,
        })
    }

    /// Bytes of a number.
    pub(crate) fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Calls `put` with each place of `to` and the number for it.
    pub(crate) fn read(self, bytes: &[u8], to: &mut [f32], put: impl Fn(&mut f32, f32)) {
        fn each<const N: usize>(
            bytes: &[u8],
            to: &mut [f32],
            put: impl Fn(&mut f32, f32),
            number: impl Fn([u8; N]) -> f32,
        ) {
            let bytes = bytes.as_chunks::<N>().0;
            to.iter_mut().zip(bytes).for_each(|(to, bytes)| put(to, number(*bytes)));
        }
        match self {
            Self::F32 => each(bytes, to, put, f32::from_le_bytes),
            Self::F16 => each(bytes, to, put, |bytes| f16::from_le_bytes(bytes).to_f32()),
            Self::Bf16 => each(bytes, to, put, |[low, high]| f32::from_le_bytes([0, 0, low, high])),
        }
    }
}
