//! Copies of a model on several devices.

use cognate_runtime::{Device, Devices, Loaded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The graphs of a model on each device. Workers take turns.
pub(crate) struct Copies {
    graphs: Vec<Vec<Arc<dyn Loaded>>>,
    turn: AtomicUsize,
}

impl Copies {
    /// Loads the graphs on each device.
    pub(crate) fn load<E>(
        devices: &Devices,
        load: impl FnMut(Device) -> Result<Vec<Arc<dyn Loaded>>, E>,
    ) -> Result<Arc<Self>, E> {
        let graphs = devices.all().iter().copied().map(load).collect::<Result<_, E>>()?;
        Ok(Arc::new(Self { graphs, turn: AtomicUsize::new(0) }))
    }

    /// The graphs on the device of the next worker.
    pub(crate) fn next(&self) -> &[Arc<dyn Loaded>] {
        &self.graphs[self.turn.fetch_add(1, Ordering::Relaxed) % self.graphs.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_runtime::Session;

    /// A graph on the device with this number.
    struct On(u16, Arc<AtomicUsize>);

    impl Loaded for On {
        fn session(self: Arc<Self>) -> Box<dyn Session> {
            unreachable!("counted, not run")
        }
    }

    impl Drop for On {
        fn drop(&mut self) {
            self.1.fetch_add(usize::from(self.0), Ordering::Relaxed);
        }
    }

    #[test]
    fn workers_are_spread_over_devices() {
        let devices: Devices = "cuda:1,cuda:10,cuda:100".parse().expect("devices");
        let dropped = Arc::new(AtomicUsize::new(0));
        let mut loaded = Vec::new();
        let copies = Copies::load(&devices, |device| {
            loaded.push(device);
            let Device::Cuda(number) = device else { return Err(device) };
            Ok(vec![Arc::new(On(number, dropped.clone())) as Arc<dyn Loaded>; 2])
        });
        let copies = copies.unwrap_or_else(|device| panic!("{device} is a GPU"));
        assert_eq!(loaded, devices.all());
        let places: Vec<_> = (0..7).map(|_| copies.next().as_ptr()).collect();
        assert_eq!(places[..3], places[3..6]);
        assert_eq!(places[0], places[6]);
        assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2]);
        drop(copies);
        assert_eq!(dropped.load(Ordering::Relaxed), 111, "each is loaded once");
    }
}
