//! Audio files, feature extractors, and models of speech.

use anyhow::Result;
use serde_json::json;

use super::bytes::{nested, spread, write};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{CLIPS, Good, Models};

/// The readers of each clip.
const READERS: [[Reader; 1]; 7] = [
    [Reader::Transcribe(0)],
    [Reader::Transcribe(1)],
    [Reader::Transcribe(2)],
    [Reader::Transcribe(3)],
    [Reader::Transcribe(4)],
    [Reader::Transcribe(5)],
    [Reader::Transcribe(6)],
];
const WAV: &[Reader] = &READERS[0];

/// A WAV file of f32 samples: its sample rate, its channels, and its samples, each on all channels.
fn wav(rate: u32, channels: u16, samples: &[f32]) -> Vec<u8> {
    let frame = 4 * u32::from(channels);
    let data: Vec<u8> =
        samples.iter().flat_map(|sample| sample.to_le_bytes().repeat(channels.into())).collect();
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x03\0");
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend(rate.wrapping_mul(frame).to_le_bytes());
    bytes.extend((frame as u16).to_le_bytes());
    bytes.extend(b"\x20\0data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let speech = models.path(Good::Speech);
    let all = &[Reader::Transcribe(0), Reader::Show, Reader::Export];
    let mut cases = vec![Subject::new("speech model", Good::Speech, "", all).untouched()];
    for (clip, readers) in CLIPS.into_iter().zip(&READERS) {
        let length = std::fs::metadata(speech.join(clip)).map_or(0, |data| data.len() as usize);
        // Damaged packets are skipped, and the rest of a file is transcribed.
        let audio = Subject::new(clip, Good::Speech, clip, readers);
        cases.extend(audio.either().cuts(spread(length, 8)));
        cases.extend(audio.either().changes(spread(length, 16), 0x55));
        cases.extend(audio.not_files(..));
        cases.push(audio.content("a text", "just a text\n".repeat(100)));
    }
    let audio = Subject::new("clip.wav", Good::Speech, "clip.wav", WAV);
    let tone = |length: usize| -> Vec<f32> {
        (0..length).map(|index| (index as f32 * 0.1).sin()).collect()
    };
    let accepted = audio.expecting(Expect::Either(""));
    cases.extend([
        accepted.content("192 kHz", wav(192_000, 1, &tone(96_000))),
        accepted.content("16 channels", wav(16_000, 16, &tone(16_000))),
        accepted.content("2 s of silence at 8 kHz", wav(8_000, 1, &vec![0.0; 8_000 * 2])),
        audio.content("1 Hz", wav(1, 1, &tone(100))),
        audio.content("4 GHz", wav(u32::MAX, 1, &tone(100))),
        audio.content("no channels", wav(16_000, 0, &tone(100))),
        audio.content("NaN", wav(16_000, 1, &[0.0, f32::NAN])),
        audio.content("infinite", wav(16_000, 1, &[0.0, f32::INFINITY])),
        audio.content("no samples", wav(16_000, 1, &[])),
    ]);
    let settings = Subject::new("feature extractor", Good::Speech, "preprocessor_config.json", WAV);
    cases.push(settings.case("missing", |path| Ok(std::fs::remove_file(path)?)));
    cases.push(settings.content("nested 100,000 deep", nested(100_000)));
    let fields = [
        ("feature_size", json!(0)),
        ("feature_size", json!(128)),
        ("feature_size", json!(1_u64 << 40)),
        ("chunk_length", json!(30)),
        ("chunk_length", json!(1_u64 << 40)),
        ("hop_length", json!(0)),
        ("n_fft", json!(1_u64 << 40)),
        ("sampling_rate", json!(8000)),
        ("dither", json!(0.5)),
        ("feature_extractor_type", json!("SeamlessM4TFeatureExtractor")),
    ];
    cases.extend(fields.into_iter().map(|(field, value)| settings.field(field, value)));
    let detector =
        Subject::new("voice detector", Good::Speech, "silero_vad_16k_sequence.onnx", WAV);
    cases.push(detector.content("a text", "just a text\n".repeat(100)));
    cases.push(detector.content("empty", ""));
    let given = |what, good, readers, name, found| {
        let change = |folder: &std::path::Path| {
            write(&folder.join("clip.wav"), wav(16_000, 1, &[0.0; 1600]))
        };
        Subject::new(what, good, "", readers).expecting(Expect::Refused(found)).case(name, change)
    };
    cases.extend([
        given("translation model", Good::Checkpoint, WAV, "given to transcribe", "a model of text"),
        given(
            "speech model",
            Good::Speech,
            &[Reader::Tract, Reader::Reference],
            "given to translate",
            "a model of audio",
        ),
        given("speech model", Good::Speech, &[Reader::Embed], "given to embed", "audio"),
        given(
            "speech model",
            Good::Speech,
            &[Reader::ClassifyImage, Reader::Read],
            "given to read images",
            "",
        ),
    ]);
    Ok(cases)
}
