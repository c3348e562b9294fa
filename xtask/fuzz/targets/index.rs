//! `model.safetensors.index.json`, the index of a checkpoint's files.
#![no_main]

use cognate_fuzz::{folder, write};
use cognate_model::Model;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = folder(&[("golden/marian/config.json", "config.json"), ("golden/marian/model.safetensors", "one.safetensors")]);
    write(folder, "model.safetensors.index.json", bytes);
    let _ = Model::open(folder);
});
