//! Whole runs: learning, going on, ending, and what is refused.

use crate::Folder;
use cognate_runtime::{Device, Engine, Reference, Runtime};
use cognate_testing::{bundled_checkpoint, testdata};
use cognate_train::config::TrainingConfig;
use cognate_train::{Beginning, Ending, Event, LeftOut, LogLine, Machine, Outcome, Trainer};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

/// ONNX Runtime, which trains; `None`, with the reason on standard error, where its library is not
/// found.
pub(crate) fn ort() -> Option<Box<dyn Runtime>> {
    Engine::Ort
        .open(Device::Cpu)
        .inspect_err(|error| cognate_testing::skip(&error.to_string()))
        .ok()
}

/// Lines of 2 to 6 letters of 8, and their letters in the opposite order.
fn reversals(n: u64) -> [String; 2] {
    let mut state = 9_u64;
    let mut number = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut texts = [String::new(), String::new()];
    for _ in 0..n {
        let length = 2 + number(5);
        let letters: Vec<String> =
            (0..length).map(|_| char::from(b'a' + number(8) as u8).to_string()).collect();
        let reversed: Vec<String> = letters.iter().rev().cloned().collect();
        texts[0] += &(letters.join(" ") + "\n");
        texts[1] += &(reversed.join(" ") + "\n");
    }
    texts
}

/// Settings of a small run on `folder`'s texts, with more lines of TOML.
pub(crate) fn config(folder: &Folder, more: &str) -> TrainingConfig {
    let [source, target] = reversals(2_000);
    folder.write("train.src", source);
    folder.write("train.tgt", target);
    let [source, target] = reversals(100);
    folder.write("valid.src", source);
    folder.write("valid.tgt", target);
    let text = format!(
        "seed = 3\nthreads = 1\n\
         data.train = [{{ source = \"train.src\", target = \"train.tgt\" }}]\n\
         data.valid = [{{ source = \"valid.src\", target = \"valid.tgt\" }}]\n\
         data.max_tokens = 512\n\
         tokenizer.vocab_size = 20\ntokenizer.algorithm = \"bpe\"\n\
         model.d_model = 32\nmodel.heads = 4\nmodel.d_ff = 64\nmodel.encoder_layers = 1\nmodel.decoder_layers = 1\nmodel.max_positions = 32\n\
         {more}\n"
    );
    TrainingConfig::read(folder.write("training.toml", text)).unwrap()
}

fn run(
    config: &TrainingConfig,
    out: &Path,
    beginning: Beginning,
    runtime: &dyn Runtime,
) -> (Outcome, Vec<f64>) {
    let mut losses = Vec::new();
    let mut trainer =
        Trainer::new(config.clone(), out, beginning, Machine::alone(runtime, Device::Cpu)).unwrap();
    let outcome = trainer.run(&mut |event| {
        if let Event::Update(progress) = event {
            losses.push(progress.loss);
        }
        ControlFlow::Continue(())
    });
    (outcome.unwrap(), losses)
}

