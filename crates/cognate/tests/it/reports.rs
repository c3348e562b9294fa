//! What people read: numbers, the results of grids, and warnings of f16.

use cognate::Calibration;
use cognate::amounts::{bytes, thousands};
use cognate::train::{GridTable, TrainingConfig};
use cognate_folder::{Caution, StepsReport};
use cognate_train::GridRun;
use cognate_train::config::Metric;
use std::fs;

#[test]
fn numbers_are_readable() {
    let thousands = [0, 999, 1000, 2_349_056].map(thousands);
    assert_eq!(thousands, ["0", "999", "1,000", "2,349,056"]);
    let bytes = [0, 999, 1000, 12_345, 242_000_000, 999_600_000, 2_500_000_000].map(bytes);
    assert_eq!(bytes, ["0 B", "999 B", "1.0 kB", "12.3 kB", "242 MB", "1.0 GB", "2.5 GB"]);
}

#[test]
fn the_best_run_of_a_grid_is_first() {
    let folder = tempfile::tempdir().unwrap();
    // The first one publishes an average, whose validation is the last.
    let logs = [("layer", 10, &[2.5, 2.0][..]), ("rms", 8, &[1.0])];
    let runs = logs.map(|(norm, parameters, losses)| {
        let mut config = TrainingConfig::default();
        config.schedule.average_checkpoints = losses.len();
        let run =
            GridRun { values: vec![norm.into()], config, folder: folder.path().join(norm) };
        fs::create_dir(&run.folder).unwrap();
        let line = |loss: &f64| {
            let best = loss == &losses[0];
            format!(
                r#"{{"update":9,"epoch":1,"valid_loss":{loss},"valid_nll":1.0,"perplexity":2.7,"best":{best},"seconds":60}}"#
            ) + "\n"
        };
        fs::write(run.folder.join("log.jsonl"), losses.iter().map(line).collect::<String>())
            .unwrap();
        (run, parameters)
    });
    let runs = runs.iter().map(|(run, parameters)| (run, *parameters));
    let table = GridTable::read(&["norm".to_owned()], runs, Metric::Loss).unwrap();
    let lines: Vec<_> = table.to_string().lines().map(str::to_owned).collect();
    let expected = [
        "norm   parameters  updates  valid_loss  perplexity  tokens_per_second  minutes  valid_loss",
        "rms             8        9      1.0000       2.700                  0      1.0  ██████████",
        "layer          10        9      2.0000       2.700                  0      1.0  ████████████████████",
    ];
    assert_eq!(lines, expected);
    assert_eq!(
        table.to_csv().lines().next(),
        Some("norm,parameters,updates,valid_loss,perplexity,bleu,tokens_per_second,minutes")
    );
    assert_eq!(table.to_json()["runs"][1]["parameters"], 8);
}

#[test]
fn an_imprecise_f16_is_a_warning() {
    let steps = |equal| StepsReport { steps: 100, equal, wanted: 99 };
    let printed = |tuned, held_out| {
        let calibration = Calibration {
            caution: Caution::Stacks,
            tuned: steps(tuned),
            held_out: steps(held_out),
        };
        (calibration.to_string(), calibration.warning().unwrap_or_default())
    };
    let stacks = "both stacks and the output in f32 for precision";
    for (tuned, held_out, shown, warned) in [
        (
            99,
            99,
            "99 of 100 greedy steps equal on tuning sentences, 99 of 100 on held-out ones",
            "",
        ),
        (
            99,
            98,
            "99 of 100 greedy steps equal on tuning sentences, 98 of 100 on held-out ones  LOW",
            "f16: 98 of 100 greedy steps on held-out sentences choose the same token as f32, expected at least 99; measure BLEU with --data",
        ),
        (
            90,
            98,
            "NOT REACHED: 90 of 100 greedy steps equal on tuning sentences, 98 of 100 on held-out ones  LOW",
            "f16 is not precise enough for this model: with both stacks in f32, 90 of 100 greedy steps on tuning sentences choose the same \
             token as f32, expected at least 99; export in f32",
        ),
    ] {
        assert_eq!(printed(tuned, held_out), (format!("{stacks}: {shown}"), warned.to_owned()));
    }
}
