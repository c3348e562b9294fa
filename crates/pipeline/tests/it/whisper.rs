//! Whisper tiny.en on real speech, against openai-whisper and transformers: tokens, segments,
//! scores and word times.
//!
//! The model and the clips are not part of the repository; without them these tests are skipped
//! with a message.

use cognate_audio::AudioReader;
use cognate_folder::ModelSource;
use cognate_pipeline::{
    Segment, Semantics, Transcriber, TranscriberOptions, Transcription, TranscriptionOptions,
};
use cognate_testing::{shared_whisper, skip};
use cognate_text::{ErrorRateSettings, ErrorUnit, Metric, Spelling};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Seconds by which a word may differ.
const WORD: f64 = 0.0201;
/// The largest differences of a mean log-probability or a probability of no speech, which
/// references give with six digits, and of a word's probability; and those of clips at another
/// rate, because resamplers differ.
const SCORES: [[f64; 2]; 2] = [[2e-4, 2e-3], [5e-3, 2e-2]];

pub(crate) fn transcriber(
    folder: &Path,
    change: impl FnOnce(&mut TranscriptionOptions),
) -> Transcriber {
    let mut options = TranscriberOptions::default();
    options.transcription.language = Some("en".into());
    change(&mut options.transcription);
    Transcriber::load(ModelSource::find(&folder.join("models/whisper-tiny.en")).unwrap(), &options)
        .unwrap()
}

