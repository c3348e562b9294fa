//! `tokenizer.json`
#![no_main]

use cognate_fuzz::{folder, tokenize};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tokenize(folder(&[]), "tokenizer.json", bytes));
