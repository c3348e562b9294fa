//! `config.json` of all families.
#![no_main]

use cognate_model::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Config::from_json(text);
});
