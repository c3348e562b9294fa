//! Graphs as models: tensors in, tensors out.

use crate::client::{Client, start};
use crate::damaged::Random;
use cognate::{Device, Engine, Export};
use cognate_runtime::{Options, Values};
use cognate_testing::bundled_checkpoint;
use ndarray::{Array2, ArrayD};
use serde_json::{Value, json};
use std::path::Path;

/// The shape of three tokens' states.
const SHAPE: [usize; 3] = [1, 3, 128];
const IDS: [i64; 3] = [8, 20, 0];

fn serve(folder: &Path) -> Client {
    let [encoder, decoder] = ["encoder", "decoder"].map(|name| {
        format!("multi30k-{name}={}", folder.join(name).with_extension("onnx").display())
    });
    Client { address: start(&["--model", &encoder, "--model", &decoder], &[]).unwrap() }
}

/// What the engine makes of the same file.
fn expected(folder: &Path) -> ArrayD<f32> {
    let loaded = Engine::Tract
        .open(Device::Cpu)
        .unwrap()
        .read_file(&folder.join("encoder.onnx"), &Options::default())
        .unwrap();
    let row =
        |numbers: [i64; 3]| Array2::from_shape_vec((1, 3), numbers.into()).unwrap().into_dyn();
    let inputs = Values::from_iter([("input_ids", row(IDS)), ("attention_mask", row([1, 1, 1]))]);
    loaded.session().run(&inputs).unwrap().get("encoder_hidden_states").unwrap().to_f32().unwrap()
}

fn tensor(name: &str, shape: &[usize], data: Value) -> Value {
    json!({ "name": name, "datatype": "INT64", "shape": shape, "data": data })
}

#[test]
fn graphs_take_and_give_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    Export::open(bundled_checkpoint()).unwrap().write(&out).unwrap();
    let (client, expected) = (serve(&out), expected(&out));
    let metadata = client.get("/v2/models/multi30k-decoder");
    assert_eq!(
        metadata["inputs"][0],
        json!({ "name": "input_ids", "datatype": "INT64", "shape": [-1, -1, -1] })
    );
    assert_eq!(
        metadata["outputs"][0],
        json!({ "name": "logits", "datatype": "FP32", "shape": [-1, -1, -1, 8000] })
    );
    assert_eq!(client.json("/v2/repository/index", &json!({})).as_array().unwrap().len(), 2);

    let path = "/v2/models/multi30k-encoder/infer";
    let inputs = || {
        [
            tensor("input_ids", &[1, 3], json!([IDS])),
            tensor("attention_mask", &[1, 3], json!([1, 1, 1])),
        ]
    };
    let found = client.json(
        path,
        &json!({ "inputs": inputs(), "outputs": [{ "name": "encoder_hidden_states" }] }),
    );
    let output = &found["outputs"][0];
    assert_eq!(
        (&output["datatype"], &output["shape"], &found["outputs"][1]),
        (&json!("FP32"), &json!(SHAPE), &Value::Null)
    );
    let numbers: Vec<_> = output["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap() as f32)
        .collect();
    assert_eq!(ArrayD::from_shape_vec(&SHAPE[..], numbers).unwrap(), expected);

    // The same as bytes.
    let ids: Vec<u8> = IDS.iter().flat_map(|id| id.to_le_bytes()).collect();
    let mut binary = inputs();
    binary[0] = json!({ "name": "input_ids", "datatype": "INT64", "shape": [1, 3], "parameters": { "binary_data_size": ids.len() } });
    let wanted =
        json!([{ "name": "encoder_hidden_states", "parameters": { "binary_data": true } }]);
    let (status, _, rest) =
        client.binary(path, &json!({ "inputs": binary, "outputs": wanted }), &ids);
    assert_eq!(
        (status, rest),
        (200, expected.iter().flat_map(|number| number.to_le_bytes()).collect())
    );

    let mut wrong = Vec::new();
    let [ids, mask] = inputs();
    for (inputs, status, message) in [
        (json!([ids]), 400, "inputs: expected attention_mask of INT64 [-1, -1], found none"),
        (
            json!([ids, mask, tensor("x", &[1], json!([1]))]),
            400,
            "inputs: expected input_ids, attention_mask, found x",
        ),
        (json!([ids, mask, mask]), 400, "inputs: attention_mask is given twice"),
        (
            json!([tensor("input_ids", &[3], json!(IDS)), mask]),
            400,
            "expected input_ids of INT64 [-1, -1], found input_ids of INT64 [3]",
        ),
        (
            json!([tensor("input_ids", &[1, 4], json!(IDS)), mask]),
            400,
            "input_ids: has the shape [1, 4], but 3 elements",
        ),
        (
            json!([tensor("input_ids", &[1, 1], json!(["a"])), mask]),
            400,
            "input_ids: expected integers, found \"a\"",
        ),
        (
            json!([tensor("input_ids", &[1, 3], json!([8, 20, 8000])), mask]),
            400,
            "multi30k-encoder: ",
        ),
        (json!([ids, tensor("attention_mask", &[1, 2], json!([1, 1]))]), 400, "multi30k-encoder: "),
        (
            json!([tensor("input_ids", &[1, 2049], json!(vec![8; 2049])), mask]),
            413,
            "expected at most 2048 tokens",
        ),
        (
            json!([{ "name": "input_ids", "datatype": "INT8", "shape": [1], "data": [1] }]),
            400,
            "input_ids: expected BYTES, FP32, INT64, found INT8",
        ),
    ] {
        let (found, answer) = client.post(
            path,
            "application/json",
            json!({ "inputs": inputs }).to_string().as_bytes(),
        );
        let text = String::from_utf8_lossy(&answer);
        let error = serde_json::from_slice::<Value>(&answer)
            .ok()
            .and_then(|answer| Some(answer["error"].as_str()?.to_owned()));
        if found != status || !error.is_some_and(|error| error.contains(message)) {
            wrong.push(format!("expected {status} {message}, found {found} {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let with_beams = json!({ "inputs": [ids, mask], "parameters": { "num_beams": 2 } }).to_string();
    let (status, answer) = client.post(path, "application/json", with_beams.as_bytes());
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        status == 400 && answer.contains("expected none for a graph, found num_beams"),
        "{status} {answer}"
    );
    let (good, mut random) = (json!({ "inputs": [ids, mask] }).to_string(), Random(5));
    for _ in 0..100 {
        let body = random.damage(good.clone().into());
        let (status, answer) = client.post(path, "application/json", &body);
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let has_form = answer["outputs"].is_array() || answer["error"].is_string();
        assert!([200, 400, 413].contains(&status) && has_form, "{status} {answer} {body:?}");
    }
    let (status, answer) = client.post(
        "/v2/models/multi30k-encoder/generate",
        "application/json",
        br#"{"text_input":"a"}"#,
    );
    assert!(status == 400 && String::from_utf8_lossy(&answer).contains("found a graph; use infer"));
}
