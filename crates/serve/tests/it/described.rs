//! What `/openapi.json` says about paths and keys; browsers, request ids and metrics.

use crate::client::{Client, server, start};
use cognate::Export;
use cognate_testing::{bundled_checkpoint, make_speech_model, tone};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The described paths with their methods, and whether they are open to requests without a key.
fn described(client: Client) -> Vec<(String, &'static str, bool)> {
    let described = client.get("/openapi.json");
    assert_eq!(described["openapi"], "3.1.0");
    let mut found = Vec::new();
    for (path, item) in described["paths"].as_object().unwrap() {
        for (name, method) in [("get", "GET"), ("post", "POST")] {
            let Some(operation) = item.get(name) else { continue };
            let is_open = operation.get("security").is_some_and(|needed| *needed == json!([]));
            let answers = operation["responses"].as_object().unwrap();
            assert_eq!(answers.contains_key("401"), !is_open, "{path}");
            found.push((path.clone(), method, is_open));
        }
    }
    found
}

fn of_model(path: &str) -> String {
    path.replace("{model}", "multi30k").replace("{version}", "1")
}

#[test]
fn every_path_is_described_and_exists() {
    let client = server(&[]);
    let described = described(client);
    let mut wrong = Vec::new();
    for (path, method, _) in &described {
        let (status, ..) = client.send(method, &of_model(path), "X-A: b", b"");
        if [404, 405].contains(&status) {
            wrong.push(format!("{method} {path}: {status}"));
        }
    }
    let routes = include_str!("../../src/routes.rs").split(".route(").skip(1);
    let routes: BTreeSet<_> = routes.filter_map(|rest| rest.split('"').nth(1)).collect();
    assert!(routes.len() > 20);
    for path in routes.iter().filter(|path| !path.contains("GRPC")) {
        if !described.iter().any(|(known, ..)| known == path) {
            wrong.push(format!("{path} is not described"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn paths_need_keys_as_described() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "secret\n").unwrap();
    let client = server(&["--api-keys", file.to_str().unwrap()]);
    let mut wrong = Vec::new();
    for (path, method, is_open) in described(client) {
        let asked = |headers: &str| {
            let (status, _, answer) = client.send(method, &of_model(&path), headers, b"{}");
            let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
            (status, answer.get("error").cloned().unwrap_or_default())
        };
        let (status, error) = asked("X-A: b");
        let has_form = match path.starts_with("/v1/") {
            _ if is_open => true,
            true => error["code"] == "invalid_api_key" && error["message"].is_string(),
            false => error == "expected an API key",
        };
        let with_key = asked("Authorization: Bearer secret").0;
        if (status == 401) == is_open || !has_form || with_key == 401 {
            wrong.push(format!("{method} {path}: {status} {error}, with a key {with_key}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // An unknown model is not told from a known one.
    assert_eq!(client.post("/v2/models/other/infer", "application/json", b"{}").0, 401);
}

#[test]
fn files_of_keys_are_regular_and_small() {
    let folder = tempfile::tempdir().unwrap();
    let large = folder.path().join("large");
    std::fs::write(&large, "key\n".repeat(300_000)).unwrap();
    let model = format!("multi30k={}", bundled_checkpoint().display());
    for file in [folder.path(), &large, "/dev/zero".as_ref()] {
        let options = ["--model", &model, "--api-keys", file.to_str().unwrap()];
        let error = start(&options, &[]).unwrap_err().to_string();
        let expected = format!("{}: expected a regular file of at most", file.display());
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn pages_of_other_origins_are_admitted_by_option() {
    let headers = |client: Client, method: &str, origin: &str| {
        let headers = format!(
            "Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,x-api-key"
        );
        client.send(method, "/translate", &headers, b"{}").1
    };
    let closed = server(&[]);
    for method in ["OPTIONS", "POST"] {
        let head = headers(closed, method, "https://a.example");
        assert!(!head.contains("access-control-allow"), "{head}");
    }
    let open = server(&["--cors", "https://a.example"]);
    let all = server(&["--cors", "*"]);
    for (client, origin, allowed) in [
        (open, "https://a.example", Some("https://a.example")),
        (open, "https://b.example", None),
        (all, "https://b.example", Some("*")),
    ] {
        for method in ["OPTIONS", "POST"] {
            let head = headers(client, method, origin);
            let line = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
            assert_eq!(line("access-control-allow-origin: "), allowed, "{head}");
            // Browsers do not take * for Authorization.
            let names = line("access-control-allow-headers: ").unwrap_or_default();
            let is_listed = names.contains("authorization") && names.contains("x-api-key");
            assert!(method == "POST" || is_listed, "{head}");
        }
    }
}

#[test]
fn unknown_paths_are_observed() {
    let client = server(&[]);
    for (method, path, expected) in [("GET", "/no/such/path", 404), ("PUT", "/translate", 405)] {
        let (status, head, _) = client.send(method, path, "X-Request-Id: mine", b"");
        assert!(status == expected && head.contains("x-request-id: mine"), "{head}");
    }
    let text = String::from_utf8(client.send("GET", "/metrics", "X-A: b", b"").2).unwrap();
    for line in ["path=\"other\",status=\"404\"} 1", "path=\"/translate\",status=\"405\"} 1"] {
        assert!(text.contains(&format!("cognate_requests_total{{{line}")), "{line}\n{text}");
    }
}

/// Every series of the README appears after a text, a stream, an audio file and tensors.
#[test]
fn metrics() {
    let folder = tempfile::tempdir().unwrap();
    let (speech, out) = (folder.path().join("speech"), folder.path().join("out"));
    std::fs::create_dir(&speech).unwrap();
    make_speech_model(&speech);
    Export::open(bundled_checkpoint()).unwrap().write(&out).unwrap();
    let models = [
        format!("text={}", bundled_checkpoint().display()),
        format!("speech={}", speech.display()),
        format!("graph={}", out.join("encoder.onnx").display()),
    ];
    let options: Vec<_> = models.iter().flat_map(|model| ["--model", model]).collect();
    let client = Client { address: start(&options, &[]).unwrap() };
    let asked = json!({ "text_input": "Two dogs." });
    client.json("/v2/models/text/generate", &asked);
    let streamed = client.post(
        "/v2/models/text/generate_stream",
        "application/json",
        asked.to_string().as_bytes(),
    );
    assert_eq!(streamed.0, 200);
    let form = crate::speech::form(Some(&tone()), &[("model", "speech")]);
    let kind = format!("multipart/form-data; boundary={}", crate::speech::BOUNDARY);
    assert_eq!(client.post("/v1/audio/transcriptions", &kind, &form).0, 200);
    let tensor = |name: &str, data: [i64; 3]| json!({ "name": name, "datatype": "INT64", "shape": [1, 3], "data": data });
    let inputs = [tensor("input_ids", [8, 20, 0]), tensor("attention_mask", [1, 1, 1])];
    client.json("/v2/models/graph/infer", &json!({ "inputs": inputs }));
    let expected = [
        "requests_total{path=\"/v2/models/{model}/generate\",status=\"200\"} 1",
        "latency_seconds_count{model=\"text\",phase=\"queue\"} 2",
        "latency_seconds_count{model=\"text\",phase=\"decode\"} 2",
        "latency_seconds_count{model=\"text\",phase=\"request\"} 2",
        "latency_seconds_count{model=\"speech\",phase=\"queue\"} 1",
        "latency_seconds_count{model=\"speech\",phase=\"decode\"} 1",
        "latency_seconds_count{model=\"speech\",phase=\"request\"} 1",
        "latency_seconds_count{model=\"graph\",phase=\"queue\"} 1",
        "latency_seconds_count{model=\"graph\",phase=\"decode\"} 1",
        "latency_seconds_count{model=\"graph\",phase=\"request\"} 1",
        "batch_sentences_count{model=\"text\"} ",
        "generated_tokens_total{model=\"text\"} ",
        "sentences_total{model=\"text\"} 2",
        "transcribed_audio_seconds_total{model=\"speech\"} 2.5",
        "waiting_sentences{model=\"text\"} 0",
        "waiting_requests{model=\"speech\"} 0",
        "waiting_requests{model=\"graph\"} 0",
    ];
    // Some are counted after the answer has left.
    let missing = || -> Vec<_> {
        let text = String::from_utf8(client.send("GET", "/metrics", "X-A: b", b"").2).unwrap();
        let is_there = |line: &str| text.contains(&format!("\ncognate_{line}"));
        expected.iter().filter(|line| !is_there(line)).collect()
    };
    for _ in 0..100 {
        if missing().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(missing().is_empty(), "{:?}", missing());
    let documented = include_str!("../../README.md");
    let series: BTreeSet<_> = expected.iter().filter_map(|line| line.split('{').next()).collect();
    let undocumented: Vec<_> = series
        .iter()
        .map(|series| series.trim_end_matches("_count"))
        .filter(|series| !documented.contains(&format!("`cognate_{series}`")))
        .collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
}
