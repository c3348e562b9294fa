//! Log-mel features (Radford et al. 2022, section 2.2), as transformers' `WhisperFeatureExtractor`
//! computes them.

use crate::mel::MelFilters;
use crate::{Error, ErrorKind, Result, SAMPLE_RATE};
use ndarray::Array2;
use realfft::{RealFftPlanner, RealToComplex};
use serde::Deserialize;
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// The smallest energy: the floor of the logarithm.
const FLOOR: f64 = 1e-10;
/// The range below the maximum, in powers of ten.
const RANGE: f32 = 8.0;

/// Computes log-mel features of 16 kHz audio.
#[derive(Clone)]
pub struct FeatureExtractor {
    filters: MelFilters,
    fft: Arc<dyn RealToComplex<f64>>,
    window: Vec<f64>,
    hop: usize,
    chunk: usize,
}

/// The fields of `preprocessor_config.json` that determine the features.
#[derive(Deserialize)]
struct Settings {
    feature_extractor_type: Option<String>,
    feature_size: usize,
    #[serde(default = "hop_length")]
    hop_length: usize,
    #[serde(default = "n_fft")]
    n_fft: usize,
    #[serde(default = "sampling_rate")]
    sampling_rate: u32,
    #[serde(default = "chunk_length")]
    chunk_length: usize,
    #[serde(default)]
    dither: f64,
}

fn hop_length() -> usize {
    160
}

fn n_fft() -> usize {
    400
}

fn sampling_rate() -> u32 {
    SAMPLE_RATE
}

fn chunk_length() -> usize {
    30
}

impl FeatureExtractor {
    /// Whisper's features with `n_mels` filters: frames of 400 samples every 160, in chunks of 30
    /// s.
    pub fn whisper(n_mels: usize) -> Self {
        Self::new(n_mels, n_fft(), hop_length(), chunk_length())
    }

    /// The features described by the text of a `preprocessor_config.json`, whose name in errors is
    /// `place`.
    ///
    /// # Errors
    /// If the text is not such a file, or a setting is not supported.
    pub fn from_json(text: &str, place: &str) -> Result<Self> {
        let wrong = |message: String| Error::new(ErrorKind::Settings, place, message);
        let settings: Settings =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let kind = settings.feature_extractor_type.as_deref().unwrap_or("WhisperFeatureExtractor");
        let expect = |field: &str, is_right: bool, expected: &str, found: String| match is_right {
            true => Ok(()),
            false => Err(wrong(format!("{field}: expected {expected}, found {found}"))),
        };
        expect(
            "feature_extractor_type",
            kind == "WhisperFeatureExtractor",
            "WhisperFeatureExtractor",
            kind.into(),
        )?;
        expect(
            "sampling_rate",
            settings.sampling_rate == SAMPLE_RATE,
            "16000",
            settings.sampling_rate.to_string(),
        )?;
        expect(
            "feature_size",
            (1..=512).contains(&settings.feature_size),
            "1 to 512",
            settings.feature_size.to_string(),
        )?;
        expect(
            "n_fft",
            (4..=1 << 16).contains(&settings.n_fft),
            "4 to 65536",
            settings.n_fft.to_string(),
        )?;
        let hop_fits = (1..settings.n_fft / 2).contains(&settings.hop_length);
        expect("hop_length", hop_fits, "less than half of n_fft", settings.hop_length.to_string())?;
        expect(
            "chunk_length",
            (1..=3600).contains(&settings.chunk_length),
            "1 to 3600",
            settings.chunk_length.to_string(),
        )?;
        expect("dither", settings.dither == 0.0, "0.0", settings.dither.to_string())?;
        Ok(Self::new(
            settings.feature_size,
            settings.n_fft,
            settings.hop_length,
            settings.chunk_length,
        ))
    }

    fn new(n_mels: usize, n_fft: usize, hop: usize, chunk: usize) -> Self {
        // The periodic Hann window.
        let window = (0..n_fft)
            .map(|index| 0.5 - 0.5 * (2.0 * PI * index as f64 / n_fft as f64).cos())
            .collect();
        Self {
            filters: MelFilters::slaney(n_mels, n_fft / 2 + 1, SAMPLE_RATE.into()),
            fft: RealFftPlanner::new().plan_fft_forward(n_fft),
            window,
            hop,
            chunk: chunk * SAMPLE_RATE as usize,
        }
    }

    /// The number of mel filters.
    pub fn n_mels(&self) -> usize {
        self.filters.len()
    }

    /// The number of samples from one frame to the next.
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// The number of samples of one chunk, the input of a model.
    pub fn chunk(&self) -> usize {
        self.chunk
    }

