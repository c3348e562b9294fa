//! Files of testdata, and the list of skipped tests.

use cognate_testing::*;
use std::{env, fs};

#[test]
fn bundled_files_are_there() {
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "reference/test_2016_flickr.greedy.de",
    ] {
        assert!(bundled_checkpoint().join(file).is_file(), "{file}");
    }
    assert!(golden("marian").join("golden.safetensors").is_file());
}

#[test]
fn skipped_tests_are_lines_of_a_file() {
    let list = env::temp_dir().join(format!("cognate-skipped-{}", std::process::id()));
    for reason in ["no GPU", "ort: no library:\n\tnone in the system"] {
        add_skipped(&list, ["cognate-runtime", "cuda::placement", reason])
            .expect("a temporary file");
    }
    let lines = fs::read_to_string(&list).expect("the file");
    fs::remove_file(&list).expect("the file");
    let expected = "cognate-runtime\tcuda::placement\tno GPU\n\
                    cognate-runtime\tcuda::placement\tort: no library: none in the system\n";
    assert_eq!(lines, expected);
}

#[test]
fn every_folder_of_testdata_has_a_readme() {
    let missing: Vec<_> = fs::read_dir(testdata("."))
        .expect("testdata is readable")
        .map(|entry| entry.expect("testdata is readable").path())
        .filter(|path| path.is_dir() && !path.join("README.md").is_file())
        .collect();
    assert!(missing.is_empty(), "testdata: README.md is missing in {missing:?}");
}
