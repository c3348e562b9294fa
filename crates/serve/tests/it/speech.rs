//! OpenAI's API of speech.

use crate::client::{Client, start};
use crate::damaged::Random;
use cognate::{
    AudioReader, Engine, Transcriber, TranscriberOptions, TranscriptFormat, TranscriptionOptions,
};
use cognate_testing::{bundled_checkpoint, make_speech_model, tone};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const BOUNDARY: &str = "----a-boundary";

/// A server of a small speech model and the bundled model of text.
pub(crate) fn speech_server(options: &[&str]) -> (Client, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    make_speech_model(folder.path());
    let (speech, text) = (
        format!("whisper-1={}", folder.path().display()),
        format!("multi30k={}", bundled_checkpoint().display()),
    );
    (Client { address: start(options, &["--model", &speech, "--model", &text]).unwrap() }, folder)
}

/// A form with a file and other fields.
pub(crate) fn form(file: Option<&[u8]>, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in fields {
        body.extend(
            format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            )
            .bytes(),
        );
    }
    if let Some(file) = file {
        let head = format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
        );
        body.extend(head.bytes().chain(file.iter().copied()).chain(*b"\r\n"));
    }
    body.extend(format!("--{BOUNDARY}--\r\n").bytes());
    body
}

fn post(client: Client, path: &str, file: Option<&[u8]>, fields: &[(&str, &str)]) -> (u16, String) {
    let (status, answer) = client.post(
        path,
        &format!("multipart/form-data; boundary={BOUNDARY}"),
        &form(file, fields),
    );
    (status, String::from_utf8(answer).unwrap())
}

const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

