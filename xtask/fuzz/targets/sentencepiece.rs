//! SentencePiece models, as Marian has them.
#![no_main]

use cognate_fuzz::{folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let files = [
        ("golden/marian/config.json", "config.json"),
        ("tokenizers/models/unigram-bytes.model", "target.spm"),
        ("tokenizers/models/marian.json", "vocab.json"),
    ];
    tokenize(folder(&files), "source.spm", bytes);
});