    /// The features of `samples`: `[n_mels, samples / hop]`.
    pub fn extract(&self, samples: &[f32]) -> Array2<f32> {
        let (n_mels, n_frames) = (self.n_mels(), samples.len() / self.hop);
        let mut features = Array2::zeros((n_mels, n_frames));
        let mut columns = features.columns_mut().into_iter();
        let mut maximum = f32::NEG_INFINITY;
        let mut stream = self.stream();
        let mut sink = |frame: &[f32]| {
            maximum = frame.iter().copied().fold(maximum, f32::max);
            columns
                .next()
                .expect("a column for each frame")
                .iter_mut()
                .zip(frame)
                .for_each(|(to, from)| *to = *from);
        };
        stream.push(samples, &mut sink);
        stream.finish(&mut sink);
        features.mapv_inplace(|energy| Self::scaled(energy, maximum));
        features
    }

    /// A feature of a logarithmic energy, given the largest energy of the input.
    pub fn scaled(energy: f32, maximum: f32) -> f32 {
        (energy.max(maximum - RANGE) + 4.0) / 4.0
    }

    /// A stream of frames, for audio that is not completely in memory.
    pub fn stream(&self) -> FeatureStream<'_> {
        let input = self.fft.make_input_vec();
        let spectrum = self.fft.make_output_vec();
        let power = vec![0.0; spectrum.len()];
        FeatureStream {
            extractor: self,
            samples: Vec::new(),
            begun: false,
            n_samples: 0,
            n_frames: 0,
            input,
            spectrum,
            power,
        }
    }
}

impl fmt::Debug for FeatureExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n_mels, n_fft) = (self.n_mels(), self.window.len());
        f.debug_struct("FeatureExtractor")
            .field("n_mels", &n_mels)
            .field("n_fft", &n_fft)
            .field("hop", &self.hop)
            .finish()
    }
}

/// Computes frames of logarithmic energies, `log10` of each filter, while samples arrive.
///
/// [`FeatureExtractor::scaled`] converts them to features when the maximum is known.
#[derive(Debug)]
pub struct FeatureStream<'e> {
    extractor: &'e FeatureExtractor,
    /// The samples from the start of the next frame, and before the first frame their reflection.
    samples: Vec<f32>,
    begun: bool,
    n_samples: usize,
    n_frames: usize,
    input: Vec<f64>,
    spectrum: Vec<realfft::num_complex::Complex<f64>>,
    power: Vec<f64>,
}

impl FeatureStream<'_> {
    /// Adds samples, and passes each complete frame of `n_mels` energies to `sink`.
    pub fn push(&mut self, samples: &[f32], sink: &mut impl FnMut(&[f32])) {
        self.n_samples += samples.len();
        self.samples.extend_from_slice(samples);
        let half = self.extractor.window.len() / 2;
        if !self.begun {
            if self.samples.len() <= half {
                return;
            }
            // Frames are centred: before the first sample its successors are reflected.
            let reflected: Vec<f32> = self.samples[1..=half].iter().rev().copied().collect();
            self.samples.splice(0..0, reflected);
            self.begun = true;
        }
        self.frames(self.n_samples / self.extractor.hop, sink);
    }

    /// Passes the last frames to `sink`, `samples / hop` in total.
    pub fn finish(&mut self, sink: &mut impl FnMut(&[f32])) {
        let (half, total) = (self.extractor.window.len() / 2, self.n_samples / self.extractor.hop);
        if !self.begun && total > 0 {
            // Input shorter than a reflection is reflected repeatedly, as in NumPy.
            let own = std::mem::take(&mut self.samples);
            let period = (2 * own.len() as i64 - 2).max(1);
            let at = |index: i64| {
                let place = index.rem_euclid(period);
                own[place.min(period - place).min(own.len() as i64 - 1) as usize]
            };
            self.samples = (-(half as i64)..(own.len() + half) as i64).map(at).collect();
            self.begun = true;
        } else if self.begun {
            let end = self.samples.len();
            let reflected: Vec<f32> = (2..=half + 1)
                .map_while(|back| end.checked_sub(back))
                .map(|index| self.samples[index])
                .collect();
            self.samples.extend(reflected);
        }
        self.frames(total, sink);
    }

    fn frames(&mut self, total: usize, sink: &mut impl FnMut(&[f32])) {
        let FeatureExtractor { filters, fft, window, hop, .. } = self.extractor;
        let mut frame = Vec::with_capacity(filters.len());
        let mut begin = 0;
        while self.n_frames < total && self.samples.len() - begin >= window.len() {
            let samples = &self.samples[begin..][..window.len()];
            for ((input, sample), factor) in self.input.iter_mut().zip(samples).zip(window) {
                *input = f64::from(*sample) * factor;
            }
            fft.process(&mut self.input, &mut self.spectrum)
                .expect("buffers have the sizes of the plan");
            self.power
                .iter_mut()
                .zip(&self.spectrum)
                .for_each(|(power, value)| *power = value.norm_sqr());
            frame.clear();
            frame.extend(
                filters.energies(&self.power).map(|energy| energy.max(FLOOR).log10() as f32),
            );
            sink(&frame);
            self.n_frames += 1;
            begin += hop;
        }
        self.samples.drain(..begin);
    }
}
