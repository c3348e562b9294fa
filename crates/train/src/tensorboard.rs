//! TensorBoard's event files: `OUT/tensorboard/events.out.tfevents.SECONDS.cognate`.
//!
//! A file is a row of records: the length of an event as u64, its checksum, the event (protocol
//! buffers), its checksum. A checksum is CRC-32C, rotated and shifted (TFRecord).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Cause, Result};
use crate::{Event, Stretch, Validation};

/// The events of a run, or of its part after a resumption, for TensorBoard.
pub struct EventFile {
    file: File,
    path: PathBuf,
}

impl EventFile {
    /// Creates a file in the folder of a run that has made so many updates. TensorBoard reads it
    /// together with those of earlier parts, without events of later updates, whose work was lost.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(out: &Path, updates: u64) -> Result<Self> {
        let folder = out.join("tensorboard");
        let path = folder.join(format!("events.out.tfevents.{:.0}.cognate", now() * 1e3));
        let file = fs::create_dir_all(&folder)
            .and_then(|()| File::create(&path))
            .map_err(|error| unwritable(&path, &error))?;
        let mut events = Self { file, path };
        events.record(&event(now(), 0, Content::Version))?;
        events.record(&event(now(), updates + 1, Content::Start))?;
        Ok(events)
    }

    /// Writes the numbers of an event.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Logged(Stretch {
                update,
                epoch,
                loss,
                nll,
                learning_rate,
                gradient_norm,
                tokens_per_second,
                ..
            }) => self.scalars(
                *update,
                &[
                    ("train/loss", *loss),
                    ("train/nll", *nll),
                    ("train/learning_rate", *learning_rate),
                    ("train/gradient_norm", *gradient_norm),
                    ("train/tokens_per_second", *tokens_per_second),
                    ("train/epoch", *epoch as f64),
                ],
            ),
            Event::Validated(Validation { update, valid_loss, valid_nll, bleu, .. }) => {
                let scalars = [("valid/loss", *valid_loss), ("valid/nll", *valid_nll)];
                self.scalars(
                    *update,
                    &scalars
                        .into_iter()
                        .chain(bleu.map(|bleu| ("valid/bleu", bleu)))
                        .collect::<Vec<_>>(),
                )
            }
            Event::Update(_) | Event::Saved(_) | Event::LeftOut(_) => Ok(()),
        }
    }

    fn scalars(&mut self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        self.record(&event(now(), step, Content::Scalars(scalars)))
    }

    fn record(&mut self, event: &[u8]) -> Result<()> {
        Ok(self.file.write_all(&record(event)).map_err(|error| unwritable(&self.path, &error))?)
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Cause {
    Cause::Folder {
        folder: path.display().to_string(),
        problem: format!("cannot be written: {error}"),
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64())
}

enum Content<'s> {
    /// The version of the format, in the first event.
    Version,
    /// The start of a process: no earlier event of this step or a later one counts.
    Start,
    Scalars(&'s [(&'s str, f64)]),
}

/// `Event { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 }`
fn event(time: f64, step: u64, content: Content<'_>) -> Vec<u8> {
    let mut event = vec![0x09];
    event.extend(time.to_le_bytes());
    if step > 0 {
        event.push(0x10);
        varint(&mut event, step);
    }
    match content {
        Content::Version => field(&mut event, 3, b"brain.Event:2"),
        // `SessionLog { status = 1 }`, which is `START`.
        Content::Start => field(&mut event, 7, &[0x08, 1]),
        Content::Scalars(scalars) => {
            let mut summary = Vec::new();
            for (tag, value) in scalars {
                let mut scalar = Vec::new();
                field(&mut scalar, 1, tag.as_bytes());
                scalar.push(0x15);
                scalar.extend((*value as f32).to_le_bytes());
                field(&mut summary, 1, &scalar);
            }
            field(&mut event, 5, &summary);
        }
    }
    event
}

/// A field of bytes with their length.
fn field(message: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    message.push(number << 3 | 2);
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        message.push(value as u8 | 0x80);
        value >>= 7;
    }
    message.push(value as u8);
}

fn record(event: &[u8]) -> Vec<u8> {
    let length = (event.len() as u64).to_le_bytes();
    [&length[..], &checksum(&length), event, &checksum(event)].concat()
}

fn checksum(bytes: &[u8]) -> [u8; 4] {
    let polynomial = 0x82f6_3b78;
    let shifted = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ polynomial } else { crc >> 1 };
    let crc =
        !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), shifted));
    crc.rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that TensorBoard 2.21's `RecordWriter` writes for the same events.
    #[test]
    fn records_are_those_of_tensorboard() {
        let first = record(&event(1_700_000_000.5, 0, Content::Version));
        let second = record(&event(1_700_000_000.75, 41, Content::Start));
        let third = record(&event(
            1_700_000_001.25,
            300,
            Content::Scalars(&[("train/loss", 2.5), ("valid/bleu", 0.0)]),
        ));
        let all = [first, second, third].concat();
        let found: String = all.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "1800000000000000a37f4b220900002040fc54d9411a0d627261696e2e4576656e743a322b353110\
                        0f000000000000006d532b090900003040fc54d94110293a020801999a81ad\
                        34000000000000005e33175c0900005040fc54d94110ac022a260a110a0a747261696e2f6c6f7373150000\
                        20400a110a0a76616c69642f626c65751500000000926de0dc";
        assert_eq!(found, expected);
    }
}
