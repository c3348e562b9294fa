//! Exports in half precision.

use crate::{SENTENCES, run};
use cognate_testing::bundled_checkpoint;
use insta::assert_snapshot;
use std::fs;

#[test]
fn a_checkpoint_is_exported_in_f16_and_translates_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    let said = run(&["export", "testdata/multi30k-en-de", out, "--precision", "f16"]).ok();
    assert!(
        said.contains("tract") && said.contains("passed") && !said.contains("FAILED"),
        "{said}"
    );
    assert!(said.contains("bound 2e-2") && said.contains("greedy steps"), "{said}");

    // Half of the 9.4 MB of the checkpoint.
    let bytes = fs::metadata(path.join("weights.onnx_data")).unwrap().len();
    assert!((4_700_000..4_900_000).contains(&bytes), "{bytes}");
    let account: serde_json::Value =
        serde_json::from_slice(&fs::read(path.join("cognate.json")).unwrap()).unwrap();
    assert_eq!(account["precision"], "f16");
    assert_eq!(account["kept_in_f32"][0]["why"], "mask");
    assert_eq!(account["verification"]["tolerance"], 0.02);
    // Of sentences that it was not tuned on, those of the verification.
    let calibration = &account["calibration"];
    assert_eq!(calibration["caution"], "nothing");
    assert!(said.contains("  nothing in f32 for precision: "), "{said}");
    let [tuned, held_out] =
        ["tuned", "held_out"].map(|name| calibration[name]["steps"].as_u64().unwrap());
    assert!(tuned > 20 && held_out > 20, "{calibration}");
    assert_eq!(account["verification"]["runtimes"][0]["steps"]["steps"], held_out);
    assert_eq!(account["quality"]["sentences"], 20);

    let shown = run(&["show", out]).ok();
    let kept: Vec<_> = shown
        .lines()
        .skip_while(|line| !line.contains("kept in f32"))
        .take_while(|line| !line.contains("parameters"))
        .collect();
    // Magnitudes depend on the run.
    let kept: Vec<_> = kept.iter().map(|line| line.split(", up to").next().unwrap()).collect();
    assert_snapshot!(kept.join("\n"), @"
      kept in f32
        encoder: padding_mask/Mul: mask
        encoder: encoder.layers.{l}.self_attn/Add x 4: mask
        decoder: causal_mask/Where: mask
        decoder: padding_mask/Mul: mask
        decoder: decoder.layers.{l}.self_attn/Add x 4: mask
        decoder: decoder.layers.{l}.encoder_attn/Add x 4: mask
        encoder: encoder.layers.{l}.self_attn/Softmax x 4: softmax
        decoder: decoder.layers.{l}.self_attn/Softmax x 4: softmax
        decoder: decoder.layers.{l}.encoder_attn/Softmax x 4: softmax
        encoder: encoder.layers.{l}.self_attn_layer_norm/LayerNormalization x 4: normalisation
        encoder: encoder.layers.{l}.final_layer_norm/LayerNormalization x 4: normalisation
        decoder: decoder.layers.{l}.self_attn_layer_norm/LayerNormalization x 4: normalisation
        decoder: decoder.layers.{l}.encoder_attn_layer_norm/LayerNormalization x 4: normalisation
        decoder: decoder.layers.{l}.final_layer_norm/LayerNormalization x 4: normalisation
    ");
    let decoder = run(&["show", path.join("decoder.onnx").to_str().unwrap()]).ok();
    assert!(decoder.contains("  past.0.key: f16 [batch, beams, 4, past, 32]\n"), "{decoder}");
    assert!(decoder.contains("  logits: f32 [batch, beams, tgt, 8000]\n"), "{decoder}");

    // The folder's own weights, rounded already, are closer.
    let verified = run(&["verify", out]).ok();
    assert!(verified.contains("bound 2e-2") && !verified.contains("FAILED"), "{verified}");
    let translated = |model: &str, beams: &str| {
        run(&[
            "translate",
            "--engine",
            "tract",
            "--beams",
            beams,
            "--model",
            model,
            SENTENCES[0],
            SENTENCES[1],
        ])
        .ok()
    };
    for beams in ["1", "4"] {
        assert_eq!(
            translated(out, beams),
            translated(bundled_checkpoint().to_str().unwrap(), beams)
        );
    }
}

#[test]
fn the_layout_of_hugging_face_in_f16_passes_f32_from_step_to_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    let said =
        run(&["export", "testdata/multi30k-en-de", out, "--precision", "f16", "--layout", "hf"])
            .ok();
    assert!(
        said.contains("bound 2e-2") && said.contains("greedy steps") && !said.contains("FAILED"),
        "{said}"
    );
    // Half of the bytes that the decoder's 1,872,832 weights have in f32, and the sinusoids of 512
    // positions.
    let bytes = fs::metadata(path.join("onnx/decoder_model_merged.onnx_data")).unwrap().len();
    assert!((3_700_000..3_800_000).contains(&bytes), "{bytes}");
    let shown = run(&["show", path.join("onnx/decoder_model_merged.onnx").to_str().unwrap()]).ok();
    for past in [
        "past_key_values.0.decoder.key",
        "past_key_values.3.encoder.value",
        "present.0.decoder.key",
    ] {
        assert!(shown.contains(&format!("  {past}: f32 [")), "{past}\n{shown}");
    }
    let translated = |model: &str| {
        run(&["translate", "--engine", "tract", "--model", model, SENTENCES[0], SENTENCES[1]]).ok()
    };
    assert_eq!(translated(out), translated(bundled_checkpoint().to_str().unwrap()));
}
