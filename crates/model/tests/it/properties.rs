//! Positions and initial weights. Properties of whole Transformers are tested on every engine, in
//! cognate-verify.

use cognate_model::{Initialisation, Model, Preset, Sinusoids, sinusoid};

#[test]
fn sinusoids_follow_the_formula() {
    // Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), here
    // with d_model 128.
    let model = Model::preset(Preset::Tiny, 1).unwrap();
    let table = model.weights().get("encoder.embed_positions.weight").unwrap().values::<f32>();
    for (position, pair) in [(0, 0), (1, 0), (5, 3), (511, 63)] {
        let angle = position as f64 * (-(10000f64.ln()) * 2.0 * pair as f64 / 128.0).exp();
        let row = &table[position * 128..][..128];
        assert!((f64::from(row[2 * pair]) - angle.sin()).abs() < 1e-6, "sine {position} {pair}");
        assert!(
            (f64::from(row[2 * pair + 1]) - angle.cos()).abs() < 1e-6,
            "cosine {position} {pair}"
        );
        assert_eq!(
            sinusoid(Sinusoids::Halves, position, 64 + pair, 128),
            sinusoid(Sinusoids::Interleaved, position, 2 * pair + 1, 128)
        );
    }
}

#[test]
fn initial_weights_depend_on_the_seed_alone() {
    let config = Preset::Tiny.config();
    let values = |seed| {
        Model::initial(config.clone(), Initialisation::Glorot, seed)
            .unwrap()
            .weights()
            .get("encoder.layers.0.fc1.weight")
            .unwrap()
            .values::<f32>()
    };
    let (one, again, other) = (values(1), values(1), values(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let bound = (6f32 / (128.0 + 256.0)).sqrt();
    assert!(one.iter().all(|value| value.abs() <= bound));
    let variance = one.iter().map(|value| value * value).sum::<f32>() / one.len() as f32;
    assert!((variance / (bound * bound / 3.0) - 1.0).abs() < 0.05, "variance {variance}");
}

#[test]
fn presets_have_the_papers_sizes() {
    // Table 3 gives 65 and 213 million for a vocabulary of about 37,000.
    for (preset, millions) in [(Preset::Base, 60..66), (Preset::Big, 205..215)] {
        let parameters = Model::preset(preset, 1).unwrap().parameters();
        assert!(millions.contains(&(parameters / 1_000_000)), "{}: {parameters}", preset.name());
    }
}
