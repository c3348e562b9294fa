//! Folders of families with files that are missing, damaged or hostile: errors that name the file,
//! never a panic.

use std::fs;
use std::path::Path;

use cognate_text::{ErrorKind, Tokenizer};
use insta::assert_snapshot;
use prost::Message;
use serde_json::{Value, json};

use crate::families::cases;
use cognate_testing::{never_panics, testdata};

/// The fields of a SentencePiece model that the damage touches; the others are lost, as defaults.
#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(bytes = "vec", tag = "1")]
    text: Vec<u8>,
    #[prost(float, tag = "2")]
    score: f32,
    #[prost(int32, optional, tag = "3")]
    kind: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, optional, tag = "3")]
    model_type: Option<i32>,
    #[prost(bool, optional, tag = "35")]
    byte_fallback: Option<bool>,
    #[prost(int32, optional, tag = "40")]
    unk_id: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    charsmap: Vec<u8>,
}

fn model(name: &str) -> Model {
    Model::decode(&fs::read(testdata("tokenizers/models").join(name)).unwrap()[..]).unwrap()
}

/// A folder of a case of `testdata/tokenizers`, changed.
fn folder(case: &str, change: impl FnOnce(&Path)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    cases().cases.iter().find(|known| known.name == case).unwrap().write(folder.path());
    change(folder.path());
    folder
}

