//! `cognate train`: from text to a checkpoint that the other commands take, and what people are
//! told.

use crate::{cognate, run, with_dir};
use cognate_runtime::{Device, Engine};
use insta::assert_snapshot;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A folder with text of letters and their capitals: `a.src`, `a.tgt`; and settings of a small
/// model: `small.toml`.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    // All sequences of four letters, and those of three.
    let letters = |line: usize| {
        (0..3 + usize::from(line >= 125))
            .map(move |place| ["a", "b", "c", "d", "e"][line / [1, 5, 25, 125][place] % 5])
    };
    let source: String =
        (0..750).map(|line| letters(line).collect::<Vec<_>>().join(" ") + "\n").collect();
    fs::write(folder.path().join("a.src"), &source).unwrap();
    fs::write(folder.path().join("a.tgt"), source.to_uppercase()).unwrap();
    let settings = "data.train = [{ source = \"a.src\", target = \"a.tgt\" }]\ndata.valid = [{ source = \"a.src\", target = \"a.tgt\" }]\n\
                    data.max_tokens = 256\nthreads = 1\n\
                    tokenizer.vocab_size = 24\ntokenizer.algorithm = \"bpe\"\n\
                    model.d_model = 32\nmodel.d_ff = 64\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\n\
                    dropout.embeddings = 0.0\ndropout.sublayers = 0.0\noptimiser.label_smoothing = 0.0\n\
                    optimiser.learning_rate = 5e-3\noptimiser.warmup_updates = 100\nschedule.max_updates = 400\nschedule.validate_every = 200\n";
    fs::write(folder.path().join("small.toml"), settings).unwrap();
    folder
}

pub(crate) fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

fn refused(folder: &TempDir, status: i32, args: &[&str]) -> String {
    let err = run(&[&["train", "--engine", "tract"], args].concat()).failed(status);
    let lines =
        err.lines().filter(|line| !line.starts_with("cognate: warning: training runs on tract"));
    with_dir(&lines.collect::<Vec<_>>().join("\n"), folder.path())
}

#[test]
fn text_becomes_a_model_that_translates() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let ended = run(&["train", &settings, "--engine", "ort", "--out", &out]);
    let told = ended.err.clone();
    assert_eq!(ended.ok(), "");
    assert!(
        told.contains(" parameters, 750 pairs of 750 lines, on ONNX Runtime")
            && told.contains("maximum number of updates: update 400; "),
        "{told}"
    );
    assert_eq!(
        run(&["translate", "--engine", "tract", "--model", &out, "a b c", "e d c b"]).ok(),
        "A B C\nE D C B\n"
    );
    // Further, by the run's own settings, which are in the folder.
    let further =
        run(&["train", "--resume", "--engine", "ort", "--out", &out, "--max-updates", "410"]);
    assert!(further.err.contains("resuming after update 400"), "{}", further.err);
    assert_eq!(further.ok(), "");
    let exported = path(folder.path(), "onnx");
    run(&["export", &out, &exported]).ok();
}

/// ONNX Runtime's fastest form has no additive scores: another is taken.
#[test]
fn additive_models_translate_on_every_engine() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let short = ["--preset", "additive", "--max-updates", "101", "--validate-every", "101"];
    run(&[&["train", &settings, "--engine", "ort", "--out", &out], &short[..]].concat()).ok();
    let said = ["ort", "tract", "reference"]
        .map(|engine| run(&["translate", "--engine", engine, "--model", &out, "a b c"]).ok());
    assert!(said[0] == said[1] && said[0] == said[2], "{said:?}");
}