pub(crate) fn log(out: &Path) -> Vec<Value> {
    let text = fs::read_to_string(out.join("log.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn refusal(
    config: &TrainingConfig,
    out: &Path,
    beginning: Beginning,
    runtime: &dyn Runtime,
) -> String {
    match Trainer::new(config.clone(), out, beginning, Machine::alone(runtime, Device::Cpu)) {
        Ok(_) => panic!("the run began"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn reversing_is_learned() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let more = "model.initialisation = \"glorot\"\ndropout.embeddings = 0.0\ndropout.sublayers = 0.0\noptimiser.label_smoothing = 0.0\n\
                optimiser.learning_rate = 5e-3\noptimiser.warmup_updates = 100\noptimiser.ema_decay = 0.99\n\
                schedule.max_updates = 600\nschedule.validate_every = 300\nschedule.metric = \"bleu\"\nschedule.keep_checkpoints = 2";
    let out = folder.path().join("out");
    let (outcome, losses) = run(&config(&folder, more), &out, Beginning::Fresh, &*ort);
    assert_eq!((outcome.ending, outcome.updates, losses.len()), (Ending::Updates, 600, 600));
    let (_, bleu) = outcome.best.unwrap();
    assert!(bleu > 95.0, "BLEU {bleu}: {:?}", log(&out));
    let validations: Vec<Value> =
        log(&out).into_iter().filter(|line| line.get("valid_nll").is_some()).collect();
    assert_eq!(validations.len(), 2);
    assert!(validations[1]["valid_nll"].as_f64().unwrap() < 0.05, "{validations:?}");
    let mut names: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_snapshot!(names.join(" "), @"checkpoint-300 checkpoint-600 config.json generation_config.json log.jsonl model.safetensors special_tokens_map.json tokenizer.json tokenizer_config.json training.toml");
}

/// So do models with other attention than the paper's.
#[test]
fn reversing_is_learned_by_other_choices() {
    let Some(ort) = ort() else { return };
    for preset in ["additive", "rotary"] {
        let folder = Folder::new();
        let more = format!(
            "model.preset = \"{preset}\"\nmodel.initialisation = \"glorot\"\ndropout.embeddings = 0.0\ndropout.sublayers = 0.0\noptimiser.label_smoothing = 0.0\n\
             optimiser.learning_rate = 5e-3\noptimiser.warmup_updates = 100\nschedule.max_updates = 600\nschedule.validate_every = 600\n\
             schedule.metric = \"bleu\""
        );
        let (outcome, _) =
            run(&config(&folder, &more), &folder.path().join("out"), Beginning::Fresh, &*ort);
        let (_, bleu) = outcome.best.unwrap();
        assert!(bleu > 95.0, "{preset}: BLEU {bleu}: {:?}", log(&folder.path().join("out")));
    }
}

/// Dropout, averages, sums of gradients and clipping are all part of the state.
#[test]
fn going_on_gives_the_same_losses() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let settings = |updates: u32| {
        let more = format!(
            "optimiser.accumulation = 2\noptimiser.ema_decay = 0.9\noptimiser.clip_norm = 1.0\noptimiser.warmup_updates = 5\n\
             schedule.log_every = 4\nschedule.validate_every = 7\nschedule.max_updates = {updates}"
        );
        config(&folder, &more)
    };
    let [whole, parts] = ["whole", "parts"].map(|name| folder.path().join(name));
    let (_, expected) = run(&settings(20), &whole, Beginning::Fresh, &*ort);
    let (_, mut found) = run(&settings(10), &parts, Beginning::Fresh, &*ort);
    let (_, rest) = run(&settings(20), &parts, Beginning::Resume, &*ort);
    found.extend(rest);
    assert_eq!(
        found.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>(),
        expected.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>()
    );
    let [weights, again] = [whole.clone(), parts.clone()]
        .map(|out| fs::read(out.join("checkpoint-20/training_state.safetensors")).unwrap());
    assert!(weights == again, "the state after 20 updates differs");
    // The lines of updates and validations that both runs had.
    let lines = |out: &Path| -> Vec<Value> {
        let mut lines = log(out);
        for line in &mut lines {
            let line = line.as_object_mut().unwrap();
            line.retain(|name, _| {
                !["seconds", "tokens_per_second", "engine_share", "best"].contains(&name.as_str())
            });
        }
        lines.retain(|line| line["update"] != 10);
        lines
    };
    assert_eq!(lines(&parts), lines(&whole));
}

/// Settings that tune the checkpoint in `init` on 24 lines.
fn tuning(folder: &Folder, init: &Path, more: &str) -> TrainingConfig {
    let lines = [
        "Ein Mann fährt Fahrrad .",
        "Zwei Hunde spielen im Schnee .",
        "Eine Frau liest ein Buch .",
    ];
    folder.write(
        "a.en",
        "A man is riding a bicycle .\nTwo dogs are playing in the snow .\nA woman reads a book .\n"
            .repeat(8),
    );
    folder.write("a.de", (lines.join("\n") + "\n").repeat(8));
    let text = format!(
        "threads = 1\ndata.train = [{{ source = \"a.en\", target = \"a.de\" }}]\ndata.valid = [{{ source = \"a.en\", target = \"a.de\" }}]\n\
         data.max_tokens = 256\nmodel.init = {init:?}\noptimiser.warmup_updates = 1\noptimiser.decay = \"constant\"\n\
         schedule.validate_every = 10\n{more}"
    );
    TrainingConfig::read(folder.write("tune.toml", text)).unwrap()
}

#[test]
fn a_checkpoint_that_translates_no_text_is_refused() {
    let folder = Folder::new();
    for name in ["golden/speech/whisper", "decoders/text", "encoders/bert-text"] {
        let config = tuning(&folder, &testdata(name), "schedule.max_updates = 1");
        let out = folder.path().join("out");
        let said = refusal(&config, &out, Beginning::Fresh, &Reference::F32);
        assert!(said.contains(name) && said.contains("a model that translates text"), "{said}");
    }
}

/// The paths of the weights that differ between two checkpoints.
fn changed(before: &Path, after: &Path) -> Vec<String> {
    let [before, after] = [before, after].map(|folder| cognate_model::Model::open(folder).unwrap());
    let values = |model: &cognate_model::Model, path: &str| {
        model.weights().get(path).unwrap().values::<f32>()
    };
    before
        .learned()
        .filter(|path| values(&before, path) != values(&after, path))
        .map(str::to_owned)
        .collect()
}

#[test]
fn frozen_weights_stay() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let frozen = "optimiser.learning_rate = 3e-4\nschedule.max_updates = 10\ntuning.freeze = [\"encoder\", \"shared.weight\"]";
    let out = folder.path().join("out");
    let (_, losses) =
        run(&tuning(&folder, &bundled_checkpoint(), frozen), &out, Beginning::Fresh, &*ort);
    assert!(losses[9] < losses[0], "{losses:?}");
    let model = cognate_model::Model::open(&out).unwrap();
    let expected: Vec<_> = model
        .learned()
        .filter(|path| path.starts_with("decoder.") && !path.ends_with("k_proj.bias"))
        .collect();
    let found = changed(&bundled_checkpoint(), &out);
    assert!(expected.iter().all(|path| found.iter().any(|found| found == path)), "{found:?}");
    assert!(found.iter().all(|path| path.starts_with("decoder.")), "{found:?}");
    for (freeze, expected) in [
        (
            "[\"encoder\", \"decode\"]",
            "tuning.freeze: the model has no weight called \"decode\"; its weights have names like",
        ),
        ("[\"encoder\", \"decoder\", \"shared\"]", "tuning.freeze: leaves no weight to learn"),
    ] {
        let config = tuning(
            &folder,
            &bundled_checkpoint(),
            &format!("schedule.max_updates = 1\ntuning.freeze = {freeze}"),
        );
        let said = refusal(&config, &folder.path().join("refused"), Beginning::Fresh, &*ort);
        assert!(said.starts_with(expected), "{said}");
    }
}

/// Adapters are learned, alone; what is saved has them merged, so that it is read as it was
/// validated; a run goes on as if it had never been interrupted.
#[test]
fn adapters_are_learned_and_merged() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let settings = |updates: u32| {
        let more = format!(
            "optimiser.learning_rate = 3e-3\nschedule.max_updates = {updates}\ntuning.lora_rank = 4\n\
             tuning.lora_targets = [\"q_proj\", \"fc1\"]"
        );
        tuning(&folder, &bundled_checkpoint(), &more)
    };
    let [whole, parts, again] = ["whole", "parts", "again"].map(|name| folder.path().join(name));
    let (_, expected) = run(&settings(20), &whole, Beginning::Fresh, &*ort);
    assert!(expected[19] < 0.9 * expected[0], "{expected:?}");
    let targets = changed(&bundled_checkpoint(), &whole);
    assert_eq!(targets.len(), 4 * 2 + 4 * 3, "{targets:?}");
    assert!(
        targets.iter().all(|path| path.ends_with("q_proj.weight") || path.ends_with("fc1.weight")),
        "{targets:?}"
    );
    let (_, mut found) = run(&settings(10), &parts, Beginning::Fresh, &*ort);
    found.extend(run(&settings(20), &parts, Beginning::Resume, &*ort).1);
    assert_eq!(found, expected);
    // One update that changes nothing: the loss of the merged weights.
    let standing =
        tuning(&folder, &whole, "optimiser.learning_rate = 1e-12\nschedule.max_updates = 1");
    run(&standing, &again, Beginning::Fresh, &*ort);
    let [adapted, merged] =
        [&whole, &again].map(|out| log(out).last().unwrap()["valid_loss"].as_f64().unwrap());
    assert!(
        (adapted / merged - 1.0).abs() < cognate_verify::CLOSE.relative_l2,
        "{adapted}, merged {merged}"
    );
    let base = folder.path().join("base");
    fs::create_dir(&base).unwrap();
    for file in fs::read_dir(bundled_checkpoint()).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), base.join(file.file_name())).unwrap();
        }
    }
    let of_base = tuning(&folder, &base, "schedule.max_updates = 1\ntuning.lora_rank = 2");
    let of_base_out = folder.path().join("of base");
    run(&of_base, &of_base_out, Beginning::Fresh, &*ort);
    let mut weights = fs::read(base.join("model.safetensors")).unwrap();
    *weights.last_mut().unwrap() ^= 1;
    fs::write(base.join("model.safetensors"), weights).unwrap();
    let said = refusal(&of_base, &of_base_out, Beginning::Resume, &*ort);
    assert!(said.contains(": model.init: the weights have changed since the run began"), "{said}");
    for (rank, target, expected) in [
        (2, "query", "tuning.lora_targets: the model has no weight called \"query\""),
        (2, "final_layer_norm", "tuning.lora_targets: "),
        (129, "q_proj", "tuning.lora_rank: expected at most 128, the smaller size of "),
    ] {
        let more = format!(
            "schedule.max_updates = 1\ntuning.lora_rank = {rank}\ntuning.lora_targets = [\"{target}\"]"
        );
        let config = tuning(&folder, &bundled_checkpoint(), &more);
        let said = refusal(&config, &folder.path().join("refused"), Beginning::Fresh, &*ort);
        assert!(said.starts_with(expected), "{said}");
    }
    // Only matrices have adapters, and the model has its own number of positions.
    let mut config = tuning(&folder, &bundled_checkpoint(), "schedule.max_updates = 1");
    (config.data.max_tokens, config.data.max_source_tokens) = (512, Some(300));
    let said = refusal(&config, &folder.path().join("refused"), Beginning::Fresh, &*ort);
    assert_snapshot!(said, @"data.max_source_tokens: expected at most 256, the positions of the model, found 300");
}

