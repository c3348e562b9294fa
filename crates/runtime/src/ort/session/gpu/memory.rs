//! A GPU's memory whose addresses stay the same from batch to batch, so that steps can be replayed.

use super::replay::undisturbed;
use crate::ort::session::tensor::{OrtTensor, Sharing, borrowed, brought, sizes};
use crate::{Error, ErrorKind, Result};
use ::ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ::ort::value::TensorElementType;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError, result, sys};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tensors in a block begin at multiples of this number of bytes, as the driver's allocations do.
const ALIGNED: usize = 256;

/// A GPU, and the queue of all work of a session on it.
pub(in crate::ort::session) struct Gpu {
    stream: Arc<CudaStream>,
    info: MemoryInfo<'static>,
}

impl Gpu {
    /// Opens the GPU with this number.
    pub(in crate::ort::session) fn open(number: u16) -> Result<Self> {
        let failed = |error: String| {
            let message = format!(
                "cannot use the GPU: {error}; it requires an NVIDIA GPU with its driver; without them, omit `--device cuda`"
            );
            Error::new(ErrorKind::Unavailable, "ort: device cuda", message)
        };
        // SAFETY: the driver's library may be loaded at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err(failed("found no library of its driver".into()));
        }
        let open = || -> Result<Arc<CudaStream>, DriverError> {
            let context = CudaContext::new(number.into())?;
            // SAFETY: all work on a block is in one queue.
            unsafe { context.disable_event_tracking() };
            context.new_stream()
        };
        let stream = open().map_err(|error| failed(error.to_string()))?;
        let (kind, memory) = (AllocatorType::Device, MemoryType::Default);
        let info = MemoryInfo::new(AllocationDevice::CUDA, number.into(), kind, memory);
        Ok(Self { stream, info: info.map_err(brought)? })
    }

    /// The queue, for ONNX Runtime.
    pub(in crate::ort::session) fn stream(&self) -> *mut () {
        self.stream.cu_stream().cast()
    }

    /// Copies a tensor of the GPU to the rows of another from `first` on.
    pub(super) fn copy(&self, from: &OrtTensor, to: &OrtTensor, first: usize) -> Result<()> {
        let elements = *from.tensor.data_type();
        let [rows, all] = [from, to].map(|own| sizes(own.tensor.shape()));
        let bytes = size_of_elements(elements, &rows)?;
        let start = bytes / rows.first().copied().unwrap_or(1).max(1) * first;
        let is_like = *to.tensor.data_type() == elements && rows.get(1..) == all.get(1..);
        if !is_like || start + bytes > size_of_elements(elements, &all)? {
            let message = format!("{all:?} on the GPU: expected rows of it, found {rows:?}");
            return Err(brought(message));
        }
        let [source, target] = [from, to].map(|own| own.tensor.data_ptr() as sys::CUdeviceptr);
        let _undisturbed = undisturbed();
        let stream = self.stream.cu_stream();
        // SAFETY: the target has this number of bytes from `start` on, and the source, which has as
        // many, lives until the copy has been made.
        let copied = self.stream.context().bind_to_thread().and_then(|()| unsafe {
            result::memcpy_dtod_async(target + start as u64, source, bytes, stream)?;
            result::stream::synchronize(stream)
        });
        copied.map_err(brought)
    }

    fn allocate(&self, bytes: usize) -> Result<Block> {
        let _undisturbed = undisturbed();
        // SAFETY: readers of a block read what was written before, or ignore the contents.
        let memory = unsafe { self.stream.alloc(bytes) };
        let memory = memory.map_err(|error| {
            let message = format!("cannot reserve {bytes} bytes on the GPU: {error}");
            Error::new(ErrorKind::Run, "ort: device cuda", message)
        })?;
        let (address, _) = memory.device_ptr(&self.stream);
        Ok(Block { address, memory })
    }

    /// A tensor of this shape in the block from the byte `start` on.
    fn tensor(
        &self,
        block: &Arc<Block>,
        start: usize,
        elements: TensorElementType,
        shape: &[usize],
    ) -> Result<OrtTensor> {
        let bytes = size_of_elements(elements, shape)?;
        assert!(start + bytes <= block.len(), "a tensor inside of its block");
        let address = (block.address as usize + start) as *mut u8;
        // SAFETY: the tensor keeps the block.
        let tensor = unsafe { borrowed(&self.info, address.cast(), bytes, elements, shape) };
        let sharing = Sharing::Block(block.clone());
        Ok(OrtTensor { sharing, ..OrtTensor::new(tensor.map_err(brought)?) })
    }
}

/// Memory of the GPU.
#[derive(Debug)]
pub(in crate::ort::session) struct Block {
    address: sys::CUdeviceptr,
    memory: CudaSlice<u8>,
}

impl Block {
    fn len(&self) -> usize {
        self.memory.len()
    }
}

/// The memory of one decoder: a block for each name, which grows, and which the next batch has
/// again.
#[derive(Default)]
pub(in crate::ort::session) struct Memory {
    blocks: BTreeMap<String, Arc<Block>>,
    /// What is copied next.
    host: Vec<u8>,
}

/// Appends the bytes of a tensor.
pub(super) type Writer<'w> = &'w dyn Fn(&mut Vec<u8>);

