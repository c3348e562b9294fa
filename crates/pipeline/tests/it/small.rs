//! A small seeded speech model on a short clip: every way of decoding runs, and bad input is
//! refused.

use cognate_audio::AudioReader;
use cognate_folder::ModelSource;
use cognate_pipeline::{
    ErrorKind, Task, Transcriber, TranscriberOptions, Transcription, TranscriptionEvent,
    TranscriptionOptions,
};
use cognate_testing::{bundled_checkpoint, golden, make_speech_model, testdata, tone, wav};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn model() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_speech_model(folder.path());
    folder
}

fn write(folder: &Path, name: &str, value: &serde_json::Value) {
    fs::write(folder.join(name), value.to_string()).unwrap();
}

fn clip(folder: &Path) -> PathBuf {
    file(folder, "clip.wav", &tone())
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn load(
    folder: &Path,
    change: impl FnOnce(&mut TranscriptionOptions),
) -> cognate_pipeline::Result<Transcriber> {
    let mut options = TranscriberOptions::default();
    options.transcription.max_new_tokens = Some(12);
    change(&mut options.transcription);
    Transcriber::load(ModelSource::find(folder)?, &options)
}

/// A transcription and what was reported meanwhile: segments and the last time.
fn run(
    folder: &Path,
    change: impl FnOnce(&mut TranscriptionOptions),
) -> (Transcription, usize, f64) {
    let transcriber = load(folder, change).unwrap();
    let (mut n_segments, mut last) = (0, 0.0);
    let found =
        transcriber.transcribe_with(AudioReader::open(&clip(folder)).unwrap(), &mut |event| {
            match event {
                TranscriptionEvent::Segment(_) => n_segments += 1,
                TranscriptionEvent::Progress { seconds, duration } => last = seconds / duration,
                TranscriptionEvent::Read(_) | TranscriptionEvent::Language { .. } => {}
            }
        });
    (found.unwrap(), n_segments, last)
}

/// As transformers detects them: with the features of the silence after the speech.
/// `testdata/golden/speech/languages.py` wrote the answers.
#[test]
fn languages_of_short_audio_are_those_of_transformers() {
    let (folder, answers) = (model(), golden("speech/tokens/languages.json"));
    let transcriber = load(folder.path(), |_| {}).unwrap();
    let answers: Vec<Value> = serde_json::from_slice(&fs::read(answers).unwrap()).unwrap();
    for answer in &answers {
        let sample = |index: u64| 0.3 * (index as f32 * 0.1).sin();
        let samples = (0..answer["samples"].as_u64().unwrap()).map(sample).collect::<Vec<_>>();
        let audio = AudioReader::from_bytes("a tone", wav(&samples)).unwrap();
        let mut found = None;
        let mut observe = |event: TranscriptionEvent<'_>| {
            if let TranscriptionEvent::Language { code, probability } = event {
                found = Some((code.to_owned(), f64::from(probability)));
            }
        };
        transcriber.transcribe_with(audio, &mut observe).unwrap();
        let (code, probability) = found.unwrap();
        assert_eq!(code, answer["language"], "{answer}");
        let expected = answer["probability"].as_f64().unwrap();
        assert!((probability - expected).abs() < 1e-4, "{answer}: {probability}");
    }
}