/// A run that is stopped at the update of a validation is saved without it; the resumed run
/// validates first.
#[test]
fn a_validation_that_a_stop_prevented_is_made_up_for() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let more = "schedule.max_updates = 4\nschedule.validate_every = 2\nschedule.log_every = 1";
    let (config, out) = (config(&folder, more), folder.path().join("out"));
    for stop in [2, 4] {
        let beginning = if stop == 2 { Beginning::Fresh } else { Beginning::Resume };
        let machine = Machine::alone(&*ort, Device::Cpu);
        let mut trainer = Trainer::new(config.clone(), &out, beginning, machine).unwrap();
        let outcome = trainer.run(&mut |event| match event {
            Event::Update(progress) if progress.update == stop => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        assert_eq!(outcome.unwrap().ending, Ending::Stopped);
    }
    run(&config, &out, Beginning::Resume, &*ort);
    let validated = |line: &Value| line["valid_loss"].is_number();
    let lines: Vec<_> = log(&out).into_iter().filter(validated).collect();
    let updates: Vec<_> = lines.iter().map(|line| line["update"].as_u64()).collect();
    assert_eq!(updates, [Some(2), Some(4)]);
    // The first epoch has more updates.
    assert!(lines.iter().all(|line| line["epoch"] == 1));
}

#[test]
fn a_checkpoint_is_tuned() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let config = tuning(
        &folder,
        &bundled_checkpoint(),
        "optimiser.learning_rate = 3e-4\nschedule.max_updates = 20",
    );
    let out = folder.path().join("out");
    let (_, losses) = run(&config, &out, Beginning::Fresh, &*ort);
    assert!(losses[19] < 0.8 * losses[0], "{losses:?}");
    // The family stays, and so do its files.
    let text = |folder: &Path, name: &str| fs::read_to_string(folder.join(name)).unwrap();
    for name in ["config.json", "generation_config.json", "tokenizer.json"] {
        assert!(text(&out, name) == text(&bundled_checkpoint(), name), "{name}");
    }
    let [before, after] =
        [bundled_checkpoint(), out].map(|folder| cognate_model::Model::open(&folder).unwrap());
    let paths = |model: &cognate_model::Model| {
        model.weights().iter().map(|(path, _)| path.to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(paths(&before), paths(&after));
}

#[test]
fn the_mean_of_checkpoints_is_the_result() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let more = "optimiser.warmup_updates = 1\nschedule.max_updates = 6\nschedule.validate_every = 2\n\
                schedule.keep_checkpoints = 2\nschedule.average_checkpoints = 2";
    let out = folder.path().join("out");
    let config = config(&folder, more);
    let (outcome, _) = run(&config, &out, Beginning::Fresh, &*ort);
    let averaged = outcome.averaged.unwrap();
    assert_eq!(averaged.checkpoints, 2);
    assert!(averaged.validation.unwrap().valid_loss.is_finite());
    let open = |folder: &Path| cognate_model::Model::open(folder).unwrap();
    let [mean, former, last] = [out.clone(), out.join("checkpoint-4"), out.join("checkpoint-6")]
        .map(|folder| open(&folder));
    let values = |model: &cognate_model::Model, path: &str| {
        model.weights().get(path).unwrap().values::<f32>()
    };
    for path in mean.learned() {
        let parts = values(&former, path).into_iter().zip(values(&last, path));
        let expected = parts.map(|(a, b)| ((f64::from(a) + f64::from(b)) / 2.0) as f32);
        assert!(values(&mean, path).into_iter().eq(expected), "{path}");
    }
    assert!(!out.join("checkpoint-2").exists());

    let finished = log(&out);
    run(&config, &out, Beginning::Resume, &*ort);
    assert_eq!(log(&out), finished);

    // The state that a stop saves is not one of the average.
    let stopped = folder.path().join("stopped");
    let mut trainer = Trainer::new(
        config.clone(),
        &stopped,
        Beginning::Fresh,
        Machine::alone(&*ort, Device::Cpu),
    )
    .unwrap();
    let outcome = trainer.run(&mut |event| match event {
        Event::Update(progress) if progress.update == 5 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    assert_eq!(outcome.unwrap().ending, Ending::Stopped);
    drop(trainer);
    run(&config, &stopped, Beginning::Resume, &*ort);
    let bytes = |out: &Path| fs::read(out.join("model.safetensors")).unwrap();
    assert!(bytes(&stopped) == bytes(&out));
}

#[test]
fn pairs_left_out_are_counted_once() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let config = config(&folder, "schedule.max_epochs = 2\ndata.max_source_tokens = 6");
    let machine = Machine::alone(&*ort, Device::Cpu);
    let out = folder.path().join("out");
    let mut trainer = Trainer::new(config, &out, Beginning::Fresh, machine).unwrap();
    let mut counts = Vec::new();
    let outcome = trainer.run(&mut |event| {
        if let Event::LeftOut(left_out) = event {
            counts.push(*left_out);
        }
        ControlFlow::Continue(())
    });
    assert_eq!(outcome.unwrap().ending, Ending::Epochs);
    let text = fs::read_to_string(folder.path().join("train.src")).unwrap();
    let long = text.lines().filter(|line| line.split(' ').count() == 6).count() as u64;
    assert_eq!(counts, [LeftOut { long, ..LeftOut::default() }]);
}

#[test]
fn a_loss_that_is_no_number_ends_the_run() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let more =
        "optimiser.learning_rate = 1e30\noptimiser.warmup_updates = 1\nschedule.max_updates = 50";
    let out = folder.path().join("out");
    let mut trainer = Trainer::new(
        config(&folder, more),
        &out,
        Beginning::Fresh,
        Machine::alone(&*ort, Device::Cpu),
    )
    .unwrap();
    let error = trainer.run(&mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_eq!(error.kind(), cognate_train::ErrorKind::Diverged);
    let told = folder.shown(&error);
    assert!(
        told.starts_with("update ")
            && told
                .contains("the batch is saved in out/failed_batch.json, no state was saved before"),
        "{told}"
    );
    let batch: Value =
        serde_json::from_str(&fs::read_to_string(out.join("failed_batch.json")).unwrap()).unwrap();
    assert_eq!(batch["lines"].as_array().unwrap().len(), batch["labels"].as_array().unwrap().len());
    assert!(
        batch["lines"][0].as_str().unwrap().contains("train.src: line "),
        "{}",
        batch["lines"][0]
    );
}

#[test]
fn what_cannot_begin_is_refused() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let good = config(&folder, "schedule.max_updates = 2");
    let out = folder.path().join("out");
    let refused =
        |config: &TrainingConfig, beginning| folder.shown(refusal(config, &out, beginning, &*ort));
    assert_snapshot!(refused(&good, Beginning::Resume), @"out: contains no checkpoint to resume from; start without --resume");
    let with = |precision: &str| {
        config(&folder, &format!("schedule.max_updates = 2\noptimiser.precision = {precision:?}"))
    };
    let of_reference = refusal(&with("bf16"), &out, Beginning::Fresh, &Reference::F32);
    assert_snapshot!(of_reference, @"optimiser.precision: expected f32 on reference, found bf16, which requires --engine ort");
    assert_snapshot!(refused(&with("f16"), Beginning::Fresh), @"optimiser.precision: expected f32 or bf16 on a processor, found f16");
    run(&good, &out, Beginning::Fresh, &*ort);
    assert_snapshot!(refused(&good, Beginning::Fresh), @"out: contains a training run; resume it with --resume, or name another folder");
    let other = config(
        &folder,
        "schedule.max_updates = 4\noptimiser.label_smoothing = 0.2\nmodel.gated = true",
    );
    assert_snapshot!(refused(&other, Beginning::Resume), @r"
    out: a run resumes only with its original settings, which are in its training.json
      model.gated is true, expected false
      optimiser.label_smoothing is 0.2, expected 0.1
    ");
    folder.write("train.src", "a b\n".repeat(2_000));
    assert_snapshot!(refused(&good, Beginning::Resume), @"out: data.train: the text has changed since the run began, according to training.json; start a new run");
    let good = config(&folder, "schedule.max_updates = 2");
    folder.write("valid.src", "a b\n".repeat(100));
    assert_snapshot!(refused(&good, Beginning::Resume), @"out: data.valid: the text has changed since the run began, according to training.json; start a new run");
    let good = config(&folder, "schedule.max_updates = 2");
    for (out, beginning) in [("out", Beginning::Resume), ("other", Beginning::Fresh)] {
        let out = folder.path().join(out);
        let machine = Machine::alone(&*ort, Device::Cpu);
        let running = Trainer::new(good.clone(), &out, beginning, machine).unwrap();
        for beginning in [Beginning::Resume, Beginning::Fresh] {
            let said = refusal(&good, &out, beginning, &*ort);
            assert!(said.ends_with(": another training run is writing into it"), "{said}");
        }
        drop(running);
    }
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.txt"), "mine").unwrap();
    assert_snapshot!(folder.shown(refusal(&good, &foreign, Beginning::Fresh, &*ort)), @"foreign: expected an empty folder or none; name another");
    fs::write(foreign.join("log.jsonl"), "").unwrap();
    assert!(refusal(&good, &foreign, Beginning::Fresh, &*ort).ends_with("; name another"));
    // A run that was killed before its first checkpoint is not in the way.
    fs::remove_file(foreign.join("thesis.txt")).unwrap();
    fs::write(foreign.join("training.toml"), "").unwrap();
    drop(
        Trainer::new(good.clone(), &foreign, Beginning::Fresh, Machine::alone(&*ort, Device::Cpu))
            .unwrap(),
    );
    let file = folder.write("file", "");
    assert_snapshot!(folder.shown(refusal(&good, &file, Beginning::Fresh, &*ort)), @"file: expected a folder to write into: Not a directory (os error 20)");
}

/// All digits of a number are those of the settings.
#[test]
fn settings_with_many_digits_resume() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let out = folder.path().join("out");
    for (updates, beginning) in [(1, Beginning::Fresh), (2, Beginning::Resume)] {
        let more = format!(
            "optimiser.beta2 = 0.9986514263361793\noptimiser.ema_decay = 0.9997306833217721\nschedule.max_updates = {updates}"
        );
        assert_eq!(run(&config(&folder, &more), &out, beginning, &*ort).0.updates, updates);
    }
}

#[test]
fn a_validation_that_diverged_ends_the_run() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let more = "optimiser.learning_rate = 1e9\noptimiser.warmup_updates = 1\nschedule.validate_every = 1\nschedule.max_updates = 1";
    let (config, out) = (config(&folder, more), folder.path().join("out"));
    let machine = Machine::alone(&*ort, Device::Cpu);
    let mut trainer = Trainer::new(config, &out, Beginning::Fresh, machine).unwrap();
    let error = trainer.run(&mut |_| ControlFlow::Continue(())).unwrap_err();
    assert_snapshot!(error, @"update 1: the validation loss is NaN; no state was saved before. Lower optimiser.learning_rate, raise optimiser.warmup_updates, or set optimiser.clip_norm");
    assert!(!out.join("model.safetensors").exists());
}

