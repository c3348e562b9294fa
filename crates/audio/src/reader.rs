//! Audio files and streams as mono samples.

use crate::codec::Codec;
use crate::resample::Resampler;
use crate::{Error, ErrorKind, Result, SAMPLE_RATE};
use std::fs::File;
use std::io::{Cursor, Read};
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::probe::Hint;
use symphonia::core::formats::{FormatOptions, FormatReader, Track, TrackType};
use symphonia::core::io::{
    MediaSource, MediaSourceStream, MediaSourceStreamOptions, ReadOnlySource,
};
use symphonia::core::meta::MetadataOptions;

/// The supported sample rates, in Hz.
const RATES: RangeInclusive<u32> = 4_000..=768_000;

/// Decodes audio block by block to mono samples at [`SAMPLE_RATE`].
///
/// Channels are averaged. Damaged packets are skipped, as media players do; [`AudioReader::damage`]
/// counts them.
pub struct AudioReader {
    place: String,
    format: Box<dyn FormatReader>,
    track: u32,
    codec: Codec,
    /// The resampler and the rate of the first packet.
    resampler: Option<(u32, Resampler)>,
    duration: Option<Duration>,
    /// Whether the container declares no end.
    is_endless: bool,
    /// Whether the duration is that of the track, not a guess.
    is_exact: bool,
    /// Of an MP3 file the time of its packets at which it ends by its header; 0 without a header.
    header_end: Option<i64>,
    interleaved: Vec<f32>,
    mono: Vec<f32>,
    n_samples: u64,
    damage: Damage,
    is_finished: bool,
}

/// The parts of an audio stream that could not be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Number of skipped packets.
    pub skipped_packets: u64,
    /// Whether the stream ended before the end that its container declares.
    pub is_truncated: bool,
}

impl Damage {
    /// What is damaged, in words; `None` if nothing is.
    pub fn description(&self) -> Option<&'static str> {
        match (self.is_truncated, self.skipped_packets) {
            (true, _) => Some("the audio ends early"),
            (false, 0) => None,
            (false, _) => Some("parts of the audio are damaged and skipped"),
        }
    }
}

