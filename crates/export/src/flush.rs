//! Writes large files, and hashes and syncs them at the same time.
//!
//! A single sync at the end leaves the disk idle until then. A second thread syncs while the file
//! is written: 240 MB take 0.18 s instead of 0.31 s (median of 9, from the page cache to a virtual
//! disk). A third thread hashes each piece, so that nothing is read twice.

use std::fs::File;
use std::io::{self, Write};
use std::sync::mpsc::{self, SyncSender};
use std::thread;

/// Bytes per write; also the bytes after which the syncing thread is woken.
const PIECE: usize = 8 << 20;
const STRETCH: usize = 32 << 20;
/// Up to this many bytes, hashing takes less time than starting a thread.
const FEW: usize = 128 << 10;

/// Lets `fill` write to `file`; returns the BLAKE3 hash of the bytes written.
///
/// # Errors
/// The first error of `fill` or of the syncing thread: the system reports a failed write only once,
/// so the last sync would not repeat it.
pub(crate) fn write_early(
    file: &File,
    fill: impl FnOnce(&mut Early<'_>) -> io::Result<()>,
) -> io::Result<blake3::Hash> {
    let (wake, woken) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        let syncing = thread::Builder::new()
            .spawn_scoped(scope, move || woken.iter().try_for_each(|()| file.sync_data()))?;
        let mut early = Early { file, wake, waiting: 0, hasher: blake3::Hasher::new() };
        let filled = fill(&mut early);
        let hash = early.hasher.finalize();
        // Dropping the sender ends the syncing thread.
        drop(early);
        let synced = syncing.join().expect("a sync does not panic");
        filled.and(synced).map(|()| hash)
    })
}

/// Writes through, hashes, and wakes the syncing thread.
pub(crate) struct Early<'f> {
    file: &'f File,
    wake: SyncSender<()>,
    waiting: usize,
    hasher: blake3::Hasher,
}

impl Write for Early<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (piece, hasher) = (&bytes[..bytes.len().min(PIECE)], &mut self.hasher);
        if piece.len() <= FEW {
            hasher.update(piece);
            self.file.write_all(piece)?;
        } else {
            thread::scope(|scope| {
                let hashing =
                    thread::Builder::new().spawn_scoped(scope, || hasher.update(piece).count())?;
                let written = self.file.write_all(piece);
                hashing.join().expect("a hash does not panic");
                written
            })?;
        }
        self.waiting += piece.len();
        if self.waiting >= STRETCH {
            self.waiting = 0;
            // A busy thread syncs these bytes the next time.
            let _busy = self.wake.try_send(());
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
