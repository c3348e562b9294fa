//! The log-mel frames of an audio stream, of which windows are cut.

use crate::error::Result;
use cognate_audio::{AudioReader, Damage, FeatureExtractor, SAMPLE_RATE};
use ndarray::{Array3, ArrayD, Axis, s};

/// The frames of audio.
pub(super) struct Frames {
    /// Logarithmic energies, `n_mels` for each frame.
    energies: Vec<f32>,
    maximum: f32,
    n_mels: usize,
    /// The frames of one window.
    window: usize,
    /// Seconds from a frame to the next.
    step: f64,
    pub(super) damage: Damage,
    /// Frames that are padding, at the end.
    padding: usize,
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
    /// Reads all audio; `progress` receives the seconds read.
    pub(super) fn read(
        mut audio: AudioReader,
        extractor: &FeatureExtractor,
        padding: Padding,
        mut progress: impl FnMut(f64),
    ) -> Result<Self> {
        let (n_mels, chunk, hop) = (extractor.n_mels(), extractor.chunk(), extractor.hop());
        let (mut energies, mut maximum) = (Vec::new(), f32::NEG_INFINITY);
        let mut sink = |frame: &[f32]| {
            maximum = frame.iter().copied().fold(maximum, f32::max);
            energies.extend_from_slice(frame);
        };
        let (mut stream, mut n_samples) = (extractor.stream(), 0);
        while let Some(block) = audio.next_block()? {
            n_samples += block.len();
            stream.push(&block, &mut sink);
            progress(n_samples as f64 / f64::from(SAMPLE_RATE));
        }
        let n_zeros = match padding {
            Padding::Window => chunk,
            Padding::ToWindow => chunk.saturating_sub(n_samples),
        };
        stream.push(&vec![0.0; n_zeros], &mut sink);
        stream.finish(&mut sink);
        let n_padding = if padding == Padding::Window { chunk / hop } else { 0 };
        let n_content = (energies.len() / n_mels).saturating_sub(n_padding);
        if padding == Padding::Window {
            energies.truncate(n_content * n_mels);
        }
        let padding = if padding == Padding::ToWindow { n_zeros / hop } else { 0 };
        let step = hop as f64 / f64::from(SAMPLE_RATE);
        Ok(Self { energies, maximum, n_mels, window: chunk / hop, step, damage: audio.damage(), padding })
    }

    /// The number of frames.
    pub(super) fn len(&self) -> usize {
        self.energies.len() / self.n_mels
    }

    /// The number of frames before padding.
    pub(super) fn n_heard(&self) -> usize {
        self.len() - self.padding
    }

    /// The frames of one window.
    pub(super) fn window(&self) -> usize {
        self.window
    }

    /// The time of a frame in seconds.
    pub(super) fn seconds(&self, frame: usize) -> f64 {
        frame as f64 * self.step
    }

    /// The features of windows from the given frames on, of at most the given lengths: `[windows, n_mels, frames]`. What is beyond the
    /// audio is 0.
    pub(super) fn windows(&self, windows: &[(usize, usize)]) -> ArrayD<f32> {
        let mut features = Array3::zeros((windows.len(), self.n_mels, self.window));
        for (mut features, &(start, len)) in features.outer_iter_mut().zip(windows) {
            let end = (start + len.min(self.window)).min(self.len());
            let frames = self.energies[start.min(end) * self.n_mels..end * self.n_mels].chunks_exact(self.n_mels);
            let mut columns = features.slice_mut(s![.., ..]);
            for (mut column, frame) in columns.axis_iter_mut(Axis(1)).zip(frames) {
                column.iter_mut().zip(frame).for_each(|(feature, energy)| *feature = FeatureExtractor::scaled(*energy, self.maximum));
            }
        }
        features.into_dyn()
    }

    /// The mean energy of a frame, as its logarithm relative to the largest.
    pub(super) fn loudness(&self, frame: usize) -> f32 {
        let energies = &self.energies[frame * self.n_mels..][..self.n_mels];
        energies.iter().sum::<f32>() / self.n_mels as f32 - self.maximum
    }
}
