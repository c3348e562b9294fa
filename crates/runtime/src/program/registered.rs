//! Programs that nodes find by number while an engine creates their session.

use super::Program;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last number, and the programs by number.
static PROGRAMS: Mutex<(i64, BTreeMap<i64, Kernel>)> = Mutex::new((0, BTreeMap::new()));

fn programs() -> MutexGuard<'static, (i64, BTreeMap<i64, Kernel>)> {
    PROGRAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The program of a node, the number of threads, and whether sentences may have pasts of different
/// lengths.
#[derive(Clone)]
pub(crate) struct Kernel {
    pub(crate) program: Arc<Program>,
    pub(crate) threads: usize,
    pub(crate) own_lengths: bool,
}

impl Kernel {
    /// The kernel of this number, while it is [`Registered`].
    pub(crate) fn of(number: i64) -> Option<Self> {
        programs().1.get(&number).cloned()
    }
}

/// A kernel that nodes find by its number while this value exists.
pub(crate) struct Registered(i64);

impl Registered {
    pub(super) fn new(kernel: Kernel) -> Self {
        let (last, kernels) = &mut *programs();
        *last += 1;
        kernels.insert(*last, kernel);
        Self(*last)
    }

    pub(super) fn number(&self) -> i64 {
        self.0
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        programs().1.remove(&self.0);
    }
}
