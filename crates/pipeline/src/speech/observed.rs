//! The first window of audio, whose attention is observed.

use super::features::{FRAMES_PER_STEP, Frames, Padding};
use super::options::{Semantics, TranscriberOptions};
use super::transcriber::Transcriber;
use crate::error::{Error, Result};
use cognate_audio::AudioReader;
use cognate_folder::ModelSource;
use cognate_generate::Settings;
use cognate_model::Attentions;
use cognate_pictures::{SourcePicture, Token};
use ndarray::{Array4, ArrayD, ArrayView2, Axis, concatenate, s};
use std::path::Path;

/// The size of the picture of audio.
const WIDTH: usize = 1000;
const HEIGHT: usize = 160;

/// One window of audio, and how its text is searched.
pub(crate) struct Window {
    /// `[1, n_mels, frames]`, those of a whole window.
    pub(crate) features: ArrayD<f32>,
    /// The number of the encoder's positions up to the end of the audio.
    n_positions: usize,
    /// The number of the others, which are padding.
    n_padding: usize,
    /// Seconds of one position.
    step: f64,
    /// What the decoder reads before the text.
    pub(crate) prompt: Vec<i64>,
    pub(crate) settings: Settings,
}

impl Transcriber {
    /// Loads a model that returns the decoder's attention weights, and writes texts without
    /// timestamps as transformers does.
    pub(crate) fn observing(source: ModelSource, mut options: TranscriberOptions) -> Result<Self> {
        let transcription = &mut options.transcription;
        (transcription.semantics, transcription.timestamps, transcription.word_timestamps) =
            (Semantics::Transformers, false, true);
        Self::with_attentions(source, &options, Attentions::All)
    }

    /// The audio of a file, at most one window.
    pub(crate) fn window_of(&self, path: &Path) -> Result<Window> {
        let extractor = self.extractor();
        let longest = extractor.chunk() as f64 / f64::from(cognate_audio::SAMPLE_RATE);
        let mut limit = |seconds: f64| match seconds <= longest {
            true => Ok(()),
            false => Err(Error::input(format_args!(
                "expected at most {longest} s of audio, one window of the model; cut out the part to look at"
            ))),
        };
        let mut frames = Frames::read(
            AudioReader::open(path)?,
            extractor,
            Padding::ToWindow,
            (None, &mut limit),
        )?;
        let (n_heard, window) = (frames.n_heard(), frames.window());
        let (is_wanted, mut decoder) = (|| true, self.model().decoder()?);
        let decoding = self.window_decoder(&is_wanted);
        let (language, _) = self.language(&decoding, decoder.as_mut(), &mut frames)?;
        let prompt = self.prompt(&language)?;
        let n_positions = n_heard.div_ceil(FRAMES_PER_STEP);
        Ok(Window {
            features: frames.windows(&[(0, window)])?,
            n_positions,
            n_padding: (window / FRAMES_PER_STEP).saturating_sub(n_positions),
            step: frames.seconds(FRAMES_PER_STEP),
            settings: decoding.settings_at(prompt[0], 0.0),
            prompt,
        })
    }
}

impl Window {
    /// A token for each position of the audio, and one for the padding after it.
    pub(crate) fn tokens(&self) -> Vec<Token> {
        let positions =
            (0..self.n_positions).map(|position| format!("{:.2} s", position as f64 * self.step));
        let padding = (self.n_padding > 0).then(|| "padding".to_owned());
        positions.chain(padding).zip(0..).map(|(piece, id)| Token { piece, id }).collect()
    }

    /// The spectrogram of the audio: a cell for each position, from low frequencies at the bottom
    /// to high ones, dark where they are loud.
    pub(crate) fn picture(&self) -> Result<SourcePicture> {
        let heard = self.features.slice(s![
            0,
            ..,
            ..(FRAMES_PER_STEP * self.n_positions).min(self.features.shape()[2])
        ]);
        let trailing = usize::from(self.n_padding > 0);
        SourcePicture::new(
            &spectrogram(heard),
            [WIDTH, HEIGHT],
            [1, self.n_positions],
            [0, trailing],
        )
        .map_err(Error::input)
    }

    /// Weights `[.., src]` whose columns are those of [`Window::tokens`]: the padding's are added
    /// up.
    pub(crate) fn of_tokens(&self, weights: Array4<f32>) -> Array4<f32> {
        if self.n_padding == 0 {
            return weights;
        }
        let padding = weights
            .slice(s![.., .., .., self.n_positions..])
            .sum_axis(Axis(3))
            .insert_axis(Axis(3));
        concatenate![Axis(3), weights.slice(s![.., .., .., ..self.n_positions]), padding]
    }
}

/// Pixels in red, green and blue of features `[n_mels, frames]`.
fn spectrogram(features: ArrayView2<'_, f32>) -> Vec<u8> {
    let (n_mels, n_frames) = features.dim();
    let (least, most) =
        features.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(least, most), &value| {
            (least.min(value), most.max(value))
        });
    let range = (most - least).max(f32::MIN_POSITIVE);
    let pixel = |index: usize| {
        let (x, y) = (index % WIDTH, index / WIDTH);
        let loudness =
            (features[[n_mels - 1 - y * n_mels / HEIGHT, x * n_frames / WIDTH]] - least) / range;
        [(255.0 * (1.0 - loudness)).round() as u8; 3]
    };
    (0..WIDTH * HEIGHT).flat_map(pixel).collect()
}
