//! What the tests of every crate stand on: the files under `testdata/`, and the tools a test may find or do without.
//!
//! A file that belongs to the repository must be there: its absence panics. A tool or a data set that is not part of
//! the repository may be missing: its function calls [`skip`], which says what is skipped and how to get it, and returns `None`.
//!
//! A dev-dependency only. This crate knows none of the other crates, no ONNX and no Transformer.

mod golden;
mod mutations;

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use golden::{Array, Golden};
pub use mutations::{FUZZ_SECONDS, never_panics};

/// The folder or file `testdata/NAME`.
///
/// # Panics
/// When it does not exist.
///
/// ```
/// assert!(cognate_testing::testdata("multi30k-en-de/config.json").is_file());
/// ```
pub fn testdata(name: &str) -> PathBuf {
    let path = root().join("testdata").join(name);
    assert!(path.exists(), "{}: no such test data; is the checkout whole?", path.display());
    path
}

/// The real English-German MarianMT checkpoint that comes with the repository.
pub fn bundled_checkpoint() -> PathBuf {
    testdata("multi30k-en-de")
}

/// The folder of a golden model: a Hugging Face checkpoint with PyTorch's answers, which [`Golden`] reads.
pub fn golden(family: &str) -> PathBuf {
    testdata("golden").join(family)
}

/// The names of all golden models, such as `marian`, in the order of the alphabet.
///
/// # Panics
/// When the folder cannot be read.
pub fn golden_models() -> Vec<String> {
    let top = testdata("golden");
    let mut names = Vec::new();
    for below in ["", "strange"] {
        let folder = top.join(below);
        if !folder.is_dir() {
            continue;
        }
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let paths = entries.map(|entry| entry.expect("testdata is readable").path());
        let models = paths.filter(|path| path.join("golden.safetensors").is_file());
        names.extend(models.map(|path| path.strip_prefix(&top).expect("below it").to_string_lossy().into_owned()));
    }
    names.sort();
    names
}

/// The Multi30k text (`test_2016_flickr.en` and so on), or `None` where it is not at hand.
///
/// It is for research use and not part of the repository: looked for in the folder that `COGNATE_MULTI30K` names, then in
/// `shared/data/multi30k` beside the checkout.
///
/// # Panics
/// When `COGNATE_MULTI30K` is set and its folder does not hold the text.
pub fn shared_multi30k() -> Option<PathBuf> {
    const FILE: &str = "test_2016_flickr.en";
    if let Some(folder) = env::var_os("COGNATE_MULTI30K").map(PathBuf::from) {
        assert!(
            folder.join(FILE).is_file(),
            "COGNATE_MULTI30K: {} holds no {FILE}; name a folder with `data/task1/raw` of multi30k/dataset, unpacked",
            folder.display()
        );
        return Some(folder);
    }
    let beside = root().parent()?.join("shared/data/multi30k");
    if beside.join(FILE).is_file() {
        return Some(beside);
    }
    skip("the Multi30k text is not at hand; set COGNATE_MULTI30K to a folder with `data/task1/raw` of multi30k/dataset, unpacked");
    None
}

/// A Python that can import `onnx`, `onnxruntime`, `numpy` and `transformers`, or `None`: `cargo xtask test` sets one up and names it in `COGNATE_PYTHON`.
///
/// # Panics
/// When `COGNATE_PYTHON` is set and names no file.
pub fn python() -> Option<PathBuf> {
    let Some(path) = env::var_os("COGNATE_PYTHON").map(PathBuf::from) else {
        skip("COGNATE_PYTHON names no Python with onnx and transformers; `cargo xtask test` sets one up");
        return None;
    };
    assert!(path.is_file(), "COGNATE_PYTHON: {} is not a file", path.display());
    Some(path)
}

/// Whether the tests of CUDA shall run: `cargo xtask test --cuda` sets `COGNATE_TEST_CUDA=1`.
pub fn cuda() -> bool {
    let wanted = env::var_os("COGNATE_TEST_CUDA").is_some_and(|value| value == "1");
    if !wanted {
        skip("CUDA is tested by `cargo xtask test --cuda`, on a machine with a GPU");
    }
    wanted
}

/// The top of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/testing")
}

/// Says that (part of) the running test is skipped, by the name of its thread, which is the test's.
///
/// Cargo shows what a test writes only where the test fails. So the reason is also added to the file that `COGNATE_SKIPPED` names,
/// from which `cargo xtask test` makes its last lines.
///
/// # Panics
/// When that file cannot be written.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    eprintln!("{test}: skipped: {reason}");
    if let Some(list) = env::var_os("COGNATE_SKIPPED").map(PathBuf::from) {
        // Cargo tells a test of which crate it is.
        let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
        add_skipped(&list, [&package, test, reason]).unwrap_or_else(|error| panic!("COGNATE_SKIPPED: {}: {error}", list.display()));
    }
}

/// Adds a line of the package, the test and the reason, with tabs between.
fn add_skipped(list: &Path, fields: [&str; 3]) -> std::io::Result<()> {
    let line = fields.map(|field| field.split_whitespace().collect::<Vec<_>>().join(" ")).join("\t") + "\n";
    // In one call, which other tests that add to the file at the same time do not cut in two.
    fs::OpenOptions::new().create(true).append(true).open(list)?.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_files_are_there() {
        for file in ["config.json", "model.safetensors", "tokenizer.json", "reference/test_2016_flickr.greedy.de"] {
            assert!(bundled_checkpoint().join(file).is_file(), "{file}");
        }
        assert!(golden("marian").join("golden.safetensors").is_file());
    }

    #[test]
    fn skipped_tests_are_lines_of_a_file() {
        let list = env::temp_dir().join(format!("cognate-skipped-{}", std::process::id()));
        for reason in ["no GPU", "ort: no library:\n\tnone in the system"] {
            add_skipped(&list, ["cognate-runtime", "cuda::placement", reason]).expect("a temporary file");
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
}
