//! The server as clients see it, by plain HTTP.

#![allow(clippy::unwrap_used)]

mod client;
mod connections;
mod damaged;
mod described;
mod graphs;
mod grpc;
mod limits;
mod mixes;
mod speech;

use client::{Client, binary, server};
use cognate_serve::Pair;
use cognate_testing::bundled_checkpoint;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

const BICYCLE: [&str; 2] = ["A man is riding a bicycle.", "Ein Mann fährt Fahrrad."];
const DOGS: [&str; 2] = ["Two dogs are playing in the snow.", "Zwei Hunde spielen im Schnee."];

#[test]
fn libretranslate() {
    let client = server(&[]);
    let translate = |body: Value| client.json("/translate", &body);
    let (source, target) = ("en", "de");
    assert_eq!(
        translate(json!({ "q": BICYCLE[0], "source": source, "target": target })),
        json!({ "translatedText": BICYCLE[1] })
    );
    let several =
        translate(json!({ "q": [BICYCLE[0], "", DOGS[0]], "source": source, "target": target }));
    assert_eq!(several, json!({ "translatedText": [BICYCLE[1], "", DOGS[1]] }));
    let several = translate(
        json!({ "q": [BICYCLE[0], DOGS[0]], "source": source, "target": target, "alternatives": 2 }),
    );
    assert_eq!(several["translatedText"], json!([BICYCLE[1], DOGS[1]]));
    let alternatives: Vec<Vec<String>> =
        serde_json::from_value(several["alternatives"].clone()).unwrap();
    assert_eq!(alternatives.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2]);
    let lines = format!("{}\n\n  {}\n", BICYCLE[0], DOGS[0]);
    let found = translate(json!({ "q": lines, "source": source, "target": target }));
    assert_eq!(found, json!({ "translatedText": format!("{}\n\n  {}\n", BICYCLE[1], DOGS[1]) }));
    let form = "q=Two+dogs+are+playing+in+the+snow.&source=en&target=de";
    let (status, answer) =
        client.post("/translate", "application/x-www-form-urlencoded", form.as_bytes());
    assert_eq!(
        (status, serde_json::from_slice::<Value>(&answer).unwrap()),
        (200, json!({ "translatedText": DOGS[1] }))
    );
    let form = "--x\r\nContent-Disposition: form-data; name=\"q\"\r\n\r\nTwo dogs are playing in the snow.\r\n\
                --x\r\nContent-Disposition: form-data; name=\"source\"\r\n\r\nen\r\n\
                --x\r\nContent-Disposition: form-data; name=\"target\"\r\n\r\nde\r\n--x--\r\n";
    let (status, answer) =
        client.post("/translate", "multipart/form-data; boundary=x", form.as_bytes());
    assert_eq!(
        (status, serde_json::from_slice::<Value>(&answer).unwrap()),
        (200, json!({ "translatedText": DOGS[1] }))
    );
    // Sentence by sentence: the model, trained on single ones, makes one of several.
    let paragraph = |pair: [&str; 2]| format!("{} {}\n{}", pair[0], pair[1], pair[0]);
    let found = translate(json!({
        "q": paragraph([BICYCLE[0], DOGS[0]]), "source": "en", "target": "de"
    }));
    assert_eq!(found["translatedText"], paragraph([BICYCLE[1], DOGS[1]]));
    // Each language is translated into itself.
    let same =
        translate(json!({ "q": [DOGS[1], ""], "source": "de", "target": "de", "alternatives": 1 }));
    assert_eq!(same, json!({ "translatedText": [DOGS[1], ""], "alternatives": [[], []] }));
    let found = translate(
        json!({ "q": BICYCLE[0], "source": "auto", "target": target, "alternatives": 2 }),
    );
    assert_eq!(
        (&found["translatedText"], &found["detectedLanguage"]["language"]),
        (&json!(BICYCLE[1]), &json!("en"))
    );
    let alternatives = found["alternatives"].as_array().unwrap();
    assert!(
        alternatives.len() == 2 && alternatives.iter().all(|text| *text != BICYCLE[1]),
        "{found}"
    );
    assert_eq!(
        client.get("/languages"),
        json!([
            { "code": "de", "name": "German", "targets": ["de"] },
            { "code": "en", "name": "English", "targets": ["de", "en"] },
        ])
    );
    assert_eq!(client.json("/detect", &json!({ "q": "Two dogs" }))[0]["language"], "en");
    assert_eq!(client.get("/health"), json!({ "status": "ok" }));
}

