//! `model.safetensors`: if a model opens, all its weights can be read.
#![no_main]

use cognate_fuzz::{folder, write};
use cognate_model::{Attentions, Model};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = folder(&[("golden/marian/config.json", "config.json")]);
    write(folder, "model.safetensors", bytes);
    if let Ok((model, _)) = Model::open_ignoring_unused(folder) {
        model.step(Attentions::Omit).expect("a model has its graphs");
        assert!(model.weights().iter().all(|(_, recipe)| recipe.values::<f32>().len() == recipe.elements()));
    }
});