/// The error of a changed folder, without the temporary folder's name.
fn error(kind: ErrorKind, case: &str, change: impl FnOnce(&Path)) -> String {
    let folder = folder(case, change);
    let error = Tokenizer::from_folder(folder.path()).unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

/// The error of a case whose file has other contents.
fn error_with(case: &str, file: &str, contents: impl AsRef<[u8]>) -> String {
    error(ErrorKind::Format, case, |folder| fs::write(folder.join(file), contents).unwrap())
}

/// The error of Marian with another source model.
fn model_error(change: impl FnOnce(&mut Model)) -> String {
    let mut model = model("bpe-bytes.model");
    change(&mut model);
    error_with("marian", "source.spm", model.encode_to_vec())
}

/// The error of Marian with another character map.
fn charsmap_error(charsmap: &[u8]) -> String {
    model_error(|model| model.normalizer = Some(Normalizer { charsmap: charsmap.to_vec() }))
}

fn remove(name: &'static str) -> impl FnOnce(&Path) {
    move |folder| fs::remove_file(folder.join(name)).unwrap()
}

#[test]
fn files_that_are_missing() {
    assert_snapshot!(error(ErrorKind::File, "marian", remove("target.spm")), @"target.spm: no such file; the folder has no tokenizer.json, so its Marian tokenizer is read from source.spm, target.spm, vocab.json");
    assert_snapshot!(error(ErrorKind::File, "t5", remove("spiece.model")), @"tokenizer.json: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt");
    assert_snapshot!(error(ErrorKind::File, "marian-separate", remove("target_vocab.json")), @"target_vocab.json: no such file; expected a vocabulary: an object of ids by piece");
    assert_snapshot!(error(ErrorKind::File, "t5", remove("config.json")), @"tokenizer.json: no such file; the folder has spiece.model, but neither `tokenizer_class` in tokenizer_config.json nor `model_type` in config.json names a supported tokenizer");
}

#[test]
fn settings_that_make_no_sense() {
    let settings = |case: &str, settings: Value| {
        error_with(case, "tokenizer_config.json", settings.to_string())
    };
    let class = json!({"tokenizer_class": "GPT2TokenizerFast"});
    let unknown = error(ErrorKind::File, "t5", |folder| {
        fs::write(folder.join("tokenizer_config.json"), class.to_string()).unwrap()
    });
    assert_snapshot!(unknown, @"tokenizer.json: no such file; tokenizer_config.json names GPT2Tokenizer, which needs a tokenizer.json: save it with transformers' fast tokenizer");
    assert_snapshot!(settings("t5", json!([])), @"tokenizer_config.json: is JSON, but not Hugging Face's tokenizer_config.json: invalid type: sequence, expected a map at line 1 column 0");
    assert_snapshot!(settings("t5", json!({"extra_ids": 1e9})), @"tokenizer_config.json: extra_ids is 1000000000.0, expected a number from 0 to 65536");
    assert_snapshot!(settings("t5", json!({"extra_ids": 5, "additional_special_tokens": ["<extra_id_0>"]})), @"tokenizer_config.json: extra_ids is 5, expected as many as additional_special_tokens has <extra_id_...>, 1");
    assert_snapshot!(settings("t5", json!({"legacy": "no"})), @r#"tokenizer_config.json: legacy is "no", expected true or false"#);
    assert_snapshot!(settings("t5", json!({"eos_token": 3})), @"tokenizer_config.json: eos_token is 3, expected a string or a token with `content`");
    assert_snapshot!(settings("t5", json!({"added_tokens_decoder": {"x": {"content": "a"}}})), @r#"tokenizer_config.json: added_tokens_decoder is "x", expected an object of tokens by id"#);
    assert_snapshot!(settings("marian", json!({"sp_model_kwargs": {"enable_sampling": true}})), @r#"tokenizer_config.json: sp_model_kwargs is {"enable_sampling":true}, expected no such setting: it is not supported"#);
    assert_snapshot!(settings("m2m100", json!({"language_codes": "all"})), @r#"tokenizer_config.json: language_codes is "all", expected m2m100 or wmt21"#);
}

#[test]
fn vocabularies_that_are_damaged() {
    let vocabulary = |contents: &str| error_with("marian", "vocab.json", contents);
    assert_snapshot!(vocabulary("[1, 2]"), @"vocab.json: is JSON, but not a vocabulary: an object of ids by piece: invalid type: sequence, expected a map at line 1 column 0");
    assert_snapshot!(vocabulary(r#"{"<unk>": -1}"#), @r#"vocab.json: "<unk>" has the id -1, expected a number from 0 to 4294967295"#);
    assert_snapshot!(vocabulary(r#"{"<unk>": 4294967296}"#), @r#"vocab.json: "<unk>" has the id 4294967296, expected a number from 0 to 4294967295"#);
    assert_snapshot!(vocabulary(r#"{"<unk>": [[]]}"#), @r#"vocab.json: "<unk>" has the id [[]], expected a number from 0 to 4294967295"#);
    assert_snapshot!(vocabulary(r#"{"a": 0"#), @"vocab.json: ends too early (EOF while parsing an object at line 1 column 7); fetch the file again");
    assert_snapshot!(vocabulary(r#"{"a": 0}"#), @r#"vocab.json: the special token "<unk>" is missing"#);
    assert_snapshot!(error_with("bart", "merges.txt", "#version\na b c\n"), @"merges.txt: line 2: has 3 pieces, expected 2");
    assert_snapshot!(error_with("bart", "merges.txt", b"#version\na \xff\n"), @"merges.txt: line 2: not UTF-8 at byte 12; convert the file to UTF-8");
    assert_snapshot!(error_with("bart", "merges.txt", "#version\nqq xx\n"), @"merges.txt: rejected by the tokenizers library: with the pieces of vocab.json: Token `qq` out of vocabulary");
}

#[test]
fn models_that_are_damaged() {
    let whole = fs::read(testdata("tokenizers/models/bpe-bytes.model")).unwrap();
    assert_snapshot!(error_with("marian", "source.spm", ""), @"source.spm: is not a SentencePiece model: it has no pieces");
    assert_snapshot!(error_with("marian", "source.spm", &whole[..1000]), @"source.spm: is not a SentencePiece model: failed to decode Protobuf message: Model.pieces: buffer underflow");
    assert_snapshot!(error_with("marian", "source.spm", "<html>"), @"source.spm: is not a SentencePiece model: failed to decode Protobuf message: unexpected end group tag");
    assert_snapshot!(error_with("marian", "source.spm", "version https://git-lfs.github.com/spec/v1\n"), @"source.spm: is a Git LFS pointer; fetch the file itself with `git lfs pull`");
    // Two bytes for every piece.
    assert_snapshot!(error_with("marian", "source.spm", [0x0a, 0].repeat(2 << 20)), @"source.spm: is not a SentencePiece model: it has 2097152 pieces, expected at most 1048576");
    assert_snapshot!(model_error(|model| model.pieces.clear()), @"source.spm: is not a SentencePiece model: it has no pieces");
    assert_snapshot!(model_error(|model| model.pieces[300].text = vec![0xff]), @"source.spm: is not a SentencePiece model: failed to decode Protobuf message: Piece.text: Model.pieces: invalid string value: data is not UTF-8 encoded");
    assert_snapshot!(model_error(|model| model.pieces[300].text.clear()), @"source.spm: is not a SentencePiece model: piece 300 is empty");
    assert_snapshot!(model_error(|model| model.pieces[300].text = b"a\0".to_vec()), @"source.spm: is not a SentencePiece model: piece 300 contains NUL");
    assert_snapshot!(model_error(|model| model.pieces[300].text = vec![b'a'; 8000]), @"source.spm: is not a SentencePiece model: piece 300 has 8000 bytes, expected fewer than 8000");
    assert_snapshot!(model_error(|model| model.pieces[300].text = model.pieces[301].text.clone()), @r#"source.spm: is not a SentencePiece model: piece 301 ("is") occurs twice"#);
    assert_snapshot!(model_error(|model| model.pieces[300].score = f32::NAN), @r#"source.spm: is not a SentencePiece model: piece 300 ("▁L"): its score is NaN"#);
    assert_snapshot!(model_error(|model| model.pieces[300].kind = Some(2)), @"source.spm: is not a SentencePiece model: pieces 0 and 300 are both the unknown piece");
    assert_snapshot!(model_error(|model| model.pieces[300].kind = Some(6)), @r#"source.spm: is not a SentencePiece model: piece 300 ("▁L") is not a byte, expected <0x00> to <0xFF>"#);
    assert_snapshot!(model_error(|model| model.pieces[9].kind = None), @"source.spm: is not a SentencePiece model: it falls back to bytes but has 255 byte pieces, expected 256");
    let trainer =
        |change: fn(&mut Trainer)| model_error(|model| change(model.trainer.as_mut().unwrap()));
    assert_snapshot!(trainer(|trainer| trainer.byte_fallback = None), @"source.spm: is not a SentencePiece model: it has byte pieces but does not fall back to bytes");
    assert_snapshot!(trainer(|trainer| trainer.model_type = Some(3)), @"source.spm: is not a SentencePiece model: it is a word model, expected a unigram or BPE model");
    assert_snapshot!(trainer(|trainer| trainer.model_type = Some(9)), @"source.spm: is not a SentencePiece model: its model_type is 9, expected 1 (unigram) or 2 (BPE)");
    let mut unknown = model("unigram-suffix.model");
    unknown.trainer.as_mut().unwrap().unk_id = Some(-5);
    assert_snapshot!(error_with("t5", "spiece.model", unknown.encode_to_vec()), @"spiece.model: rejected by the tokenizers library: The `unk_id` is larger than vocabulary size");
}

#[test]
fn character_maps_that_lie() {
    let map = |size: u32, units: &[u32], replacements: &[u8]| {
        let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        [&size.to_le_bytes()[..], &units, replacements].concat()
    };
    assert_snapshot!(charsmap_error(&[1, 2]), @"source.spm: its precompiled_charsmap is damaged: its 2 bytes have no room for its size; fetch the file again");
    assert_snapshot!(charsmap_error(&map(u32::MAX, &[0; 256], b"\0")), @"source.spm: its precompiled_charsmap is damaged: its double array needs 4294967295 bytes, found 1025; fetch the file again");
    assert_snapshot!(charsmap_error(&map(8, &[0; 256], b"\0")), @"source.spm: its precompiled_charsmap is damaged: its double array has 8 bytes, expected a multiple of 1024; fetch the file again");
    assert_snapshot!(charsmap_error(&map(1024, &[0; 256], b"\xff\0")), @"source.spm: its precompiled_charsmap is damaged: its replacements are not UTF-8: invalid utf-8 sequence of 1 bytes from index 0; fetch the file again");
    assert_snapshot!(charsmap_error(&map(1024, &[0x8000_1000; 256], b"a\0")), @"source.spm: its precompiled_charsmap is damaged: a value points to byte 4096 of 2 bytes of replacements; fetch the file again");
    assert_snapshot!(charsmap_error(&map(1024, &[0x8000_0000; 256], &[b'a'; 300])), @"source.spm: its precompiled_charsmap is damaged: the replacement at byte 0 does not end after 256 bytes; fetch the file again");
    // The same before the library sees it.
    let mut model = model("bpe-t5-bytes.model");
    model.normalizer = Some(Normalizer { charsmap: map(1024, &[0x8000_1000; 256], b"a\0") });
    assert_snapshot!(error_with("umt5", "spiece.model", model.encode_to_vec()), @"spiece.model: its precompiled_charsmap is damaged: a value points to byte 4096 of 2 bytes of replacements; fetch the file again");
}

#[test]
fn files_that_are_too_large() {
    let large = |name: &'static str| {
        move |folder: &Path| {
            fs::File::create(folder.join(name)).unwrap().set_len((32 << 20) + 1).unwrap()
        }
    };
    assert_snapshot!(error(ErrorKind::Format, "marian", large("source.spm")), @"source.spm: more than 33554432 bytes; expected a SentencePiece model");
    assert_snapshot!(error(ErrorKind::Format, "marian", large("vocab.json")), @"vocab.json: more than 33554432 bytes; expected a vocabulary: an object of ids by piece");
}

#[test]
fn languages_that_are_unknown() {
    let error = |case: &str, source: Option<&str>, target: Option<&str>| {
        let folder = folder(case, |_| {});
        let error = Tokenizer::from_folder(folder.path())
            .unwrap()
            .with_languages(source, target)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        error.to_string().replace(&format!("{}/", folder.path().display()), "")
    };
    assert_snapshot!(error("mbart50", Some("sw"), None), @r#"sentencepiece.bpe.model: unknown language "sw"; expected one of sw_KE, si_LK, sv_SE, sl_SI, ar_AR, cs_CZ, de_DE, en_XX and 44 more"#);
    assert_snapshot!(error("nllb", None, Some("de")), @r#"sentencepiece.bpe.model: unknown language "de"; expected one of deu_Latn, dan_Latn, dik_Latn, dyu_Latn, dzo_Tibt, ace_Arab, ace_Latn, acm_Arab and 194 more"#);
    assert_snapshot!(error("marian", None, Some("spa")), @r#"source.spm: unknown language "spa"; expected one of deu, fra"#);
    assert_snapshot!(error("marian", Some("eng"), None), @r#"source.spm: the tokenizer has no source languages, found source language "eng"; set only the target language"#);
    assert_snapshot!(error("t5", Some("en"), None), @r#"spiece.model: the tokenizer has no languages, found language "en""#);
    assert_snapshot!(error("m2m100-wmt21", None, Some("fr")), @r#"sentencepiece.bpe.model: unknown language "fr"; expected one of en, ha, is, ja, cs, ru, zh, de"#);
}

/// Files with bytes changed, cut short or doubled: an error or a tokenizer that encodes and
/// decodes, never a panic.
#[test]
fn damage_anywhere_never_panics() {
    let texts = ["", "the baker opens 日本 ﬁne Ａ  x\t", "<sep>ab▁cd </s> ▁▁ e\u{301}\0"];
    let mut seed = 1_u64;
    let mut random = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let files = [
        ("marian-bpe-bytes", "source.spm", 300),
        ("marian-suffix", "source.spm", 300),
        ("marian", "source.spm", 40),
        ("umt5", "spiece.model", 100),
        ("pegasus", "spiece.model", 20),
        ("m2m100", "vocab.json", 60),
    ];
    let mut n_read = 0;
    for (case, file, n_times) in files {
        let folder = folder(case, |_| {});
        let whole = fs::read(folder.path().join(file)).unwrap();
        for _ in 0..n_times {
            let mut bytes = whole.clone();
            for _ in 0..1 + random(3) {
                let at = random(bytes.len());
                match random(12) {
                    0 => bytes.truncate(at.max(1)),
                    1 => bytes.extend_from_within(at..),
                    2 => bytes[at] = 0xff,
                    _ => bytes[at] ^= 1 << random(8),
                }
            }
            fs::write(folder.path().join(file), bytes).unwrap();
            let Ok(tokenizer) = Tokenizer::from_folder(folder.path()) else { continue };
            n_read += 1;
            for text in texts {
                if let Ok(ids) = tokenizer.encode(text) {
                    tokenizer.decode(&ids).unwrap();
                }
            }
        }
    }
    assert!(n_read > 100, "{n_read} of the damaged files could be read, so the texts tell little");
}

#[test]
fn fuzz_tokenizers() {
    let texts = ["", "the baker opens 日本 ﬁne Ａ  x\t", "<sep>ab▁cd </s> ▁▁ e\u{301}\0"];
    for (case, file) in [
        ("marian-bpe-bytes", "source.spm"),
        ("marian-suffix", "source.spm"),
        ("bart", "vocab.json"),
        ("bart", "merges.txt"),
        ("mbart-json", "tokenizer.json"),
    ] {
        let folder = folder(case, |_| {});
        let whole = fs::read(folder.path().join(file)).unwrap();
        never_panics(&format!("{case}-{file}"), &[whole], 60, |bytes| {
            fs::write(folder.path().join(file), bytes).unwrap();
            let Ok(tokenizer) = Tokenizer::from_folder(folder.path()) else { return };
            for text in texts {
                if let Ok(ids) = tokenizer.encode(text) {
                    // A model may write ids that it has no piece for.
                    let _ = tokenizer.decode(&ids);
                }
            }
        });
    }
}
