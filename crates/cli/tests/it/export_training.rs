//! `cognate export-training`: a step that Python trains with to PyTorch's losses, and what is told
//! and refused.

use crate::{checkpoint, run, with_dir};
use cognate_export::Listing;
use cognate_testing::{golden, python, testdata};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What PyTorch lost, and was asked about.
fn answers(case: &str) -> Value {
    serde_json::from_str(
        &fs::read_to_string(testdata("training").join(case).join("answers.json")).unwrap(),
    )
    .unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    serde_json::from_value(value.clone()).unwrap()
}

/// The batch of the answers as train.py reads pairs.
fn pairs(answers: &Value) -> String {
    let rows = |name: &str| -> Vec<Vec<i64>> {
        serde_json::from_value(answers["tokens"][name].clone()).unwrap()
    };
    let ids = |ids: Vec<i64>| ids.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let sources = rows("input_ids").into_iter().zip(rows("attention_mask"));
    let sources = sources.map(|(row, mask)| {
        row.into_iter().zip(mask).filter(|(_, mask)| *mask == 1).map(|(id, _)| id).collect()
    });
    let targets =
        rows("labels").into_iter().map(|row| row.into_iter().filter(|label| *label >= 0).collect());
    sources
        .zip(targets)
        .map(|(source, target)| format!("{}\t{}\n", ids(source), ids(target)))
        .collect()
}

struct Exported {
    folder: tempfile::TempDir,
    python: PathBuf,
}

impl Exported {
    /// A step in `folder/step`, and pairs beside it.
    fn of(model: &Path, answers: &Value, options: &[&str], python: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let step = folder.path().join("step");
        run(&[&["export-training", model.to_str().unwrap(), step.to_str().unwrap()], options]
            .concat())
        .ok();
        fs::write(folder.path().join("pairs.txt"), pairs(answers)).unwrap();
        Self { folder, python: python.to_owned() }
    }

    fn python(&self, args: &[&str]) -> String {
        let output =
            Command::new(&self.python).args(args).current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Losses of a token and tokens before each update of the example.
    fn train(&self, options: &[&str]) -> Vec<(f64, f64)> {
        let said = self.python(&[&["step/train.py", "pairs.txt", "--exact"], options].concat());
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        said.lines()
            .map(words)
            .map(|words| (words[3].parse().unwrap(), words[5].parse().unwrap()))
            .collect()
    }

    fn check(&self) {
        self.python(&[
            "-c",
            "import onnx; onnx.checker.check_model('step/train_step.onnx', full_check=True)",
        ]);
    }
}

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    let close =
        found.iter().zip(expected).all(|(found, expected)| (found / expected - 1.0).abs() <= 1e-5);
    assert!(found.len() == expected.len() && close, "{found:?}\n{expected:?}");
}

/// Twelve updates in one process; the weights that it wrote have the loss that follows, in a batch
/// or in two.
#[test]
fn python_trains_to_the_losses_of_pytorch() {
    let Some(python) = python() else { return };
    let (model, answers) = (testdata("training/paper"), answers("paper"));
    let adamw = [
        "--betas",
        "0.9",
        "0.999",
        "--epsilon",
        "1e-8",
        "--weight-decay",
        "0.05",
        "--clip-norm",
        "1",
    ];
    for (optimiser, options) in [("adam", &[][..]), ("adamw", &adamw)] {
        let steps = &answers["steps"][optimiser];
        let expected = numbers(&steps["losses_float64"]);
        let exported =
            Exported::of(&model, &answers, &[&["--dropout", "0"], options].concat(), &python);
        exported.check();
        let found = exported.train(&[
            "--updates",
            "12",
            "--learning-rate",
            &steps["learning_rate"].to_string(),
        ]);
        assert_close(&found.iter().map(|(loss, _)| *loss).collect::<Vec<_>>(), &expected[..12]);
        let parts = exported.train(&["--updates", "2", "--batch", "2", "--learning-rate", "0"]);
        let [loss, tokens] = parts.iter().fold([0.0, 0.0], |[losses, all], (loss, tokens)| {
            [losses + loss * tokens, all + tokens]
        });
        assert_close(&[loss / tokens], &expected[12..]);
        // The folder holds a checkpoint still.
        let step = exported.folder.path().join("step");
        assert!(run(&["show", step.to_str().unwrap()]).ok().contains("10,720"), "{optimiser}");
    }
}

/// Families name their tensors otherwise, hold weights that are not learned, and tables of
/// positions.
#[test]
fn steps_of_families_begin_with_the_losses_of_pytorch() {
    let Some(python) = python() else { return };
    for family in ["marian", "bart", "t5-gated"] {
        let answers = answers(family);
        let exported = Exported::of(&golden(family), &answers, &["--dropout", "0"], &python);
        exported.check();
        let expected = numbers(&answers["steps"]["adam"]["losses_float64"]);
        let found = exported.train(&[
            "--updates",
            "3",
            "--learning-rate",
            &answers["steps"]["adam"]["learning_rate"].to_string(),
        ]);
        assert_close(&found.iter().map(|(loss, _)| *loss).collect::<Vec<_>>(), &expected[..3]);
    }
}

