//! SentencePiece models in Marian's format.
#![no_main]

use cognate_fuzz::{catch_panics, folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: catch_panics(), |bytes: &[u8]| {
    let files = [
        ("golden/marian/config.json", "config.json"),
        ("tokenizers/models/unigram-bytes.model", "target.spm"),
        ("tokenizers/models/marian.json", "vocab.json"),
    ];
    tokenize(folder(&files), "source.spm", bytes);
});
