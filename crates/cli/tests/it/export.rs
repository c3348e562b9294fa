//! Folders that are exported, and what becomes of them.

use crate::{SENTENCES, run, with_dir};
use cognate_testing::bundled_checkpoint;
use insta::assert_snapshot;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Names and contents of a folder's files.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(folder).unwrap().map(file).collect()
}

#[test]
fn a_checkpoint_is_exported_and_translates_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parent/out");
    let out = path.to_str().unwrap();
    let bundled = bundled_checkpoint();
    let said = run(&["export", "testdata/multi30k-en-de", out, "--no-verify"]).ok();
    assert!(said.contains("weights.onnx_data") && said.contains("total"), "{said}");

    let written = files(&path);
    let names: Vec<_> = written.keys().map(String::as_str).collect();
    assert_snapshot!(names.join("\n"), @"
    cognate.json
    config.json
    decoder.onnx
    encoder.onnx
    generation_config.json
    special_tokens_map.json
    tokenizer.json
    tokenizer_config.json
    weights.onnx_data
    ");
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ] {
        assert_eq!(written[name], fs::read(bundled.join(name)).unwrap(), "{name}");
    }
    // The hash is what BLAKE3's own Python package gives.
    assert_snapshot!("cognate_json", String::from_utf8(written["cognate.json"].clone()).unwrap());

    // The same again gives the same bytes.
    run(&["export", "testdata/multi30k-en-de", out, "--no-verify", "--force"]).ok();
    assert!(files(&path) == written);

    let translated = |model| {
        run(&["translate", "--engine", "tract", "--model", model, SENTENCES[0], SENTENCES[1]]).ok()
    };
    assert_eq!(translated(out), translated(bundled.to_str().unwrap()));
    committed("multi30k-en-de", &written);

    // A model without a tokenizer takes the place of one with.
    run(&["export", "preset:tiny", out, "--no-verify", "--force"]).ok();
    assert!(!path.join("tokenizer.json").exists());
}

/// The graphs under `onnx/` are those of today's sources.
fn committed(name: &str, written: &BTreeMap<String, Vec<u8>>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../onnx").join(name);
    for file in ["encoder.onnx", "decoder.onnx"] {
        assert!(
            fs::read(folder.join(file)).unwrap() == written[file],
            "onnx/{name}/{file} is not up to date: run `cargo xtask export`"
        );
    }
}

#[test]
fn an_export_is_verified_and_keeps_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    let said = run(&["export", "testdata/multi30k-en-de", out]).ok();
    assert!(said.contains("tract") && said.contains("passed"), "{said}");
    let account = |path: &Path| -> serde_json::Value {
        serde_json::from_slice(&files(path)["cognate.json"]).unwrap()
    };
    let report = account(&path)["verification"].clone();
    assert!(report.is_object(), "{report}");
    run(&["verify", out]).ok();
    assert_eq!(
        account(&path)["verification"],
        report,
        "read back from the folder, the weights are the same"
    );
    let shown = run(&["show", out]).ok();
    assert!(shown.contains("verification passed"), "{shown}");

    // One wrong weight is found.
    let weights = path.join("weights.onnx_data");
    let mut bytes = fs::read(&weights).unwrap();
    bytes[4_227_072..4_227_076].copy_from_slice(&10f32.to_le_bytes());
    fs::write(&weights, bytes).unwrap();
    let ended = run(&["verify", out, "--checkpoint", "testdata/multi30k-en-de"]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    assert!(ended.out.contains("FAILED"), "{}", ended.out);
    assert!(run(&["show", out]).ok().contains("verification FAILED"));
}

/// The hashes of the graphs and weights in a folder, as `cognate.json` has them.
fn hashes(folder: &Path) -> BTreeMap<String, String> {
    let account: serde_json::Value =
        serde_json::from_slice(&fs::read(folder.join("cognate.json")).unwrap()).unwrap();
    let files = account["files"].as_object().unwrap();
    files
        .iter()
        .map(|(file, account)| (file.clone(), account["blake3"].as_str().unwrap().to_owned()))
        .collect()
}