/// The commands of the README of a step; text instead of ids is an error that names them.
#[test]
fn python_trains_on_text_through_tokenize() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    run(&["export-training", "testdata/multi30k-en-de", &path("step")]).ok();
    let side = |options: &[&str], text| {
        run(&[&["tokenize", "--model", &path("step"), "--ids"], options, &[text]].concat()).ok()
    };
    let (source, target) = (side(&[], "Two dogs."), side(&["--target"], "Zwei Hunde."));
    fs::write(path("pairs.ids"), format!("{}\t{target}", source.trim_end())).unwrap();
    let exported = Exported { folder, python };
    // Of one pair: the target's tokens and its end.
    let n_tokens = target.split_whitespace().count() + 1;
    let found = exported.python(&["step/train.py", "pairs.ids", "--updates", "1", "--batch", "1"]);
    assert!(found.trim_end().ends_with(&format!("tokens {n_tokens}")), "{found}");
    fs::write(exported.folder.path().join("pairs.ids"), "Two dogs.\tZwei Hunde.\n").unwrap();
    let output = Command::new(&exported.python)
        .args(["step/train.py", "pairs.ids"])
        .current_dir(exported.folder.path())
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        !output.status.success()
            && err.contains(
                "expected token ids, found 'Two dogs.'; make them with `cognate tokenize"
            ),
        "{err}"
    );
}

/// With dropout a loss depends on the seed alone.
#[test]
fn dropout_follows_its_seed() {
    let Some(python) = python() else { return };
    let answers = answers("paper");
    let losses = |seed: &str| {
        let exported = Exported::of(
            &testdata("training/paper"),
            &answers,
            &["--dropout", "0.3", "--attention-dropout", "0.1"],
            &python,
        );
        exported.train(&["--updates", "3", "--seed", seed])
    };
    let (first, again, other) = (losses("1"), losses("1"), losses("2"));
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert_ne!(first[0].0, numbers(&answers["steps"]["adam"]["losses_float64"])[0]);
}

/// Every input and output of the graph stands in the tables, and nothing else.
#[test]
fn the_page_names_all_that_goes_in_and_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let step = folder.path().join("step");
    let model = golden("t5-gated");
    let printed = run(&["export-training", model.to_str().unwrap(), step.to_str().unwrap()]).ok();
    assert!(
        printed.ends_with(
            "DIR/step/README.md lists inputs and outputs, DIR/step/train.py is an example\n"
                .replace("DIR", folder.path().to_str().unwrap())
                .as_str()
        ),
        "{printed}"
    );
    let page = fs::read_to_string(step.join("README.md")).unwrap();
    let section =
        |title: &str| page.split("\n## ").find_map(|section| section.strip_prefix(title)).unwrap();
    let names = |title: &str| -> Vec<String> {
        section(title)
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
            .collect()
    };
    let weights = names("Weights");
    let spelt = |title: &str| -> Vec<String> {
        let all = names(title).into_iter().flat_map(|name| match name.strip_suffix("WEIGHT") {
            Some(prefix) => weights.iter().map(|weight| format!("{prefix}{weight}")).collect(),
            None => vec![name],
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    };
    let listing = Listing::read(&step.join("train_step.onnx")).unwrap();
    for (title, values) in [("Inputs", listing.inputs), ("Outputs", listing.outputs)] {
        let mut expected: Vec<_> = values.into_iter().map(|(name, _)| name).collect();
        expected.sort();
        assert_eq!(spelt(title), expected, "{title}");
    }
    assert!(names("Inputs").contains(&"dropout_seed".to_owned()));
    assert!(
        weights.contains(&"decoder.block.0.layer.1.EncDecAttention.q.weight".to_owned()),
        "{weights:?}"
    );
    assert!(fs::read_to_string(step.join("train.py")).unwrap().lines().count() < 60);
}

#[test]
fn wrong_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").to_str().unwrap().to_owned();
    let empty = checkpoint(false);
    let model = testdata("training/paper").to_str().unwrap().to_owned();
    let refused = |status: i32, args: &[&str]| {
        let said = run(&[&["export-training"], args].concat()).failed(status);
        with_dir(&with_dir(&said, folder.path()), empty.path())
    };
    assert_snapshot!(refused(1, &[&model, &out, "--seed", "3"]).replace(&model, "MODEL"), @"cognate: error: --seed: MODEL is a checkpoint, whose weights are given; leave it out, or export preset:tiny, preset:base or preset:big");
    assert_snapshot!(refused(2, &[&model, &out, "--clip-norm", "0"]).lines().next().unwrap(), @"error: invalid value '0' for '--clip-norm <NORM>': expected a number above 0");
    assert_snapshot!(refused(2, &[&model, &out, "--dropout", "0.97"]).lines().next().unwrap(), @"error: invalid value '0.97' for '--dropout <SHARE>': expected a number from 0 to 0.95");
    assert_snapshot!(refused(1, &["preset:small", &out]), @"cognate: error: preset:small: no such preset; expected one of preset:tiny, preset:base, preset:big");
    assert!(!Path::new(&out).exists());
    run(&["export-training", &model, &out]).ok();
    assert_snapshot!(refused(1, &[&model, &out]), @"cognate: error: DIR/out: exists already; pass --force to replace it");
    run(&["export-training", &model, &out, "--force"]).ok();
    fs::write(folder.path().join("out/notes.txt"), "mine").unwrap();
    assert!(refused(1, &[&model, &out, "--force"]).contains("notes.txt"));
}
