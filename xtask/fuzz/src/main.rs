//! The libFuzzer targets. Each binary of Cargo.toml runs the function of its name.
#![no_main]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cognate_export::{Limits, Listing, check_model};
use cognate_model::{Attentions, Config, Model};
use cognate_text::Tokenizer;
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

#[cfg(feature = "engines")]
#[path = "../../../crates/verify/tests/it/random_graphs/examined.rs"]
mod examined;

// cognate-text catches panics of the `tokenizers` library; libFuzzer's hook would end the program
// first. Other panics still end it.
fuzz_target!(init: drop(std::panic::take_hook()), |bytes: &[u8]| {
    let text = std::str::from_utf8(bytes);
    match env!("CARGO_BIN_NAME") {
        "config" => drop(text.map(Config::from_json)),
        "safetensors" => weights(bytes),
        "index" => {
            let golden = [("golden/marian/config.json", "config.json"), ("golden/marian/model.safetensors", "one.safetensors")];
            let _ = Model::open(write(&golden, "model.safetensors.index.json", bytes));
        }
        "onnx" => graph(&write(&[], "a.onnx", bytes).join("a.onnx")),
        "tokenizer_json" => tokenize(&[], "tokenizer.json", bytes),
        "sentencepiece" => {
            let (target, vocabulary) = ("tokenizers/models/unigram-bytes.model", "tokenizers/models/marian.json");
            tokenize(&[("golden/marian/config.json", "config.json"), (target, "target.spm"), (vocabulary, "vocab.json")], "source.spm", bytes);
        }
        "vocabulary" => {
            let files = [("golden/bart/config.json", "config.json"), ("tokenizers/models/byte-level.merges.txt", "merges.txt")];
            tokenize(&files, "vocab.json", bytes);
        }
        "merges" => {
            let files = [("golden/bart/config.json", "config.json"), ("tokenizers/models/byte-level.vocab.json", "vocab.json")];
            tokenize(&files, "merges.txt", bytes);
        }
        #[cfg(feature = "engines")]
        "generation_config" => {
            let model = cognate_model::Preset::Tiny.config();
            drop(text.map(|text| cognate_generate::Settings::from_json("{}", Some(text), &model).map(|settings| settings.check())));
        }
        #[cfg(feature = "engines")]
        "training_config" => drop(text.map(|text| cognate_train::config::TrainingConfig::from_toml(text, "run.toml"))),
        #[cfg(feature = "engines")]
        "graphs" => graphs(bytes),
        other => panic!("{other}: unknown target"),
    }
});

/// Writes `bytes` as `file` into a folder with copies of files of `testdata` under other names, the
/// same folder at every call.
fn write(files: &[(&str, &str)], file: &str, bytes: &[u8]) -> &'static Path {
    static FOLDER: LazyLock<TempDir> =
        LazyLock::new(|| tempfile::tempdir().expect("a temporary folder"));
    let testdata: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata");
    for (from, name) in files.iter().filter(|(_, name)| !FOLDER.path().join(name).exists()) {
        fs::copy(testdata.join(from), FOLDER.path().join(name)).expect("a file of testdata");
    }
    fs::write(FOLDER.path().join(file), bytes).expect("a file in a temporary folder");
    FOLDER.path()
}

/// If a model opens, all its weights can be read.
fn weights(bytes: &[u8]) {
    let folder = write(&[("golden/marian/config.json", "config.json")], "model.safetensors", bytes);
    if let Ok((model, _)) = Model::open_ignoring_unused(folder) {
        model.step(Attentions::Omit).expect("a model has its graphs");
        assert!(
            model
                .weights()
                .iter()
                .all(|(_, recipe)| recipe.values::<f32>().len() == recipe.elements())
        );
    }
}

/// Lists and checks an ONNX file.
fn graph(path: &Path) {
    if let Ok(listing) = Listing::read(path) {
        let _ = listing.to_string();
    }
    let _ = check_model(path, &Limits::default());
}

/// Opens the folder's tokenizer and tokenizes texts.
fn tokenize(files: &[(&str, &str)], file: &str, bytes: &[u8]) {
    let Ok(tokenizer) = Tokenizer::from_folder(write(files, file, bytes)) else { return };
    for text in ["", "the baker opens 日本 ﬁne Ａ  x\t", "<sep>ab▁cd </s> ▁▁ e\u{301}\0"]
    {
        if let Ok(ids) = tokenizer.encode(text) {
            // A model may return ids without a piece.
            let _ = tokenizer.decode(&ids);
        }
    }
}

/// The reference, tract and ONNX Runtime agree on a graph, or all reject it.
#[cfg(feature = "engines")]
fn graphs(bytes: &[u8]) {
    use libfuzzer_sys::arbitrary::{Arbitrary, Unstructured};
    /// Maximum number of operations of a graph.
    const MOST: usize = 12;
    let Ok(mut genes) = Vec::<examined::Gene>::arbitrary_take_rest(Unstructured::new(bytes)) else {
        return;
    };
    genes.truncate(MOST);
    examined::examine(&genes).unwrap_or_else(|wrong| panic!("{genes:?}: {wrong}"));
}
