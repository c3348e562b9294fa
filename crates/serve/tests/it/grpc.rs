//! The Open Inference Protocol over gRPC. The messages are written by hand, from
//! `grpc_predict_v2.proto`.

use crate::client::{Client, framed, server};
use flate2::Compression;
use flate2::read::{GzEncoder, ZlibEncoder};
use prost::Message;
use std::collections::HashMap;
use std::io::Read;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferRequest {
    #[prost(string, tag = "1")]
    model_name: String,
    #[prost(map = "string, message", tag = "4")]
    parameters: HashMap<String, Parameter>,
    #[prost(message, repeated, tag = "5")]
    inputs: Vec<Input>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    raw_input_contents: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Parameter {
    #[prost(double, optional, tag = "4")]
    double: Option<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Input {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Message)]
struct Contents {
    #[prost(bytes = "vec", repeated, tag = "8")]
    bytes_contents: Vec<Vec<u8>>,
}

/// A request to translate these texts.
pub(crate) fn request(texts: &[&[u8]]) -> InferRequest {
    let contents = Contents { bytes_contents: texts.iter().map(|text| text.to_vec()).collect() };
    let input = Input {
        name: "text_input".into(),
        datatype: "BYTES".into(),
        shape: vec![texts.len() as i64],
        contents: Some(contents),
    };
    InferRequest { model_name: "multi30k".into(), inputs: vec![input], ..InferRequest::default() }
}

fn infer(client: Client, request: &InferRequest) -> (u32, String) {
    let (code, message) = client.grpc("ModelInfer", "X-A: b", &framed(&request.encode_to_vec()));
    (code, String::from_utf8_lossy(&message).into_owned())
}

const DOGS: &[u8] = b"Two dogs are playing in the snow.";
const HUNDE: &str = "Zwei Hunde spielen im Schnee.";

#[test]
fn texts_must_be_utf8() {
    let client = server(&[]);
    let (code, answer) = infer(client, &request(&[DOGS]));
    assert!(code == 0 && answer.contains(HUNDE), "{code} {answer}");
    let mut raw = request(&[]);
    (raw.inputs[0].contents, raw.inputs[0].shape) = (None, vec![1]);
    raw.raw_input_contents = vec![b"\x02\0\0\0a\xff".to_vec()];
    for wrong in [request(&[b"a\xff"]), raw] {
        let (code, message) = infer(client, &wrong);
        assert!(code == 3 && message.contains("string 0: invalid utf-8"), "{code} {message}");
    }
}

#[test]
fn parameters_must_be_finite() {
    let client = server(&[]);
    for double in [Some(f64::NAN), Some(f64::INFINITY), None] {
        let mut wrong = request(&[DOGS]);
        wrong.parameters.insert("repetition_penalty".into(), Parameter { double });
        let (code, message) = infer(client, &wrong);
        assert!(code == 3 && message.contains("repetition_penalty: expected"), "{code} {message}");
    }
}

#[test]
fn messages_can_be_compressed() {
    let (client, message) = (server(&[]), request(&[DOGS]).encode_to_vec());
    let (mut gzip, mut zlib) = (Vec::new(), Vec::new());
    GzEncoder::new(&message[..], Compression::fast()).read_to_end(&mut gzip).unwrap();
    ZlibEncoder::new(&message[..], Compression::fast()).read_to_end(&mut zlib).unwrap();
    for (headers, bytes, expected) in [
        ("grpc-encoding: gzip", &gzip, 0),
        ("grpc-encoding: deflate", &zlib, 0),
        ("grpc-encoding: snappy", &gzip, 12),
        ("grpc-encoding: gzip", &zlib, 3),
        ("X-A: b", &gzip, 3),
    ] {
        let mut frame = framed(bytes);
        frame[0] = 1;
        let (code, answer) = client.grpc("ModelInfer", headers, &frame);
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!((code, answer.contains(HUNDE)), (expected, expected == 0), "{headers} {answer}");
    }
}

#[test]
fn limits_have_their_codes() {
    let texts = [DOGS; 3];
    let busy = infer(server(&["--max-waiting", "2"]), &request(&texts));
    assert!(busy.0 == 8 && busy.1.contains("too many sentences are waiting"), "{busy:?}");
    let late = infer(server(&["--timeout", "0.001"]), &request(&[DOGS; 500]));
    assert_eq!((late.0, late.1.as_str()), (4, "no answer within 0.001 seconds"));
    let large = infer(server(&["--max-body", "20"]), &request(&texts));
    assert_eq!((large.0, large.1.as_str()), (8, "expected at most 20 bytes in a request"));
    assert_eq!(infer(server(&[]), &request(&[&b"dog ".repeat(3000)])).0, 8);
}

#[test]
fn keys() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keys");
    std::fs::write(&file, "secret").unwrap();
    let client = server(&["--api-keys", file.to_str().unwrap()]);
    let code = |method: &str, headers: &str| client.grpc(method, headers, &framed(b"")).0;
    let key = "Authorization: Bearer secret";
    for method in ["ServerMetadata", "ModelMetadata", "RepositoryIndex", "ModelInfer", "Other"] {
        assert_eq!(code(method, "X-A: b"), 16, "{method}");
        assert_eq!(code(method, "Authorization: Bearer other"), 16, "{method}");
        assert_ne!(code(method, key), 16, "{method}");
    }
    for method in ["ServerLive", "ServerReady", "ModelReady"] {
        assert_eq!(code(method, "X-A: b"), 0, "{method}");
    }
}
