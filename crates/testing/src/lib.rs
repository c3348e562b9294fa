//! Test support for all crates: the files under `testdata/`, and optional tools and data sets.
//!
//! A file of the repository must exist: its absence panics. A tool or data set outside of the
//! repository may be missing: its function calls [`skip`], which reports what is skipped and how to
//! get it, and returns `None`.
//!
//! A dev-dependency only. This crate uses no other crate of the workspace.

mod golden;
mod mutations;

use std::env;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

pub use golden::{Array, Golden};
pub use mutations::{FUZZ_SECONDS, mutated, never_panics};

/// The folder or file `testdata/NAME`.
///
/// # Panics
/// If it does not exist.
///
/// ```
/// assert!(cognate_testing::testdata("multi30k-en-de/config.json").is_file());
/// ```
pub fn testdata(name: &str) -> PathBuf {
    let path = root().join("testdata").join(name);
    assert!(path.exists(), "{}: missing test data; is the checkout complete?", path.display());
    path
}

/// The trained English-German MarianMT checkpoint of the repository.
pub fn bundled_checkpoint() -> PathBuf {
    testdata("multi30k-en-de")
}

/// The folder of a golden model: a Hugging Face checkpoint with PyTorch's outputs, read
/// by [`Golden`].
pub fn golden(family: &str) -> PathBuf {
    testdata("golden").join(family)
}

/// The names of all golden models, such as `marian`, in alphabetical order.
///
/// # Panics
/// If the folder cannot be read.
pub fn golden_models() -> Vec<String> {
    let top = testdata("golden");
    let mut names = Vec::new();
    for below in ["", "strange"] {
        let folder = top.join(below);
        if !folder.is_dir() {
            continue;
        }
        let entries =
            fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let paths = entries.map(|entry| entry.expect("testdata is readable").path());
        let models = paths.filter(|path| path.join("golden.safetensors").is_file());
        names.extend(models.map(|path| {
            path.strip_prefix(&top)
                .expect("the path is inside the folder")
                .to_string_lossy()
                .into_owned()
        }));
    }
    names.sort();
    names
}

