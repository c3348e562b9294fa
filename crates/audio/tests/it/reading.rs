//! Every container and codec, rates, channels and streams.

use crate::{clip, samples, signal_to_noise};
use cognate_audio::{AudioReader, Damage};
use std::f64::consts::TAU;
use std::io::Cursor;
use symphonia::core::formats::FormatOptions;
use symphonia::core::formats::probe::Hint;
use symphonia::core::io::{MediaSourceStream, MediaSourceStreamOptions};
use symphonia::core::meta::MetadataOptions;

/// The shift of `found` against `expected`, in samples of 1/16,000 s, at which both agree best.
fn shift(expected: &[f32], found: &[f32]) -> i64 {
    let agreement = |shift: i64| {
        let pairs = (2_000..30_000).map(|index: i64| {
            (expected[index as usize], found.get((index + shift) as usize).copied().unwrap_or(0.0))
        });
        pairs.map(|(one, other)| f64::from(one * other)).sum::<f64>()
    };
    (-300..300).max_by(|one, other| agreement(*one).total_cmp(&agreement(*other))).unwrap()
}

#[test]
fn lossless_files_give_the_samples() {
    let expected = samples("clip.wav");
    assert_eq!(expected.len(), 32_000);
    for name in ["clip.flac", "clip-24bit.wav", "clip-float.wav"] {
        assert_eq!(samples(name), expected, "{name}");
    }
}

#[test]
fn compressed_files_sound_alike_and_are_not_late() {
    let expected = samples("clip.wav");
    for (name, codec, quality) in [
        ("clip.mp3", "MP3", 15.0),
        ("clip.ogg", "VORBIS", 10.0),
        ("clip.opus", "Opus", 5.0),
        ("clip.webm", "Opus", 5.0),
        ("clip-opus.mp4", "Opus", 5.0),
        ("clip.m4a", "AAC", 10.0),
        ("clip-alaw-8k.wav", "PCM_ALAW", 10.0),
        ("clip-stereo-44k.flac", "FLAC", 30.0),
    ] {
        let reader = AudioReader::open(&clip(name)).unwrap();
        assert_eq!(reader.codec(), codec);
        let found = reader.read_all().unwrap();
        let (late, ratio) = (shift(&expected, &found), signal_to_noise(&expected, &found));
        assert!(late.abs() <= 1, "{name}: {late} samples late");
        assert!(ratio > quality, "{name}: {ratio:.1} dB");
        assert!(found.len().abs_diff(expected.len()) < 1_600, "{name}: {} samples", found.len());
    }
}

#[test]
fn a_stream_gives_what_a_file_gives() {
    for name in ["clip.mp3", "clip.ogg", "clip.flac", "clip.wav", "clip.opus"] {
        let bytes = std::fs::read(clip(name)).unwrap();
        let mut reader = AudioReader::from_stream("standard input", Cursor::new(bytes)).unwrap();
        let mut found = Vec::new();
        while let Some(block) = reader.next_block().unwrap() {
            assert!(
                !block.is_empty() && block.len() < 16_000,
                "{name}: a block of {}",
                block.len()
            );
            found.extend(block);
        }
        assert_eq!(found, samples(name), "{name}");
        assert_eq!(reader.damage(), Default::default());
    }
}

/// A second of tones of `hertz` at `rate`, in all channels of `gains`.
fn tones(hertz: &[f64], rate: u32, gains: &[f64]) -> Vec<f32> {
    let tone = |index: u32| {
        hertz
            .iter()
            .map(|hertz| (hertz * f64::from(index) * TAU / f64::from(rate)).sin())
            .sum::<f64>()
    };
    (0..rate).flat_map(|index| gains.iter().map(move |gain| (tone(index) * gain) as f32)).collect()
}

