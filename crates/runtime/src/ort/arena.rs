//! One arena for sessions that run in turn.
//!
//! By default each session keeps what its largest run needed in an arena of its own. The sessions of
//! a training run in turn, so they take less memory together. The arena doubles when it is full:
//! growing by what is requested leaves parts between arrays of other sizes, and took 1.6 times as
//! much.

use crate::ort::Ort;
use ::ort::memory::{AllocationDevice, AllocatorType, MemoryInfo, MemoryType};
use ::ort::session::builder::SessionBuilder;
use ::ort::sys::OrtArenaCfg;
use ::ort::{AsPointer, Error, Result};
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Whether the environment of this process has the arena.
static IS_REGISTERED: Mutex<bool> = Mutex::new(false);

/// The builder of a session that shares the arena of this process.
pub(super) fn shared(ort: &Ort, builder: SessionBuilder) -> Result<SessionBuilder> {
    let mut is_registered = IS_REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_registered {
        register(ort)?;
        *is_registered = true;
    }
    Ok(builder.with_config_entry("session.use_env_allocators", "1")?)
}

/// Registers the arena.
fn register(ort: &Ort) -> Result<()> {
    const DEFAULT: i32 = -1;
    /// A free part of memory that is larger than requested by this many bytes is divided.
    const LARGER: i32 = 1 << 18;
    let (kind, memory) = (AllocatorType::Arena, MemoryType::Default);
    let info = MemoryInfo::new(AllocationDevice::CPU, 0, kind, memory)?;
    let mut settings: *mut OrtArenaCfg = ptr::null_mut();
    // SAFETY: the library writes a new object to the given pointer, which is released below; the
    // environment is that of this process and is never released.
    unsafe {
        Error::result_from_status((::ort::api().CreateArenaCfg)(
            0,
            DEFAULT,
            DEFAULT,
            LARGER,
            &raw mut settings,
        ))?;
        let status = (::ort::api().CreateAndRegisterAllocator)(
            ort.environment.ptr().cast_mut(),
            info.ptr(),
            settings,
        );
        (::ort::api().ReleaseArenaCfg)(settings);
        Error::result_from_status(status)
    }
}
