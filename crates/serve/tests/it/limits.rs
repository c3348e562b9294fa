//! More requests than are let in: each is answered, and the server goes on.

use crate::client::{Client, server, start};
use crate::speech::{BOUNDARY, form, speech_server};
use cognate::Export;
use cognate_testing::{bundled_checkpoint, tone, wav};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const FLOOD: usize = 50;

/// The statuses of so many requests at the same time; those that are refused have the protocol's
/// form.
fn flood(client: Client, path: &str, body: &Value) -> Vec<u16> {
    let body = body.to_string();
    let ask = || {
        let (status, head, answer) =
            client.send("POST", path, "Content-Type: application/json", body.as_bytes());
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let is_busy = answer["error"].as_str().is_some_and(|error| error.contains("are waiting"));
        assert_eq!((status == 429, status == 429), (is_busy, head.contains("retry-after: 1")));
        status
    };
    thread::scope(|scope| {
        let asked: Vec<_> = (0..FLOOD).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

/// Some are answered, the others refused.
fn check(found: &[u16]) {
    let count = |status| found.iter().filter(|&&found| found == status).count();
    assert!(count(200) > 0 && count(429) > 0 && count(200) + count(429) == FLOOD, "{found:?}");
}

#[test]
fn a_flood_of_texts() {
    let client = server(&["--workers", "1", "--max-waiting", "2"]);
    let long = json!({ "text_input": "Two dogs.", "min_new_tokens": 100, "max_new_tokens": 101 });
    check(&flood(client, "/v2/models/multi30k/generate", &long));
    assert_eq!(client.get("/health"), json!({ "status": "ok" }));
    let asked = json!({ "q": "Two dogs are playing in the snow.", "source": "en", "target": "de" });
    assert_eq!(
        client.json("/translate", &asked),
        json!({ "translatedText": "Zwei Hunde spielen im Schnee." })
    );
}

#[test]
fn a_flood_of_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    Export::open(bundled_checkpoint()).unwrap().write(&out).unwrap();
    let model = format!("encoder={}", out.join("encoder.onnx").display());
    let options = ["--model", &model, "--workers", "1", "--max-waiting", "1"];
    let client = Client { address: start(&options, &[]).unwrap() };
    let tensor = |name: &str, number: i64| json!({ "name": name, "datatype": "INT64", "shape": [8, 128], "data": vec![number; 1024] });
    let inputs = [tensor("input_ids", 8), tensor("attention_mask", 1)];
    let asked = json!({ "inputs": inputs });
    check(&flood(client, "/v2/models/encoder/infer", &asked));
    assert_eq!(client.json("/v2/models/encoder/infer", &asked)["outputs"][0]["shape"][0], 8);
}

#[test]
fn audio_files_in_memory_are_limited() {
    let (client, _folder) = speech_server(&["--max-audio-requests", "1"]);
    let form = form(Some(&tone()), &[("model", "whisper-1")]);
    let kind = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}");
    let post = || client.send("POST", "/v1/audio/transcriptions", &kind, &form);
    let mut uploading = TcpStream::connect(client.address).unwrap();
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n{kind}\r\nExpect: 100-continue\r\n\r\n"
    );
    uploading.write_all(head.as_bytes()).unwrap();
    // The server reads the file now.
    uploading.read_exact(&mut [0; "HTTP/1.1 100 Continue".len()]).unwrap();
    let (status, head, answer) = post();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(
        (status, &answer["error"]["type"], head.contains("retry-after: 1")),
        (429, &json!("rate_limit_error"), true)
    );
    drop(uploading);
    assert!((0..1000).any(|_| post().0 == 200));
}

/// The second of two files waits for the only worker when its client leaves.
#[test]
fn waiting_audio_of_clients_that_leave_is_freed() {
    let (client, _folder) = speech_server(&["--workers", "1", "--max-audio", "99999999"]);
    let rising = |index: usize| (index as f32 * index as f32 * 1e-6).sin();
    let form = form(
        Some(&wav(&(0..4_000_000).map(rising).collect::<Vec<_>>())),
        &[("model", "whisper-1")],
    );
    let head = format!(
        "POST /v1/audio/transcriptions HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\nContent-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n",
        form.len()
    );
    let send = || {
        let mut stream = TcpStream::connect(client.address).unwrap();
        stream.write_all(&[head.as_bytes(), &form].concat()).unwrap();
        stream
    };
    let has = |line: &str| {
        let text = String::from_utf8(client.send("GET", "/metrics", "X-A: b", b"").2).unwrap();
        text.contains(&format!("\ncognate_{line}\n"))
    };
    let becomes = |line: &str| {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(20));
            has(line)
        })
    };
    let first = send();
    assert!(becomes("latency_seconds_count{model=\"whisper-1\",phase=\"queue\"} 1"));
    let second = send();
    assert!(becomes("waiting_requests{model=\"whisper-1\"} 1"));
    drop(second);
    assert!(becomes("waiting_requests{model=\"whisper-1\"} 0"));
    assert!(!has("latency_seconds_count{model=\"whisper-1\",phase=\"decode\"} 1"));
    drop(first);
    assert!(becomes("latency_seconds_count{model=\"whisper-1\",phase=\"decode\"} 1"));
}
