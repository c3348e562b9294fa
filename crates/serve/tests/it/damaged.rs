//! Bodies damaged at random: each is answered, and the server goes on.

use crate::client::{binary, framed, server};
use crate::grpc::request;
use prost::Message;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

const GOOD: [(&str, &str); 4] = [
    (
        "/translate",
        r#"{"q":["Two dogs.","A man."],"source":"en","target":"de","alternatives":1,"format":"text"}"#,
    ),
    ("/detect", r#"{"q":"Two dogs."}"#),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","data":["Two dogs."]}],"parameters":{"num_beams":2}}"#,
    ),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"Two dogs.","parameters":{"max_new_tokens":9,"temperature":1.5,"do_sample":true}}"#,
    ),
];

/// Numbers below a bound, by Knuth's MMIX generator, of which the upper bits are the better ones.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    /// Changes, inserts, removes or repeats bytes.
    pub(crate) fn damage(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        const TOKENS: [&str; 12] = [
            "{",
            "}",
            "[",
            "]",
            "\"",
            "null",
            "-1",
            "1e999",
            "99999999999999999999",
            "\\ud800",
            "\u{0}",
            "\u{1f642}",
        ];
        for _ in 0..1 + self.below(3) {
            let place = self.below(bytes.len().max(1));
            match self.below(4) {
                _ if bytes.is_empty() => return bytes,
                0 => bytes[place] = self.below(256) as u8,
                1 => drop(bytes.splice(place..place, TOKENS[self.below(TOKENS.len())].bytes())),
                2 => drop(bytes.drain(place..(place + 1 + self.below(8)).min(bytes.len()))),
                _ => bytes.extend_from_within(place..),
            }
        }
        bytes
    }
}

#[test]
fn damaged_bodies_are_answered() {
    let (client, mut random) = (server(&["--max-new-tokens", "20"]), Random(7));
    for number in 0..400 {
        let (path, body) = GOOD[number % GOOD.len()];
        let body = random.damage(body.into());
        let (status, answer) = client.post(path, "application/json", &body);
        let has_form = status == 200
            || serde_json::from_slice::<Value>(&answer)
                .is_ok_and(|answer| answer["error"].is_string());
        assert!(
            [200, 400, 413].contains(&status) && has_form,
            "{path} {status} {}: {}",
            String::from_utf8_lossy(&body),
            String::from_utf8_lossy(&answer)
        );
    }
    for _ in 0..100 {
        let texts = binary(&["Two dogs.", "A man."]);
        let damaged = random.damage(texts.clone());
        let size = if random.below(2) == 0 { texts.len() } else { damaged.len() };
        let tensor = json!({ "name": "text_input", "datatype": "BYTES", "shape": [2], "parameters": { "binary_data_size": size } });
        let head = json!({ "inputs": [tensor] }).to_string();
        let headers = format!("Inference-Header-Content-Length: {}", head.len());
        let (status, ..) = client.send(
            "POST",
            "/v2/models/multi30k/infer",
            &headers,
            &[head.as_bytes(), &damaged].concat(),
        );
        assert!([200, 400].contains(&status), "{status} {damaged:?}");
    }
    for _ in 0..100 {
        let form = b"q=Two+dogs%2e&source=en&target=de&alternatives=1".to_vec();
        let body = random.damage(form);
        let (status, answer) =
            client.post("/translate", "application/x-www-form-urlencoded", &body);
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let has_form = answer["translatedText"].is_string() || answer["error"].is_string();
        assert!([200, 400, 413].contains(&status) && has_form, "{status} {body:?} {answer}");
    }
    for _ in 0..100 {
        let message = request(&[b"Two dogs.", b"A man."]).encode_to_vec();
        let message = random.damage(message);
        let frame =
            if random.below(2) == 0 { framed(&message) } else { random.damage(framed(&message)) };
        let (code, answer) = client.grpc("ModelInfer", "X-A: b", &frame);
        assert!(
            [0, 3, 5, 8].contains(&code),
            "{code} {frame:?} {}",
            String::from_utf8_lossy(&answer)
        );
    }
    let asked = json!({ "text_input": "A man is riding a bicycle." });
    assert_eq!(
        client.json("/v2/models/multi30k/generate", &asked)["text_output"],
        "Ein Mann fährt Fahrrad."
    );
}

/// One word of 10 MB, and as many letters in a request within a raised limit.
#[test]
fn huge_words() {
    let client = server(&["--max-body", "16000000", "--max-new-tokens", "20"]);
    let small = server(&[]);
    let body = json!({ "text_input": "a".repeat(10_000_000) }).to_string();
    let (status, answer) =
        client.post("/v2/models/multi30k/generate", "application/json", body.as_bytes());
    assert_eq!(status, 413, "{}", String::from_utf8_lossy(&answer));
    // The server reads what it has refused: a client that fails to send may not read its answer.
    for (path, chunked, expected) in [
        ("/v2/models/multi30k/generate", false, 413),
        ("/translate", true, 413),
        ("/no/such/path", false, 404),
    ] {
        let (length, before) = match chunked {
            true => ("Transfer-Encoding: chunked".into(), format!("{:x}\r\n", body.len())),
            false => (format!("Content-Length: {}", body.len()), String::new()),
        };
        let head = format!("POST {path} HTTP/1.1\r\nHost: here\r\n{length}\r\n\r\n{before}");
        let mut stream = TcpStream::connect(small.address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        // A whole body leaves the connection open.
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        let (head, answer) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(answer).unwrap();
        let is_right = head.contains(&format!(" {expected} ")) && answer["error"].is_string();
        assert!(is_right, "{path}: {head} {answer}");
    }
}
