//! The good models that cases change: small models of the fixtures, with more rows, so that they
//! match their tokenizers.

use fs_err as fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::bytes::{Weights, copy_folder, edit_json, write};
use super::words;
use xtask::workspace::{Workspace, call, capture};

/// The clips of [`Good::Speech`].
pub(super) const CLIPS: [&str; 7] =
    ["clip.wav", "clip.flac", "clip.mp3", "clip.ogg", "clip.opus", "clip.m4a", "clip.webm"];

/// Number of rows of the tables of tokens.
pub(super) const ROWS: usize = 600;

/// A good model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Good {
    /// A checkpoint of Marian with a tokenizer.json.
    Checkpoint,
    /// The same in two files, with an index.
    Sharded,
    /// The same with SentencePiece models.
    Marian,
    /// A checkpoint of BART with vocab.json and merges.txt.
    Bart,
    /// The export of `Checkpoint`.
    Exported,
    /// The same in Hugging Face's layout, without a manifest.
    Optimum,
    /// `Checkpoint` with graphs beside it.
    InPlace,
    /// A complete training run.
    Run,
    /// A text of a few lines, and settings to train on it.
    Text,
    /// An encoder in the form of sentence-transformers.
    Encoder,
    /// A classifier of texts.
    Classifier,
    /// A classifier of images, and a picture.
    ImageClassifier,
    /// A model that reads the text of images, and a picture.
    ImageReader,
    /// A decoder-only model.
    Decoder,
    /// A T5Gemma, without a tokenizer.
    Halves,
    /// A speech model, and a clip in several formats.
    Speech,
}

/// The folders of the good models.
pub(super) struct Models {
    /// By [`Good`].
    folders: Vec<PathBuf>,
    /// Whether ONNX Runtime is installed.
    pub(super) has_onnxruntime: bool,
}

impl Models {
    /// Creates them in `folder`.
    pub(super) fn make(workspace: &Workspace, program: &Path, folder: &Path) -> Result<Self> {
        let folders =
            (0..=Good::Speech as usize).map(|index| folder.join(index.to_string())).collect();
        // Commands search for the library above their own folder.
        let has_onnxruntime = program.ancestors().any(|folder| {
            folder.join("target/onnxruntime").is_dir() || folder.join("onnxruntime").is_dir()
        });
        if !has_onnxruntime {
            println!("skipped: ONNX Runtime is not installed; run `cargo xtask onnxruntime`");
        }
        let models = Self { folders, has_onnxruntime };
        let testdata = workspace.root().join("testdata");
        checkpoint(&testdata, "marian", models.path(Good::Checkpoint))?;
        write(&models.path(Good::Checkpoint).join("tokenizer.json"), tokenizer().to_string())?;
        shard(models.path(Good::Checkpoint), models.path(Good::Sharded))?;
        let part = |name: &str| {
            fs::read(testdata.join("tokenizers/models").join(name)).with_context(|| name.to_owned())
        };
        let marian = models.path(Good::Marian);
        checkpoint(&testdata, "marian", marian)?;
        write(
            &marian.join("source.spm"),
            [part("unigram.model")?, part("nmt_nfkc.part")?].concat(),
        )?;
        write(&marian.join("target.spm"), part("unigram-bytes.model")?)?;
        write(&marian.join("vocab.json"), part("marian.json")?)?;
        let bart = models.path(Good::Bart);
        checkpoint(&testdata, "bart", bart)?;
        write(&bart.join("vocab.json"), part("byte-level.vocab.json")?)?;
        write(&bart.join("merges.txt"), part("byte-level.merges.txt")?)?;
        copy_folder(&testdata.join("encoders/sentence"), models.path(Good::Encoder))?;
        copy_folder(&testdata.join("encoders/sentence-classes"), models.path(Good::Classifier))?;
        copy_folder(&testdata.join("decoders/text"), models.path(Good::Decoder))?;
        copy_folder(&testdata.join("golden/strange/t5gemma"), models.path(Good::Halves))?;
        for (good, model, picture) in [
            (Good::ImageClassifier, "encoders/image-classes", "picture.png"),
            (Good::ImageReader, "golden/images/trocr", "picture.jpg"),
        ] {
            copy_folder(&testdata.join(model), models.path(good))?;
            let extension = Path::new(picture).extension().unwrap_or_default();
            let drawn = testdata.join("images/rgb").with_extension(extension);
            fs::copy(&drawn, models.path(good).join(picture))
                .with_context(|| drawn.display().to_string())?;
        }
        let speech = models.path(Good::Speech);
        for folder in ["golden/speech/whisper", "golden/speech/tokens"] {
            copy_folder(&testdata.join(folder), speech)?;
        }
        for clip in CLIPS {
            fs::copy(testdata.join("audio").join(clip), speech.join(clip))
                .with_context(|| clip.to_owned())?;
        }
        let (source, optimum) = (models.path(Good::Checkpoint), models.path(Good::Optimum));
        let cognate = |line: &str, good| {
            let words = words(line, &[("{source}", source), ("{out}", models.path(good))]);
            capture(Command::new(program).args(words))
        };
        cognate("export {source} {out} --no-verify", Good::Exported)?;
        cognate("export {source} {out} --no-verify --layout hf", Good::Optimum)?;
        fs::remove_file(optimum.join("cognate.json")).context("cognate.json")?;
        copy_folder(source, models.path(Good::InPlace))?;
        cognate("export {out} --in-place", Good::InPlace)?;
        text(models.path(Good::Text))?;
        let settings = models.path(Good::Text).join("run.toml");
        let train = [
            "train".as_ref(),
            settings.as_os_str(),
            "--engine".as_ref(),
            "tract".as_ref(),
            "--out".as_ref(),
        ];
        call(
            Command::new(program)
                .args(train)
                .arg(models.path(Good::Run))
                .stderr(std::process::Stdio::null()),
        )?;
        Ok(models)
    }

