//! The same input, seed, engine and number of threads: the same bits, run after run, of graphs,
//! weights, translations and training.
//!
//! That tokens depend on no batch and no number of workers, `same` and `load` hold; that a killed
//! run goes on to the same bits, `cargo xtask hostile --kills`.

use crate::{SENTENCES, run, run_with};
use cognate_runtime::{Device, Engine};
use cognate_testing::{bundled_checkpoint, golden};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The engines that are here.
fn engines() -> Vec<&'static str> {
    let mut engines = vec!["tract"];
    match Engine::Ort.open(Device::Cpu) {
        Ok(_) => engines.push("ort"),
        Err(error) => cognate_testing::skip(&error.to_string()),
    }
    engines
}

/// The files of a folder and of those in it, with their contents; of a training run without what
/// clocks say.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            found.extend(
                contents(&path)
                    .into_iter()
                    .map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)),
            );
        } else if matches!(name.as_str(), "log.jsonl" | "training.json") {
            found.insert(name, without_clocks(&fs::read_to_string(path).unwrap()).into_bytes());
        } else {
            found.insert(name, fs::read(path).unwrap());
        }
    }
    found
}

/// JSON, or lines of it, without times and rates.
fn without_clocks(text: &str) -> String {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let kept = values.map(|value| {
        let mut value = value.unwrap();
        value.as_object_mut().unwrap().retain(|name, _| {
            !["seconds", "tokens_per_second", "engine_share", "unlogged"].contains(&name.as_str())
        });
        value.to_string() + "\n"
    });
    kept.collect()
}

/// Runs the command twice, each time for a new folder, and adds the files that differ to `wrong`.
#[track_caller]
fn twice(what: &str, wrong: &mut Vec<String>, write: impl Fn(&str)) {
    let folder = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| {
        // The parent differs, the name does not: files may hold it.
        let out = folder.path().join(name).join("out");
        fs::create_dir(out.parent().unwrap()).unwrap();
        write(out.to_str().unwrap());
        contents(&out)
    });
    assert!(!first.is_empty(), "{what}: no files");
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    if names(&first) != names(&second) {
        wrong.push(format!("{what}: the files {:?} and {:?}", names(&first), names(&second)));
    }
    wrong.extend(
        first
            .iter()
            .filter(|(name, bytes)| second.get(*name) != Some(*bytes))
            .map(|(name, _)| format!("{what}: {name} differs")),
    );
}

