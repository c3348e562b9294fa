//! Files that are not tokenizers: an error that says what to do, never a panic.

use std::fs;
use std::path::Path;

use cognate_text::{ErrorKind, Result, Tokenizer};
use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::json;
use cognate_testing::testdata;

/// The error of a folder, without the temporary folder's name.
fn error_of(folder: &Path) -> String {
    message(folder, Tokenizer::from_folder(folder))
}

fn message(folder: &Path, result: Result<Tokenizer>) -> String {
    let text = result.unwrap_err().to_string();
    text.replace(&format!("{}/", folder.display()), "")
}

/// The error of a tokenizer.json with these bytes.
fn error(bytes: impl AsRef<[u8]>) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), bytes).unwrap();
    let kind = Tokenizer::from_folder(folder.path()).unwrap_err().kind();
    assert_eq!(kind, ErrorKind::Format);
    error_of(folder.path())
}

/// The error of the bundled tokenizer.json with another value in one place.
fn error_with(pointer: &str, value: Value) -> String {
    let mut tokenizer: Value = json("multi30k-en-de/tokenizer.json");
    *tokenizer.pointer_mut(pointer).unwrap() = value;
    error(tokenizer.to_string())
}

#[test]
fn files_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(Tokenizer::from_folder(folder.path()).unwrap_err().kind(), ErrorKind::File);
    assert_snapshot!(error_of(folder.path()), @"tokenizer.json: no such file; expected Hugging Face's tokenizer.json beside the checkpoint's config.json, or else source.spm, sentencepiece.bpe.model, spiece.model, or vocab.json with merges.txt");
    let inside = folder.path().join("tokenizer.json");
    fs::create_dir(&inside).unwrap();
    assert_snapshot!(error_of(folder.path()), @"tokenizer.json: is a folder; expected Hugging Face's tokenizer.json");
}

#[test]
fn files_that_are_not_tokenizers() {
    let whole = fs::read(testdata("multi30k-en-de/tokenizer.json")).unwrap();
    let config = fs::read(testdata("multi30k-en-de/config.json")).unwrap();
    assert_snapshot!(error("<html>"), @"tokenizer.json: is not JSON (expected value at line 1 column 1); expected Hugging Face's tokenizer.json");
    assert_snapshot!(error(""), @"tokenizer.json: ends too early (EOF while parsing a value at line 1 column 0); fetch the file again");
    assert_snapshot!(error(&whole[..100_000]), @"tokenizer.json: ends too early (EOF while parsing a value at line 6287 column 1); fetch the file again");
    assert_snapshot!(error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"), @"tokenizer.json: is a Git LFS pointer; fetch the file itself with `git lfs pull`");
    assert_snapshot!(error(config), @"tokenizer.json: is JSON, but not Hugging Face's tokenizer.json: it has no `model`; it has activation_function, architectures, bos_token_id, d_model, decoder_attention_heads, decoder_ffn_dim, decoder_layers, decoder_start_token_id");
    assert_snapshot!(error("{}"), @"tokenizer.json: is JSON, but not Hugging Face's tokenizer.json: it is empty, expected `model`");
    assert_snapshot!(error("[]"), @"tokenizer.json: is JSON, but not Hugging Face's tokenizer.json: invalid length 0, expected an object at line 1 column 2");
    assert_snapshot!(error([b'"', 0xff, b'"']), @"tokenizer.json: is not JSON (invalid unicode code point at line 1 column 2); expected Hugging Face's tokenizer.json");
}

#[test]
fn parts_that_are_damaged() {
    let charsmap = |map: Value| json!({"type": "Precompiled", "precompiled_charsmap": map});
    assert_snapshot!(error_with("/normalizer", charsmap(Value::Null)), @"tokenizer.json: normalizer: precompiled_charsmap is null, expected base64 text; conversions for the browser leave it out: take tokenizer.json from the original checkpoint");
    assert_snapshot!(error_with("/normalizer/normalizers/1", charsmap(json!(""))), @"tokenizer.json: normalizer.normalizers[1]: precompiled_charsmap is damaged (Cannot parse precompiled_charsmap), expected base64 of SentencePiece's normalization rules; fetch the file again");
    assert_snapshot!(error_with("/normalizer/normalizers/1", charsmap(json!("%"))), @"tokenizer.json: normalizer.normalizers[1]: precompiled_charsmap is damaged (Invalid byte 37, offset 0. at line 1 column 49), expected base64 of SentencePiece's normalization rules; fetch the file again");
    assert_snapshot!(error_with("/normalizer/normalizers/1", charsmap(json!("/////w=="))), @"tokenizer.json: normalizer.normalizers[1]: precompiled_charsmap is damaged (its double array needs 4294967295 bytes, found 0), expected base64 of SentencePiece's normalization rules; fetch the file again");
    assert_snapshot!(error_with("/normalizer/normalizers/1", json!({"type": "Nonsense"})), @"tokenizer.json: rejected by the tokenizers library: data did not match any variant of untagged enum NormalizerUntagged at line 1 column 597");
    assert_snapshot!(error_with("/model/type", json!("Nonsense")), @"tokenizer.json: rejected by the tokenizers library: data did not match any variant of untagged enum ModelUntagged at line 1 column 270444");
    assert_snapshot!(error_with("/model/unk_id", json!(8000)), @"tokenizer.json: rejected by the tokenizers library: Unable to load vocab UnkIdNotInVocabulary at line 1 column 270446");
    assert_snapshot!(error_with("/version", json!("2.0")), @"tokenizer.json: rejected by the tokenizers library: Unknown tokenizer version '2.0' at line 1 column 16");
}

/// A map whose trie has no nodes, a template whose token has no id: the library indexes past the
/// end.
#[test]
fn a_panic_of_the_library_is_an_error() {
    let charsmap = json!({"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="});
    assert_snapshot!(error_with("/normalizer", charsmap), @"tokenizer.json: rejected by the tokenizers library: it panicked: index out of bounds: the len is 0 but the index is 0");
    assert_snapshot!(error_with("/post_processor/special_tokens", json!({})), @"tokenizer.json: rejected by the tokenizers library: it panicked: no entry found for key");
}

#[test]
fn files_that_are_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::File::create(&file).unwrap().set_len((256 << 20) + 1).unwrap();
    assert_snapshot!(message(folder.path(), Tokenizer::from_file(&file)), @"tokenizer.json: more than 268435456 bytes; expected Hugging Face's tokenizer.json");
}

#[test]
fn a_damaged_tokenizer_config_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bundled = testdata("multi30k-en-de/tokenizer.json");
    fs::copy(bundled, folder.path().join("tokenizer.json")).unwrap();
    fs::write(
        folder.path().join("tokenizer_config.json"),
        r#"{"clean_up_tokenization_spaces": 1}"#,
    )
    .unwrap();
    assert_snapshot!(error_of(folder.path()), @"tokenizer_config.json: clean_up_tokenization_spaces is 1, expected true or false");
}
