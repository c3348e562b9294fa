//! Configurations that transformers 5 saves.

use cognate_model::{Config, Model, OutputProjection};
use cognate_testing::testdata;
use serde_json::{Map, Value, json};
use std::fs;

/// `testdata/golden/transformers-5.json`.
fn saved() -> Map<String, Value> {
    serde_json::from_slice(&fs::read(testdata("golden/transformers-5.json")).unwrap()).unwrap()
}

/// The model of the folder `name`, with another `config.json`.
fn with_config(name: &str, config: &Value) -> Model {
    let folder = tempfile::tempdir().unwrap();
    let weights = testdata(name).join("model.safetensors");
    fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    Model::open(folder.path()).unwrap()
}

#[test]
fn transformers_5_saves_the_same_models() {
    for (name, config) in saved() {
        let mut before = Model::open(&testdata(&name)).unwrap().config().clone();
        let after = with_config(&name, &config);
        // transformers 5 scales no mT5.
        if name == "golden/strange/mt5-tied" {
            before.scale_output = false;
        }
        assert_eq!(after.config(), &before, "{name}");
        assert_eq!(&Config::from_json(after.config_json()).unwrap(), &before, "{name}");
    }
}

#[test]
fn rotary_angles_are_those_of_the_file() {
    let mut config = saved()["decoders/llama-llama3"].clone();
    let read = |config: &Value| Config::from_json(&config.to_string());
    let scaled = read(&config).unwrap();

    // The older names have precedence, and the base within an object.
    config["rope_scaling"] = json!({ "type": "linear", "factor": 2.0 });
    config["rope_theta"] = json!(500.0);
    let older = read(&config).unwrap();
    assert_ne!(older.rotary_scaling, scaled.rotary_scaling);
    assert_eq!(older.rotary_base, 500.0);
    config["rope_scaling"] = Value::Null;
    assert_eq!(read(&config).unwrap(), scaled);

    config["rope_scaling"] = json!({});
    assert_eq!(read(&config).unwrap(), scaled);

    config["rope_parameters"]["partial_rotary_factor"] = json!(0.5);
    insta::assert_snapshot!(read(&config).unwrap_err(), @"config.json: partial_rotary_factor 0.5 is not supported; expected 1");
    config["rope_parameters"] = json!({ "full_attention": { "rope_type": "default" } });
    insta::assert_snapshot!(read(&config).unwrap_err(), @"config.json: rope_parameters: full_attention has values of its own, which is not supported; expected the same for all layers");
    config["rope_parameters"] = json!({ "rope_theta": "many", "rope_type": "default" });
    insta::assert_snapshot!(read(&config).unwrap_err(), @r#"config.json: rope_parameters: rope_theta: expected a positive number, found "many""#);
    config["rope_parameters"] = json!([1]);
    insta::assert_snapshot!(read(&config).unwrap_err(), @"config.json: rope_parameters [1] is not supported; expected null, or a rope_type of default, linear, dynamic, llama3, yarn");
}

#[test]
fn a_stored_head_is_not_tied() {
    let config = &saved()["golden/mt5"];
    assert_eq!(config["tie_word_embeddings"], true);
    assert_eq!(with_config("golden/mt5", config).config().output, OutputProjection::Own);
    // Older versions tie it, and lose what is stored.
    let mut older = config.clone();
    older["transformers_version"] = json!("4.57.6");
    let folder = tempfile::tempdir().unwrap();
    let weights = testdata("golden/mt5/model.safetensors");
    fs::copy(weights, folder.path().join("model.safetensors")).unwrap();
    fs::write(folder.path().join("config.json"), older.to_string()).unwrap();
    let refused = Model::open(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("lm_head.weight: differs from the tensor that it is tied to"));
}
