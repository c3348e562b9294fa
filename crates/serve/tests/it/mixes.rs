//! Requests that share batches: each is answered as alone, and those that leave make room.

use crate::client::{Client, server, server_of};
use crate::damaged::Random;
use cognate::{
    DecodingOptions, Engine, Export, Languages, LoadOptions, Target, Translator, TranslatorOptions,
};
use cognate_testing::{bundled_checkpoint, testdata};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

fn sentences() -> Vec<String> {
    std::fs::read_to_string(testdata("parallel").join("valid.en"))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The translations of each sentence alone.
fn alone(sentences: &[String], beams: usize) -> Vec<String> {
    let load = LoadOptions { engine: Engine::Tract, ..LoadOptions::default() };
    let translator = Translator::open_with(
        bundled_checkpoint(),
        &TranslatorOptions { load, ..TranslatorOptions::default() },
    )
    .unwrap();
    let decoding = DecodingOptions { beams: beams.try_into().ok(), ..DecodingOptions::default() };
    let translator = translator.with(&Languages::default(), &decoding).unwrap();
    sentences
        .iter()
        .map(|sentence| translator.translate(&[sentence]).unwrap()[0].text.clone())
        .collect()
}

fn translate(client: &Client, texts: &[&String], beams: usize) -> Vec<String> {
    let tensor =
        json!({ "name": "text_input", "datatype": "BYTES", "shape": [texts.len()], "data": texts });
    let asked = json!({ "inputs": [tensor], "parameters": { "num_beams": beams }, "outputs": [{ "name": "text_output" }] });
    let found = client.json("/v2/models/multi30k/infer", &asked);
    serde_json::from_value(found["outputs"][0]["data"].clone()).unwrap()
}

#[test]
fn each_request_is_answered_as_alone() {
    answers_as_alone(server(&["--workers", "2"]));
}

/// In an export for ONNX Runtime sentences enter batches that run.
#[test]
fn each_request_that_joins_a_batch_is_answered_as_alone() {
    let load = LoadOptions { engine: Engine::Ort, ..LoadOptions::default() };
    if Translator::open_with(
        bundled_checkpoint(),
        &TranslatorOptions { load, ..TranslatorOptions::default() },
    )
    .is_err()
    {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let folder = std::env::temp_dir().join(format!("cognate-joined-{}", std::process::id()));
    Export::open(bundled_checkpoint()).unwrap().target(Target::Ort).write(&folder).unwrap();
    // All is in memory once it answers.
    let client = server_of(&folder, &["--engine", "ort", "--workers", "1"]);
    std::fs::remove_dir_all(&folder).unwrap();
    answers_as_alone(client);
}

fn answers_as_alone(client: Client) {
    let sentences = sentences();
    let expected = [1, 3].map(|beams| alone(&sentences, beams));
    let mut random = Random(1);
    let draw = |_| {
        let (beams, count) = (random.below(2), 1 + random.below(6));
        (beams, (0..count).map(|_| random.below(sentences.len())).collect::<Vec<_>>())
    };
    let requests: Vec<(usize, Vec<usize>)> = (0..120).map(draw).collect();
    thread::scope(|scope| {
        for requests in requests.chunks(8) {
            let (client, sentences, expected) = (&client, &sentences, &expected);
            scope.spawn(move || {
                for (beams, chosen) in requests {
                    let texts: Vec<_> = chosen.iter().map(|&index| &sentences[index]).collect();
                    let wanted: Vec<_> =
                        chosen.iter().map(|&index| &expected[*beams][index]).collect();
                    assert_eq!(
                        translate(client, &texts, 1 + 2 * beams).iter().collect::<Vec<_>>(),
                        wanted,
                        "{texts:?}"
                    );
                }
            });
        }
    });
}

#[test]
fn requests_whose_clients_leave_are_cancelled() {
    let (client, sentences) = (server(&["--workers", "1", "--batch-tokens", "64"]), sentences());
    let many: Vec<_> = sentences.iter().cycle().take(1000).collect();
    let began = Instant::now();
    for _ in 0..8 {
        let tensor = json!({ "name": "text_input", "datatype": "BYTES", "shape": [many.len()], "data": many });
        let body = json!({ "inputs": [tensor], "parameters": { "num_beams": 4 } }).to_string();
        let mut stream = TcpStream::connect(client.address).unwrap();
        let head = format!(
            "POST /v2/models/multi30k/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(translate(&client, &[&sentences[0]], 1), alone(&sentences[..1], 1));
    let text = String::from_utf8(client.send("GET", "/metrics", "X-A: b", b"").2).unwrap();
    let done: Value = text
        .lines()
        .find_map(|line| line.strip_prefix("cognate_sentences_total{model=\"multi30k\"} "))
        .unwrap()
        .parse()
        .unwrap();
    assert!(done.as_u64().unwrap() < 8000, "{done} sentences in {:?}", began.elapsed());
    assert!(text.contains("cognate_waiting_sentences{model=\"multi30k\"} 0"), "{text}");
}

/// A request of one sentence does not wait for all sentences of an earlier one.
#[test]
fn sentences_are_taken_in_turn() {
    let (client, sentences) = (server(&["--workers", "1", "--batch-tokens", "64"]), sentences());
    let many: Vec<_> = sentences.iter().cycle().take(400).collect();
    thread::scope(|scope| {
        let large = scope.spawn(|| {
            translate(&client, &many, 4);
            Instant::now()
        });
        thread::sleep(Duration::from_millis(300));
        translate(&client, &[&sentences[0]], 4);
        let small = Instant::now();
        assert!(small < large.join().unwrap(), "the small request ended last");
    });
}

/// Connections that send nothing, or half a request, do not hold up others.
#[test]
fn idle_and_half_open_connections() {
    let (client, sentences) = (server(&[]), sentences());
    let expected = alone(&sentences[..1], 1);
    let mut idle = Vec::new();
    for number in 0..300 {
        let mut stream = TcpStream::connect(client.address).unwrap();
        if number % 2 == 0 {
            stream
                .write_all(
                    b"POST /translate HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{\"q\":",
                )
                .unwrap();
        }
        idle.push(stream);
    }
    assert_eq!(translate(&client, &[&sentences[0]], 1), expected);
}

/// Sends a request and leaves after this part of the answer.
fn leave_after(client: Client, path: &str, body: &Value, part: &str) {
    let body = body.to_string();
    let mut stream = TcpStream::connect(client.address).unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).unwrap();
    let (mut answer, mut bytes) = (Vec::new(), [0; 256]);
    while !String::from_utf8_lossy(&answer).contains(part) {
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend(&bytes[..count]);
    }
}

const STREAM: &str = "/v2/models/multi30k/generate_stream";

/// A sentence of 250 tokens.
fn long(text: &str) -> Value {
    json!({ "text_input": text, "min_new_tokens": 249, "max_new_tokens": 250 })
}

/// Otherwise the sentence would be translated before its client could leave.
#[test]
fn parts_are_sent_before_the_end() {
    let (client, sentences) = (server(&["--workers", "1"]), sentences());
    leave_after(client, STREAM, &long(&sentences[0]), "\ndata: ");
    translate(&client, &[&sentences[1]], 1);
    let text = String::from_utf8(client.send("GET", "/metrics", "X-A: b", b"").2).unwrap();
    assert!(text.contains("\ncognate_sentences_total{model=\"multi30k\"} 1\n"), "{text}");
}

#[test]
fn requests_that_fail_or_leave_do_not_change_others() {
    let (client, sentences) = (server(&["--workers", "1"]), &sentences()[..12]);
    let expected = alone(sentences, 1);
    thread::scope(|scope| {
        for number in 0..4 {
            let expected = &expected;
            scope.spawn(move || {
                for index in (0..sentences.len()).map(|index| (index + 3 * number) % 12) {
                    let texts = [&sentences[index], &sentences[11 - index]];
                    let wanted = [expected[index].clone(), expected[11 - index].clone()];
                    assert_eq!(translate(&client, &texts, 1), wanted);
                }
            });
        }
        scope.spawn(move || {
            for sentence in sentences {
                leave_after(client, STREAM, &long(sentence), "\ndata: ");
            }
        });
        scope.spawn(move || {
            for sentence in sentences {
                let texts = [sentence.clone(), "dog ".repeat(3000)];
                let asked = json!({ "q": texts, "source": "en", "target": "de" }).to_string();
                let (status, answer) =
                    client.post("/translate", "application/json", asked.as_bytes());
                let answer = String::from_utf8(answer).unwrap();
                assert!(status == 413 && !answer.contains("dog"), "{answer}");
            }
        });
    });
}
