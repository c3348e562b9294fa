//! Tests of `interop`.

use xtask::interop::*;
use xtask::workspace::Workspace;
#[test]
fn families_are_those_with_answers() {
    let golden = Workspace::find().unwrap().root().join("testdata/golden");
    assert!(chosen_families(&golden, &[]).unwrap().contains(&"marian".to_owned()));
    let error = chosen_families(&golden, &["klingon".to_owned()]).unwrap_err().to_string();
    assert!(
        error.starts_with("--family klingon: expected a folder of ") && error.contains("marian"),
        "{error}"
    );
}
