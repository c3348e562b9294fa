//! Grids of training runs.

use cognate_train::config::{Text, TrainingConfig};
use cognate_train::{GridAxis, grid};
use std::path::Path;

fn config() -> TrainingConfig {
    let mut config = TrainingConfig::default();
    let text = Text { source: Some("a".into()), target: Some("b".into()), ..Default::default() };
    (config.data.train, config.data.valid, config.schedule.max_updates) =
        (vec![text.clone()], vec![text], Some(9_000));
    config
}

#[test]
fn values_are_read() {
    let read = |text: &str| text.parse::<GridAxis>();
    let axis = read("positions=rotary, alibi").unwrap();
    assert_eq!(
        (axis.field.as_str(), axis.values),
        ("positions", vec!["rotary".to_owned(), "alibi".to_owned()])
    );
    for (text, expected) in [
        ("positions", "expected a field and its values, such as norm_placement=pre,post"),
        ("positions=", "expected a field and its values, such as norm_placement=pre,post"),
        ("heads=2,4,2", "2 occurs twice"),
    ] {
        assert_eq!(read(text), Err(expected.to_owned()), "{text}");
    }
}

#[test]
fn every_combination_is_a_run() {
    let axes = ["norm_placement=pre,post", "optimiser.learning_rate=1e-3,2e-3"]
        .map(|text| text.parse().unwrap());
    let runs = grid(&axes, &config(), Path::new("out")).unwrap();
    assert_eq!(runs[0].folder, Path::new("out/norm_placement=pre,optimiser.learning_rate=1e-3"));
    assert_eq!((runs.len(), runs[3].config.optimiser.learning_rate), (4, Some(2e-3)));
}

#[test]
fn wrong_grids_are_refused() {
    let refused = |config: &TrainingConfig, texts: &[&str]| {
        let axes: Vec<GridAxis> = texts.iter().map(|text| text.parse().unwrap()).collect();
        grid(&axes, config, Path::new("out")).unwrap_err().to_string()
    };
    assert!(
        refused(&TrainingConfig::default(), &["norm=rms"]).starts_with("expected validation text")
    );
    for (texts, expected) in [
        (
            &["norm=rms", "model.norm=layer"][..],
            "model.norm occurs twice; pass all its values in one option",
        ),
        (
            &["init=a/b,a_b"],
            "out/init=a_b: is the folder of two runs; name their values differently",
        ),
        (&["norm=rms,mean"], "model.norm: found `mean`, expected `layer` or `rms`"),
        (&["heads=4,3"], "heads=3: model.heads is 3, expected a divisor of d_model, 128"),
    ] {
        assert_eq!(refused(&config(), texts), expected);
    }
}