/// In `generation_config.json`: by names, or by tokens as in older files. Options come before them.
#[test]
fn models_name_their_language_and_task() {
    let folder = model();
    let path = folder.path().join("generation_config.json");
    let config: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let id = |of: &str, name: &str| config[of][name].as_i64().unwrap();
    let (german, translate) = (id("lang_to_id", "<|de|>"), id("task_to_id", "translate"));
    let set = |fields: &Value| {
        let mut config = config.clone();
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        write(folder.path(), "generation_config.json", &config);
    };
    let ask = |language: &str, task| {
        run(folder.path(), |options| {
            (options.language, options.task) = (Some(language.into()), Some(task));
        })
        .0
    };
    let of_options = [ask("de", Task::Translate), ask("en", Task::Transcribe)];
    assert!(of_options[0].text != of_options[1].text, "the prompt changes nothing");
    for fields in [
        json!({ "language": "german", "task": "translate" }),
        json!({ "language": "<|de|>", "task": "translate" }),
        json!({ "forced_decoder_ids": [[1, german], [2, translate]] }),
        json!({ "language": "de", "forced_decoder_ids": [[1, null], [2, translate]] }),
    ] {
        set(&fields);
        assert_eq!(run(folder.path(), |_| {}).0, of_options[0], "{fields}");
        assert_eq!(ask("en", Task::Transcribe), of_options[1], "{fields}");
    }
    for (fields, message) in [
        (json!({ "language": "klingon" }), "language: expected one of de, en, fr, found klingon"),
        (json!({ "language": ["de"] }), "language: found sequence, expected a string"),
        (json!({ "task": "sing" }), "task: found `sing`, expected `transcribe` or `translate`"),
        (
            json!({ "no_timestamps_token_id": i64::MIN }),
            "the token -9223372036854775808 is outside the vocabulary of 122",
        ),
    ] {
        set(&fields);
        let refused = load(folder.path(), |_| {}).unwrap_err().to_string();
        assert!(refused.ends_with(&format!("generation_config.json: {message}")), "{refused}");
    }
}

#[test]
fn every_way_of_decoding_transcribes_all_audio() {
    let folder = model();
    type Change = fn(&mut TranscriptionOptions);
    let ways: [(&str, Change); 11] = [
        ("beams", |_| {}),
        ("greedy", |options| options.beam_size = 1),
        ("patience", |options| options.patience = 2.0),
        ("samples", |options| options.temperatures = vec![0.7]),
        ("no timestamps", |options| options.timestamps = false),
        ("words", |options| options.word_timestamps = true),
        ("batches", |options| options.batch = 3),
        ("batches with words", |options| (options.batch, options.word_timestamps) = (2, true)),
        ("prompted", |options| options.hotwords = Some("w7 w8 w9".into())),
        ("short windows with words", |options| {
            (options.short_windows, options.word_timestamps) = (true, true)
        }),
        ("batches of short windows", |options| (options.short_windows, options.batch) = (true, 3)),
    ];
    for (way, change) in ways {
        let all = |options: &mut TranscriptionOptions| {
            // Random texts are improbable.
            (options.log_probability_threshold, options.no_speech_threshold) = (None, None);
            change(options);
        };
        let (found, n_segments, last) = run(folder.path(), all);
        assert_eq!(run(folder.path(), all).0, found, "{way}: not the same again");
        assert!(["en", "de", "fr"].contains(&found.language.as_str()), "{way}: {}", found.language);
        assert!(
            (found.duration - 2.5).abs() < 0.011 && last == 1.0,
            "{way}: {} {last}",
            found.duration
        );
        let shown = found.segments.iter().filter(|segment| !segment.text.is_empty()).count();
        assert!(shown > 1 && n_segments == shown, "{way}: {found:?}");
        for segment in &found.segments {
            assert!(segment.start <= segment.end && segment.end <= 3.6, "{way}: {segment:?}");
            assert!(segment.words.is_sorted_by(|a, b| a.start <= b.start), "{way}: {segment:?}");
            assert!(
                segment.mean_log_probability < 0.0
                    && (0.0..=1.0).contains(&segment.no_speech_probability),
                "{way}: {segment:?}"
            );
        }
        let words: String = found
            .segments
            .iter()
            .flat_map(|segment| &segment.words)
            .map(|word| word.word.as_str())
            .collect();
        assert_eq!(words.is_empty(), !way.contains("words"), "{way}");
    }
}

