//! Files that are not audio, or not audio that is supported.

use crate::clip;
use crate::reading::wav;
use cognate_audio::{AudioReader, Damage, Error, ErrorKind, FeatureExtractor};
use cognate_testing::never_panics;
use insta::assert_snapshot;
use std::io::Cursor;

fn read(bytes: Vec<u8>) -> Result<(usize, Damage), Error> {
    let mut reader = AudioReader::from_stream("stream", Cursor::new(bytes))?;
    let mut n_samples = 0;
    while let Some(block) = reader.next_block()? {
        n_samples += block.len();
    }
    Ok((n_samples, reader.damage()))
}

fn refused(bytes: Vec<u8>) -> Error {
    read(bytes).expect_err("wrong audio")
}

#[test]
fn what_is_not_audio_is_refused() {
    assert_snapshot!(refused(vec![]), @"stream: expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), found another format");
    assert_snapshot!(refused(b"just a text\n".repeat(1_000)), @"stream: expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), found another format");
    assert_snapshot!(refused(b"RIFF\xff\xff\xff\xffWAVE".to_vec()), @"stream: expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), found damage: unexpected end of file");
    assert_snapshot!(AudioReader::from_bytes("memory", []).err().unwrap(), @"memory: expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), found nothing");
    let folder = tempfile::tempdir().unwrap();
    let error = AudioReader::open(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    assert_eq!(
        AudioReader::open(&folder.path().join("missing.wav")).unwrap_err().kind(),
        ErrorKind::Io
    );
}

#[test]
fn wrong_numbers_are_refused() {
    let float = |value: f32| wav(3, 16_000, 1, &[0.0, value].map(f32::to_le_bytes).concat());
    assert_snapshot!(refused(float(f32::NAN)), @"stream: sample 1 is not a finite number");
    assert_snapshot!(refused(float(f32::INFINITY)), @"stream: sample 1 is not a finite number");
    assert_snapshot!(refused(wav(1, 1, 1, &[0; 64])), @"stream: the sample rate is 1 Hz; expected 4000 to 768000");
    assert_snapshot!(refused(wav(1, u32::MAX, 1, &[0; 64])), @"stream: the sample rate is 4294967295 Hz; expected 4000 to 768000");
    assert_snapshot!(refused(wav(1, 16_000, 0, &[0; 64])), @"stream: expected audio (WAV, FLAC, MP3, Ogg, Opus, M4A or WebM), found damage: malformed stream: riff: invalid channel count");
    assert_eq!(read(wav(1, 16_000, 1, &[])).map(|(n_samples, _)| n_samples), Ok(0));
    assert_eq!(read(wav(1, 16_000, 16, &[0; 3_200])).map(|(n_samples, _)| n_samples), Ok(100));
}

/// Half of a file gives half of the samples, and says so.
#[test]
fn truncated_files_are_read_as_far_as_they_go() {
    for name in ["clip.wav", "clip.flac", "clip.m4a", "clip.mp3", "clip.ogg"] {
        let bytes = std::fs::read(clip(name)).unwrap();
        match read(bytes[..bytes.len() / 2].to_vec()) {
            Ok((n_samples, damage)) => assert!(
                n_samples < 24_000 && n_samples > 8_000,
                "{name}: {n_samples} samples, {damage:?}"
            ),
            // The index of an M4A file is at its end, and this Ogg file has one page of audio.
            Err(error) => assert!(
                ["clip.m4a", "clip.ogg"].contains(&name) && error.kind() == ErrorKind::Format,
                "{name}: {error}"
            ),
        }
    }
    let bytes = std::fs::read(clip("clip.wav")).unwrap();
    assert!(read(bytes[..bytes.len() / 2].to_vec()).unwrap().1.is_truncated);
}

/// Programs that write to a pipe do not know the length, and write the largest number.
#[test]
fn wav_files_of_unknown_length_are_whole() {
    for n_channels in [1, 2] {
        let mut bytes = wav(1, 16_000, n_channels, &[0; 6_400]);
        let data = bytes.windows(4).position(|name| name == b"data").unwrap() + 4;
        for place in [4, data] {
            bytes[place..place + 4].fill(0xff);
        }
        let expected = (3_200 / usize::from(n_channels), Damage::default());
        assert_eq!(read(bytes), Ok(expected), "{n_channels} channels");
    }
}

/// Any byte may be wrong: the answer is audio or an error.
#[test]
fn fuzz_audio() {
    let names = [
        "clip.mp3",
        "clip.ogg",
        "clip.opus",
        "clip.m4a",
        "clip.webm",
        "clip.flac",
        "clip.wav",
        "clip-24bit.wav",
    ];
    let seeds: Vec<_> = names.map(|name| std::fs::read(clip(name)).unwrap()).into();
    never_panics("audio", &seeds, 400, |bytes| drop(read(bytes.to_vec())));
}

#[test]
fn wrong_settings_are_refused() {
    let refused =
        |text: &str| FeatureExtractor::from_json(text, "preprocessor_config.json").unwrap_err();
    assert_snapshot!(refused("{"), @"preprocessor_config.json: EOF while parsing an object at line 1 column 1");
    assert_snapshot!(refused("{}"), @"preprocessor_config.json: missing field `feature_size` at line 1 column 2");
    assert_snapshot!(refused(r#"{"feature_size": 80, "sampling_rate": 8000}"#), @"preprocessor_config.json: sampling_rate: expected 16000, found 8000");
    assert_snapshot!(refused(r#"{"feature_size": 0}"#), @"preprocessor_config.json: feature_size: expected 1 to 512, found 0");
    assert_snapshot!(refused(r#"{"feature_size": 80, "hop_length": 0}"#), @"preprocessor_config.json: hop_length: expected less than half of n_fft, found 0");
    assert_snapshot!(refused(r#"{"feature_size": 80, "dither": 1.0}"#), @"preprocessor_config.json: dither: expected 0.0, found 1");
    assert_snapshot!(refused(r#"{"feature_size": 80, "feature_extractor_type": "ViTImageProcessor"}"#), @"preprocessor_config.json: feature_extractor_type: expected WhisperFeatureExtractor, found ViTImageProcessor");
}
