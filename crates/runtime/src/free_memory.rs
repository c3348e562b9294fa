//! Memory that the allocator keeps.

/// Returns memory that was freed to the system. The allocator of glibc otherwise keeps up to 64 MB:
/// what the outputs of an encoder of speech took, for example, while they are decoded.
///
/// Nothing happens with other allocators.
pub fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: memory in use is not changed.
    unsafe {
        libc::malloc_trim(0);
    }
}