#[test]
fn a_log_has_infinite_perplexities() {
    let folder = Folder::new();
    let line = r#"{"update":1,"epoch":1,"valid_loss":800.0,"valid_nll":800.0,"perplexity":null,"best":true,"seconds":1.0}"#;
    let log = cognate_train::read_log(&folder.write("log.jsonl", format!("{line}\n"))).unwrap();
    assert!(
        matches!(log[..], [LogLine::Validation(found)] if found.perplexity == f64::INFINITY),
        "{log:?}"
    );
    assert_eq!(serde_json::to_string(&log[0]).unwrap(), line);
}

/// Limits on training pairs are none on the validation set, whose loss they would change.
#[test]
fn all_pairs_are_validated() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    let first = folder.path().join("first");
    run(&config(&folder, "schedule.max_updates = 1"), &first, Beginning::Fresh, &*ort);
    let limits = ["", "data.max_words = 3", "data.max_source_tokens = 5", "data.max_ratio = 1.0"];
    let losses = limits.map(|limit| {
        let text = fs::read_to_string(folder.path().join("training.toml")).unwrap();
        let (init, rest) = (format!("model.init = {first:?}"), text.lines());
        let rest =
            rest.filter(|line| !["model.", "tokenizer."].iter().any(|name| line.starts_with(name)));
        let text =
            rest.chain([&*init, "optimiser.learning_rate = 1e-12", limit]).collect::<Vec<_>>();
        let config = TrainingConfig::read(folder.write("limited.toml", text.join("\n"))).unwrap();
        let out = folder.path().join(format!("out {limit}"));
        run(&config, &out, Beginning::Fresh, &*ort);
        log(&out).last().unwrap()["valid_loss"].as_f64().unwrap()
    });
    assert!(losses.iter().all(|loss| (loss - losses[0]).abs() < 1e-6), "{losses:?}");
}

