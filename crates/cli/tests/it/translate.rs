//! Lines in, lines out.

use crate::{SENTENCES, cognate, run, run_with};
use insta::assert_snapshot;
use std::fs;
use std::process::Stdio;
use tempfile::TempDir;

/// The command on tract, with further arguments.
fn translate<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["translate", "--engine", "tract"], args].concat()
}

#[test]
fn tract_translates_as_the_reference() {
    let ended = run(&[&translate(&SENTENCES)[..], &["-v"]].concat());
    assert_snapshot!(ended.err, @"cognate: model testdata/multi30k-en-de on tract 0.23.9 with Cognate's operators");
    let lines = ended.ok();
    assert_snapshot!(lines, @"
    Ein Mann fährt Fahrrad.
    Zwei Hunde spielen im Schnee.
    ");
    let reference = run(&["translate", "--engine", "reference", SENTENCES[0], SENTENCES[1]]).ok();
    assert_eq!(lines, reference);
    let beams = |engine| {
        run(&["translate", "--engine", engine, "--beams", "4", SENTENCES[0], SENTENCES[1]]).ok()
    };
    assert_eq!(beams("tract"), beams("reference"));
}

/// The bundled French checkpoint, whose weights are in f16, on every engine.
#[test]
fn french_is_translated_as_by_transformers() {
    let folder = cognate_testing::testdata("multi30k-en-fr");
    let (model, reference) = (folder.display().to_string(), folder.join("reference"));
    let sentences = reference.join("sentences.txt").display().to_string();
    for (beams, name) in [("1", "greedy.txt"), ("5", "beams.txt")] {
        let expected = fs::read_to_string(reference.join(name)).unwrap();
        for engine in ["tract", "auto"] {
            let args = ["translate", "--model", &model, "--beams", beams, "--engine", engine];
            assert_eq!(run(&[&args[..], &["--input", &sentences]].concat()).ok(), expected);
        }
    }
}

/// The bundled checkpoint in a folder of its own, whose files a test changes.
fn copied_checkpoint() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let files = fs::read_dir(cognate_testing::bundled_checkpoint())
        .unwrap()
        .map(|file| file.unwrap().path());
    for file in files.filter(|file| file.is_file()) {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    folder
}

/// In greedy search programs compute only the logits of the best tokens, as many as constraints can
/// forbid and two more; and beams share their first step. The reference computes all.
#[test]
fn constraints_on_programs_are_those_of_the_reference() {
    let folder = copied_checkpoint();
    let config = folder.path().join("generation_config.json");
    let given: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    let best = run(&["translate", "--engine", "reference", "--json", SENTENCES[0]]).ok();
    let best: serde_json::Value = serde_json::from_str(&best).unwrap();
    // The tokens that would be chosen are forbidden, or others are forced.
    let ids = run(&["tokenize", "--target", "--ids", best["text"].as_str().unwrap()]).ok();
    let ids = ids.trim().replace(' ', ",");
    let forced =
        serde_json::json!({ "forced_bos_token_id": 77, "forced_eos_token_id": 0, "max_length": 9 });
    for (more, options) in [
        (serde_json::json!({}), vec!["--suppress-tokens", &ids]),
        (
            serde_json::json!({}),
            vec!["--bad-words", "Mann", "--bad-words", "Zwei Hunde", "--min-new-tokens", "14"],
        ),
        (serde_json::json!({}), vec!["--repetition-penalty", "1.5"]),
        (serde_json::json!({ "begin_suppress_tokens": [6, 7, 8] }), vec![]),
        (forced, vec![]),
    ] {
        let mut changed = given.clone();
        changed.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(&config, changed.to_string()).unwrap();
        for beams in ["1", "4"] {
            let found = ["tract", "reference"].map(|engine| {
                let model = folder.path().to_str().unwrap();
                let args = [
                    "translate",
                    "--engine",
                    engine,
                    "--model",
                    model,
                    "--beams",
                    beams,
                    "--json",
                    SENTENCES[0],
                    SENTENCES[1],
                ];
                run(&[&args[..], &options].concat()).ok()
            });
            let [tract, reference] = found.map(|lines| {
                let lines = lines.lines().map(|line| {
                    serde_json::from_str::<serde_json::Value>(line).unwrap()["text"].clone()
                });
                lines.collect::<Vec<_>>()
            });
            assert_eq!(tract, reference, "{beams} beams: {options:?} {more}");
        }
    }
}

/// Programs cannot bound such logits.
#[test]
fn weights_that_are_not_finite_are_told_on_every_engine() {
    let folder = copied_checkpoint();
    let weights = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&weights).unwrap();
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let tensors: serde_json::Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let table = &tensors["model.shared.weight"];
    let [start, end] =
        [0, 1].map(|side| header + table["data_offsets"][side].as_u64().unwrap() as usize);
    // The last byte of a float has its sign and most of its exponent, that before it the rest: NaN
    // in one row of many.
    let size = (end - start) / 8000 / 128;
    let place = start + 5000 * 128 * size;
    bytes[place..place + size].fill(0xff);
    fs::write(&weights, bytes).unwrap();
    let model = folder.path().to_str().unwrap();
    let refused = ["tract", "reference"].map(|engine| {
        run(&["translate", "--engine", engine, "--model", model, SENTENCES[0]]).failed(1)
    });
    assert_eq!(refused[0], refused[1]);
    assert_snapshot!(refused[0]);
}

