//! Checkpoints that store the same weights differently: element types, several files,
//! unused tensors.

use cognate_model::{Initialisation, Model, weights_file};
use cognate_testing::{golden, testdata};
use insta::assert_snapshot;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Name, element type, shape and bytes.
type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

/// The golden checkpoint without its weights, and its tensors.
fn parts() -> (TempDir, Vec<Tensor>) {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("marian").join("config.json"), folder.path().join("config.json")).unwrap();
    let file = fs::read(golden("marian").join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap().tensors().into_iter();
    let mut tensors: Vec<_> = tensors
        .map(|(name, tensor)| {
            (name, tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec())
        })
        .collect();
    tensors.sort();
    (folder, tensors)
}

fn write(path: &Path, tensors: &[Tensor]) {
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap())
    });
    fs::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Writes the index of files with the tensors that each contains.
fn write_index(folder: &Path, files: &[(&str, &[Tensor])]) {
    let map: BTreeMap<_, _> = files
        .iter()
        .flat_map(|(file, tensors)| tensors.iter().map(|tensor| (tensor.0.clone(), *file)))
        .collect();
    let index = serde_json::json!({ "metadata": { "total_size": 0 }, "weight_map": map });
    fs::write(folder.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

fn values(model: &Model) -> BTreeMap<String, Vec<f32>> {
    model.weights().iter().map(|(path, recipe)| (path.to_owned(), recipe.values())).collect()
}

fn error(folder: &Path) -> String {
    Model::open(folder)
        .unwrap_err()
        .to_string()
        .replace(&format!("{}/", folder.display()), "")
        .replace(&folder.display().to_string(), "DIR")
}

#[test]
fn half_precision_is_read() {
    let single = values(&Model::open(&golden("marian")).unwrap());
    let (folder, tensors) = parts();
    // The upper half of an f32 is the bf16 number below it.
    let upper = |bytes: &[u8]| bytes.chunks(4).flat_map(|quad| [quad[2], quad[3]]).collect();
    let half: Vec<Tensor> = tensors
        .iter()
        .map(|(name, _, shape, bytes)| (name.clone(), Dtype::BF16, shape.clone(), upper(bytes)))
        .collect();
    write(&folder.path().join("model.safetensors"), &half);
    for (path, found) in values(&Model::open(folder.path()).unwrap()) {
        // Sinusoids are computed, not read.
        let expected = single[&path].iter().map(|value| match path.contains("embed_positions") {
            true => *value,
            false => f32::from_bits(value.to_bits() & 0xffff_0000),
        });
        assert!(found.iter().copied().eq(expected), "{path}");
    }

    let mut mixed = tensors;
    let bias =
        mixed.iter_mut().find(|(name, ..)| name == "model.encoder.layers.0.fc1.bias").unwrap();
    (bias.1, bias.3) = (Dtype::F16, [0x01, 0x3c].repeat(64));
    write(&folder.path().join("model.safetensors"), &mixed);
    let found = values(&Model::open(folder.path()).unwrap());
    assert_eq!(found["encoder.layers.0.fc1.bias"], [1.000_976_6; 64]);
    assert_eq!(found["encoder.layers.0.fc2.bias"], single["encoder.layers.0.fc2.bias"]);
}

#[test]
fn stored_sinusoids_are_used_and_tied_tensors_compared() {
    let model = Model::open(&golden("marian")).unwrap();
    let table: Vec<f32> = model.weights().get("encoder.embed_positions.weight").unwrap().values();
    let shape = model.weights().get("encoder.embed_positions.weight").unwrap().shape().to_vec();
    // Rounded to nearest by adding half of the last place.
    let bf16 = |value: &f32| ((value.to_bits() + 0x8000) >> 16) as u16;
    let bf16_bytes: Vec<u8> = table.iter().flat_map(|value| bf16(value).to_le_bytes()).collect();
    let shared = parts().1.into_iter().find(|(name, ..)| name == "model.shared.weight").unwrap();
    let mut other = shared.3.clone();
    *other.last_mut().unwrap() ^= 1;
    let positions = "model.encoder.embed_positions.weight";
    let outcome = |name: &str, dtype, shape: &[usize], bytes: &[u8]| {
        let (folder, mut tensors) = parts();
        tensors.retain(|tensor| tensor.0 != name);
        tensors.push((name.into(), dtype, shape.to_vec(), bytes.to_vec()));
        write(&folder.path().join("model.safetensors"), &tensors);
        Model::open(folder.path())
            .map_err(|error| error.to_string().lines().last().unwrap().trim().to_owned())
    };
    let read = values(&outcome(positions, Dtype::BF16, &shape, &bf16_bytes).unwrap());
    let rounded: Vec<f32> =
        table.iter().map(|value| f32::from_bits(u32::from(bf16(value)) << 16)).collect();
    assert_eq!(read["encoder.embed_positions.weight"], rounded);
    assert_eq!(read["decoder.embed_positions.weight"], table);
    assert!(outcome("lm_head.weight", Dtype::F32, &shared.2, &shared.3).is_ok());
    assert_snapshot!(outcome("lm_head.weight", Dtype::F32, &shared.2, &other).unwrap_err(), @"lm_head.weight: differs from the tensor that it is tied to");
}

#[test]
fn several_files_are_one_checkpoint() {
    let (folder, tensors) = parts();
    let (first, second) = tensors.split_at(tensors.len() / 3);
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    write(&folder.path().join(names[0]), first);
    // A tensor is not read from a file other than the one in the index.
    let mut more = second.to_vec();
    more.push((first[0].0.clone(), first[0].1, first[0].2.clone(), vec![0; first[0].3.len()]));
    write(&folder.path().join(names[1]), &more);
    write_index(folder.path(), &[(names[1], second), (names[0], first)]);
    assert_eq!(
        weights_file(folder.path()).unwrap(),
        Some(folder.path().join("model.safetensors.index.json"))
    );
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(values(&model), values(&Model::open(&golden("marian")).unwrap()));
    let mut files: Vec<_> = model
        .weights()
        .iter()
        .filter_map(|(_, recipe)| recipe.place())
        .map(|place| place.file.to_owned())
        .collect();
    files.sort();
    files.dedup();
    assert_eq!(files, names.map(|name| folder.path().join(name)));
}

#[test]
fn a_checkpoint_that_is_not_whole_is_refused() {
    let (folder, tensors) = parts();
    let here = "here.safetensors";
    write(&folder.path().join(here), &tensors[2..]);
    fs::write(folder.path().join("short.safetensors"), [0; 9]).unwrap();
    write_index(
        folder.path(),
        &[
            (here, &tensors[..4]),
            ("gone.safetensors", &tensors[4..6]),
            ("../out.safetensors", &tensors[6..7]),
            ("short.safetensors", &tensors[7..8]),
        ],
    );
    assert_snapshot!(error(folder.path()), @r#"
    model.safetensors.index.json: the checkpoint is incomplete
      "../out.safetensors": expected the name of a file in the checkpoint's folder
      gone.safetensors: missing (2 of the tensors)
      final_logits_bias: missing in here.safetensors, where the index lists it
      model.decoder.layers.0.encoder_attn.k_proj.bias: missing in here.safetensors, where the index lists it
      short.safetensors: not a safetensors file (9 bytes): invalid JSON in header: EOF while parsing a value at line 1 column 0; is it complete?
    "#);
    fs::write(folder.path().join("model.safetensors.index.json"), "{}").unwrap();
    assert_snapshot!(error(folder.path()), @"model.safetensors.index.json: expected an index with an object weight_map of tensors and their files: missing field `weight_map` at line 1 column 2");

    let (folder, _) = parts();
    assert_eq!(weights_file(folder.path()).unwrap(), None);
    fs::write(folder.path().join("pytorch_model.bin.index.json"), "{}").unwrap();
    assert_snapshot!(error(folder.path()), @r#"DIR: the weights are in pytorch_model.bin.index.json, a pickle, which can run code and is never read; convert it with transformers: python -c "from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('DIR').save_pretrained('DIR')""#);
}

#[test]
fn unused_tensors_can_be_left_alone() {
    let (folder, mut tensors) = parts();
    tensors.push(("model.surplus".into(), Dtype::I64, vec![1], vec![0; 8]));
    write(&folder.path().join("model.safetensors"), &tensors);
    assert_snapshot!(error(folder.path()), @"
    model.safetensors: weights do not match config.json
      model.surplus: in the file, but not in the model of config.json
    ");
    let (model, unused) = Model::open_ignoring_unused(folder.path()).unwrap();
    assert_eq!(unused, ["model.surplus"]);
    assert_eq!(values(&model), values(&Model::open(&golden("marian")).unwrap()));

    tensors.retain(|(name, ..)| name != "model.shared.weight");
    write(&folder.path().join("model.safetensors"), &tensors);
    let error = Model::open_ignoring_unused(folder.path()).unwrap_err().to_string();
    assert!(
        error.ends_with("config.json\n  model.shared.weight: missing, expected [120, 32]"),
        "{error}"
    );
}

/// The configuration of every variant reads back equal, and weights have the names of their paths.
#[test]
fn choices_are_written_and_read() {
    for case in ["additive", "alibi", "dot", "learned", "pre-rms-gated", "relative", "rotary"] {
        let model = Model::open(&testdata("research").join(case)).unwrap();
        let fresh = Model::initial(model.config().clone(), Initialisation::Glorot, 1).unwrap();
        assert_eq!(fresh.config(), model.config(), "{case}");
        let json =
            |model: &Model| serde_json::from_str::<serde_json::Value>(model.config_json()).unwrap();
        assert_eq!(json(&fresh), json(&model), "{case}");
        let paths = |model: &Model| {
            model
                .weights()
                .iter()
                .map(|(path, recipe)| (path.to_owned(), recipe.shape().to_vec()))
                .collect::<Vec<_>>()
        };
        assert_eq!(paths(&fresh), paths(&model), "{case}");
    }
}
