//! Steps that repeat are replayed as CUDA graphs: one launch instead of one for each operator.
//!
//! A step repeats if all its inputs and outputs have the addresses and shapes of an earlier one, and
//! the numbers that the host reads are the same. ONNX Runtime records a graph for each identifier,
//! and its memory in between stays the session's.

use ::ort::AsPointer;
use ::ort::session::RunOptions;
use ::ort::sys::OrtRunOptions;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, ThreadId};

/// While one thread records, no other may allocate or copy.
static RECORDING: RwLock<()> = RwLock::new(());

/// Waits until nothing is recorded, and prevents that meanwhile.
pub(in crate::ort::session) fn undisturbed() -> RwLockReadGuard<'static, ()> {
    RECORDING.read().unwrap_or_else(PoisonError::into_inner)
}

/// The repetition at which a step is recorded, which takes about as long as four steps.
const RECORDED_AT: u32 = 3;

/// Maximum number of recorded steps of a session, each about half a megabyte of the GPU's memory, and
/// of steps that are remembered.
const MOST_RECORDED: i32 = 1024;
const MOST_REMEMBERED: usize = 1 << 16;

/// Maximum number of threads that are remembered; another one records again, or finds the graph of a
/// thread that has ended.
const MOST_THREADS: usize = 64;

/// What ONNX Runtime is to do with a step.
pub(super) struct Plan {
    options: Arc<RunOptions>,
    /// Of a step that is recorded.
    alone: Option<RwLockWriteGuard<'static, ()>>,
}

impl Plan {
    /// For one call, during which the plan lives.
    pub(super) fn options(&self) -> *const OrtRunOptions {
        self.options.ptr()
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.alone.is_some()
    }
}

/// The steps of a session.
pub(super) struct Replays {
    /// Of steps that are not recorded.
    skip: Arc<RunOptions>,
    seen: HashMap<Vec<usize>, Seen>,
    n_recorded: i32,
}

#[derive(Default)]
struct Seen {
    count: u32,
    options: Option<Arc<RunOptions>>,
    /// The threads that have recorded it: ONNX Runtime has a graph for each.
    threads: Vec<ThreadId>,
}

impl Replays {
    pub(super) fn new() -> ::ort::Result<Self> {
        let skip = options_of(-1)?;
        Ok(Self { skip, seen: HashMap::new(), n_recorded: 0 })
    }

    /// The plan for a step with these addresses, shapes and numbers; without them, for one that is
    /// not to be recorded.
    pub(super) fn plan(&mut self, step: Option<Vec<usize>>) -> ::ort::Result<Plan> {
        let skipped = Plan { options: self.skip.clone(), alone: None };
        let Some(step) = step else { return Ok(skipped) };
        if self.seen.len() >= MOST_REMEMBERED {
            self.seen.retain(|_, seen| seen.options.is_some());
        }
        let seen = self.seen.entry(step).or_default();
        seen.count = seen.count.saturating_add(1);
        let thread = thread::current().id();
        if let Some(options) = seen.options.as_ref().filter(|_| seen.threads.contains(&thread)) {
            return Ok(Plan { options: options.clone(), alone: None });
        }
        if seen.count < RECORDED_AT || self.n_recorded == MOST_RECORDED {
            return Ok(skipped);
        }
        // If another thread is busy, there is a next time.
        let Ok(alone) = RECORDING.try_write() else { return Ok(skipped) };
        let options = match &seen.options {
            Some(options) => options.clone(),
            None => {
                self.n_recorded += 1;
                options_of(self.n_recorded)?
            }
        };
        seen.options = Some(options.clone());
        if seen.threads.len() == MOST_THREADS {
            seen.threads.remove(0);
        }
        seen.threads.push(thread);
        Ok(Plan { options, alone: Some(alone) })
    }
}

/// Options of a call: the identifier of the graph that ONNX Runtime records or replays; -1 for
/// none.
fn options_of(graph: i32) -> ::ort::Result<Arc<RunOptions>> {
    let mut options = RunOptions::new()?;
    options.set("gpu_graph_id", graph.to_string())?;
    Ok(Arc::new(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ort;

    #[test]
    fn a_step_is_recorded_at_its_third_repetition() {
        let Ok(_ort) = Ort::find() else {
            return cognate_testing::skip(
                "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
            );
        };
        let mut replays = Replays::new().expect("options");
        let mut plan = |step: &[usize]| {
            let plan = replays.plan(Some(step.to_vec())).expect("a plan");
            (plan.is_recorded(), plan.options())
        };
        let (is_recorded, skip) = plan(&[1, 2]);
        assert!(!is_recorded);
        assert_eq!(plan(&[1, 2]), (false, skip));
        assert_eq!(plan(&[2, 1]), (false, skip), "another step");
        let (is_recorded, first) = plan(&[1, 2]);
        assert!(is_recorded && first != skip);
        assert_eq!(plan(&[1, 2]), (false, first), "replayed");
        assert_eq!(plan(&[2, 1]), (false, skip));
        let (is_recorded, second) = plan(&[2, 1]);
        assert!(is_recorded && ![skip, first].contains(&second));
        {
            let _busy = undisturbed();
            assert_eq!((0..4).map(|_| plan(&[3])).collect::<Vec<_>>(), [(false, skip); 4]);
        }
        assert!(plan(&[3]).0);
        let elsewhere = replays.plan(None).expect("a plan");
        assert_eq!((elsewhere.is_recorded(), elsewhere.options()), (false, skip));
    }
}