/// The pair's languages cannot be told by their letters.
#[test]
fn languages_that_cannot_be_detected() {
    let model = format!("multi30k={}", bundled_checkpoint().display());
    let options = ["--model", &model, "--languages", "multi30k=tlh-art"];
    let client = Client { address: client::start(&options, &[]).unwrap() };
    let expected = json!({ "error": "the models' languages cannot be detected" });
    for (path, body) in [
        ("/detect", json!({ "q": DOGS[0] })),
        ("/translate", json!({ "q": DOGS[0], "source": "auto", "target": "art" })),
    ] {
        let (status, answer) = client.post(path, "application/json", body.to_string().as_bytes());
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((status, &answer), (501, &expected), "{path}");
    }
    let asked = json!({ "q": DOGS[0], "source": "tlh", "target": "art" });
    assert_eq!(client.json("/translate", &asked), json!({ "translatedText": DOGS[1] }));
}

#[test]
fn long_lines_are_divided() {
    let client = server(&[]);
    let text = |language: usize| [BICYCLE[language], DOGS[language]].repeat(60).join(" ");
    let found = client.json("/translate", &json!({ "q": text(0), "source": "en", "target": "de" }));
    assert_eq!(found, json!({ "translatedText": text(1) }));
}

#[test]
fn open_inference_protocol() {
    let client = server(&[]);
    assert_eq!(client.get("/v2")["name"], "cognate");
    assert_eq!(
        client.get("/v2/models/multi30k")["inputs"],
        json!([{ "name": "text_input", "datatype": "BYTES", "shape": [-1] }])
    );
    assert_eq!(client.get("/v2/models/multi30k/versions/1")["versions"], json!(["1"]));
    assert_eq!(client.json("/v2/repository/index", &json!({}))[0]["state"], "READY");
    let tensor = json!({ "name": "text_input", "datatype": "BYTES", "shape": [2, 1], "data": [[BICYCLE[0]], [DOGS[0]]] });
    let found = client.json(
        "/v2/models/multi30k/infer",
        &json!({ "id": "7", "inputs": [tensor], "outputs": [{ "name": "text_output" }] }),
    );
    let output = json!({ "name": "text_output", "datatype": "BYTES", "shape": [2, 1], "data": [BICYCLE[1], DOGS[1]] });
    assert_eq!(
        found,
        json!({ "model_name": "multi30k", "model_version": "1", "id": "7", "outputs": [output] })
    );
    let tensor =
        json!({ "name": "text_input", "datatype": "BYTES", "shape": [1], "data": [DOGS[0]] });
    let parameters = json!({ "num_beams": 4, "n_best": 3 });
    let found = client.json(
        "/v2/models/multi30k/versions/1/infer",
        &json!({ "inputs": [tensor], "parameters": parameters }),
    );
    assert_eq!(
        (&found["outputs"][0]["shape"], &found["outputs"][0]["data"][0]),
        (&json!([1, 3]), &json!(DOGS[1]))
    );
    let scores = found["outputs"][1]["data"].as_array().unwrap();
    assert!(
        scores.len() == 3
            && scores
                .iter()
                .map(|score| score.as_f64().unwrap())
                .is_sorted_by(|one, other| one >= other),
        "{found}"
    );

    let tensor =
        json!({ "name": "text_input", "datatype": "BYTES", "shape": [1], "data": [DOGS[0]] });
    let one = json!({ "inputs": [tensor], "parameters": { "num_beams": 2, "n_best": 1 }, "outputs": null });
    let found = client.json("/v2/models/multi30k/infer", &one);
    assert_eq!(found["outputs"][0]["shape"], json!([1]));
    let found = client.json(
        "/v2/models/multi30k/versions/1/generate",
        &json!({ "text_input": DOGS[0], "parameters": {} }),
    );
    assert_eq!(found["text_output"], DOGS[1]);

    let texts = binary(&[BICYCLE[0], DOGS[0]]);
    let parameters = json!({ "binary_data_size": texts.len() });
    let head = json!({ "inputs": [{ "name": "text_input", "datatype": "BYTES", "shape": [2], "parameters": parameters }],
        "parameters": { "binary_data_output": true } });
    let (status, head, rest) = client.binary("/v2/models/multi30k/infer", &head, &texts);
    let expected = binary(&[BICYCLE[1], DOGS[1]]);
    assert_eq!(
        (status, &head["outputs"][0]["parameters"]["binary_data_size"]),
        (200, &json!(expected.len()))
    );
    assert_eq!((&rest[..expected.len()], rest.len()), (&expected[..], expected.len() + 8));
}

