//! What several targets do: a folder that lives as long as the program, and a tokenizer that is tried on texts.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cognate_text::Tokenizer;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// A file of `testdata`.
pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// A folder with copies of files of `testdata` under other names, the same at every call.
pub fn folder(files: &[(&str, &str)]) -> &'static Path {
    for (from, name) in files {
        let to = FOLDER.path().join(name);
        if !to.exists() {
            fs::copy(testdata(from), to).expect("a file of testdata");
        }
    }
    FOLDER.path()
}

/// Writes `bytes` into the folder as `file`.
pub fn write(folder: &Path, file: &str, bytes: &[u8]) {
    fs::write(folder.join(file), bytes).expect("a file in a temporary folder");
}

/// Lets panics of the library that reads `tokenizer.json` be errors, as cognate-text makes them: libFuzzer would end the program before they
/// are caught. One that nobody catches still ends it.
pub fn catch_panics() {
    drop(panic::take_hook());
}

/// Reads the folder's tokenizer, of which one file is any bytes, and cuts texts by it.
pub fn tokenize(folder: &Path, file: &str, bytes: &[u8]) {
    write(folder, file, bytes);
    let Ok(tokenizer) = Tokenizer::from_folder(folder) else { return };
    for text in ["", "the baker opens 日本 ﬁne Ａ  x\t", "<sep>ab▁cd </s> ▁▁ e\u{301}\0"] {
        if let Ok(ids) = tokenizer.encode(text) {
            // A model may write ids that it has no piece for.
            let _ = tokenizer.decode(&ids);
        }
    }
}