/// The reference reads the weights that engines read: only hashes tell that they are not those of
/// the export.
#[test]
fn damage_is_found_without_the_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let export = |name: &str, more: &[&str]| {
        let path = folder.path().join(name);
        run(&[&["export", "preset:tiny", path.to_str().unwrap(), "--no-verify"], more].concat())
            .ok();
        path
    };
    let exports = [
        (export("cognate", &[]), 3),
        (export("hf", &["--layout", "hf"]), 4),
        (export("f16", &["--precision", "f16"]), 3),
        (export("ort", &["--target", "ort"]), 3),
    ];
    for (path, n_files) in exports {
        let hashes = hashes(&path);
        assert_eq!(hashes.len(), n_files, "{hashes:?}");
        for (index, (file, hash)) in hashes.into_iter().enumerate() {
            let (path, good) = (path.join(&file), fs::read(path.join(&file)).unwrap());
            assert_eq!(blake3::hash(&good).to_string(), hash, "{file}");
            // Every other file is overwritten, the others are too short.
            let mut damaged = good.clone();
            let middle = good.len() / 2;
            match index % 2 {
                0 => damaged[middle..middle + 4].copy_from_slice(&[0x3c; 4]),
                _ => damaged.truncate(good.len() - 1),
            }
            fs::write(&path, damaged).unwrap();
            let ended = run(&["verify", folder_of(&path, &file)]);
            assert_eq!(ended.status, Some(1), "{file}: {}", ended.out);
            let changed = format!("{}: changed since the export", path.display());
            assert!(ended.err.contains(&changed), "{}", ended.err);
            let unchanged = format!("files: {} of {n_files} unchanged by BLAKE3", n_files - 1);
            assert!(ended.out.contains(&unchanged), "{}", ended.out);
            assert!(ended.out.contains("  FAILED"), "{}", ended.out);
            fs::write(&path, good).unwrap();
        }
    }
}

/// The folder in which `path` is called `file`.
fn folder_of<'p>(path: &'p Path, file: &str) -> &'p str {
    path.ancestors().nth(file.split('/').count()).unwrap().to_str().unwrap()
}

/// Exports of earlier versions have no hashes.
#[test]
fn an_export_without_hashes_is_verified_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    run(&["export", cognate_testing::golden("bart").to_str().unwrap(), out, "--no-verify"]).ok();
    assert!(run(&["verify", out]).ok().contains("\nfiles: 3 of 3 unchanged by BLAKE3\n"));
    let file = path.join("cognate.json");
    let mut account: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let files = account.as_object_mut().unwrap().remove("files").unwrap();
    fs::write(&file, account.to_string()).unwrap();
    let said = run(&["verify", out]).ok();
    assert!(said.contains("\nfiles: not checked, because the export has no hashes\n"), "{said}");

    // Hashes may be anybody's: they name no file of another folder.
    for (name, stranger) in [
        ("../weights", files["encoder.onnx"].clone()),
        ("/etc/passwd", files["encoder.onnx"].clone()),
    ] {
        account["files"] = serde_json::json!({ name: stranger });
        fs::write(&file, account.to_string()).unwrap();
        let error = with_dir(&run(&["verify", out]).failed(1), folder.path());
        assert_eq!(
            error,
            format!(
                "cognate: error: DIR/out/cognate.json: files: {name:?} is not a file of this folder"
            )
        );
    }
}

#[test]
fn presets_are_exported_with_a_seed() {
    let folder = tempfile::tempdir().unwrap();
    let export = |name: &str, more: &[&str]| {
        let path = folder.path().join(name);
        run(&[&["export", "preset:tiny", path.to_str().unwrap(), "--no-verify"], more].concat())
            .ok();
        files(&path)
    };
    let (default, first, second) = (
        export("0", &[]),
        export("1", &["--seed", "1"]),
        export("2", &["--seed", "2", "--attentions"]),
    );
    assert!(default == first);
    committed("tiny", &first);
    assert!(first["weights.onnx_data"] != second["weights.onnx_data"]);
    assert_snapshot!(String::from_utf8_lossy(&first["generation_config.json"]), @r#"
    {
      "decoder_start_token_id": 2,
      "eos_token_id": 0,
      "pad_token_id": 2
    }
    "#);
    let text = |files: &BTreeMap<String, Vec<u8>>| {
        String::from_utf8(files["cognate.json"].clone()).unwrap()
    };
    let source = |files| {
        serde_json::from_str::<serde_json::Value>(&text(files)).unwrap()["source"].to_string()
    };
    assert_snapshot!(source(&second), @r#"{"preset":{"name":"tiny","seed":2}}"#);
    let listing = run(&["show", folder.path().join("2/decoder.onnx").to_str().unwrap()]).ok();
    assert!(
        listing.contains("  cross_attentions.3: f32 [batch, beams, 4, tgt, src]\n"),
        "{listing}"
    );
}

#[test]
fn a_checkpoint_without_a_tokenizer_is_exported_with_a_warning() {
    let (checkpoint, out) = (crate::checkpoint(true), tempfile::tempdir().unwrap());
    fs::remove_file(checkpoint.path().join("tokenizer.json")).unwrap();
    let args = [
        "export",
        checkpoint.path().to_str().unwrap(),
        out.path().to_str().unwrap(),
        "--force",
        "--no-verify",
    ];
    let ended = run(&args);
    assert_snapshot!(with_dir(&ended.err, checkpoint.path()), @"cognate: warning: DIR/tokenizer.json: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt; without it `cognate translate` cannot use the export");
    ended.ok();
}
