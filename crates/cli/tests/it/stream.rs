//! `cognate translate --stream`: words as they come, and in the end the same lines.

use crate::{Ended, SENTENCES, cognate, run, run_with};
use insta::assert_snapshot;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

/// The command on tract, with further arguments.
fn translate<'a>(args: &[&'a str]) -> Vec<&'a str> {
    [&["translate", "--engine", "tract"], args].concat()
}

/// Lines of every kind: usual, empty, strange, of several sentences, too long.
fn text() -> String {
    let words = [
        "A man",
        "in a",
        "red",
        "hat",
        "rides",
        "two dogs",
        "snow .",
        "don't",
        "'s",
        "ß",
        "漢字",
        "5-year-old",
        "(",
        "...",
        "😀",
    ];
    let mut text = format!("{}\n\n{}\n \u{200b}\n", SENTENCES[0], SENTENCES[1]);
    for line in 0..16 {
        let chosen: Vec<_> = (0..1 + line % 9)
            .map(|word| words[(line * 7 + word * word * 3 + word) % words.len()])
            .collect();
        text += &format!("{}.\n", chosen.join(" "));
    }
    text + &"A man ".repeat(200)
}

#[test]
fn streams_are_the_lines_of_other_runs() {
    let text = text();
    let mut failures = Vec::new();
    for args in [
        &["--max-new-tokens", "16"][..],
        &["--max-new-tokens", "16", "--scores", "--alignments"],
        &[
            "--max-new-tokens",
            "12",
            "--sample",
            "--seed",
            "5",
            "--temperature",
            "1.5",
            "--top-k",
            "0",
        ],
        &["--max-new-tokens", "9", "--target-prefix", "Zwei Hunde"],
    ] {
        let streamed = run_with(&translate(&[args, &["--stream"]].concat()), &text);
        // Sums round by the shape of a batch: here, too, each sentence is alone.
        let expected = run_with(&translate(&[args, &["--batch-tokens", "1"]].concat()), &text);
        assert_eq!(
            (streamed.status, expected.status),
            (Some(0), Some(0)),
            "{args:?}: {}",
            streamed.err
        );
        let lines = |ended: &Ended| {
            ended.err.lines().chain(ended.out.lines()).map(str::to_owned).collect::<Vec<_>>()
        };
        let (found, expected) = (lines(&streamed), lines(&expected));
        assert_eq!(found.len(), expected.len(), "{args:?}");
        let differing = found.iter().zip(&expected).filter(|(found, expected)| found != expected);
        failures.extend(
            differing.map(|(found, expected)| format!("{args:?}: {found}\nexpected {expected}")),
        );
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The first word is there while its sentence is still being decoded.
#[test]
fn words_come_before_their_line_ends() {
    let mut command =
        cognate(&translate(&["--stream", "--max-new-tokens", "250", "--min-new-tokens", "250"]));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    writeln!(input, "{}", SENTENCES[1]).unwrap();
    let mut first = [0; 4];
    output.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"Zwei");
    let mut line = String::new();
    let mut pieces = 0;
    let mut output = BufReader::with_capacity(1 << 16, output);
    while !line.ends_with('\n') {
        // As much as has been written, and no more.
        let piece = output.fill_buf().unwrap();
        assert!(!piece.is_empty(), "{line}");
        line += std::str::from_utf8(piece).unwrap();
        let length = piece.len();
        output.consume(length);
        pieces += 1;
    }
    assert!(pieces > 1, "{pieces}: {line}");
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut command = cognate(&translate(&["--stream", SENTENCES[0], SENTENCES[1], SENTENCES[0]]));
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_snapshot!(String::from_utf8(ended.stderr).unwrap(), @"");
}

#[test]
fn a_line_that_is_not_utf_8_ends_it_after_those_before() {
    let expected = run(&translate(&[SENTENCES[0]])).ok();
    let ended =
        run_with(&translate(&["--stream"]), [SENTENCES[0].as_bytes(), b"\nA \xff\n"].concat());
    assert_eq!((ended.status, &ended.out), (Some(1), &expected));
    assert_snapshot!(ended.err.lines().last().unwrap(), @"cognate: error: stdin: line 2: not UTF-8 at byte 3; convert the file to UTF-8");
}

#[test]
fn what_cannot_be_streamed_is_refused() {
    let beams = run(&translate(&["--stream", "--beams", "4", "Hello."])).failed(1);
    assert_snapshot!(beams, @"cognate: error: --stream: cannot be used with beam search, found 4 beams; set beams to 1, or sample");
    for (args, expected) in [
        (&["--output", "out.txt"], "'--output <FILE>'"),
        (&["--n-best", "2"], "'--n-best <N>'"),
        (&["--workers", "2"], "'--workers <N>'"),
        (&["--window", "2"], "'--window <N>'"),
    ] {
        let err = run(&translate(&[&["--stream", "Hello."], &args[..]].concat())).failed(2);
        let expected = format!("error: the argument '--stream' cannot be used with {expected}");
        assert_eq!(
            err.lines()
                .next()
                .unwrap()
                .replace("with:", &format!("with {}", err.lines().nth(1).unwrap().trim())),
            expected
        );
    }
}
