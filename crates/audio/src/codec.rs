//! Decoders of the packets of one track: symphonia's, and one for Opus.

use opus_decoder::OpusDecoder;
use symphonia::core::codecs::CodecParameters;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_AAC, CODEC_ID_OPUS};
use symphonia::core::codecs::audio::{AudioCodecParameters, AudioDecoder, AudioDecoderOptions};
use symphonia::core::errors::Error as SymphoniaError;
use symphonia::core::formats::Track;
use symphonia::core::packet::Packet;

/// The longest Opus packet, 120 ms at 48 kHz, in samples of each channel.
const OPUS_PACKET: usize = 5760;
const OPUS_RATE: u32 = 48_000;
/// The delay of AAC-LC in samples: one frame.
const AAC_DELAY: u64 = 1024;

/// The decoder of a track.
pub(crate) struct Codec {
    decoder: Decoder,
    pub(crate) name: String,
    /// Number of samples of each channel that remain to be dropped at the beginning.
    delay: u64,
}

enum Decoder {
    Symphonia(Box<dyn AudioDecoder>),
    Opus { decoder: Box<OpusDecoder>, n_channels: usize, samples: Vec<f32> },
}

/// The content of a decoded packet: interleaved samples.
pub(crate) struct Decoded {
    pub(crate) rate: u32,
    pub(crate) n_channels: usize,
}

impl Codec {
    /// The decoder for `track`; the error is a message.
    pub(crate) fn new(track: &Track) -> Result<Self, String> {
        let Some(CodecParameters::Audio(parameters)) = &track.codec_params else {
            return Err("the audio track has no codec parameters".into());
        };
        if parameters.codec == CODEC_ID_OPUS {
            let (decoder, n_channels) = opus(parameters)?;
            let decoder = Decoder::Opus {
                decoder: Box::new(decoder),
                n_channels,
                samples: vec![0.0; OPUS_PACKET * n_channels],
            };
            let pre_skip = parameters.extra_data.as_deref().map_or(0, pre_skip);
            return Ok(Self { decoder, name: "Opus".into(), delay: pre_skip.into() });
        }
        let decoder = symphonia::default::get_codecs()
            .make_audio_decoder(parameters, &AudioDecoderOptions::default())
            .map_err(|error| format!("the codec is not supported: {error}"))?;
        let name = decoder.codec_info().short_name.to_uppercase();
        let delay = if parameters.codec == CODEC_ID_AAC { AAC_DELAY } else { 0 };
        Ok(Self { decoder: Decoder::Symphonia(decoder), name, delay })
    }

    /// Decodes a packet into interleaved `samples`.
    pub(crate) fn decode(
        &mut self,
        packet: &Packet,
        samples: &mut Vec<f32>,
    ) -> Result<Decoded, SymphoniaError> {
        let decoded = match &mut self.decoder {
            Decoder::Symphonia(decoder) => {
                let buffer = decoder.decode(packet)?;
                buffer.copy_to_vec_interleaved(samples);
                Decoded { rate: buffer.spec().rate(), n_channels: buffer.spec().channels().count() }
            }
            Decoder::Opus { decoder, n_channels, samples: decoded } => {
                let wrong = |_| SymphoniaError::DecodeError("opus: the packet is damaged");
                let length = decoder.decode_float(&packet.data, decoded, false).map_err(wrong)?;
                let end = length.saturating_sub(packet.trim_end.get() as usize);
                samples.clear();
                samples.extend_from_slice(&decoded[..end * *n_channels]);
                Decoded { rate: OPUS_RATE, n_channels: *n_channels }
            }
        };
        let n_frames = samples.len() / decoded.n_channels.max(1);
        let dropped = self.delay.min(n_frames as u64);
        self.delay -= dropped;
        samples.drain(..dropped as usize * decoded.n_channels);
        Ok(decoded)
    }
}

/// A decoder for one Opus stream of one or two channels (RFC 7845, section 5.1.1: mapping family
/// 0).
fn opus(parameters: &AudioCodecParameters) -> Result<(OpusDecoder, usize), String> {
    let n_channels = parameters.channels.as_ref().map_or(1, |channels| channels.count());
    if n_channels > 2 {
        return Err(format!("Opus with {n_channels} channels is not supported; expected 1 or 2"));
    }
    let decoder =
        OpusDecoder::new(OPUS_RATE, n_channels).map_err(|error| format!("Opus: {error}"))?;
    Ok((decoder, n_channels))
}

/// The pre-skip in a header of Opus: that of RFC 7845, section 5.1, of version 1, or the box of MP4
/// (`dOps` of "Encapsulation of Opus in ISO Base Media File Format"), of version 0 and in big
/// endian, behind the same eight letters.
fn pre_skip(header: &[u8]) -> u16 {
    match *header {
        [_, _, _, _, _, _, _, _, 0, _, high, low, ..] => u16::from_be_bytes([high, low]),
        [_, _, _, _, _, _, _, _, _, _, low, high, ..] => u16::from_le_bytes([low, high]),
        _ => 0,
    }
}