    pub(super) fn path(&self, good: Good) -> &Path {
        &self.folders[good as usize]
    }

    pub(super) fn copy(&self, good: Good, to: &Path) -> Result<()> {
        copy_folder(self.path(good), to)
    }
}

/// The apparent size of the files in a folder in bytes, including holes.
pub(super) fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

/// A golden model with `ROWS` rows in its tables of 120 tokens; the additional rows are zeros.
fn checkpoint(testdata: &Path, family: &str, folder: &Path) -> Result<()> {
    const GOLDEN_ROWS: u64 = 120;
    fs::create_dir_all(folder)?;
    let golden = testdata.join("golden").join(family);
    for name in ["config.json", "generation_config.json"] {
        fs::copy(golden.join(name), folder.join(name)).with_context(|| name.to_owned())?;
        edit_json(&folder.join(name), |fields| {
            for size in ["vocab_size", "decoder_vocab_size"] {
                if fields.contains_key(size) {
                    fields.insert(size.into(), ROWS.into());
                }
            }
        })?;
    }
    let mut weights = Weights::read(&golden.join("model.safetensors"))?;
    weights.tensors(|tensor, data| {
        let mut shape: Vec<u64> = serde_json::from_value(tensor["shape"].clone())?;
        if let Some(axis) = shape.iter().position(|&size| size == GOLDEN_ROWS) {
            let wanted = data.len() / GOLDEN_ROWS as usize * ROWS;
            data.resize(wanted, 0);
            shape[axis] = ROWS as u64;
        }
        tensor["shape"] = json!(shape);
        Ok(())
    })?;
    weights.write(&folder.join("model.safetensors"))
}

/// A tokenizer of letters.
fn tokenizer() -> Value {
    let letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,!?'"
        .chars()
        .map(|letter| json!([letter.to_string(), -3.0]));
    let special = [json!(["</s>", 0.0]), json!(["<unk>", 0.0]), json!(["\u{2581}", -2.0])];
    let spaces = json!({ "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": { "type": "NFKC" },
        "pre_tokenizer": spaces, "post_processor": null, "decoder": spaces,
        "model": { "type": "Unigram", "unk_id": 1, "vocab": special.into_iter().chain(letters).collect::<Vec<_>>(), "byte_fallback": false }
    })
}

/// The checkpoint in two files.
fn shard(from: &Path, to: &Path) -> Result<()> {
    copy_folder(from, to)?;
    let single = to.join("model.safetensors");
    let weights = Weights::read(&single)?;
    fs::remove_file(single).context("model.safetensors")?;
    let names: Vec<String> = weights.names().map(str::to_owned).collect();
    let mut places = Map::new();
    for (number, names) in names.chunks(names.len().div_ceil(2)).enumerate() {
        let file = format!("model-{}-of-2.safetensors", number + 1);
        weights.only(names)?.write(&to.join(&file))?;
        places.extend(names.iter().map(|name| (name.clone(), json!(file))));
    }
    write(
        &to.join("model.safetensors.index.json"),
        json!({ "metadata": {}, "weight_map": places }).to_string(),
    )
}

/// A text of short lines, and the settings of a small model.
fn text(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let lines: String =
        (0..50).map(|line| format!("a b {} c\n", ["d", "e", "f"][line % 3])).collect();
    for name in ["text", "a.src", "a.tgt"] {
        write(&folder.join(name), &lines)?;
    }
    let settings = "data.train = [{ source = \"a.src\", target = \"a.tgt\" }]\ndata.valid = [{ source = \"a.src\", target = \"a.tgt\" }]\n\
                    data.max_tokens = 64\nthreads = 1\ntokenizer.vocab_size = 16\ntokenizer.algorithm = \"bpe\"\n\
                    model.d_model = 8\nmodel.d_ff = 8\nmodel.heads = 2\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\n\
                    schedule.max_updates = 2\nschedule.validate_every = 1\n";
    write(&folder.join("run.toml"), settings)
}
