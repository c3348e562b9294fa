//! Training in several processes of `mpirun`.

use anyhow::{Error, Result};
use cognate_train::Ranks;

#[cfg(feature = "mpi")]
pub(super) use with_mpi::Job;
#[cfg(not(feature = "mpi"))]
pub(super) use without_mpi::Job;

/// The number of processes of `mpirun`, if it started this one, by the variables of Open MPI and
/// MPICH.
fn n_processes() -> Option<usize> {
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"]
        .iter()
        .find_map(|name| std::env::var(name).ok()?.parse().ok())
}

#[cfg(not(feature = "mpi"))]
mod without_mpi {
    use anyhow::bail;
    use cognate_train::Alone;

    use super::{Error, Ranks, Result, n_processes};

    /// A single process.
    pub(in super::super) struct Job;

    impl Job {
        /// Refuses to be one of several processes, which would write the same files.
        pub(in super::super) fn join() -> Result<Self> {
            match n_processes() {
                Some(n) if n > 1 => bail!(
                    "{n} processes were started, but this `cognate` was built without MPI; build it with `cargo build --release \
                     --features mpi`, which needs MPI's compiler (Debian: libopenmpi-dev) and libclang (libclang-dev)"
                ),
                _ => Ok(Self),
            }
        }

        pub(in super::super) fn ranks(&self) -> &dyn Ranks {
            &Alone
        }

        pub(in super::super) fn fail<T>(&self, error: Error) -> Result<T> {
            Err(error)
        }
    }
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use std::thread;
    use std::time::Duration;

    use anyhow::Context;
    use cognate_train::Alone;
    use mpi::Threading;
    use mpi::collective::SystemOperation;
    use mpi::environment::Universe;
    use mpi::traits::{Communicator, CommunicatorCollectives, Root};

    use super::{Error, Ranks, Result, n_processes};
    use crate::messages;

    /// The time in which the first process can print the same error.
    const DELAY: Duration = Duration::from_millis(500);

    /// All processes of one `mpirun`, or a single process.
    pub(in super::super) struct Job(Option<Universe>);

    impl Job {
        pub(in super::super) fn join() -> Result<Self> {
            if n_processes().is_none() {
                return Ok(Self(None));
            }
            // Text is read by another thread; only this one calls MPI.
            let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
                .context("MPI is initialised already")?;
            Ok(Self(Some(universe)))
        }

        pub(in super::super) fn ranks(&self) -> &dyn Ranks {
            if self.0.is_some() { self } else { &Alone }
        }

        /// Prints the error and ends all processes, which would wait for this one.
        pub(in super::super) fn fail<T>(&self, error: Error) -> Result<T> {
            let Some(universe) = self.0.as_ref().filter(|universe| universe.world().size() > 1)
            else {
                return Err(error);
            };
            let rank = universe.world().rank();
            if rank > 0 {
                thread::sleep(DELAY);
            }
            messages::error(
                &error.context(format!("process {rank} of {}", universe.world().size())),
            );
            universe.world().abort(1)
        }

        fn world(&self) -> mpi::topology::SimpleCommunicator {
            self.0.as_ref().expect("only what MPI began has ranks").world()
        }
    }

    impl Ranks for Job {
        fn rank(&self) -> usize {
            self.world().rank().try_into().expect("ranks are not negative")
        }

        fn size(&self) -> usize {
            self.world().size().try_into().expect("a number of processes")
        }

        fn sum(&self, values: &mut [f32]) {
            let own = values.to_vec();
            self.world().all_reduce_into(&own[..], values, SystemOperation::sum());
        }

        fn sum_f64(&self, values: &mut [f64]) {
            let own = values.to_vec();
            self.world().all_reduce_into(&own[..], values, SystemOperation::sum());
        }

        fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) {
            let world = self.world();
            let root = world.process_at_rank(root.try_into().expect("one of the ranks"));
            let mut length = bytes.len() as u64;
            root.broadcast_into(&mut length);
            bytes.resize(length.try_into().expect("as long as another process holds"), 0);
            root.broadcast_into(&mut bytes[..]);
        }
    }
}
