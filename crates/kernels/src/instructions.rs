//! The instructions that loops use: the processor's best, or fewer.

use pulp::Arch;
use std::cell::Cell;
use std::env;
use std::sync::OnceLock;

/// Sets of instructions; each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// One number at a time.
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// Also products of 8-bit integers in vectors of AVX2.
    AvxVnni,
    /// Also AVX-512 with its products of 8-bit integers and of bfloat16.
    Avx512,
    /// Also tiles (AMX). On processors other than x86-64, all of theirs.
    All,
}

thread_local! {
    /// The limit of [`Instructions::limit`].
    static LIMIT: Cell<Option<Instructions>> = const { Cell::new(None) };
}

impl Instructions {
    /// The environment variable that limits a process to a set, by its name.
    pub const VARIABLE: &str = "COGNATE_INSTRUCTIONS";

    /// The names of the sets in [`Self::VARIABLE`].
    pub const NAMES: [(&str, Self); 5] = [
        ("scalar", Self::Scalar),
        ("avx2", Self::Avx2),
        ("avx-vnni", Self::AvxVnni),
        ("avx512", Self::Avx512),
        ("all", Self::All),
    ];

    /// The limit of this process; `Err` with the value of [`Self::VARIABLE`] if it is no name, in
    /// which case there is no limit.
    pub fn of_process() -> Result<Self, &'static str> {
        static GIVEN: OnceLock<Result<Instructions, String>> = OnceLock::new();
        let given = GIVEN.get_or_init(|| {
            let value = env::var_os(Self::VARIABLE).filter(|value| !value.is_empty());
            let Some(value) = value else { return Ok(Self::All) };
            let known = Self::NAMES.iter().find(|(name, _)| value == *name);
            known.map(|(_, set)| *set).ok_or_else(|| value.to_string_lossy().into_owned())
        });
        given.as_ref().copied().map_err(String::as_str)
    }

    /// Runs `work` without other instructions on this thread, for comparisons. Weights that were
    /// packed within are to be used within; elsewhere their products are wrong, or panic.
    pub fn limit<T>(self, work: impl FnOnce() -> T) -> T {
        struct Restored(Option<Instructions>);
        impl Drop for Restored {
            fn drop(&mut self) {
                LIMIT.set(self.0);
            }
        }
        let _restored = Restored(LIMIT.replace(Some(self.min(Self::most()))));
        work()
    }

    /// The limit of this thread, else of the process.
    fn most() -> Self {
        LIMIT.get().unwrap_or_else(|| Self::of_process().unwrap_or(Self::All))
    }

    /// Whether the loops may use these instructions, if the processor has them.
    pub(crate) fn are_allowed(self) -> bool {
        self <= Self::most()
    }
}

/// The best vectors of the processor, within the limit.
pub(crate) fn arch() -> Arch {
    #[cfg(target_arch = "x86_64")]
    if !Instructions::Avx512.are_allowed() {
        let avx2 = pulp::x86::V3::try_new().filter(|_| Instructions::Avx2.are_allowed());
        return avx2.map_or(Arch::Scalar, Arch::V3);
    }
    match Instructions::Avx2.are_allowed() {
        true => Arch::new(),
        false => Arch::Scalar,
    }
}
