//! Randomly changed checkpoints: opening fails, or graphs can be built; never a panic.

use cognate_model::{Attentions, Config, Model};
use cognate_testing::{golden, golden_models, never_panics};
use std::fs;

#[test]
fn fuzz_config() {
    let seeds: Vec<_> = golden_models()
        .iter()
        .map(|name| fs::read(golden(name).join("config.json")).unwrap())
        .collect();
    never_panics("config", &seeds, 2000, |bytes| {
        // Files that are not UTF-8 fail when they are read.
        if let Ok(text) = std::str::from_utf8(bytes) {
            let _ = Config::from_json(text);
        }
    });
}

#[test]
fn fuzz_safetensors() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("marian").join("config.json"), folder.path().join("config.json")).unwrap();
    let whole = fs::read(golden("marian").join("model.safetensors")).unwrap();
    let (length, _) = whole.split_first_chunk::<8>().unwrap();
    let (header, data) = whole.split_at(8 + u64::from_le_bytes(*length) as usize);
    never_panics("safetensors", &[header.to_vec()], 200, |bytes| {
        fs::write(folder.path().join("model.safetensors"), [bytes, data].concat()).unwrap();
        if let Ok((model, _)) = Model::open_ignoring_unused(folder.path()) {
            model.step(Attentions::Omit).unwrap();
            assert!(
                model
                    .weights()
                    .iter()
                    .all(|(_, recipe)| recipe.values::<f32>().len() == recipe.elements())
            );
        }
    });
}

#[test]
fn fuzz_index() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("marian").join("config.json"), folder.path().join("config.json")).unwrap();
    fs::copy(golden("marian").join("model.safetensors"), folder.path().join("one.safetensors"))
        .unwrap();
    let index = br#"{"metadata": {"total_size": 1}, "weight_map": {"final_logits_bias": "one.safetensors", "model.shared.weight": "two.safetensors"}}"#;
    never_panics("index", &[index.to_vec()], 300, |bytes| {
        fs::write(folder.path().join("model.safetensors.index.json"), bytes).unwrap();
        let _ = Model::open(folder.path());
    });
}