fn reference(folder: &Path, name: &str) -> Value {
    let path = folder.join("models/whisper-tiny.en/reference").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn transcribed(transcriber: &Transcriber, folder: &Path, clip: &str) -> Transcription {
    let audio = AudioReader::open(&folder.join(format!("audio/{clip}.wav"))).unwrap();
    transcriber.transcribe_with(audio, &mut |_| {}).unwrap()
}

fn ids(value: &Value) -> Vec<i64> {
    value.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// What differs from the segments of openai-whisper, a line each.
pub(crate) fn differences(found: &Transcription, expected: &Value, what: &str) -> Vec<String> {
    let (mut failures, expected) = (Vec::new(), expected["segments"].as_array().unwrap());
    let [score, probability] = SCORES[usize::from(what == "mono8k" || what == "stereo44k")];
    if found.segments.len() != expected.len() {
        failures.push(format!(
            "{what}: {} segments, expected {}",
            found.segments.len(),
            expected.len()
        ));
    }
    for (
        Segment {
            start,
            end,
            tokens,
            text,
            words,
            mean_log_probability,
            no_speech_probability,
            id,
            ..
        },
        expected,
    ) in found.segments.iter().zip(expected)
    {
        let number = |field: &str| expected[field].as_f64().unwrap();
        if *tokens != ids(&expected["tokens"]) || text != expected["text"].as_str().unwrap() {
            failures.push(format!(
                "{what}, segment {id}: {tokens:?} {text:?}, expected {}",
                expected["text"]
            ));
            break;
        }
        let bound = if words.is_empty() { 1e-3 } else { WORD };
        if (start - number("start")).abs() > bound || (end - number("end")).abs() > bound {
            failures.push(format!(
                "{what}, segment {id}: {start} to {end}, expected {} to {}",
                expected["start"], expected["end"]
            ));
        }
        let scores =
            [(*mean_log_probability, "avg_logprob"), (*no_speech_probability, "no_speech_prob")];
        for (found, name) in scores
            .into_iter()
            .filter(|(_, name)| (f64::from(scores_of(name, &scores)) - number(name)).abs() > score)
        {
            failures
                .push(format!("{what}, segment {id}: {name} {found}, expected {}", expected[name]));
        }
        let Some(expected) = expected["words"].as_array() else { continue };
        for (word, expected) in words.iter().zip(expected) {
            let far =
                |found: f64, field: &str| (found - expected[field].as_f64().unwrap()).abs() > WORD;
            let is_improbable =
                (f64::from(word.probability) - expected["probability"].as_f64().unwrap()).abs()
                    > probability;
            if word.word != expected["word"].as_str().unwrap()
                || far(word.start, "start")
                || far(word.end, "end")
                || is_improbable
            {
                failures.push(format!("{what}, segment {id}: {word:?}, expected {expected}"));
            }
        }
        if words.len() != expected.len() {
            failures.push(format!(
                "{what}, segment {id}: {} words, expected {}",
                words.len(),
                expected.len()
            ));
        }
    }
    failures
}

fn scores_of(name: &str, scores: &[(f32, &str)]) -> f32 {
    scores.iter().find(|(_, known)| *known == name).map_or(f32::NAN, |(score, _)| *score)
}

const CLIPS: [&str; 7] = ["0870", "0880", "0890", "0920", "0930", "mono8k", "stereo44k"];

#[test]
fn short_clips_are_those_of_openai_with_times_of_words() {
    let Some(folder) = shared_whisper() else { return };
    let expected = reference(&folder, "openai-short.json");
    let greedy = transcriber(&folder, |options| {
        (options.beam_size, options.temperatures, options.word_timestamps) = (1, vec![0.0], true)
    });
    let failures = CLIPS.iter().flat_map(|clip| {
        differences(&transcribed(&greedy, &folder, clip), &expected[clip]["greedy"], clip)
    });
    let failures: Vec<_> = failures.collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn beams_are_those_of_openai() {
    let Some(folder) = shared_whisper() else { return };
    let expected = reference(&folder, "openai-short.json");
    let beams = transcriber(&folder, |options| options.temperatures = vec![0.0]);
    let failures: Vec<_> = CLIPS
        .iter()
        .flat_map(|clip| {
            differences(&transcribed(&beams, &folder, clip), &expected[clip]["beam5"], clip)
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn long(name: &str, clip: &str, change: impl FnOnce(&mut TranscriptionOptions)) {
    let Some(folder) = shared_whisper() else { return };
    let transcriber = transcriber(&folder, |options| {
        options.beam_size = 1;
        change(options);
    });
    let failures = differences(
        &transcribed(&transcriber, &folder, clip),
        &reference(&folder, &format!("openai-{name}.json")),
        name,
    );
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn silence_is_skipped() {
    long("silence-condition-false", "silence", |options| {
        options.condition_on_previous_text = false
    });
    long("silence-condition-true", "silence", |_| {});
    long("silence-condition-true-words", "silence", |options| options.word_timestamps = true);
}

#[test]
fn long_audio_is_read_by_its_timestamps() {
    long("long-condition-false", "long", |options| options.condition_on_previous_text = false);
}

#[test]
fn long_audio_is_conditioned_on_its_text() {
    long("long-condition-true", "long", |_| {});
}

#[test]
fn long_audio_with_words_moves_its_windows() {
    long("long-condition-true-words", "long", |options| options.word_timestamps = true);
}

#[test]
fn long_audio_with_beams() {
    long("long-condition-true-beam5", "long", |options| options.beam_size = 5);
}

/// The tokens of all clips, decoded in the way that the reference calls `way`.
fn assert_tokens_of_transformers(way: &str, beam_size: usize, timestamps: bool) {
    let Some(folder) = shared_whisper() else { return };
    let expected = reference(&folder, "transformers-short.json");
    let transcriber = transcriber(&folder, |options| {
        (options.semantics, options.beam_size, options.timestamps) =
            (Semantics::Transformers, beam_size, timestamps);
        (options.temperatures, options.no_speech_threshold) = (vec![0.0], None);
    });
    let mut failures = Vec::new();
    for clip in CLIPS {
        let expected = &expected[clip]["transcribe"][way];
        let expected = if expected.is_array() { &expected[0] } else { expected };
        // The lists of beams with timestamps contain the prompt and the end.
        let expected: Vec<_> =
            ids(&expected["ids"]).into_iter().filter(|id| ![50_256, 50_257].contains(id)).collect();
        let found = transcribed(&transcriber, &folder, clip);
        let tokens: Vec<_> =
            found.segments.iter().flat_map(|segment| &segment.tokens).copied().collect();
        if tokens != expected {
            failures.push(format!("{clip}: {tokens:?}, expected {expected:?}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn greedy_tokens_are_those_of_transformers() {
    assert_tokens_of_transformers("greedy", 1, false);
}

#[test]
fn greedy_tokens_with_timestamps_are_those_of_transformers() {
    assert_tokens_of_transformers("timestamps", 1, true);
}

#[test]
fn tokens_of_beams_are_those_of_transformers() {
    assert_tokens_of_transformers("beam5", 5, false);
}

#[test]
fn tokens_of_beams_with_timestamps_are_those_of_transformers() {
    assert_tokens_of_transformers("beam5_timestamps", 5, true);
}

/// The words of `long.wav`, and the errors that openai-whisper makes there (`shared/WHISPER.md`).
const LONG_ERRORS: (usize, usize) = (527, 15);

/// What sequential decoding reads of the long clip, batches read too, whichever detector cuts the
/// windows.
#[test]
fn batches_lose_no_words() {
    let Some(folder) = shared_whisper() else { return };
    let text = |name: &str| std::fs::read_to_string(folder.join("audio").join(name)).unwrap();
    let sentences = text("transcripts.tsv");
    let sentences: BTreeMap<&str, &str> =
        sentences.lines().filter_map(|line| line.split_once(".wav\t")).collect();
    let order: Value = serde_json::from_str(&text("long.json")).unwrap();
    let said: Vec<&str> = order
        .as_array()
        .unwrap()
        .iter()
        .map(|clip| sentences[clip["clip"].as_str().unwrap()])
        .collect();
    let said = said.join(" ");
    let silero = std::env::var_os("COGNATE_VAD").map(std::path::PathBuf::from);
    if silero.is_none() {
        skip(
            "Silero's voice detector is not at hand; set COGNATE_VAD to a file of the package silero-vad",
        );
    }
    for detector in [None].into_iter().chain(silero.map(Some)) {
        let batches = transcriber(&folder, |options| {
            (options.beam_size, options.temperatures, options.batch) = (1, vec![0.0], 8);
            options.voice_detector = detector.clone();
        });
        let found = transcribed(&batches, &folder, "long");
        let rate = Metric::ErrorRate(ErrorRateSettings {
            unit: ErrorUnit::Words,
            spelling: Spelling::English,
            lowercase: false,
        });
        let errors =
            rate.statistics(&[found.text.as_str()], &[&[said.as_str()]]).unwrap().score().value()
                / 100.0;
        let (n_words, at_most) = LONG_ERRORS;
        assert!(
            errors * n_words as f64 <= at_most as f64 + 0.01,
            "{:?}: {errors} of {}",
            batches.voice_detector(),
            found.text
        );
        assert!(
            found.segments.is_sorted_by(|a, b| a.start <= b.start && a.id < b.id),
            "{:?}",
            found.segments
        );
    }
}
