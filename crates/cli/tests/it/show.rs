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
      no cognate.json: not known where it comes from
    ");
}
