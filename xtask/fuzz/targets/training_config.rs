//! The configuration of a training run.
#![no_main]

use cognate_train::config::TrainingConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = TrainingConfig::from_toml(text, "run.toml");
});
