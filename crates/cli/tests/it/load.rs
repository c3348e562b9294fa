//! Much text and strange text, several workers, and runs that end early.

use crate::{SENTENCES, cognate, run, run_with, with_dir};
use cognate_runtime::{Device, Engine};
use cognate_testing::bundled_checkpoint;
use insta::assert_snapshot;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};

/// The command with an engine and further arguments.
fn translate<'a>(engine: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["translate", "--engine", engine], args].concat()
}

fn tract<'a>(args: &[&'a str]) -> Vec<&'a str> {
    translate("tract", args)
}

/// A run whose standard input stays open.
fn spawned(args: &[&str]) -> (Child, ChildStdin) {
    let mut child = cognate(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    (child, input)
}

/// The names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn workers_windows_and_batches_change_nothing() {
    let text =
        "A dog.\nTwo young girls are sitting on a bench in a park.\n\nA cat.\nA man in a blue shirt is standing on a ladder.\n".repeat(3);
    let expected = run_with(&tract(&["--workers", "1"]), &text);
    let (warnings, expected) = (expected.err.clone(), expected.ok());
    assert_eq!(expected.lines().count(), 15);
    let mut failures = Vec::new();
    for (window, batch_tokens) in [("1", "2048"), ("4", "30"), ("100", "1"), ("100", "30")] {
        let ended = run_with(
            &tract(&["--workers", "3", "--window", window, "--batch-tokens", batch_tokens]),
            &text,
        );
        if (&ended.err, &ended.out) != (&warnings, &expected) {
            failures.push(format!("window {window}, batches of {batch_tokens}: {ended:?}"));
        }
    }
    assert!(failures.is_empty(), "expected {expected}\n{}", failures.join("\n"));
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    for (workers, threads) in [("1", "2"), ("3", "1"), ("2", "2")] {
        let args = ["--workers", workers, "--threads", threads, "--batch-tokens", "30"];
        assert_eq!(
            run_with(&translate("ort", &args), &text).ok(),
            expected,
            "ONNX Runtime, {workers} workers, {threads} threads"
        );
    }
}

#[test]
fn lines_in_any_form_are_translated() {
    let [first, second] = SENTENCES;
    let expected = run(&tract(&SENTENCES)).ok();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text.en");
    for text in [
        format!("{first}\n{second}"),
        format!("{first}\r\n{second}\r\n"),
        format!("\u{feff}{first}\n{second}\n"),
    ] {
        fs::write(&file, &text).unwrap();
        let ended = run(&tract(&["--workers", "2", "--input", file.to_str().unwrap()]));
        assert_eq!(ended.ok(), expected, "{text:?}");
    }
    fs::write(&file, "").unwrap();
    assert_eq!(run(&tract(&["--input", file.to_str().unwrap()])).ok(), "");
    assert_eq!(run(&tract(&["--input", "/dev/null"])).ok(), "");
}

