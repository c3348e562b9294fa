//! Graphs beside a checkpoint, which point into its weights.

use crate::{SENTENCES, checkpoint, edit, run, with_dir};
use cognate_folder::open_exported;
use cognate_model::Layout;
use cognate_runtime::{Device, Engine};
use cognate_testing::{bundled_checkpoint, python};
use insta::assert_snapshot;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use tempfile::TempDir;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Names and contents of a folder's files.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

/// The account in a folder, with the time at which the weights were written left out.
fn account(folder: &Path) -> serde_json::Value {
    let mut account: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("cognate.json")).unwrap()).unwrap();
    for stamp in
        account["source"]["checkpoint_in_place"]["files"].as_object_mut().unwrap().values_mut()
    {
        assert!(stamp["modified"].take().as_u64().unwrap() > 1_700_000_000);
    }
    account
}

/// The bundled checkpoint with its weights in two files.
fn sharded() -> TempDir {
    let folder = checkpoint(false);
    fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let file = fs::read(bundled_checkpoint().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let mut map = serde_json::Map::new();
    for (part, name) in ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
        .into_iter()
        .enumerate()
    {
        let views: Vec<_> = tensors
            .tensors()
            .into_iter()
            .filter(|(tensor, _)| tensor.contains("decoder") == (part == 0))
            .collect();
        map.extend(views.iter().map(|(tensor, _)| (tensor.clone(), name.into())));
        fs::write(folder.path().join(name), safetensors::serialize(views, None).unwrap()).unwrap();
    }
    let index = serde_json::json!({ "metadata": {}, "weight_map": map });
    fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    folder
}

#[test]
fn a_checkpoint_is_exported_in_place_and_translates_as_before() {
    let single = checkpoint(true);
    let before = files(single.path());
    let said = run(&["export", text(single.path()), "--in-place"]).ok();
    let (first, rest) = said.split_once('\n').unwrap();
    assert!(first.contains(" in place in "), "{first}");
    assert_snapshot!(with_dir(rest, single.path()).lines().rev().take(2).collect::<Vec<_>>().join("\n"), @"
    weights: model.safetensors, 9.4 MB; not read and not verified; run `cognate verify DIR`
      total                      240 kB
    ");
    let after = files(single.path());
    assert!(before.iter().all(|(name, bytes)| after[name] == *bytes));
    let new: Vec<_> =
        after.keys().filter(|name| !before.contains_key(*name)).map(String::as_str).collect();
    assert_eq!(new, ["cognate.json", "decoder.onnx", "encoder.onnx", "generated.onnx_data"]);
    // The hash is what BLAKE3's own Python package gives for the header.
    assert_snapshot!(account(single.path())["source"]["checkpoint_in_place"]["files"], @r#"{"model.safetensors":{"bytes":9447120,"modified":null,"header_blake3":"6d5a10b882a7415181664d40cd205211a1391448c9027a2ed60459dc358d2d0c"}}"#);

    let shards = sharded();
    run(&["export", text(shards.path()), "--in-place"]).ok();
    let stamps = account(shards.path())["source"]["checkpoint_in_place"]["files"].take();
    assert_eq!(stamps.as_object().unwrap().len(), 2);

    let folder = tempfile::tempdir().unwrap();
    let packed = folder.path().join("packed");
    run(&["export", text(shards.path()), text(&packed), "--no-verify"]).ok();
    let hashes: serde_json::Value =
        serde_json::from_slice(&fs::read(packed.join("cognate.json")).unwrap()).unwrap();
    assert_eq!(hashes["source"]["checkpoint"]["weights_blake3"].as_object().unwrap().len(), 2);
    assert!(
        run(&["show", text(&packed)])
            .ok()
            .contains("model-00002-of-00002.safetensors with the BLAKE3 hash ")
    );

    let engines = [Engine::Tract, Engine::Reference, Engine::Ort].into_iter().filter(|engine| {
        match engine.open(Device::Cpu) {
            Ok(_) => true,
            Err(error) => {
                cognate_testing::skip(&error.to_string());
                false
            }
        }
    });
    for engine in engines {
        let translated = |model: &Path| {
            let engine = engine.to_string();
            run(&[
                "translate",
                "--engine",
                &engine,
                "--model",
                text(model),
                SENTENCES[0],
                SENTENCES[1],
            ])
            .ok()
        };
        let expected = translated(&bundled_checkpoint());
        assert_eq!(translated(single.path()), expected, "{engine}");
        assert_eq!(translated(shards.path()), expected, "{engine}, two files");
    }
    let verified = run(&["verify", text(shards.path())]).ok();
    assert!(
        verified.contains("tract") && verified.contains("passed") && !verified.contains("FAILED"),
        "{verified}"
    );
    let shown = run(&["show", text(shards.path())]).ok();
    assert_snapshot!(shown.lines().skip(1).take(3).collect::<Vec<_>>().join("\n").replace(&folder_name(&shards), "NAME"), @"
      checkpoint   NAME, in place
        model-00001-of-00002.safetensors, 3.2 MB
        model-00002-of-00002.safetensors, 6.3 MB
    ");
    assert!(shown.contains("verification passed"), "{shown}");
    let graph = |model: &Path| run(&["show", text(model), "--graph", "step"]).ok();
    assert_eq!(graph(shards.path()), graph(&bundled_checkpoint()));
}

fn folder_name(folder: &TempDir) -> String {
    folder.path().file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn onnxs_own_checker_accepts_graphs_in_place() {
    let Some(python) = python() else { return };
    for folder in [checkpoint(true), sharded()] {
        run(&["export", text(folder.path()), "--in-place", "--attentions"]).ok();
        for file in ["encoder.onnx", "decoder.onnx"] {
            let check = "import onnx, sys; onnx.checker.check_model(sys.argv[1], full_check=True)";
            let output = std::process::Command::new(&python)
                .args(["-c", check])
                .arg(folder.path().join(file))
                .output()
                .unwrap();
            assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn an_export_in_place_is_made_again_and_noticed_when_stale() {
    let folder = checkpoint(true);
    let path = text(folder.path());
    let error = |args: &[&str]| with_dir(&run(args).failed(1), folder.path());
    run(&["export", path, "--in-place"]).ok();
    let first = files(folder.path());
    assert_snapshot!(error(&["export", path, "--in-place"]), @"cognate: error: DIR/encoder.onnx: exists already; pass --force to replace it");
    run(&["export", path, "--in-place", "--force"]).ok();
    assert!(files(folder.path()) == first);

    // The same weights in other places.
    let weights = folder.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let views: Vec<_> = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let note = std::collections::HashMap::from([(
        "format".to_owned(),
        "pt, and a longer header".to_owned(),
    )]);
    fs::write(&weights, safetensors::serialize(views, Some(note)).unwrap()).unwrap();
    assert!(
        run(&["show", path]).ok().contains("model.safetensors, 9.4 MB, changed since the export\n")
    );
    let message = error(&["translate", "--engine", "tract", "--model", path, "Hello."]);
    assert_snapshot!(message, @"cognate: error: DIR/model.safetensors: was replaced since the export; run `cognate export DIR --in-place --force`");
    assert_eq!(error(&["verify", path]), message);
    run(&["export", path, "--in-place", "--force"]).ok();
    let translated =
        |model| run(&["translate", "--engine", "tract", "--model", model, SENTENCES[0]]).ok();
    assert_eq!(translated(path), translated(text(&bundled_checkpoint())));
}

#[test]
fn what_cannot_be_in_place_is_refused() {
    let folder = checkpoint(true);
    let path = text(folder.path());
    let error = |args: &[&str]| with_dir(&run(args).failed(1), folder.path());
    assert_snapshot!(error(&["export", "preset:tiny", "--in-place"]), @"cognate: error: --in-place: preset:tiny has no weights file for graphs to point into; leave it out and name a folder to write");
    assert_snapshot!(error(&["export", path, "--in-place", "--precision", "f16"]), @"cognate: error: --precision: expected f32, the type in which graphs in place read the weights, found f16; write a folder instead");
    assert_snapshot!(error(&["export", path, "--in-place", "--part", "encoder"]), @"cognate: error: --in-place: the checkpoint also has a decoder, which config.json would still describe; write the encoder to a folder of its own");
    assert_snapshot!(run(&["export", path, "out", "--in-place"]).failed(2).lines().next().unwrap(), @"error: the argument '[OUT]' cannot be used with '--in-place'");
    assert_snapshot!(run(&["export", path]).failed(2).lines().take(2).collect::<Vec<_>>().join("\n"), @"
    error: the following required arguments were not provided:
      <OUT>
    ");

    // Somebody else's files.
    for file in ["encoder.onnx", "generated.onnx_data", "cognate.json"] {
        fs::write(folder.path().join(file), "{\"format_version\": 1}").unwrap();
        let message = error(&["export", path, "--in-place", "--force"]);
        assert_eq!(
            message,
            format!(
                "cognate: error: DIR/{file}: not written by an export in place; move it away, or export to a folder of its own"
            )
        );
        fs::remove_file(folder.path().join(file)).unwrap();
    }

    // One weight in half precision.
    let weights = folder.path().join("model.safetensors");
    let bytes = fs::read(&weights).unwrap();
    let mut views = SafeTensors::deserialize(&bytes).unwrap().tensors();
    let half = vec![0; 2 * 256];
    let bias =
        views.iter_mut().find(|(name, _)| name == "model.encoder.layers.0.fc1.bias").unwrap();
    bias.1 = TensorView::new(Dtype::BF16, vec![256], &half).unwrap();
    let mixed = safetensors::serialize(views, None).unwrap();
    fs::write(&weights, mixed).unwrap();
    let before = files(folder.path());
    assert_snapshot!(error(&["export", path, "--in-place"]), @"
    cognate: error: DIR: graphs cannot point at its weights; export to a new folder without --in-place
      encoder.layers.0.fc1.bias: expected f32, stored as bf16
    ");
    assert!(files(folder.path()) == before);
    // It is converted where the weights are copied.
    let out = tempfile::tempdir().unwrap();
    run(&["export", path, text(out.path()), "--force", "--no-verify"]).ok();
    let model = open_exported(out.path(), Layout::Cognate).unwrap();
    assert_eq!(
        model.weights().get("encoder.layers.0.fc1.bias").unwrap().values::<f32>(),
        [0.0; 256]
    );
}

#[cfg(unix)]
#[test]
fn a_checkpoint_beyond_four_gibibytes() {
    let folder = checkpoint(false);
    // One large table, and all the others behind it: a file of almost nothing but a hole.
    edit(&folder, "config.json", "vocab_size\": 8000", "vocab_size\": 9000000");
    let bundled = fs::read(bundled_checkpoint().join("model.safetensors")).unwrap();
    let mut tensors = SafeTensors::deserialize(&bundled).unwrap().tensors();
    tensors.sort_by_key(|(name, _)| (name != "model.shared.weight", name.clone()));
    let (mut header, mut places, mut end) = (serde_json::Map::new(), BTreeMap::new(), 0u64);
    for (name, tensor) in &tensors {
        let shape: Vec<u64> = tensor
            .shape()
            .iter()
            .map(|&size| if size == 8000 { 9_000_000 } else { size as u64 })
            .collect();
        let next = end + 4 * shape.iter().product::<u64>();
        header.insert(
            name.clone(),
            serde_json::json!({ "dtype": "F32", "shape": shape, "data_offsets": [end, next] }),
        );
        places.insert(name.as_str(), end..next);
        end = next;
    }
    let header = serde_json::to_vec(&header).unwrap();
    let start = 8 + header.len() as u64;
    let mut file = fs::File::create(folder.path().join("model.safetensors")).unwrap();
    file.write_all(&[&(header.len() as u64).to_le_bytes(), &*header].concat()).unwrap();
    file.set_len(start + end).unwrap();
    let mut put = |place: u64, value: f32| {
        file.seek(SeekFrom::Start(start + place)).unwrap();
        file.write_all(&value.to_le_bytes()).unwrap();
    };
    let bias = &places["model.decoder.layers.3.fc2.bias"];
    assert!(bias.start > 1 << 32);
    put(bias.start, 1.5);
    put(bias.end - 4, -2.5);
    put(places["model.shared.weight"].end - 4, 3.5);
    drop(file);

    run(&["export", text(folder.path()), "--in-place"]).ok();
    let shown = run(&["show", text(&folder.path().join("decoder.onnx"))]).ok();
    let line = format!(
        "  decoder.layers.3.fc2.bias: f32 [128] in model.safetensors at {}\n",
        start + bias.start
    );
    assert!(shown.contains(&line), "{shown}");

    let model = open_exported(folder.path(), Layout::Cognate).unwrap();
    let read = |path: &str, first: usize, count: usize| {
        let mut values = vec![0.0; count];
        model.weights().get(path).unwrap().read(first, &mut values);
        values
    };
    let values = read("decoder.layers.3.fc2.bias", 0, 128);
    assert_eq!((values[0], values[127], values.iter().sum::<f32>()), (1.5, -2.5, -1.0));
    assert_eq!(read("shared.weight", 128 * 9_000_000 - 2, 2), [0.0, 3.5]);
}

/// Nothing of the weights is read by an export in place: their hash is that of the first
/// verification.
#[test]
fn weights_that_change_after_a_verification_are_found() {
    let folder = checkpoint(true);
    let (model, weights) = (text(folder.path()), folder.path().join("model.safetensors"));
    run(&["export", model, "--in-place"]).ok();
    let good = fs::read(&weights).unwrap();
    let hash = blake3::hash(&good).to_string();
    let first = run(&["verify", model]).ok();
    assert!(first.contains("files: 3 of 3 unchanged by BLAKE3\n"), "{first}");
    assert!(
        first.contains(&format!("  model.safetensors: {hash}, first verification\n")),
        "{first}"
    );
    let mut damaged = good.clone();
    let middle = good.len() / 2;
    damaged[middle..middle + 4].copy_from_slice(&[0x3c; 4]);
    fs::write(&weights, damaged).unwrap();
    let ended = run(&["verify", model]);
    assert_eq!(ended.status, Some(1), "{}", ended.out);
    assert!(ended.err.contains("model.safetensors: changed since the export"), "{}", ended.err);
    fs::write(&weights, good).unwrap();
    let second = run(&["verify", model]).ok();
    assert!(
        second.contains("files: 4 of 4 unchanged by BLAKE3\n")
            && !second.contains("first verification"),
        "{second}"
    );
}
