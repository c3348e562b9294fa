//! `vocab.json`, as BART has it.
#![no_main]

use cognate_fuzz::{folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let files = [("golden/bart/config.json", "config.json"), ("tokenizers/models/byte-level.merges.txt", "merges.txt")];
    tokenize(folder(&files), "vocab.json", bytes);
});