/// Runs of a grid are compared, and those that are over are not done again.
#[test]
fn choices_are_compared() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let common = [
        "train",
        &settings,
        "--engine",
        "ort",
        "--out",
        &out,
        "--max-updates",
        "110",
        "--validate-every",
        "55",
    ];
    let unsupported = ["--grid", "optimiser.precision=f32,f16"];
    let refused = run(&[&common[..], &unsupported].concat()).failed(1);
    assert_snapshot!(refused, @"cognate: error: --grid: optimiser.precision: expected f32 or bf16 on a processor, found f16");
    let grid = ["--grid", "norm_placement=pre,post", "--grid", "biases=true,false"];
    let said = run(&[&common[..], &grid].concat()).ok();
    let csv = fs::read_to_string(path(folder.path(), "out/grid.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(
        rows[0][..6],
        ["norm_placement", "biases", "parameters", "updates", "valid_loss", "perplexity"]
    );
    let choices: Vec<_> = rows[1..].iter().map(|row| (row[0], row[1], row[3])).collect();
    assert_eq!(
        choices,
        [
            ("pre", "true", "110"),
            ("pre", "false", "110"),
            ("post", "true", "110"),
            ("post", "false", "110")
        ]
    );
    let parameters: Vec<i64> = rows[1..].iter().map(|row| row[2].parse().unwrap()).collect();
    // Pre-norm has a norm after each stack; a bias is 32 wide, in three attentions four times, and
    // 64 and 32 in two feed-forwards.
    assert_eq!(
        (parameters[0] - parameters[2], parameters[0] - parameters[1]),
        (2 * 64, 3 * 4 * 32 + 2 * 96)
    );
    let losses: Vec<f64> = said
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().nth(4).unwrap().parse().unwrap())
        .collect();
    assert!(losses.len() == 4 && losses.is_sorted(), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path(folder.path(), "out/grid.json")).unwrap())
            .unwrap();
    assert_eq!(
        (json["metric"].as_str(), json["runs"][3]["biases"].as_bool()),
        (Some("loss"), Some(false))
    );
    let again = run(&[&common[..], &grid].concat()).failed(1);
    assert_snapshot!(with_dir(&again, folder.path()), @"cognate: error: DIR/out: expected an empty or new folder; continue with --resume, or choose another");
    // As if one had been interrupted before it was saved.
    let unsaved = folder.path().join("out/norm_placement=post,biases=false");
    for entry in fs::read_dir(&unsaved).unwrap().map(|entry| entry.unwrap()) {
        match entry.file_name().to_str().unwrap() {
            "log.jsonl" | "training.toml" => {}
            "checkpoint-110" => fs::remove_dir_all(entry.path()).unwrap(),
            _ => fs::remove_file(entry.path()).unwrap(),
        }
    }
    let resumed = run(&[&common[..], &grid, &["--resume"]].concat());
    assert_eq!(
        resumed.err.matches("all updates made").count()
            + resumed.err.matches("validation loss").count(),
        2,
        "{}",
        resumed.err
    );
    resumed.ok();
    assert_eq!(fs::read_to_string(path(folder.path(), "out/grid.csv")).unwrap().lines().count(), 5);
}

#[test]
fn a_grid_goes_on_after_a_run_that_diverges() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let ended = run(&[
        "train",
        &settings,
        "--out",
        &out,
        "--max-updates",
        "3",
        "--grid",
        "optimiser.learning_rate=1e38,1e-3",
    ]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    let last = ended.err.lines().last().unwrap();
    assert!(last.starts_with("cognate: error: --grid: 1 of 2 runs diverged: "), "{last}");
    let csv = fs::read_to_string(path(folder.path(), "out/grid.csv")).unwrap();
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

/// A folder that no run wrote is kept, and the table has the runs before it.
#[test]
fn a_grid_keeps_what_it_did_not_write() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let notes = folder.path().join("out/seed=2/notes.txt");
    fs::create_dir_all(notes.parent().unwrap()).unwrap();
    fs::write(&notes, "mine").unwrap();
    let grid = ["--max-updates", "3", "--grid", "seed=1,2", "--resume"];
    let ended = run(&[&["train", &settings, "--out", &out][..], &grid].concat());
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    let last = with_dir(ended.err.lines().last().unwrap(), folder.path());
    assert_snapshot!(last, @"cognate: error: seed=2: DIR/out/seed=2: expected an empty folder or none; name another");
    assert!(notes.is_file());
    let csv = fs::read_to_string(path(folder.path(), "out/grid.csv")).unwrap();
    assert_eq!(csv.lines().count(), 2, "{csv}");
}