#[test]
fn rejected_texts_are_tried_at_higher_temperatures() {
    let folder = model();
    let strict = |options: &mut TranscriptionOptions| {
        (options.temperatures, options.log_probability_threshold) =
            (vec![0.0, 0.4, 0.8], Some(-1e-3));
        options.no_speech_threshold = None;
    };
    let (found, ..) = run(folder.path(), strict);
    assert!(found.segments.iter().all(|segment| segment.temperature == 0.8), "{found:?}");
    // What is improbable and has no speech is silence.
    let (found, ..) = run(folder.path(), |options| {
        (options.log_probability_threshold, options.no_speech_threshold) = (Some(-1e-3), Some(-1.0))
    });
    assert_eq!((found.segments.len(), found.text.as_str()), (0, ""));
}

#[test]
fn options_of_a_call_are_those_of_a_model_loaded_with_them() {
    let folder = model();
    let audio = || AudioReader::from_bytes("tone", tone()).unwrap();
    type Change = fn(&mut TranscriptionOptions);
    let ways: [(&str, serde_json::Value, Change); 3] = [
        ("greedy", json!({ "beams": 1, "temperature": 0.0 }), |options| {
            (options.beam_size, options.temperatures) = (1, vec![0.0])
        }),
        ("samples", json!({ "temperature": [0.7, 0.9], "seed": 5 }), |options| {
            (options.temperatures, options.seed) = (vec![0.7, 0.9], 5);
        }),
        (
            "tokens",
            json!({ "suppress_tokens": [5, 6, 7], "logprob_threshold": -1e9, "language": "german" }),
            |options| {
                (options.suppress_tokens, options.log_probability_threshold) =
                    (vec![5, 6, 7], Some(-1e9));
                options.language = Some("de".into());
            },
        ),
    ];
    let transcriber = Transcriber::open(folder.path()).unwrap();
    for (way, mut options, change) in ways {
        options["max_new_tokens"] = json!(12);
        let options = TranscriptionOptions::from_json(options.as_object().unwrap()).unwrap();
        let found =
            transcriber.with(options).unwrap().transcribe_with(audio(), &mut |_| {}).unwrap();
        assert_eq!(
            found,
            load(folder.path(), change).unwrap().transcribe_with(audio(), &mut |_| {}).unwrap(),
            "{way}"
        );
        assert_eq!(found.language_name() == "german", found.language == "de", "{way}");
    }
    let refused = |options: serde_json::Value| match TranscriptionOptions::from_json(
        options.as_object().unwrap(),
    ) {
        Ok(options) => {
            transcriber.with(options).err().map(|error| error.to_string()).unwrap_or_default()
        }
        Err(error) => error.to_string(),
    };
    // Whichever names they have.
    let [beams, others] = [json!({ "beams": 1, "seed": 3 }), json!({ "num_beams": 2 })];
    let [beams, others] = [&beams, &others].map(|options| options.as_object().unwrap());
    let later = TranscriptionOptions::from_json_over(beams, others).unwrap();
    assert_eq!((later.beam_size, later.seed), (2, 3));
    // A threshold is switched off, another option has its default.
    let [given, none] = [
        json!({ "logprob_threshold": -2.0, "seed": 3 }),
        json!({ "logprob_threshold": null, "seed": null }),
    ];
    let [given, none] = [&given, &none].map(|options| options.as_object().unwrap());
    let later = TranscriptionOptions::from_json_over(given, none).unwrap();
    assert_eq!((later.log_probability_threshold, later.seed), (None, 0));
    // As OpenAI's names and values.
    let [given, meant] = [
        json!({ "without_timestamps": true, "sample_len": 9, "suppress_tokens": "-1, 5", "clip_timestamps": "0.5,1" }),
        json!({ "timestamps": false, "max_new_tokens": 9, "suppress_tokens": [-1, 5], "clip_timestamps": [0.5, 1.0] }),
    ]
    .map(|options| TranscriptionOptions::from_json(options.as_object().unwrap()).unwrap());
    assert_eq!(format!("{given:?}"), format!("{meant:?}"));
    for (options, message) in [
        (
            json!({ "clip_timestamps": [2, 1] }),
            "clip_timestamps: expected times in order, in seconds, and clips with a length, found [2.0, 1.0]",
        ),
        (
            json!({ "clip_timestamps": [1, 1] }),
            "clip_timestamps: expected times in order, in seconds, and clips with a length, found [1.0, 1.0]",
        ),
        (json!({ "clip_timestamps": "1,x" }), "clip_timestamps: expected a number, found \"x\""),
        (json!({ "length_penalty": 1.5 }), "length_penalty: expected 0 to 1, found 1.5"),
        (
            json!({ "hallucination_silence_threshold": 2 }),
            "hallucination_silence_threshold: needs word_timestamps: improbable words are told by their times",
        ),
        (
            json!({ "hallucination_silence_threshold": 2, "word_timestamps": true, "batch": 4 }),
            "hallucination_silence_threshold: expected a batch of 1: windows of a batch are cut in silence",
        ),
    ] {
        assert_eq!(refused(options), message);
    }
    assert_eq!(
        refused(json!({ "voice_detector": "no-such-file" })),
        "vad: is used only for batches of windows; expected a batch of 2 or more"
    );
    let no_file = refused(json!({ "batch": 2, "voice_detector": "no-such-file" }));
    assert!(no_file.contains("no-such-file"), "{no_file}");
    assert!(refused(json!({ "colour": 1 })).starts_with("unknown field `colour`"));
    assert_eq!(
        refused(json!({ "temperature": "warm" })),
        "temperature: expected a temperature or a list of temperatures"
    );
    let steps = std::cell::Cell::new(0);
    let is_wanted = || steps.replace(steps.get() + 1) < 20;
    let cancelled = transcriber.transcribe_while(audio(), &mut |_| {}, &is_wanted).unwrap_err();
    assert_eq!(
        (cancelled.kind(), cancelled.to_string().as_str()),
        (ErrorKind::Cancelled, "cancelled")
    );
}