/// The name of the block of a step's integers, and of its results.
const STEP: &str = "step";
const FOUND: &str = "found";

impl Memory {
    /// The block of a name, if nothing else has it and it is large enough; otherwise a new one.
    fn block(&mut self, gpu: &Gpu, name: &str, bytes: usize) -> Result<Arc<Block>> {
        let is_free = |block: &&Arc<Block>| block.len() >= bytes && Arc::strong_count(block) == 1;
        if let Some(block) = self.blocks.get(name).filter(is_free) {
            return Ok(block.clone());
        }
        self.blocks.remove(name);
        let block = Arc::new(gpu.allocate(bytes.max(1))?);
        self.blocks.insert(name.into(), block.clone());
        Ok(block)
    }

    /// A tensor in the block of a name, with any contents.
    pub(super) fn place(
        &mut self,
        gpu: &Gpu,
        name: &str,
        elements: TensorElementType,
        shape: &[usize],
    ) -> Result<OrtTensor> {
        let block = self.block(gpu, name, size_of_elements(elements, shape)?)?;
        gpu.tensor(&block, 0, elements, shape)
    }

    /// A copy of a tensor of the GPU in the block of a name.
    pub(super) fn copied(&mut self, gpu: &Gpu, name: &str, from: &OrtTensor) -> Result<OrtTensor> {
        let elements = *from.tensor.data_type();
        let shape = sizes(from.tensor.shape());
        let to = self.place(gpu, name, elements, &shape)?;
        gpu.copy(from, &to, 0)?;
        Ok(to.with_order(from.order))
    }

    /// Copies tensors of a step to the GPU; one that is not written has any contents.
    pub(super) fn write<const N: usize>(
        &mut self,
        gpu: &Gpu,
        tensors: [(TensorElementType, &[usize], Writer<'_>); N],
    ) -> Result<[OrtTensor; N]> {
        let mut host = std::mem::take(&mut self.host);
        host.clear();
        let parts = tensors.map(|(elements, shape, write)| {
            host.resize(host.len().next_multiple_of(ALIGNED), 0);
            let start = host.len();
            write(&mut host);
            (start, elements, shape)
        });
        let mut end = host.len();
        for &(start, elements, shape) in &parts {
            end = end.max(start + size_of_elements(elements, shape)?);
        }
        let block = self.block(gpu, STEP, end)?;
        let written = {
            let _undisturbed = undisturbed();
            // SAFETY: the block has this number of bytes; the driver has read the host's when it
            // returns.
            gpu.stream.context().bind_to_thread().and_then(|()| unsafe {
                result::memcpy_htod_async(block.address, &host, gpu.stream.cu_stream())
            })
        };
        self.host = host;
        written.map_err(brought)?;
        let mut made = Vec::with_capacity(N);
        for (start, elements, shape) in parts {
            made.push(gpu.tensor(&block, start, elements, shape)?);
        }
        Ok(made.try_into().expect("as many as given"))
    }

    /// Memory for the results of a step.
    pub(super) fn results<const N: usize>(
        &mut self,
        gpu: &Gpu,
        tensors: [(TensorElementType, [usize; 2]); N],
    ) -> Result<Results<N>> {
        let mut bytes = 0;
        let mut places = Vec::with_capacity(N);
        for (elements, shape) in tensors {
            let size = size_of_elements(elements, &shape)?;
            places.push((bytes, size));
            bytes = (bytes + size).next_multiple_of(ALIGNED);
        }
        let block = self.block(gpu, FOUND, bytes)?;
        let mut made = Vec::with_capacity(N);
        for (&(start, _), (elements, shape)) in places.iter().zip(&tensors) {
            made.push(gpu.tensor(&block, start, *elements, shape)?);
        }
        Ok(Results {
            tensors: made.try_into().expect("as many as declared"),
            places: places.try_into().expect("as many as declared"),
            block,
            bytes,
        })
    }
}

/// Memory that a step writes.
pub(super) struct Results<const N: usize> {
    pub(super) tensors: [OrtTensor; N],
    places: [(usize, usize); N],
    block: Arc<Block>,
    bytes: usize,
}

impl<const N: usize> Results<N> {
    /// Copies everything to the host; returns the bytes of each tensor.
    pub(super) fn read<'h>(&self, gpu: &Gpu, host: &'h mut Vec<u8>) -> Result<[&'h [u8]; N]> {
        host.resize(self.bytes, 0);
        let _undisturbed = undisturbed();
        let stream = gpu.stream.cu_stream();
        // SAFETY: the block has this number of bytes; they are read after the copy has been made.
        let read = gpu.stream.context().bind_to_thread().and_then(|()| unsafe {
            result::memcpy_dtoh_async(host, self.block.address, stream)?;
            result::stream::synchronize(stream)
        });
        read.map_err(brought)?;
        Ok(self.places.map(|(start, size)| &host[start..start + size]))
    }
}

fn size_of_elements(elements: TensorElementType, shape: &[usize]) -> Result<usize> {
    let size = match elements {
        TensorElementType::Int64 => 8,
        TensorElementType::Float32 | TensorElementType::Int32 => 4,
        TensorElementType::Float16 => 2,
        other => {
            return Err(brought(format!(
                "expected elements of i64, i32, f32 or f16, found {other}"
            )));
        }
    };
    Ok(size * shape.iter().product::<usize>())
}
