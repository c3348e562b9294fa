//! `tokenizer.json`
#![no_main]

use cognate_fuzz::{catch_panics, folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: catch_panics(), |bytes: &[u8]| tokenize(folder(&[]), "tokenizer.json", bytes));
