//! The log-mel frames of an audio stream, of which windows are cut.
//!
//! Features depend on the maximum over all audio, so that all of it is read before the first
//! window. Its frames are kept in memory up to a limit, beyond it in a temporary file.

use super::voice::VoiceDetector;
use crate::error::{Cause, Error, Result};
use cognate_audio::{AudioReader, Damage, FeatureExtractor, SAMPLE_RATE};
use ndarray::{Array3, ArrayD, Axis, s};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use tempfile::SpooledTempFile;

/// A position of the encoder, and a step of timestamps, has this many frames.
pub(super) const FRAMES_PER_STEP: usize = 2;
/// The largest size of frames in memory, in bytes: 8 minutes of 80 filters.
const IN_MEMORY: usize = 16 << 20;

/// The frames after the audio of a short window: 2 s of silence. With 0.5 s the model repeats texts
/// in place of ending.
const MARGIN: usize = 200;

/// The frames of audio.
pub(super) struct Frames {
    /// Logarithmic energies, `n_mels` for each frame.
    energies: SpooledTempFile,
    n_frames: usize,
    maximum: f32,
    n_mels: usize,
    /// The frames of one window.
    window: usize,
    /// Seconds from a frame to the next.
    step: f64,
    pub(super) damage: Damage,
    /// Frames that are padding, at the end.
    padding: usize,
    /// Whether windows end after a margin, in place of their full length.
    are_short: bool,
}

/// What follows the audio before its features are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// A window of zeros, which is cut off the features.
    Window,
    /// Zeros up to one window, if it is shorter.
    ToWindow,
}

impl Frames {
    /// Reads all audio; `detector` listens, and `progress` receives the seconds read and can end
    /// it.
    pub(super) fn read(
        mut audio: AudioReader,
        extractor: &FeatureExtractor,
        padding: Padding,
        (mut detector, progress): (
            Option<&mut dyn VoiceDetector>,
            &mut dyn FnMut(f64) -> Result<()>,
        ),
    ) -> Result<Self> {
        let (n_mels, chunk, hop) = (extractor.n_mels(), extractor.chunk(), extractor.hop());
        let (mut energies, mut maximum, mut n_frames) =
            (SpooledTempFile::new(IN_MEMORY), f32::NEG_INFINITY, 0);
        let mut bytes = Vec::new();
        let (mut stream, mut n_samples) = (extractor.stream(), 0);
        loop {
            let block = audio.next_block()?;
            let is_last = block.is_none();
            let samples = block.unwrap_or_else(|| {
                let n_zeros = match padding {
                    Padding::Window => chunk,
                    Padding::ToWindow => chunk.saturating_sub(n_samples),
                };
                vec![0.0; n_zeros]
            });
            let mut sink = |frame: &[f32]| {
                n_frames += 1;
                maximum = frame.iter().copied().fold(maximum, f32::max);
                bytes.extend(frame.iter().flat_map(|energy| energy.to_le_bytes()));
                if let Some(detector) = &mut detector {
                    detector.frame(frame);
                }
            };
            stream.push(&samples, &mut sink);
            if is_last {
                stream.finish(&mut sink);
            }
            energies.write_all(&bytes).map_err(unwritable)?;
            bytes.clear();
            if is_last {
                break;
            }
            if let Some(detector) = &mut detector {
                detector.samples(&samples)?;
            }
            n_samples += samples.len();
            progress(n_samples as f64 / f64::from(SAMPLE_RATE))?;
        }
        let (n_frames, padding) = match padding {
            Padding::Window => (n_frames - (chunk / hop).min(n_frames), 0),
            Padding::ToWindow => (n_frames, chunk.saturating_sub(n_samples) / hop),
        };
        if n_frames == padding {
            return Err(Error::input("the audio is empty; expected at least one frame of 10 ms"));
        }
        let step = hop as f64 / f64::from(SAMPLE_RATE);
        Ok(Self {
            energies,
            n_frames,
            maximum,
            n_mels,
            window: chunk / hop,
            step,
            damage: audio.damage(),
            padding,
            are_short: false,
        })
    }

    /// With windows that end after a margin, if `are_short`.
    pub(super) fn with_short_windows(self, are_short: bool) -> Self {
        Self { are_short, ..self }
    }

    /// The number of frames before padding.
    pub(super) fn n_heard(&self) -> usize {
        self.n_frames - self.padding
    }

    /// The frames of one window.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The time of a frame in seconds.
    pub(super) fn seconds(&self, frame: usize) -> f64 {
        frame as f64 * self.step
    }

    /// The features of windows from the given frames on, of at most the given lengths:
    /// `[windows, n_mels, frames]`. What is beyond the audio is 0. Short windows have the length of
    /// the longest.
    pub(super) fn windows(&mut self, windows: &[(usize, usize)]) -> Result<ArrayD<f32>> {
        let size = if self.are_short {
            let longest = windows
                .iter()
                .map(|(start, len)| *len.min(&self.n_frames.saturating_sub(*start)))
                .max()
                .unwrap_or(0);
            (longest + MARGIN).next_multiple_of(FRAMES_PER_STEP).clamp(FRAMES_PER_STEP, self.window)
        } else {
            self.window
        };
        self.scaled(windows, size, self.n_frames)
    }

    /// The features of the first window, `[1, n_mels, frames]`. What is beyond the audio is not 0,
    /// as in [`Frames::windows`], but the features of silence.
    pub(super) fn first_window(&mut self) -> Result<ArrayD<f32>> {
        self.scaled(&[(0, self.window)], self.window, self.window)
    }

    /// The features of windows of `size` frames, of the first `n_frames`.
    fn scaled(
        &mut self,
        windows: &[(usize, usize)],
        size: usize,
        n_frames: usize,
    ) -> Result<ArrayD<f32>> {
        let mut features = Array3::zeros((windows.len(), self.n_mels, size));
        let mut bytes = Vec::new();
        for (mut features, &(start, len)) in features.outer_iter_mut().zip(windows) {
            let end = (start + len.min(size)).min(n_frames);
            let size = self.n_mels * size_of::<f32>();
            bytes.resize(end.saturating_sub(start) * size, 0);
            self.energies.seek(SeekFrom::Start((start * size) as u64)).map_err(unreadable)?;
            self.energies.read_exact(&mut bytes).map_err(unreadable)?;
            let mut columns = features.slice_mut(s![.., ..]);
            for (mut column, frame) in columns.axis_iter_mut(Axis(1)).zip(bytes.chunks_exact(size))
            {
                let energies = frame.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
                column.iter_mut().zip(energies).for_each(|(feature, energy)| {
                    *feature = FeatureExtractor::scaled(energy, self.maximum)
                });
            }
        }
        Ok(features.into_dyn())
    }
}

fn unwritable(error: io::Error) -> Error {
    let folder = std::env::temp_dir();
    Cause::InFolder(format!(
        "{}: the features of long audio cannot be written (TMPDIR chooses the folder): {error}",
        folder.display()
    ))
    .into()
}

fn unreadable(error: io::Error) -> Error {
    Cause::InFolder(format!(
        "{}: the features of long audio cannot be read again: {error}",
        std::env::temp_dir().display()
    ))
    .into()
}