/// Tones up to 7 kHz keep their exact values at any rate; those above 8 kHz vanish. Channels are
/// averaged.
#[test]
fn resampling_is_band_limited() {
    for (rate, low, high) in [
        (4_000, &[100.0, 440.0, 1_600.0][..], &[][..]),
        (7_999, &[100.0, 1_000.0, 3_400.0], &[]),
        (11_025, &[440.0, 4_500.0], &[]),
        (22_050, &[100.0, 3_000.0, 7_000.0], &[9_000.0]),
        (44_100, &[100.0, 440.0, 1_000.0, 7_000.0], &[9_000.0, 12_000.0]),
        (48_000, &[440.0, 7_000.0], &[9_000.0, 20_000.0]),
        (192_000, &[440.0, 7_000.0], &[9_000.0, 60_000.0]),
    ] {
        let given = tones(&[low, high].concat(), rate, &[0.3, -0.1, 0.1]);
        let wav =
            wav(3, rate, 3, &given.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<_>>());
        let found =
            AudioReader::from_stream("tones", Cursor::new(wav)).unwrap().read_all().unwrap();
        assert_eq!(found.len(), 16_000, "{rate} Hz");
        let ratio =
            signal_to_noise(&tones(low, 16_000, &[0.1])[2_000..14_000], &found[2_000..14_000]);
        assert!(ratio > 70.0, "{rate} Hz: {ratio:.1} dB");
    }
}

/// A WAV file: `format` 1 is integers, 3 is floating point numbers of 32 bits.
pub(crate) fn wav(format: u16, rate: u32, n_channels: u16, data: &[u8]) -> Vec<u8> {
    let bits: u16 = if format == 3 { 32 } else { 16 };
    let frame = n_channels * bits / 8;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0");
    bytes.extend(format.to_le_bytes());
    bytes.extend(n_channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate.wrapping_mul(frame.into())).to_le_bytes());
    bytes.extend(frame.to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

/// What lies at the end of a file is missing, and nothing else.
#[test]
fn truncated_files_are_read_up_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.webm");
    let bytes = std::fs::read(clip("clip.webm")).unwrap();
    for kept in [bytes.len() - 10, bytes.len() / 2] {
        std::fs::write(&path, &bytes[..kept]).unwrap();
        let mut reader = AudioReader::open(&path).unwrap();
        let mut n_samples = 0;
        while let Some(block) = reader.next_block().unwrap() {
            n_samples += block.len();
        }
        let expected = 32_000 * kept / bytes.len();
        assert!(n_samples.abs_diff(expected) < 4_000, "{kept} bytes: {n_samples} samples");
        assert!(reader.damage().is_truncated, "{kept} bytes");
    }
}

/// Files are appended to one another to insert announcements: the first one's header, which gives a
/// number of samples, is not the end.
#[test]
fn appended_mp3_files_are_read_whole() {
    let bytes = std::fs::read(clip("clip.mp3")).unwrap();
    let one = samples("clip.mp3");
    let mut reader = AudioReader::from_bytes("memory", bytes.repeat(2)).unwrap();
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        found.extend(block);
    }
    assert_eq!(found[..one.len()], one);
    // The second one's header, which gives the encoder's delay and padding, is not read.
    let second = &found[one.len()..];
    assert!(second.len() > one.len() && second.len() < one.len() + 4_096, "{}", second.len());
    let delay = second.len() - one.len();
    let ratios = (0..delay).map(|delay| signal_to_noise(&one, &second[delay..]));
    assert!(ratios.fold(0.0, f64::max) > 60.0);
    assert_eq!(reader.damage(), Damage::default());
}

/// Without its header the number of samples of an MP3 file is a guess: here half too many.
#[test]
fn guessed_ends_are_none() {
    let bytes = std::fs::read(clip("clip.mp3")).unwrap();
    let header = bytes.windows(4).position(|four| four == b"Info").unwrap();
    let first = bytes[header..].windows(2).position(|two| two == [0xff, 0xf3]).unwrap();
    let bare = [&bytes[header + first..], &vec![0; bytes.len() / 2]].concat();
    let mut reader = AudioReader::from_bytes("memory", bare).unwrap();
    let mut n_samples = 0;
    while let Some(block) = reader.next_block().unwrap() {
        n_samples += block.len();
    }
    assert!(n_samples.abs_diff(32_000) < 4_096, "{n_samples} samples");
    assert_eq!(reader.damage(), Damage::default());
}