#[test]
fn generation_and_its_stream() {
    let client = server(&[]);
    let asked = json!({ "text_input": BICYCLE[0], "parameters": { "max_new_tokens": 20 } });
    assert_eq!(client.json("/v2/models/multi30k/generate", &asked)["text_output"], BICYCLE[1]);
    let (status, answer) = client.post(
        "/v2/models/multi30k/generate_stream",
        "application/json",
        asked.to_string().as_bytes(),
    );
    let text = String::from_utf8(answer).unwrap();
    let events: Vec<Value> = text
        .split("\n\n")
        .filter(|event| !event.is_empty())
        .map(|event| serde_json::from_str(&event[6..]).unwrap())
        .collect();
    let joined: String =
        events.iter().map(|event| event["text_output"].as_str().unwrap()).collect();
    assert_eq!((status, joined.as_str(), events.len() > 1), (200, BICYCLE[1], true));
}

/// Path, body, and the status and a part of the error.
const BAD: [(&str, &str, u16, &str); 30] = [
    ("/translate", "{", 400, "the body: EOF"),
    ("/translate", "[]", 400, "the body: invalid type"),
    ("/translate", "\u{0}", 400, "the body:"),
    ("/translate", r#"{"source":"en","target":"de"}"#, 400, "missing q parameter"),
    ("/translate", r#"{"q":5,"source":"en","target":"de"}"#, 400, "q: expected a string or a list"),
    ("/translate", r#"{"q":["a",5],"source":"en","target":"de"}"#, 400, "q: expected strings"),
    ("/translate", r#"{"q":"a","source":"en"}"#, 400, "missing target parameter"),
    (
        "/translate",
        r#"{"q":"a","source":"en","target":"fr"}"#,
        400,
        "en to fr is not supported; expected en to de",
    ),
    (
        "/translate",
        r#"{"q":"a","source":"klingon","target":"de"}"#,
        400,
        "klingon to de is not supported; expected en to de",
    ),
    (
        "/translate",
        r#"{"q":"a","source":"en","target":"de","format":"html"}"#,
        400,
        "format: expected text, found html",
    ),
    (
        "/translate",
        r#"{"q":"a","source":"en","target":"de","alternatives":-1}"#,
        400,
        "alternatives: expected a number",
    ),
    (
        "/translate",
        r#"{"q":"a","source":"en","target":"de","alternatives":18446744073709551615}"#,
        400,
        "beams: expected at most 16",
    ),
    ("/detect", "{}", 400, "missing q parameter"),
    ("/v2/models/other/infer", "{}", 404, "there is no model other"),
    ("/v2/models/multi30k/versions/2/infer", "{}", 404, "expected version 1, found 2"),
    ("/v2/models/multi30k/infer", "{}", 400, "missing field `inputs`"),
    ("/v2/models/multi30k/infer", r#"{"inputs":[]}"#, 400, "inputs: expected one, text_input"),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":["a"]}]}"#,
        400,
        "found x of BYTES",
    ),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"text_input","shape":[1],"datatype":"FP32","data":[1]}]}"#,
        400,
        "text_input of FP32",
    ),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"text_input","shape":[-1],"datatype":"BYTES","data":["a"]}]}"#,
        400,
        "invalid value",
    ),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"text_input","shape":[4294967296,4294967296],"datatype":"BYTES","data":["a"]}]}"#,
        400,
        "but 1 elements",
    ),
    (
        "/v2/models/multi30k/infer",
        r#"{"inputs":[{"name":"text_input","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":9}}]}"#,
        400,
        "at most 0 bytes",
    ),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"a","num_beam":4}"#,
        400,
        "unknown field `num_beam`",
    ),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"a","target_language":"de"}"#,
        400,
        "target_language",
    ),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"a","do_sample":true,"temperature":0}"#,
        400,
        "temperature: expected a number from 1e-30 to 1e30, found 0",
    ),
    ("/v2/models/multi30k/generate", r#"{"text_input":"a","top_p":2}"#, 400, "top_p: expected"),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"a","length_penalty":1e300}"#,
        400,
        "length_penalty: expected a finite number",
    ),
    (
        "/v2/models/multi30k/generate",
        r#"{"text_input":"a","alignments":true}"#,
        400,
        "gives no attention weights",
    ),
    ("/v2/models/multi30k/versions/2/generate", "{}", 404, "expected version 1, found 2"),
    (
        "/v2/models/multi30k/generate_stream",
        r#"{"text_input":"a","num_beams":4}"#,
        400,
        "stream: cannot be used with beam search",
    ),
];