/// The names of the models in `testdata/decoders` with PyTorch's answers, in alphabetical order.
///
/// # Panics
/// If the folder cannot be read.
pub fn decoder_models() -> Vec<String> {
    let entries = fs::read_dir(testdata("decoders"))
        .expect("testdata is readable")
        .map(|entry| entry.expect("testdata is readable"));
    let models = entries.filter(|entry| entry.path().join("answers.safetensors").is_file());
    let mut names: Vec<_> =
        models.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The names of the golden models of images and text, as [`golden_models`].
pub const IMAGE_MODELS: [&str; 5] =
    ["images/bert", "images/gpt2", "images/mbart", "images/trocr", "images/trocr-projected"];

/// The names of the golden models of speech, as [`golden_models`].
pub const SPEECH_MODELS: [&str; 2] = ["speech/whisper", "speech/whisper-v3"];

/// Makes `folder` a small seeded speech model: the golden one with a tokenizer of made-up words,
/// and windows of one second.
///
/// # Panics
/// If the folder cannot be written.
pub fn make_speech_model(folder: &Path) {
    let model = ["config.json", "generation_config.json", "model.safetensors"]
        .map(|file| golden(SPEECH_MODELS[0]).join(file));
    let texts = ["tokenizer.json", "tokenizer_config.json", "preprocessor_config.json"]
        .map(|file| golden("speech/tokens").join(file));
    for file in model.iter().chain(&texts) {
        fs::copy(file, folder.join(file.file_name().expect("the path of a file")))
            .expect("the folder can be written");
    }
}

/// A WAV file of 2.5 s: a tone that rises, with a pause.
pub fn tone() -> Vec<u8> {
    let sample = |index: usize| {
        let time = index as f32 / 16_000.0;
        if (1.1..1.4).contains(&time) {
            0.0
        } else {
            0.3 * (time * time * 900.0 + time * 1500.0).sin()
        }
    };
    wav(&(0..40_000).map(sample).collect::<Vec<_>>())
}

/// A WAV file of mono samples at 16 kHz.
pub fn wav(samples: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0\x03\0\x01\0");
    bytes.extend(16_000u32.to_le_bytes());
    bytes.extend(64_000u32.to_le_bytes());
    bytes.extend(b"\x04\0\x20\0data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

/// The folder with the Multi30k text (`test_2016_flickr.en` and so on); `None` if it is missing.
///
/// The text is for research use only and not part of the repository. It is searched in the folder
/// `COGNATE_MULTI30K`, then in `shared/data/multi30k` next to the checkout.
///
/// # Panics
/// If `COGNATE_MULTI30K` is set to a folder without the text.
pub fn shared_multi30k() -> Option<PathBuf> {
    const FILE: &str = "test_2016_flickr.en";
    if let Some(folder) = env::var_os("COGNATE_MULTI30K").map(PathBuf::from) {
        assert!(
            folder.join(FILE).is_file(),
            "COGNATE_MULTI30K: {} does not contain {FILE}; set it to a folder with the unpacked files of `data/task1/raw` of multi30k/dataset",
            folder.display()
        );
        return Some(folder);
    }
    let beside = root().parent()?.join("shared/data/multi30k");
    if beside.join(FILE).is_file() {
        return Some(beside);
    }
    skip(
        "the Multi30k text is missing; set COGNATE_MULTI30K to a folder with the unpacked files of `data/task1/raw` of multi30k/dataset",
    );
    None
}

/// The folder with `audio` and `models/whisper-tiny.en`, or `None` if it is not available:
/// `COGNATE_WHISPER`, or `shared` beside the checkout.
pub fn shared_whisper() -> Option<PathBuf> {
    let folder = env::var_os("COGNATE_WHISPER")
        .map(PathBuf::from)
        .or_else(|| Some(root().parent()?.join("shared")))?;
    if folder.join("models/whisper-tiny.en/model.safetensors").is_file() {
        return Some(folder);
    }
    skip(
        "Whisper and its test audio are not at hand; set COGNATE_WHISPER to a folder with models/whisper-tiny.en and audio",
    );
    None
}

/// The folder of test pictures with Pillow's answers, or `None` if it is not available:
/// `COGNATE_IMAGES`, or `shared/images` beside the checkout.
pub fn shared_images() -> Option<PathBuf> {
    let folder = env::var_os("COGNATE_IMAGES")
        .map(PathBuf::from)
        .or_else(|| Some(root().parent()?.join("shared/images")))?;
    if folder.join("line.png.safetensors").is_file() {
        return Some(folder);
    }
    skip(
        "the test pictures are not at hand; set COGNATE_IMAGES to a folder with line.png and the like, each with its answers",
    );
    None
}

/// A folder of a golden model that is not part of the repository, or `None` if it is not available:
/// `COGNATE_GOLDEN`, or `shared/golden` beside the checkout.
pub fn shared_golden(case: &str) -> Option<PathBuf> {
    let folder = env::var_os("COGNATE_GOLDEN")
        .map(PathBuf::from)
        .or_else(|| Some(root().parent()?.join("shared/golden")))?;
    let folder = folder.join(case);
    if folder.join("golden.float64.safetensors").is_file() {
        return Some(folder);
    }
    skip(&format!(
        "the golden model {case} is not at hand; set COGNATE_GOLDEN to a folder with {case}/golden.float64.safetensors"
    ));
    None
}

/// A Python that can import `onnx`, `onnxruntime`, `numpy` and `transformers`, or `None`.
/// `cargo xtask test` installs one and sets `COGNATE_PYTHON` to its path.
///
/// # Panics
/// If `COGNATE_PYTHON` is set to a path that is not a file.
pub fn python() -> Option<PathBuf> {
    let Some(path) = env::var_os("COGNATE_PYTHON").map(PathBuf::from) else {
        skip(
            "COGNATE_PYTHON is not set to a Python with onnx and transformers; `cargo xtask test` installs one",
        );
        return None;
    };
    assert!(path.is_file(), "COGNATE_PYTHON: {} is not a file", path.display());
    Some(path)
}

/// Whether CUDA is tested: `cargo xtask test --cuda` sets `COGNATE_TEST_CUDA=1`.
pub fn cuda() -> bool {
    let wanted = env::var_os("COGNATE_TEST_CUDA").is_some_and(|value| value == "1");
    if !wanted {
        skip("CUDA is tested by `cargo xtask test --cuda` on a machine with a GPU");
    }
    wanted
}

/// The root of the repository.
fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate is in crates/testing")
}

/// Reports that the running test, or part of it, is skipped.
///
/// Cargo shows the output of failed tests only, so the reason is also appended to the file named by
/// `COGNATE_SKIPPED`, which `cargo xtask test` summarises.
///
/// # Panics
/// If that file cannot be written.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("test");
    eprintln!("{test}: skipped: {reason}");
    if let Some(list) = env::var_os("COGNATE_SKIPPED").map(PathBuf::from) {
        let package = env::var("CARGO_PKG_NAME").unwrap_or_default();
        add_skipped(&list, [&package, test, reason])
            .unwrap_or_else(|error| panic!("COGNATE_SKIPPED: {}: {error}", list.display()));
    }
}

/// Appends a line of package, test and reason, separated by tabs.
pub fn add_skipped(list: &Path, fields: [&str; 3]) -> std::io::Result<()> {
    let line =
        fields.map(|field| field.split_whitespace().collect::<Vec<_>>().join(" ")).join("\t")
            + "\n";
    // A single write, so that lines of concurrent tests are not interleaved.
    fs::OpenOptions::new().create(true).append(true).open(list)?.write_all(line.as_bytes())
}