#[test]
fn exports_are_the_same_bits() {
    let mut wrong = Vec::new();
    let golden = golden("marian");
    let model = golden.to_str().unwrap();
    for options in [
        &[][..],
        &["--layout", "hf"],
        &["--target", "ort"],
        &["--precision", "f16"],
        &["--precision", "int8"],
        &["--precision", "int8-block", "--target", "ort"],
        &["--precision", "bf16", "--target", "ort"],
    ] {
        let export =
            |out: &str| drop(run(&[&["export", model, out, "--no-verify"], options].concat()).ok());
        twice(&format!("export {options:?}"), &mut wrong, export);
    }
    // Weights that no file holds; what the verification found is in cognate.json.
    twice("export preset:tiny", &mut wrong, |out| {
        drop(run(&["export", "preset:tiny", out, "--seed", "3"]).ok())
    });
    twice("export-training", &mut wrong, |out| {
        drop(run(&["export-training", model, out, "--clip-norm", "1"]).ok())
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn translations_are_the_same_bits() {
    let mut wrong = Vec::new();
    let text = SENTENCES.join("\n") + "\nA dog.\n";
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    run(&[
        "export",
        bundled_checkpoint().to_str().unwrap(),
        model.to_str().unwrap(),
        "--no-verify",
    ])
    .ok();
    let model = model.to_str().unwrap();
    for engine in engines() {
        for way in [
            &["--beams", "1"][..],
            &["--beams", "4", "--n-best", "4"],
            &["--sample", "--seed", "5", "--n-best", "2"],
        ] {
            let common = [
                "translate",
                "--engine",
                engine,
                "--model",
                model,
                "--threads",
                "2",
                "--scores",
                "--max-new-tokens",
                "20",
            ];
            let [first, second] =
                [(); 2].map(|()| run_with(&[&common[..], way].concat(), &text).ok());
            if first != second {
                wrong.push(format!("{engine}, {way:?}:\n{first}and\n{second}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Tokens that occur many times in a batch, in a table of thousands of rows: their gradients are
/// summed by several threads.
#[test]
fn training_with_many_words_is_the_same_bits() {
    if !engines().contains(&"ort") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // 6,000 words of five letters, of which some are most of the text.
    let word = |index: usize| -> String {
        let letter = |place: u32| char::from(b'a' + (index / 26_usize.pow(place) % 26) as u8);
        ['w', letter(0), letter(1), letter(2), 'x'].iter().collect()
    };
    let unit = |index: usize| (index as f64 * 0.618_033_988_75).fract();
    let line = |line: usize| {
        let drawn = |place: usize| {
            word(if place.is_multiple_of(2) {
                (line * 10 + place) % 6_000
            } else {
                6_000_f64.powf(unit(line * 10 + place)) as usize
            })
        };
        (0..20).map(drawn).collect::<Vec<_>>().join(" ") + "\n"
    };
    let lines: String = (0..600).map(line).collect();
    for name in ["a.src", "a.tgt"] {
        fs::write(path(name), &lines).unwrap();
    }
    let settings = "seed = 5\ndata.train = [{ source = \"a.src\", target = \"a.tgt\" }]\ntokenizer.vocab_size = 4000\ntokenizer.algorithm = \"bpe\"\nmodel.d_model = 32\n\
                    model.d_ff = 32\nmodel.heads = 2\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\nmodel.max_positions = 256\n\
                    data.max_tokens = 2048\noptimiser.warmup_updates = 5\nschedule.max_updates = 20\nschedule.log_every = 1\n";
    fs::write(path("run.toml"), settings).unwrap();
    let (config, mut wrong) = (path("run.toml"), Vec::new());
    twice("ort, 2 threads", &mut wrong, |out| {
        drop(run(&["train", &config, "--engine", "ort", "--threads", "2", "--out", out]).ok());
        let made: Value =
            serde_json::from_str(&fs::read_to_string(Path::new(out).join("config.json")).unwrap())
                .unwrap();
        assert!(made["vocab_size"].as_u64().unwrap() > 3_500, "{made}");
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Dropout, averages, sums of gradients and the order of sentences are drawn from the seed.
#[test]
fn training_runs_are_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let lines: String = (0..60)
        .map(|line| format!("a {} b {} c\n", ["d", "e", "f"][line % 3], ["g", "h"][line % 2]))
        .collect();
    for name in ["a.src", "a.tgt"] {
        fs::write(path(name), &lines).unwrap();
    }
    let settings = "seed = 5\ndata.train = [{ source = \"a.src\", target = \"a.tgt\" }]\ndata.valid = [{ source = \"a.src\", target = \"a.tgt\" }]\n\
                    data.max_tokens = 64\ntokenizer.vocab_size = 20\ntokenizer.algorithm = \"bpe\"\nmodel.d_model = 16\nmodel.d_ff = 32\n\
                    model.heads = 2\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\nmodel.max_positions = 32\n\
                    optimiser.accumulation = 2\noptimiser.ema_decay = 0.9\noptimiser.clip_norm = 1.0\noptimiser.warmup_updates = 2\n\
                    schedule.max_updates = 6\nschedule.validate_every = 3\nschedule.log_every = 1\n";
    fs::write(path("run.toml"), settings).unwrap();
    let config = path("run.toml");
    let mut wrong = Vec::new();
    for engine in engines() {
        for threads in ["1", "2"] {
            twice(&format!("{engine}, {threads} threads"), &mut wrong, |out| {
                drop(
                    run(&[
                        "train",
                        &config,
                        "--engine",
                        engine,
                        "--threads",
                        threads,
                        "--out",
                        out,
                    ])
                    .ok(),
                );
                let log = fs::read_to_string(Path::new(out).join("log.jsonl")).unwrap();
                assert!(log.lines().filter(|line| line.contains("\"loss\"")).count() >= 6, "{log}");
            });
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