#[test]
fn formats_have_what_the_library_finds() {
    let (client, folder) = speech_server(&[]);
    let options = |change: fn(&mut TranscriptionOptions)| {
        let mut options = TranscriberOptions::default();
        (options.load.engine, options.transcription.word_timestamps) = (Engine::Tract, true);
        change(&mut options.transcription);
        let source = cognate::ModelSource::find(folder.path()).unwrap();
        let transcriber = Transcriber::load(source, &options).unwrap();
        transcriber
            .transcribe_with(AudioReader::from_bytes("tone", tone()).unwrap(), &mut |_| {})
            .unwrap()
    };
    let without = |options: &mut TranscriptionOptions| options.word_timestamps = false;
    let expected = options(without);
    let asked = |fields: &[(&str, &str)]| {
        let (status, answer) = post(
            client,
            TRANSCRIPTIONS,
            Some(&tone()),
            &[fields, &[("model", "whisper-1")]].concat(),
        );
        assert_eq!(status, 200, "{fields:?}: {answer}");
        answer
    };
    let parsed = |fields: &[(&str, &str)]| serde_json::from_str::<Value>(&asked(fields)).unwrap();
    assert!(!expected.text.trim().is_empty());
    assert_eq!(parsed(&[])["text"], expected.text.trim());
    assert_eq!(asked(&[("response_format", "text")]), format!("{}\n", expected.text.trim()));
    assert_eq!(asked(&[("response_format", "srt")]), TranscriptFormat::Srt.document(&expected));
    assert_eq!(asked(&[("response_format", "vtt")]), TranscriptFormat::Vtt.document(&expected));
    let verbose = parsed(&[("response_format", "verbose_json")]);
    let document: Value =
        serde_json::from_str(&TranscriptFormat::Json.document(&expected)).unwrap();
    assert_eq!(verbose["segments"], document["segments"]);
    assert_eq!(
        (&verbose["language"], verbose.get("words")),
        (&expected.language_name().into(), None)
    );
    let words = parsed(&[
        ("response_format", "verbose_json"),
        ("timestamp_granularities[]", "word"),
        ("temperature", "0.5"),
    ]);
    let expected = options(|options| options.temperatures = vec![0.5]);
    let found: Vec<_> = expected.segments.iter().flat_map(|segment| &segment.words).collect();
    assert_eq!(
        (words["words"].as_array().unwrap().len(), words.get("segments")),
        (found.len(), None)
    );
    assert!(
        words["words"]
            .as_array()
            .unwrap()
            .iter()
            .zip(found)
            .all(|(word, found)| word["start"] == found.start),
        "{words}"
    );
    let (status, answer) = post(
        client,
        "/v1/audio/translations",
        Some(&tone()),
        &[("model", "whisper-1"), ("prompt", "A name")],
    );
    assert!(status == 200 && answer.contains("text"), "{answer}");
    let names = client.get("/v1/models")["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].clone())
        .collect::<Vec<_>>();
    assert_eq!(names, ["multi30k", "whisper-1"]);
    assert_eq!(client.get("/v1/models/whisper-1")["object"], "model");
}

#[test]
fn segments_are_streamed() {
    let (client, _folder) = speech_server(&[]);
    let whole = post(
        client,
        TRANSCRIPTIONS,
        Some(&tone()),
        &[("model", "whisper-1"), ("response_format", "text")],
    )
    .1;
    let (status, text) =
        post(client, TRANSCRIPTIONS, Some(&tone()), &[("model", "whisper-1"), ("stream", "True")]);
    let events: Vec<Value> = text
        .split("\n\n")
        .filter(|event| !event.is_empty())
        .map(|event| serde_json::from_str(&event[6..]).unwrap())
        .collect();
    let (last, deltas) = events.split_last().unwrap();
    let joined: String = deltas.iter().map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!((status, deltas.len() > 1, joined.trim()), (200, true, whole.trim()), "{text}");
    assert_eq!(
        (&last["type"], &last["text"]),
        (&"transcript.text.done".into(), &whole.trim().into())
    );
}

type Fields = &'static [(&'static str, &'static str)];

/// Fields beside the model, and the status and a part of the message.
const BAD: [(Fields, u16, &str); 12] = [
    (&[("model", "other")], 404, "there is no speech model \"other\"; expected whisper-1"),
    (&[("model", "multi30k")], 404, "there is no speech model \"multi30k\""),
    (&[("language", "klingon")], 400, "language: expected one of de, en, fr"),
    (
        &[("response_format", "yaml")],
        400,
        "response_format: expected json, text, srt, verbose_json or vtt, found \"yaml\"",
    ),
    (&[("temperature", "warm")], 400, "temperature: expected a number from 0 to 1"),
    (&[("temperature", "NaN")], 400, "temperature: expected a number from 0 to 1"),
    (
        &[("timestamp_granularities[]", "word")],
        400,
        "expected with the response_format verbose_json",
    ),
    (&[("timestamp_granularities[]", "letter")], 400, "expected word or segment"),
    (
        &[("stream", "true"), ("response_format", "srt")],
        400,
        "stream: expected with the response_format json or text",
    ),
    (&[("stream", "perhaps")], 400, "stream: expected true or false"),
    (&[("model", "whisper-1"), ("model", "whisper-1")], 400, "model: given twice"),
    (&[("include[]", "logprobs")], 400, "there is no field \"include[]\""),
];

#[test]
fn bad_forms_are_answered_in_the_form_of_openai() {
    let (client, _folder) = speech_server(&["--max-audio", "200000"]);
    let check = |what: &str, (status, answer): (u16, String), expected: u16, message: &str| {
        let error = serde_json::from_str::<Value>(&answer)
            .ok()
            .and_then(|answer| Some(answer["error"]["message"].as_str()?.to_owned()));
        let is_right =
            status == expected && error.as_ref().is_some_and(|error| error.contains(message));
        (!is_right)
            .then(|| format!("{what}: expected {expected} {message}, found {status} {answer}"))
    };
    let mut wrong = Vec::new();
    for (fields, status, message) in BAD {
        let named = fields.iter().any(|(name, _)| *name == "model");
        let fields: Vec<_> =
            fields.iter().copied().chain((!named).then_some(("model", "whisper-1"))).collect();
        wrong.extend(check(
            &format!("{fields:?}"),
            post(client, TRANSCRIPTIONS, Some(&tone()), &fields),
            status,
            message,
        ));
    }
    let model: &[(&str, &str)] = &[("model", "whisper-1")];
    let large = "x".repeat(70_000);
    let mut posted =
        |what: &str, file: Option<&[u8]>, fields: &[(&str, &str)], status, message: &str| {
            wrong.extend(check(what, post(client, TRANSCRIPTIONS, file, fields), status, message));
        };
    posted("no file", None, model, 400, "file: missing");
    posted("no model", Some(b"a"), &[], 400, "model: missing");
    posted("no audio", Some(b"nonsense"), model, 400, "file: expected audio");
    let streamed: &[(&str, &str)] = &[("model", "whisper-1"), ("stream", "true")];
    posted("streamed", Some(b"nonsense"), streamed, 400, "file: expected audio");
    posted("empty", Some(b""), model, 400, "file: expected audio");
    posted("large", Some(&[0; 250_000]), model, 413, "the form");
    posted(
        "large field",
        None,
        &[("prompt", &large)],
        400,
        "prompt: expected at most 65536 bytes, found 70000",
    );
    let by = |kind: &str, body: &[u8]| {
        let (status, answer) = client.post(TRANSCRIPTIONS, kind, body);
        (status, String::from_utf8(answer).unwrap())
    };
    wrong.extend(check("JSON", by("application/json", b"{}"), 400, "expected a multipart form"));
    let kind = format!("multipart/form-data; boundary={BOUNDARY}");
    let whole = form(Some(&tone()), model);
    let compressed = format!("{kind}\r\nContent-Encoding: gzip");
    wrong.extend(check("compressed", by(&compressed, &whole), 415, "must not be compressed"));
    wrong.extend(check("cut", by(&kind, &whole[..whole.len() / 2]), 400, "the form"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let (slow, _folder) = speech_server(&["--audio-timeout", "0.001"]);
    assert_eq!(post(slow, TRANSCRIPTIONS, Some(&tone()), model).0, 504);
}

/// Heads of parts, fields and the file's head damaged at random.
#[test]
fn damaged_forms_are_answered() {
    let (client, _folder) = speech_server(&[]);
    let mut random = Random(11);
    let fields = [
        ("model", "whisper-1"),
        ("response_format", "verbose_json"),
        ("temperature", "0.5"),
        ("prompt", "Two dogs"),
    ];
    let whole = form(Some(&tone()[..20_000]), &fields);
    let (head, samples) = whole.split_at(900);
    for _ in 0..60 {
        let body = [&random.damage(head.into())[..], samples].concat();
        let (status, answer) = client.post(
            TRANSCRIPTIONS,
            &format!("multipart/form-data; boundary={BOUNDARY}"),
            &body,
        );
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let has_form = if status == 200 {
            answer["text"].is_string()
        } else {
            answer["error"]["message"].is_string()
        };
        assert!(
            [200, 400, 404].contains(&status) && has_form,
            "{status} {answer}: {}",
            String::from_utf8_lossy(&body[..head.len()])
        );
    }
    assert_eq!(post(client, TRANSCRIPTIONS, Some(&tone()), &[("model", "whisper-1")]).0, 200);
}