/// Each choice of the bench makes a model that learns and is read again as it was written.
#[test]
fn choices_are_trained_and_read_again() {
    let Some(ort) = ort() else { return };
    let folder = Folder::new();
    for (choice, model_type) in [
        ("", "marian"),
        ("model.norm_placement = \"pre\"", "pegasus"),
        ("model.norm_placement = \"pre\"\nmodel.positions = \"learned\"", "blenderbot"),
        (
            "model.positions = \"relative\"\nmodel.norm = \"rms\"\nmodel.biases = false\nmodel.gated = true",
            "cognate",
        ),
        (
            "model.tie_embeddings = false\ntokenizer.vocabularies = \"separate\"\nmodel.tie_output = false",
            "marian",
        ),
        ("model.attention_score = \"dot\"\nmodel.activation = \"gelu\"", "cognate"),
        ("model.positions = \"rotary\"\nmodel.attention_score = \"additive\"", "cognate"),
        ("model.positions = \"alibi\"\nmodel.norm_placement = \"pre\"", "cognate"),
    ] {
        let config = config(
            &folder,
            &format!(
                "schedule.max_updates = 8\noptimiser.warmup_updates = 1\noptimiser.learning_rate = 1e-3\n{choice}"
            ),
        );
        let out = folder.path().join(format!("out {choice}").replace('\n', " "));
        let (_, losses) = run(&config, &out, Beginning::Fresh, &*ort);
        assert!(losses[7] < losses[0], "{choice}: {losses:?}");
        let text: Value =
            serde_json::from_str(&fs::read_to_string(out.join("config.json")).unwrap()).unwrap();
        assert_eq!(text["model_type"], model_type, "{choice}");
        cognate_model::Model::open(&out).unwrap();
    }
}
