//! Models of Cognate's own family with choices that the paper did not make are exported, verified
//! and shown like any other.

use crate::{run, with_dir};
use cognate_runtime::{Device, Engine};
use insta::assert_snapshot;

#[test]
fn every_layout_is_exported_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let mut forms: Vec<&[&str]> = vec![&[], &["--layout", "hf"]];
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => forms.push(&["--target", "ort"]),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
    for case in ["alibi", "learned", "pre-rms-gated", "relative", "rotary"] {
        for (index, form) in forms.iter().enumerate() {
            let out = folder.path().join(format!("{case}-{index}")).to_str().unwrap().to_owned();
            let said =
                run(&[&["export", &format!("testdata/research/{case}"), &out], *form].concat())
                    .ok();
            assert!(said.contains("passed") && !said.contains("FAILED"), "{case} {form:?}: {said}");
        }
    }
}

#[test]
fn an_additive_score_has_no_form_with_shared_caches() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let refused = run(&["export", "testdata/research/additive", &out, "--target", "ort"]).failed(1);
    assert_snapshot!(with_dir(refused.lines().last().unwrap(), folder.path()), @r#"cognate: error: config.json: attention_score "additive" has no form over caches that beams share (layout shared-cache), whose operator compares by products; use the layout cognate or hf"#);
    run(&["export", "testdata/research/additive", &out]).ok();
    run(&["verify", &out]).ok();
}

#[test]
fn choices_are_shown() {
    let shown = run(&["show", "testdata/research/additive"]).ok();
    assert!(shown.contains("attention    additive: v·tanh(q + k)"), "{shown}");
    let shown = run(&["show", "testdata/research/rotary"]).ok();
    assert!(shown.contains("positions    24, rotary: queries and keys turned"), "{shown}");
    let table = shown.lines().find(|line| line.contains("decoder.rotary.sines")).unwrap();
    assert!(table.contains("[24, 4]") && table.ends_with("angles"), "{table}");
}