#[test]
fn bad_requests_are_answered_in_the_form_of_errors() {
    let client = server(&[]);
    let mut wrong = Vec::new();
    for (path, body, status, message) in BAD {
        let (found, answer) = client.post(path, "application/json", body.as_bytes());
        let error = serde_json::from_slice::<Value>(&answer)
            .ok()
            .and_then(|answer| Some(answer["error"].as_str()?.to_owned()));
        if found != status || !error.as_ref().is_some_and(|error| error.contains(message)) {
            wrong.push(format!(
                "{path} {body}: expected {status} {message}, found {found} {error:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (kind, body) in [
        ("application/json", &b"\xff\xfe{"[..]),
        ("application/json", b"{\"q\":\"\xff\",\"source\":\"en\",\"target\":\"de\"}"),
        ("application/x-www-form-urlencoded", b"q=%FF&source=en&target=de"),
        ("application/x-www-form-urlencoded", b"q=\xff&source=en&target=de"),
    ] {
        let (status, answer) = client.post("/translate", kind, body);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.starts_with("the body: "), "{body:?}: {answer}");
    }
    let texts = b"\x02\0\0\0a\xff";
    let tensor = json!({ "name": "text_input", "datatype": "BYTES", "shape": [1], "parameters": { "binary_data_size": 6 } });
    let head = json!({ "inputs": [tensor] }).to_string();
    let headers = format!("Inference-Header-Content-Length: {}", head.len());
    let (status, _, answer) = client.send(
        "POST",
        "/v2/models/multi30k/infer",
        &headers,
        &[head.as_bytes(), texts].concat(),
    );
    let answer = String::from_utf8(answer).unwrap();
    assert!(status == 400 && answer.contains("text_input: string 0: invalid utf-8"), "{answer}");
    assert_eq!(client.post("/nothing", "application/json", b"{}").0, 404);
    assert_eq!(client.post("/health", "application/json", b"{}").0, 405);
    assert_eq!(client.raw(b"nonsense\r\n\r\n").0, 400);
    let cut = client.send("POST", "/translate", "Transfer-Encoding: chunked", b"ZZ\r\n");
    assert!(cut.0 == 400 && String::from_utf8_lossy(&cut.2).contains("the body: "), "{}", cut.1);
    for (path, status) in [("/v1/nope", 404), ("/v1/audio/transcriptions", 405)] {
        let (found, _, answer) = client.send("DELETE", path, "X-A: b", b"");
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (found, answer["error"]["type"].as_str()),
            (status, Some("invalid_request_error"))
        );
    }
    assert_eq!(
        client.json("/v2/models/multi30k/generate", &json!({ "text_input": DOGS[0] }))["text_output"],
        DOGS[1]
    );
}

#[test]
fn limits() {
    let client = server(&["--max-body", "2000", "--max-sentences", "3"]);
    let translate = |client: &Client, q: Value| {
        client.post(
            "/translate",
            "application/json",
            json!({ "q": q, "source": "en", "target": "de" }).to_string().as_bytes(),
        )
    };
    assert_eq!(translate(&client, json!("x".repeat(3000))).0, 413);
    let long = json!({ "q": "dog ".repeat(3000), "source": "en", "target": "de" }).to_string();
    let (status, answer) = server(&[]).post("/translate", "application/json", long.as_bytes());
    let answer = String::from_utf8(answer).unwrap();
    let expected = "{\"error\":\"sentence 1: has 3001 tokens; expected at most ";
    assert!(status == 413 && answer.starts_with(expected), "{answer}");
    assert_eq!(translate(&client, json!(["a", "b", "c", "d"])).0, 413);
    assert_eq!(translate(&client, json!(["a", "b", "c"])).0, 200);
    let (status, head, _) = client.send(
        "POST",
        "/translate",
        "Transfer-Encoding: chunked",
        &[&b"1000\r\n"[..], &[b'x'; 4096], b"\r\n0\r\n\r\n"].concat(),
    );
    assert_eq!(status, 413, "{head}");
    let busy = server(&["--max-waiting", "2"]);
    let (status, head, answer) = busy.send(
        "POST",
        "/translate",
        "Content-Type: application/json",
        br#"{"q":["a","b","c"],"source":"en","target":"de"}"#,
    );
    assert_eq!((status, head.contains("retry-after: 1")), (429, true), "{head} {answer:?}");
    let slow = server(&["--timeout", "0.001"]);
    assert_eq!(translate(&slow, json!([BICYCLE[0]].repeat(500))).0, 504);
    assert_eq!(slow.get("/health"), json!({ "status": "ok" }));
}

/// Half of them have sent a part of a request.
#[cfg(unix)]
#[test]
fn silent_connections_hold_nobody_up() {
    use rustix::process::{Resource, getrlimit};
    let client = server(&[]);
    // Both ends are files of this process.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(40_000) as usize;
    let silent: Vec<_> = (0..10_000.min(files / 4))
        .map(|index| {
            let mut stream = TcpStream::connect(client.address).unwrap();
            if index % 2 == 0 {
                stream.write_all(b"POST /translate HTTP/1.1\r\nContent-Le").unwrap();
            }
            stream
        })
        .collect();
    let asked = json!({ "q": DOGS[0], "source": "en", "target": "de" });
    assert_eq!(client.json("/translate", &asked), json!({ "translatedText": DOGS[1] }));
    drop(silent);
    assert_eq!(client.json("/translate", &asked), json!({ "translatedText": DOGS[1] }));
}

#[test]
fn keys() {
    let folder = std::env::temp_dir().join(format!("cognate-keys-{}", std::process::id()));
    std::fs::write(&folder, "secret\n\nother\n").unwrap();
    let client = server(&["--api-keys", folder.to_str().unwrap()]);
    std::fs::remove_file(&folder).unwrap();
    let status = |headers: &str, key: &str| {
        let body =
            json!({ "q": "Two dogs.", "source": "en", "target": "de", "api_key": key }).to_string();
        client
            .send(
                "POST",
                "/translate",
                &format!("Content-Type: application/json\r\n{headers}"),
                body.as_bytes(),
            )
            .0
    };
    let found = [
        status("X-A: b", ""),
        status("X-A: b", "secre"),
        status("X-A: b", "other"),
        status("Authorization: Bearer secret", ""),
        status("Authorization: bearer  secret", ""),
        status("Authorization: Basic secret", ""),
        status("X-API-Key: secret", ""),
    ];
    assert_eq!(found, [401, 401, 200, 200, 200, 401, 200]);
    let (_, head, _) = client.send("GET", "/v2", "X-A: b", b"");
    assert!(head.contains("www-authenticate: Bearer"), "{head}");
    assert_eq!(
        client.post("/v2/models/multi30k/generate", "application/json", br#"{"text_input":"a"}"#).0,
        401
    );
}

#[test]
fn requests_have_ids_and_are_counted() {
    let client = server(&[]);
    let (_, head, _) = client.send("GET", "/health", "X-Request-Id: mine", b"");
    assert!(head.contains("x-request-id: mine"), "{head}");
    client.json("/translate", &json!({ "q": DOGS[0], "source": "en", "target": "de" }));
    // A sentence is counted after its answer has left.
    let metrics = || client.send("GET", "/metrics", "X-A: b", b"");
    let is_counted =
        |text: &[u8]| String::from_utf8_lossy(text).contains("\ncognate_sentences_total");
    let (status, head, text) =
        (0..1000).map(|_| metrics()).find(|(.., text)| is_counted(text)).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(status == 200 && head.contains("x-request-id: "), "{head}");
    for line in [
        "cognate_requests_total{path=\"/translate\",status=\"200\"} 1",
        "cognate_sentences_total{model=\"multi30k\"} 1",
        "cognate_latency_seconds_count{model=\"multi30k\",phase=\"queue\"} 1",
        "cognate_waiting_sentences{model=\"multi30k\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[test]
fn wrong_starts_are_refused() {
    let start = |extra: &[&str]| {
        client::start(extra, &[]).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let model = format!("multi30k={}", bundled_checkpoint().display());
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    cognate::Export::open(bundled_checkpoint()).unwrap().write(&out).unwrap();
    let whole = std::fs::read(out.join("encoder.onnx")).unwrap();
    let file = folder.path().join("damaged.onnx");
    for damaged in
        [&whole[..whole.len() / 2], b"", b"nonsense", &[&[0xff; 64], &whole[64..]].concat()]
    {
        std::fs::write(&file, damaged).unwrap();
        let error = start(&["--model", &format!("graph={}", file.display())]);
        assert!(error.starts_with("graph: ") && error.contains("damaged.onnx"), "{error}");
    }
    assert!(start(&["--model", "a=/no/such"]).contains("a: /no/such: no such file or folder"));
    // What is wrong with other options is known before models are loaded.
    let damaged = format!("graph={}", file.display());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(start(&["--model", &damaged, "--listen", &address]).starts_with(&address));
    assert!(start(&["--model", &damaged, "--cors", "?"]).starts_with("--cors"));
    assert!(start(&["--model", &damaged, "--languages", "other=en-de"]).starts_with("--languages"));
    assert!(
        start(&["--model", &model, "--model", &model]).contains("the name multi30k is given twice")
    );
    assert!(
        start(&["--model", &model, "--languages", "other=en-de"])
            .contains("expected the name of a --model, found other")
    );
    assert!(start(&["--model", &model, "--api-keys", "/no/such"]).contains("/no/such"));
    for origin in ["\u{1}", "", "hello world", "example.org", "https://example.org/"] {
        let error = start(&["--model", &model, "--cors", origin]);
        assert!(error.contains("--cors: expected an origin"), "{origin:?}: {error}");
    }
    assert!(
        start(&[
            "--model",
            &model,
            "--languages",
            "multi30k=en-de",
            "--languages",
            "multi30k=en-fr"
        ])
        .contains("--languages: the name multi30k is given twice")
    );
    let most = usize::MAX.to_string();
    start(&["--model", &model, "--max-connections", &most, "--max-audio-requests", &most]);
    assert!(start(&["--model", &model, "--listen", "192.0.2.1:1"]).contains("192.0.2.1:1"));
}

#[test]
fn pairs_have_two_languages() {
    for (text, expected) in [
        ("en-de", Some(["en", "de"])),
        ("pt-BR-en", Some(["pt-BR", "en"])),
        ("en-pt-BR", Some(["en", "pt-BR"])),
        ("zh-Hant-TW-zh-Hans", Some(["zh-Hant-TW", "zh-Hans"])),
        ("eng_Latn-deu_Latn", Some(["eng_Latn", "deu_Latn"])),
        ("English-German", Some(["English", "German"])),
        // `br` is Breton.
        ("en-pt-br", None),
        ("en", None),
        ("-de", None),
        ("en-", None),
    ] {
        let found = text.parse::<Pair>().ok().map(|pair| [pair.source, pair.target]);
        assert_eq!(found, expected.map(|pair| pair.map(str::to_owned)), "{text}");
    }
}