/// Without a header the length of AAC is a guess from some of its frames: here too long.
#[test]
fn ends_of_bare_aac_are_none() {
    let file = std::fs::File::open(clip("clip.m4a")).unwrap();
    let stream = MediaSourceStream::new(Box::new(file), MediaSourceStreamOptions::default());
    let mut format = symphonia::default::get_probe()
        .probe(&Hint::new(), stream, FormatOptions::default(), MetadataOptions::default())
        .unwrap();
    let mut frames = Vec::new();
    while let Some(packet) = format.next_packet().unwrap() {
        frames.push(packet.data.to_vec());
    }
    frames.sort_by_key(Vec::len);
    let with_header = |frame: &Vec<u8>| {
        // AAC-LC of 16 kHz, one channel (ISO/IEC 13818-7, section 6.2).
        let [high, low] = ((frame.len() + 7) as u16).to_be_bytes();
        let header =
            [0xff, 0xf1, 0x60, 0x40 | high >> 3, high << 5 | low >> 3, low << 5 | 0x1f, 0xfc];
        [&header[..], frame].concat()
    };
    // The first hundred frames of each quarter are looked at.
    let [small, large] = [&frames[0], &frames[frames.len() - 1]].map(with_header);
    let bare = [small.repeat(100), large.repeat(40)].concat().repeat(4);
    let n_samples = 1_024 * (4 * (100 + 40) - 1);
    let mut reader = AudioReader::from_bytes("memory", bare).unwrap();
    assert!(reader.duration().unwrap().as_secs_f64() > n_samples as f64 / 16_000.0 + 0.2);
    let mut found = 0;
    while let Some(block) = reader.next_block().unwrap() {
        found += block.len();
    }
    assert_eq!((found, reader.damage()), (n_samples, Damage::default()));
}

/// The duration of WebM is that of the pictures, if they last longer.
#[test]
fn audio_of_a_longer_video_is_whole() {
    let mut reader = AudioReader::open(&clip("clip-video.webm")).unwrap();
    assert!(reader.duration().unwrap().as_secs_f64() > 2.5);
    let mut n_samples = 0;
    while let Some(block) = reader.next_block().unwrap() {
        n_samples += block.len();
    }
    assert!(n_samples.abs_diff(32_000) < 1_000, "{n_samples} samples");
    assert_eq!(reader.damage(), Damage::default());
}

/// What a browser records has no duration, and its parts no end.
#[test]
fn live_webm_files_are_whole() {
    let mut bytes = std::fs::read(clip("clip.webm")).unwrap();
    // Duration, of 8 bytes, becomes Void; the size of the segment is not known.
    let duration = bytes.windows(3).position(|id| id == [0x44, 0x89, 0x88]).unwrap();
    bytes[duration..duration + 2].copy_from_slice(&[0xec, 0x89]);
    let segment = bytes.windows(4).position(|id| id == [0x18, 0x53, 0x80, 0x67]).unwrap() + 4;
    assert_eq!(bytes[segment], 1, "eight bytes of size");
    bytes[segment + 1..segment + 8].fill(0xff);
    let cluster = bytes.windows(4).position(|id| id == [0x1f, 0x43, 0xb6, 0x75]).unwrap() + 4;
    bytes[cluster..cluster + 2].copy_from_slice(&[0x7f, 0xff]);
    let mut reader = AudioReader::from_bytes("memory", bytes).unwrap();
    assert_eq!(reader.duration(), None);
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        found.extend(block);
    }
    assert_eq!(found, samples("clip.webm"));
    assert_eq!(reader.damage(), Damage::default());
}
