//! Readable accounts.

use crate::{run, with_dir};
use insta::assert_snapshot;

#[test]
fn a_checkpoint() {
    assert_snapshot!("checkpoint", run(&["show", "testdata/multi30k-en-de"]).ok());
}

#[test]
fn a_preset() {
    let shown = run(&["show", "preset:base"]).ok();
    assert_snapshot!(shown.lines().take(11).collect::<Vec<_>>().join("\n"), @"
    preset:base
      family       cognate
      d_model      512
      encoder      6 layers, 8 heads of 64, d_ff 2048
      decoder      6 layers, 8 heads of 64, d_ff 2048
      feed-forward relu
      normalised   mean and variance, after each sublayer
      vocabulary   37,000 tokens, one table for source, target and output, multiplied by √512
      positions    512, sinusoidal, sines and cosines alternating
      tokens       2 starts, 0 ends, 2 pads
      parameters   63,082,496, 252 MB in f32
    ");
}

#[test]
fn an_encoder_alone() {
    let shown = run(&["show", "testdata/encoders/bert-text"]).ok();
    assert_snapshot!(shown.lines().take(4).collect::<Vec<_>>().join("\n"), @"
    testdata/encoders/bert-text
      family       bert
      d_model      16
      encoder      2 layers, 2 heads of 8, d_ff 24
    ");
    assert!(shown.contains("graph model: "), "{shown}");
    for args in [&["--graph", "encode"][..], &["--format", "dot"], &["--html", "-"]] {
        let drawn = run(&[&["show", "testdata/encoders/bert-text"], args].concat()).ok();
        assert!(drawn.contains("classifier"), "{drawn}");
    }
    let sizes = run(&["show", "preset:tiny", "--sizes", "src=3"]).failed(1);
    assert_snapshot!(sizes, @"cognate: error: --sizes: only FLOPs depend on sizes; expected --html or --format with it");
    let twice = ["show", "preset:tiny", "--format", "dot", "--sizes", "src=3,src=4"];
    assert_snapshot!(run(&twice).failed(1), @"cognate: error: --sizes: src occurs twice");
}

#[test]
fn graphs() {
    for (name, first, last) in [
        ("encode", "graph encoder", "  output cross.3.value = "),
        ("step", "graph decoder", "  output present.3.value = "),
        ("teacher-forced", "graph teacher_forced", "  output cross_attentions.3 = "),
    ] {
        let text = run(&["show", "testdata/multi30k-en-de", "--graph", name]).ok();
        assert_eq!(text.lines().next(), Some(first));
        assert!(text.lines().last().is_some_and(|line| line.starts_with(last)), "{text}");
    }
}

#[test]
fn an_exported_folder_and_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let out = path.to_str().unwrap();
    run(&["export", "testdata/multi30k-en-de", out, "--no-verify"]).ok();
    let shown = with_dir(&run(&["show", out]).ok(), &path);
    let head = shown.split("operators").next().unwrap();
    assert_snapshot!("exported_head", head);
    let listing = run(&["show", path.join("decoder.onnx").to_str().unwrap()]).ok();
    assert!(shown.ends_with(&listing));
    std::fs::remove_file(path.join("cognate.json")).unwrap();
    let shown = with_dir(&run(&["show", out]).ok(), &path);
    assert_snapshot!(shown.lines().take(2).collect::<Vec<_>>().join("\n"), @"
    DIR
      no cognate.json: the source is unknown
    ");
}

#[test]
fn graphs_for_programs_that_draw() {
    assert_snapshot!(run(&["show", "preset:tiny", "--graph", "encode", "--format", "mermaid", "--depth", "0"]).ok(), @r#"
    ---
    title: "encoder, preset:tiny (batch 1, src 32)"
    ---
    flowchart TB
      b0(["input_ids"])
      b1(["attention_mask"])
      b2["padding_mask"]
      b7["encoder"]
      b164["decoder"]
      b206(["encoder_hidden_states"])
      b207(["cross.0.key"])
      b208(["cross.0.value"])
      b209(["cross.1.key"])
      b210(["cross.1.value"])
      b211(["cross.2.key"])
      b212(["cross.2.value"])
      b213(["cross.3.key"])
      b214(["cross.3.value"])
      b0 -->|"i64 [batch, src]"| b7
      b1 -->|"i64 [batch, src]"| b2
      b2 -->|"f32 [batch, 1, 1, src]"| b7
      b7 -->|"f32 [batch, src, 128]"| b164
      b7 -->|"f32 [batch, src, 128]"| b206
      b164 -->|"f32 [batch, 4, src, 32]"| b207
      b164 -->|"f32 [batch, 4, src, 32]"| b208
      b164 -->|"f32 [batch, 4, src, 32]"| b209
      b164 -->|"f32 [batch, 4, src, 32]"| b210
      b164 -->|"f32 [batch, 4, src, 32]"| b211
      b164 -->|"f32 [batch, 4, src, 32]"| b212
      b164 -->|"f32 [batch, 4, src, 32]"| b213
      b164 -->|"f32 [batch, 4, src, 32]"| b214
    "#);
    let dot =
        run(&["show", "preset:tiny", "--graph", "step", "--format", "dot", "--depth", "2"]).ok();
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
    assert!(
        dot.contains("label=\"layers\"") && dot.contains("f32 [batch, beams, tgt, 128]"),
        "{dot}"
    );
    let refused =
        run(&["show", "testdata/multi30k-en-de", "--format", "dot", "--sizes", "src=24,past=3"])
            .failed(1);
    assert_eq!(
        refused,
        "cognate: error: --sizes: teacher_forced has no past; expected one of batch, src, tgt"
    );
}

#[test]
fn the_page_of_a_graph_counts_what_is_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.html");
    let path = file.to_str().unwrap();
    run(&["show", "testdata/multi30k-en-de", "--html", path, "--sizes", "src=10,tgt=7"]).ok();
    let page = std::fs::read_to_string(&file).unwrap();
    let (_, data) = page.split_once("id=\"data\">").unwrap();
    let data: serde_json::Value =
        serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let boxes = data["boxes"].as_array().unwrap();
    let of = |name: &str, field: &str| {
        let found =
            boxes.iter().find(|block| block["name"] == name && block["parent"].is_null()).unwrap();
        found[field].as_u64().unwrap()
    };
    // Tokens and positions; of each of the 4 layers four projections, two layers of the
    // feed-forward, two normalisations.
    let (d, ff) = (128, 256);
    let projection = d * d + d;
    assert_eq!(
        of("encoder", "parameters"),
        (8_000 + 256) * d + 4 * (4 * projection + 2 * d * ff + ff + d + 2 * 2 * d)
    );
    assert_eq!(of("lm_head", "operations"), 7 * 8_000 * (2 * d + 1));
    // Nothing is asked of the network: the one address is the name of SVG.
    assert_eq!(
        page.matches("//").count() - page.matches("// ").count(),
        page.matches("http://www.w3.org/2000/svg").count()
    );
}

#[test]
fn what_has_no_graph_is_called_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("graph.html");
    let refused = |model: &str| {
        with_dir(&run(&["show", model, "--html", page.to_str().unwrap()]).failed(1), folder.path())
    };
    assert_snapshot!(refused("/dev/zero"), @"cognate: error: /dev/zero: not a regular file; expected the folder of a checkpoint (config.json, model.safetensors, tokenizer files) or of an export (encoder.onnx, decoder.onnx, config.json, tokenizer files)");
    assert_snapshot!(refused("README.md"), @r#"cognate: error: README.md: not an ONNX model: decoding failed at "7""#);
    assert!(!page.exists());
}