/// SIGINT lets a run save its state.
#[cfg(unix)]
#[test]
fn an_interrupted_run_is_saved() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), folder.path().join("out"));
    let args = [
        "train",
        &settings,
        "--engine",
        "ort",
        "--max-updates",
        "1000000",
        "--validate-every",
        "20",
        "--out",
        out.to_str().unwrap(),
    ];
    let running = cognate(&args).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let first = out.join("checkpoint-20");
    while !first.is_dir() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let kill = std::process::Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status()
        .unwrap();
    assert!(kill.success());
    let ended = running.wait_with_output().unwrap();
    let told = with_dir(&String::from_utf8(ended.stderr).unwrap(), folder.path());
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(
        told.contains("cognate: stopped and saved after update ")
            && told.ends_with("; continue with `cognate train --resume --out DIR/out`\n"),
        "{told}"
    );
}

#[test]
fn what_cannot_be_trained_on_is_refused() {
    let folder = folder();
    let file = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        path(folder.path(), name)
    };
    let (source, target, out) =
        (path(folder.path(), "a.src"), path(folder.path(), "a.tgt"), path(folder.path(), "out"));
    let (short, empty, missing) =
        (file("short", "a\nb\n"), file("empty", ""), path(folder.path(), "missing"));
    let latin = path(folder.path(), "latin");
    fs::write(&latin, b"K\xe4se\n".repeat(400)).unwrap();
    let refused = |args: &[&str]| {
        refused(&folder, 1, &[args, &["--out", &out, "--max-updates", "5"]].concat())
    };
    assert_snapshot!(refused(&[]), @"cognate: error: no training text: pass CONFIG.toml, or --data SOURCE TARGET");
    assert_snapshot!(refused(&["--data", &source, &short]), @"cognate: error: DIR/a.src has 750 lines, DIR/short has 2; expected as many: line n of one is the translation of line n of the other");
    assert_snapshot!(refused(&["--data", &empty, &empty]), @"cognate: error: DIR/empty: is empty; expected one sentence a line");
    assert_snapshot!(refused(&["--data", &missing, &target]), @"cognate: error: DIR/missing: cannot read: No such file or directory (os error 2)");
    assert_snapshot!(refused(&["--data", &source, &latin]), @"cognate: error: DIR/latin: line 1: not UTF-8 at byte 2; convert the file to UTF-8");
    assert_snapshot!(refused(&["--resume"]), @"cognate: error: DIR/out: has no run to resume (no training.toml); start without --resume");
    let wrong = file(
        "wrong.toml",
        "[model]\nlayers = 6\nheads = 3\n[optimiser]\nlearning_rate = \"high\"\n",
    );
    assert_snapshot!(refused(&[&wrong]), @r#"
    cognate: error: DIR/wrong.toml: data.train is empty, expected at least one corpus: { source = "train.en", target = "train.de" }
    DIR/wrong.toml: line 2: model.layers is unknown; expected one of init, preset, d_model, heads, d_ff, encoder_layers, decoder_layers, max_positions, norm, norm_placement, positions, relative_buckets, relative_max_distance, activation, gated, attention_score, initialisation, biases, tie_embeddings, tie_output, scale_embedding
    DIR/wrong.toml: line 3: model.heads is 3, expected a divisor of d_model, 128
    DIR/wrong.toml: line 5: optimiser.learning_rate: found string "high", expected a number
    "#);
    assert!(!Path::new(&out).exists());
}