#[test]
fn sentences_come_from_arguments_standard_input_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.en");
    let text = format!("{}\r\n{}", SENTENCES[0], SENTENCES[1]);
    fs::write(&file, &text).unwrap();
    let expected = run(&translate(&SENTENCES)).ok();
    assert_eq!(run_with(&translate(&[]), &text).ok(), expected);
    assert_eq!(run_with(&translate(&["--input", "-"]), &text).ok(), expected);
    assert_eq!(run(&translate(&["--input", file.to_str().unwrap()])).ok(), expected);
    assert_eq!(run_with(&translate(&[]), "").ok(), "");
}

#[test]
fn an_output_file_appears_when_it_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.de");
    let output = path.to_str().unwrap();
    fs::write(&path, "old").unwrap();
    let failed = run_with(&translate(&["--output", output]), b"A dog.\n\xff\n");
    assert_eq!(failed.status, Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    let ended = run(&translate(&["--output", output, SENTENCES[0]]));
    assert_eq!(ended.ok(), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), run(&translate(&[SENTENCES[0]])).ok());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn empty_long_and_unfinished_lines_are_told_and_the_others_go_on() {
    let text = format!("\nA dog runs through deep snow.\n \u{200b}\t\n{}\n", "A man ".repeat(200));
    let ended = run_with(&translate(&["--max-new-tokens", "6"]), &text);
    assert_snapshot!(ended.err, @"
    cognate: warning: stdin: line 1: empty; its translation is empty
    cognate: warning: stdin: line 2: its translation is truncated after 6 tokens (--max-new-tokens)
    cognate: warning: stdin: line 3: empty; its translation is empty
    cognate: warning: stdin: line 4: truncated: 401 tokens, but the model has 256 positions
    cognate: warning: stdin: line 4: its translation is truncated after 6 tokens (--max-new-tokens)
    ");
    let lines: Vec<_> = ended.out.lines().map(str::is_empty).collect();
    assert_eq!(lines, [true, false, true, false]);
}

#[test]
fn warnings_are_bounded() {
    let ended = run_with(&translate(&[]), "\n".repeat(25));
    assert_eq!(ended.err.matches("empty; its translation is empty").count(), 10);
    assert_snapshot!(ended.err.lines().last().unwrap(), @"cognate: warning: more warnings: 15 empty");
    assert_eq!(ended.ok(), "\n".repeat(25));
}

#[test]
fn threads_of_an_engine_without_are_told() {
    let ended = run(&translate(&["--threads", "2", "A dog."]));
    assert_snapshot!(ended.err, @"cognate: warning: --threads: tract uses one thread; only ort uses several");
}

#[test]
fn the_model_may_come_from_the_environment() {
    let folder = crate::checkpoint(true);
    let mut command = cognate(&translate(&["-v", SENTENCES[0]]));
    let ended = crate::ended(command.env("COGNATE_MODEL", folder.path()).stdin(Stdio::null()));
    assert!(ended.err.contains(folder.path().to_str().unwrap()), "{}", ended.err);
    assert_eq!(ended.ok(), run(&translate(&[SENTENCES[0]])).ok());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let text = tempfile::NamedTempFile::new().unwrap();
    fs::write(text.path(), "A dog.\n".repeat(20)).unwrap();
    let mut command =
        cognate(&translate(&["--window", "1", "--input", text.path().to_str().unwrap()]));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_snapshot!(String::from_utf8(ended.stderr).unwrap(), @"");
}

/// The unknown token of a prefix is replaced by the source word that it attends to.
#[test]
fn unknown_words_are_replaced_by_their_source() {
    let sentence = "A man named \u{6f22}\u{5b57}, is riding a bicycle.";
    let prefix = ["--target-prefix", "Ein \u{6f22} f\u{e4}hrt", "--engine", "tract"];
    let json = |options: &[&str]| -> serde_json::Value {
        serde_json::from_str(
            &run(&[&["translate", "--json"], &prefix[..], options, &[sentence]].concat()).ok(),
        )
        .unwrap()
    };
    let (plain, replaced) = (json(&["--alignments"]), json(&["--replace-unk"]));
    let best = &plain["hypotheses"][0];
    assert_eq!(best["tokens"], replaced["hypotheses"][0]["tokens"]);
    let unknown =
        best["tokens"].as_array().unwrap().iter().position(|piece| piece == "<unk>").unwrap();
    let source = best["alignment"][unknown][0].as_u64().unwrap() as usize;
    // The words by the first of their pieces.
    let pieces = run(&["tokenize", sentence]).ok();
    let n_words = pieces
        .split_whitespace()
        .take(source + 1)
        .filter(|piece| piece.starts_with('\u{2581}'))
        .count();
    let word = sentence
        .split_whitespace()
        .nth(n_words - 1)
        .unwrap()
        .trim_matches(|c: char| c.is_ascii_punctuation());
    let text = replaced["text"].as_str().unwrap();
    assert!(
        text.starts_with(&format!("Ein {word} f\u{e4}hrt"))
            && !plain["text"].as_str().unwrap().contains(word),
        "{text} {plain}"
    );
}
