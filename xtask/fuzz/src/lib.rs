//! Shared by several targets: a temporary folder, and a tokenizer applied to texts.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cognate_text::Tokenizer;
use tempfile::TempDir;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));

/// The path of a file in `testdata`.
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

/// Allows panics of the `tokenizers` library to be caught, as cognate-text does: libFuzzer's hook
/// would end the program first. A panic that is not caught still ends it.
pub fn catch_panics() {
    drop(panic::take_hook());
}

/// Opens the folder's tokenizer with `bytes` as `file`, and tokenizes texts.
pub fn tokenize(folder: &Path, file: &str, bytes: &[u8]) {
    write(folder, file, bytes);
    let Ok(tokenizer) = Tokenizer::from_folder(folder) else { return };
    for text in ["", "the baker opens 日本 ﬁne Ａ  x\t", "<sep>ab▁cd </s> ▁▁ e\u{301}\0"] {
        if let Ok(ids) = tokenizer.encode(text) {
            // A model may return ids without a piece.
            let _ = tokenizer.decode(&ids);
        }
    }
}
