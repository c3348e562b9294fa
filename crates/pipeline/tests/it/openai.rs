//! Subtitles, clips and silences as openai-whisper has them (`testdata/transcripts/openai.py`).

use crate::whisper::{differences, transcriber};
use cognate_audio::AudioReader;
use cognate_pipeline::{
    Segment, SubtitleOptions, TranscriptFormat, TranscriptWriter, Transcription,
    TranscriptionOptions, Word,
};
use cognate_testing::{shared_whisper, testdata, wav};
use serde_json::{Map, Value};
use std::path::Path;

fn cases(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(testdata(&format!("transcripts/{name}"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn segment(given: &Value) -> Segment {
    let seconds = |value: &Value, name: &str| value[name].as_f64().unwrap();
    let word = |given: &Value| Word {
        word: given["word"].as_str().unwrap().into(),
        start: seconds(given, "start"),
        end: seconds(given, "end"),
        probability: 0.5,
    };
    Segment {
        start: seconds(given, "start"),
        end: seconds(given, "end"),
        text: given["text"].as_str().unwrap().into(),
        words: given["words"].as_array().unwrap().iter().map(word).collect(),
        ..Segment::default()
    }
}

#[test]
fn subtitles_are_those_of_openai() {
    let cases = cases("subtitles.json");
    for case in &cases {
        let segments = case["segments"].as_array().unwrap().iter().map(segment).collect();
        let transcript = Transcription { segments, ..Transcription::default() };
        for file in case["files"].as_array().unwrap() {
            let count = |name: &str| file["options"][name].as_u64().map(|count| count as usize);
            let options = SubtitleOptions {
                max_line_width: count("max_line_width"),
                max_line_count: count("max_line_count"),
                max_words_per_line: count("max_words_per_line"),
                highlight_words: file["options"]["highlight_words"] == true,
            };
            for (format, name) in [(TranscriptFormat::Srt, "srt"), (TranscriptFormat::Vtt, "vtt")] {
                let found = TranscriptWriter::new(format, options).document(&transcript);
                assert_eq!(found, file[name].as_str().unwrap(), "{options:?}");
            }
        }
    }
    assert_eq!(cases.len(), 5);
}

/// Clips with noise before them: a WAV file.
fn noise(folder: &Path) -> Vec<u8> {
    let mut samples = Vec::new();
    for (seconds, loudness, clip) in [
        (9, 0.125, Some("0870")),
        (14, 0.031_25, Some("0890")),
        (6, 0.25, Some("0880")),
        (20, 0.25, None),
    ] {
        let mut state: u32 = 1;
        samples.extend((0..16_000 * seconds).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (f64::from(state) / f64::from(1u32 << 31) - 1.0) as f32 * loudness
        }));
        if let Some(clip) = clip {
            let audio = AudioReader::open(&folder.join(format!("audio/{clip}.wav"))).unwrap();
            samples.extend(audio.read_all().unwrap());
        }
    }
    wav(&samples)
}

#[test]
fn clips_and_silences_are_those_of_openai() {
    let Some(folder) = shared_whisper() else { return };
    let (cases, greedy) = (cases("clips.json"), transcriber(&folder, |_| {}));
    let mut failures = Vec::new();
    for case in &cases {
        let mut options: Map<String, Value> = case["options"].as_object().unwrap().clone();
        options.entry("beam_size").or_insert(1.into());
        let audio = match case["audio"].as_str().unwrap() {
            "noise" => AudioReader::from_bytes("noise", noise(&folder)).unwrap(),
            name => AudioReader::open(&folder.join(format!("audio/{name}.wav"))).unwrap(),
        };
        let transcriber = greedy.with(TranscriptionOptions::from_json(&options).unwrap()).unwrap();
        let found = transcriber.transcribe_with(audio, &mut |_| {}).unwrap();
        failures.extend(differences(&found, case, &format!("{}", case["options"])));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(cases.len(), 9);
}
