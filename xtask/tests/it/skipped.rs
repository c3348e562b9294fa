//! Tests of `skipped`.

use std::fs;
use xtask::skipped::*;
#[test]
fn what_is_skipped_is_listed_by_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("skipped");
    let mut skipped = Skipped::default();
    skipped.read(&file).unwrap();
    assert_eq!(skipped.text(), "Nothing was skipped.\n");
    fs::write(&file, "cognate-runtime\tcuda::placement\tno GPU\ncognate\tdecoding::cuda\tno GPU\ncognate\tdecoding::cuda\tno GPU\n")
        .unwrap();
    skipped.read(&file).unwrap();
    skipped.add("the step \"dependencies\"", "cargo deny is not installed");
    let expected = "Skipped in whole or in part:\n\
                    - cargo deny is not installed:\n    the step \"dependencies\"\n\
                    - no GPU:\n    cognate decoding::cuda\n    cognate-runtime cuda::placement\n";
    assert_eq!(skipped.text(), expected);
    fs::write(&file, "nonsense\n").unwrap();
    assert!(skipped.read(&file).unwrap_err().to_string().contains("found \"nonsense\""));
}
