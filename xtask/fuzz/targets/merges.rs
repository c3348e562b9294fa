//! `merges.txt` in BART's format.
#![no_main]

use cognate_fuzz::{catch_panics, folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: catch_panics(), |bytes: &[u8]| {
    let files = [("golden/bart/config.json", "config.json"), ("tokenizers/models/byte-level.vocab.json", "vocab.json")];
    tokenize(folder(&files), "merges.txt", bytes);
});