#[test]
fn zero_bytes_and_a_line_of_100_000_characters_do_no_harm() {
    let long = "A man in a hat. ".repeat(6250);
    assert_eq!(long.len(), 100_000);
    let text = format!("{}\n\0\0\n{long}\n{}\n\0A dog.\0\n", SENTENCES[0], SENTENCES[1]);
    let ended = run_with(&tract(&["--max-new-tokens", "20", "--workers", "2"]), &text);
    assert_snapshot!(ended.err, @"
    cognate: warning: stdin: line 2: empty; its translation is empty
    cognate: warning: stdin: line 3: truncated: 37501 tokens, but the model has 256 positions
    cognate: warning: 2 words are not in the model's vocabulary
    ");
    let (out, expected) = (ended.ok(), run(&tract(&SENTENCES)).ok());
    let (lines, expected): (Vec<_>, Vec<_>) = (out.lines().collect(), expected.lines().collect());
    assert_eq!((lines.len(), lines[0], lines[1], lines[3]), (5, expected[0], "", expected[1]));
    assert!(!lines[2].is_empty() && !lines[4].is_empty(), "{lines:?}");
}

#[test]
fn a_line_that_is_not_utf_8_is_told_by_its_number_and_those_before_are_translated() {
    let text =
        [SENTENCES[0].as_bytes(), b"\n", SENTENCES[1].as_bytes(), b"\nA \xff\nA cat.\n"].concat();
    let expected = run(&tract(&SENTENCES)).ok();
    for window in ["1", "2", "100"] {
        let ended = run_with(&tract(&["--workers", "2", "--window", window]), &text);
        assert_eq!((ended.status, &ended.out), (Some(1), &expected), "window {window}");
        assert!(
            ended.err.ends_with(
                "cognate: error: stdin: line 3: not UTF-8 at byte 3; convert the file to UTF-8\n"
            ),
            "{}",
            ended.err
        );
    }
}

/// The graphs have 256 positions, `config.json` tells of 1024: the engine fails on longer lines, of
/// which there are two.
#[test]
fn of_several_failures_the_first_line_is_told_and_those_before_are_translated() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().to_str().unwrap();
    run(&["export", bundled_checkpoint().to_str().unwrap(), model, "--force", "--no-verify"]).ok();
    crate::edit(
        &folder,
        "config.json",
        "\"max_position_embeddings\": 256",
        "\"max_position_embeddings\": 1024",
    );
    let long = "A man ".repeat(200);
    let text = format!("{}\n{}\n{long}\nA dog.\n{long} A\nA cat.\n", SENTENCES[0], SENTENCES[1]);
    let expected = run(&tract(&SENTENCES)).ok();
    for (workers, grouping) in [
        ("1", ["--window", "4"]),
        ("3", ["--window", "1"]),
        ("3", ["--batch-tokens", "1"]),
        ("2", ["--window", "9"]),
    ] {
        let ended = run_with(
            &tract(&[&["--model", model, "--workers", workers], &grouping[..]].concat()),
            &text,
        );
        assert_eq!(
            (ended.status, &ended.out),
            (Some(1), &expected),
            "{workers} workers, {grouping:?}"
        );
        let error = with_dir(ended.err.lines().last().unwrap(), folder.path());
        let place = "cognate: error: stdin: line 3: DIR/encoder.onnx: tract 0.23.9 with Cognate's operators failed: ";
        assert!(error.starts_with(place), "{workers} workers, {grouping:?}: {error}");
    }
}

#[test]
fn translations_come_before_the_input_ends() {
    let (mut child, mut input) = spawned(&tract(&["--window", "1", "--workers", "2"]));
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let expected = run(&tract(&SENTENCES)).ok();
    for (sentence, expected) in SENTENCES.iter().zip(expected.lines()).cycle().take(6) {
        writeln!(input, "{sentence}").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line.trim_end(), expected);
    }
    drop(input);
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
}

#[test]
fn a_killed_run_leaves_the_output_as_it_was_and_one_file_that_the_next_run_takes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.de");
    let args = tract(&["--window", "1", "--workers", "2", "--output", path.to_str().unwrap()]);
    fs::write(&path, "old\n").unwrap();
    let partial = folder.path().join(".text.de.cognate-partial");
    let text = SENTENCES.join("\n");
    // More each time, to tell a run's lines from those that the run before left.
    for count in 1..=2 {
        let (mut child, mut input) = spawned(&args);
        (0..count).for_each(|_| writeln!(input, "{text}").unwrap());
        // The last translation is there, and the run waits for more lines.
        while fs::read_to_string(&partial).unwrap_or_default().lines().count() < 2 * count {
            assert_eq!(child.try_wait().unwrap(), None);
            std::thread::yield_now();
        }
        let beside = run(&[&args[..], &[SENTENCES[0]]].concat()).failed(1);
        let refused = "cognate: error: --output: DIR/text.de: another run is writing it; wait until it ends, or choose another file";
        assert_eq!(with_dir(&beside, folder.path()), refused);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old\n");
        assert_eq!(names(folder.path()), [".text.de.cognate-partial", "text.de"]);
    }
    assert_eq!(run_with(&args, &text).ok(), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), run(&tract(&SENTENCES)).ok());
    assert_eq!(names(folder.path()), ["text.de"]);
}

#[test]
fn an_output_whose_other_name_is_no_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("text.de");
    fs::create_dir(folder.path().join(".text.de.cognate-partial")).unwrap();
    let error = run(&tract(&["--output", path.to_str().unwrap(), SENTENCES[0]])).failed(1);
    assert_snapshot!(with_dir(&error, folder.path()), @"cognate: error: --output: DIR/text.de: cannot be written: DIR/.text.de.cognate-partial is not a regular file; remove it");
}

#[test]
fn several_workers_on_a_gpu_are_refused() {
    let error = run(&["translate", "--device", "cuda", "--workers", "2", SENTENCES[0]]).failed(1);
    assert_snapshot!(error, @"cognate: error: --workers: expected at most 1, one for each GPU; increase batch_tokens to use it fully");
}