#[test]
fn what_is_no_speech_is_refused() {
    let folder = model();
    let refused = |change: fn(&mut TranscriptionOptions)| {
        load(folder.path(), change).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(
        refused(|options| options.language = Some("klingon".into())),
        "language: expected one of de, en, fr, found klingon"
    );
    assert_eq!(
        refused(|options| options.temperatures = vec![-1.0]),
        "temperature: expected numbers from 0 to 10, found [-1.0]"
    );
    assert_eq!(
        refused(|options| options.suppress_tokens = vec![122]),
        "suppress_tokens: expected ids from 0 to 121, those of the model, or -1, found 122"
    );
    let open = |path: &Path| {
        Transcriber::open(path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(
        open(&bundled_checkpoint())
            .ends_with("a model of text; expected a speech model such as Whisper"),
        "{}",
        open(&bundled_checkpoint())
    );
    write(
        folder.path(),
        "preprocessor_config.json",
        &json!({ "feature_size": 128, "chunk_length": 1 }),
    );
    assert!(
        open(folder.path())
            .ends_with("expected 80 mels and 100 frames, those of config.json, found 128 and 100"),
        "{}",
        open(folder.path())
    );
    fs::remove_file(folder.path().join("preprocessor_config.json")).unwrap();
    assert!(
        open(folder.path()).contains("preprocessor_config.json: missing; copy it"),
        "{}",
        open(folder.path())
    );

    let folder = model();
    let transcriber = Transcriber::open(folder.path()).unwrap();
    let refused = |path: &Path| {
        transcriber.transcribe(path).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(
        refused(&file(folder.path(), "empty.wav", &wav(&[]))),
        "the audio is empty; expected at least one frame of 10 ms"
    );
    let message = refused(&file(folder.path(), "nan.wav", &wav(&[0.0, f32::NAN, 0.0])));
    assert!(message.ends_with("nan.wav: sample 1 is not a finite number"), "{message}");
    assert!(refused(&testdata("multi30k-en-de/config.json")).contains("expected audio"));
}