impl AudioReader {
    /// Opens an audio file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not audio of a supported format and codec.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let unreadable = |error: std::io::Error| Error::new(ErrorKind::Io, &place, error);
        // Opening a pipe would wait for its writer.
        if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(Error::new(
                ErrorKind::Format,
                &place,
                "expected an audio file, found a folder or a device",
            ));
        }
        let file = File::open(path).map_err(unreadable)?;
        let extension = path.extension().and_then(|extension| extension.to_str());
        // Of a truncated file, what lies at its end is searched in vain; a stream is read without.
        Self::probe(place.clone(), Box::new(file), extension).or_else(|error| {
            let stream = File::open(path).map_err(unreadable)?;
            Self::probe(place.clone(), Box::new(ReadOnlySource::new(stream)), extension)
                .map_err(|_| error)
        })
    }

    /// Reads audio from a stream, such as standard input, whose name in errors is `place`.
    ///
    /// # Errors
    /// As [`AudioReader::open`].
    pub fn from_stream(place: &str, stream: impl Read + Send + Sync + 'static) -> Result<Self> {
        Self::probe(place.into(), Box::new(ReadOnlySource::new(stream)), None)
    }

    /// Reads an audio file in memory, whose name in errors is `place`.
    ///
    /// # Errors
    /// As [`AudioReader::open`].
    pub fn from_bytes(
        place: &str,
        bytes: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::probe(place.into(), Box::new(Cursor::new(bytes)), None)
    }

    fn probe(place: String, source: Box<dyn MediaSource>, extension: Option<&str>) -> Result<Self> {
        let is_empty = source.byte_len() == Some(0);
        let stream = MediaSourceStream::new(source, MediaSourceStreamOptions::default());
        let mut hint = Hint::new();
        if let Some(extension) = extension {
            hint.with_extension(extension);
        }
        let probed = symphonia::default::get_probe().probe(
            &hint,
            stream,
            FormatOptions::default(),
            MetadataOptions::default(),
        );
        let format = probed.map_err(|error| {
            let found = match error {
                _ if is_empty => "found nothing".into(),
                SymphoniaError::Unsupported(_) => "found another format".into(),
                error => format!("found damage: {error}"),
            };
            let message =
                format!("expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), {found}");
            Error::new(ErrorKind::Format, &place, message)
        })?;
        let track = format.default_track(TrackType::Audio);
        let track = track
            .ok_or_else(|| Error::new(ErrorKind::Format, &place, "the file has no audio track"))?;
        let codec =
            Codec::new(track).map_err(|message| Error::new(ErrorKind::Codec, &place, message))?;
        let whole = format.media_info();
        let declared =
            track.duration.zip(track.time_base).or_else(|| whole.duration.zip(whole.time_base));
        let (mut is_endless, mut is_exact, mut header_end) = (false, true, None);
        match format.format_info().short_name {
            "wave" => is_endless = wav_is_endless(track),
            "matroska" => {
                // Recorded live.
                is_endless = declared.is_none();
                // The duration is that of the longest track.
                is_exact = format.tracks().len() == 1;
            }
            "mp3" => {
                let end = header_end_of(track);
                (is_exact, header_end) = (end != 0, Some(end));
            }
            "aac" => is_exact = false,
            _ => {}
        }
        let declared = declared.filter(|_| !is_endless);
        let duration = declared.and_then(|(duration, base)| {
            let time = base.calc_time(i64::try_from(duration.get()).ok()?.into())?;
            Duration::try_from_secs_f64(time.as_secs_f64()).ok()
        });
        Ok(Self {
            place,
            track: track.id,
            codec,
            resampler: None,
            duration,
            is_endless,
            is_exact,
            header_end,
            interleaved: Vec::new(),
            mono: Vec::new(),
            n_samples: 0,
            damage: Damage::default(),
            is_finished: false,
            format,
        })
    }

    /// The codec's name, such as `FLAC`.
    pub fn codec(&self) -> &str {
        &self.codec.name
    }

    /// The duration, if the container declares it.
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    /// The parts that could not be decoded so far.
    pub fn damage(&self) -> Damage {
        self.damage
    }

    /// Returns the next samples, of any number; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read, no packet can be decoded, a sample is not finite, or the format
    /// changes in a way that is not supported.
    pub fn next_block(&mut self) -> Result<Option<Vec<f32>>> {
        let mut out = Vec::new();
        while out.is_empty() && !self.is_finished {
            match self.format.next_packet() {
                Ok(Some(mut packet)) if packet.track_id == self.track => {
                    if self.header_end.is_some_and(|end| packet.pts.get() >= end) {
                        packet.trim_end = symphonia::core::units::Duration::ZERO;
                    }
                    match self.codec.decode(&packet, &mut self.interleaved) {
                        Ok(decoded) => self.push(decoded.rate, decoded.n_channels, &mut out)?,
                        Err(SymphoniaError::DecodeError(_) | SymphoniaError::IoError(_)) => {
                            self.damage.skipped_packets += 1
                        }
                        Err(error) => return Err(self.wrong(ErrorKind::Data, error)),
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => self.finish(&mut out)?,
                Err(SymphoniaError::IoError(error))
                    if error.kind() == std::io::ErrorKind::UnexpectedEof =>
                {
                    self.damage.is_truncated = !self.is_endless;
                    self.finish(&mut out)?;
                }
                Err(SymphoniaError::IoError(error)) => return Err(self.wrong(ErrorKind::Io, error)),
                // A chained stream, such as web radio: the next one begins.
                Err(SymphoniaError::ResetRequired) => self.restart()?,
                Err(error) => return Err(self.wrong(ErrorKind::Data, error)),
            }
        }
        Ok((!out.is_empty()).then_some(out))
    }

    /// Returns all samples.
    ///
    /// # Errors
    /// As [`AudioReader::next_block`].
    pub fn read_all(mut self) -> Result<Vec<f32>> {
        let mut samples = Vec::new();
        while let Some(block) = self.next_block()? {
            samples.extend(block);
        }
        Ok(samples)
    }

    fn push(&mut self, rate: u32, n_channels: usize, out: &mut Vec<f32>) -> Result<()> {
        self.mono.clear();
        let factor = 1.0 / n_channels.max(1) as f32;
        self.mono.extend(
            self.interleaved
                .chunks_exact(n_channels.max(1))
                .map(|frame| frame.iter().sum::<f32>() * factor),
        );
        if let Some(index) = self.mono.iter().position(|sample| !sample.is_finite()) {
            let position = self.n_samples + index as u64;
            return Err(self
                .wrong(ErrorKind::Data, format_args!("sample {position} is not a finite number")));
        }
        self.n_samples += self.mono.len() as u64;
        if self.resampler.as_ref().is_none_or(|(known, _)| *known != rate) {
            if !RATES.contains(&rate) {
                let message = format!(
                    "the sample rate is {rate} Hz; expected {} to {}",
                    RATES.start(),
                    RATES.end()
                );
                return Err(self.wrong(ErrorKind::Data, message));
            }
            if let Some((_, mut before)) = self.resampler.take() {
                before.finish(out);
            }
            let resampler =
                Resampler::new(rate).map_err(|error| self.wrong(ErrorKind::Data, error))?;
            self.resampler = Some((rate, resampler));
        }
        if let Some((_, resampler)) = &mut self.resampler {
            resampler.push(&self.mono, out);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<f32>) -> Result<()> {
        self.is_finished = true;
        let Some((rate, resampler)) = &mut self.resampler else {
            return match self.damage.skipped_packets {
                0 => Ok(()),
                skipped => Err(self.wrong(
                    ErrorKind::Data,
                    format_args!("none of its {skipped} packets can be decoded"),
                )),
            };
        };
        resampler.finish(out);
        // Containers round durations: less than a tenth of a second is not missing.
        let found = self.n_samples as f64 / f64::from(*rate);
        self.damage.is_truncated |= self.is_exact
            && self.duration.is_some_and(|duration| duration.as_secs_f64() - found > 0.1);
        Ok(())
    }

    fn restart(&mut self) -> Result<()> {
        let track = self.format.default_track(TrackType::Audio);
        let track = track.ok_or_else(|| {
            self.wrong(ErrorKind::Format, "the chained stream has no audio track")
        })?;
        self.track = track.id;
        self.codec = Codec::new(track).map_err(|message| self.wrong(ErrorKind::Codec, message))?;
        self.duration = None;
        Ok(())
    }

    fn wrong(&self, kind: ErrorKind, message: impl std::fmt::Display) -> Error {
        Error::new(kind, &self.place, message)
    }
}

impl std::fmt::Debug for AudioReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AudioReader")
            .field("place", &self.place)
            .field("rate", &SAMPLE_RATE)
            .finish_non_exhaustive()
    }
}

/// Whether a WAV file has no length or the largest number as its length, as programs that write to
/// a pipe do, which do not know it.
fn wav_is_endless(track: &Track) -> bool {
    let Some(CodecParameters::Audio(parameters)) = &track.codec_params else { return false };
    let channels = parameters.channels.as_ref().map_or(1, |channels| channels.count() as u64);
    let bits = u64::from(parameters.bits_per_sample.unwrap_or(16));
    let frame = (channels * bits / 8).max(1);
    // Frames are whole, and a header of up to a page comes before them.
    let least = u64::from(u32::MAX) - frame - 4096;
    track.duration.is_none_or(|duration| duration.get().saturating_mul(frame) >= least)
}

/// The time of packets at which the samples and padding of an MP3 file end by its header; 0 without
/// a header. Frames that follow are those of another file, appended to it.
fn header_end_of(track: &Track) -> i64 {
    match (track.num_frames, track.padding) {
        (Some(samples), Some(padding)) => {
            i64::try_from(samples.saturating_add(padding.into())).unwrap_or(i64::MAX)
        }
        _ => 0,
    }
}
