//! `generation_config.json`
#![no_main]

use std::sync::LazyLock;

use cognate_generate::Settings;
use cognate_model::{Config, Preset};
use libfuzzer_sys::fuzz_target;

static MODEL: LazyLock<Config> = LazyLock::new(|| Preset::Tiny.config());

fuzz_target!(|text: &str| {
    if let Ok(settings) = Settings::from_json("{}", Some(text), &MODEL) {
        let _ = settings.check();
    }
});
