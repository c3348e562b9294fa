//! Figures of transcription.

use crate::{answers, run};
use cognate_bench::measure::transcribe::Answer;
use cognate_bench::text::Precision;
use cognate_bench::transcribe::report::{Cell, Report};
use insta::assert_snapshot;
use std::fs;

/// Both ways to cut windows, with the duration of the files.
#[test]
fn files_are_transcribed() {
    let folder = tempfile::tempdir().unwrap();
    cognate_testing::make_speech_model(folder.path());
    let file = folder.path().join("tone.wav");
    fs::write(&file, cognate_testing::tone()).unwrap();
    let request = serde_json::json!({ "files": [file, file] }).to_string();
    let model = folder.path().to_str().unwrap();
    for batch in ["1", "2"] {
        let answers = answers(
            &["transcribe", "--engine", "tract", "--model", model, "--batch", batch],
            &request,
        );
        assert_eq!(
            (answers.len(), &answers[0]["engine"]),
            (2, &"tract 0.23.9 with Cognate's operators".into()),
            "{answers:?}"
        );
        let answer: Answer = serde_json::from_value(answers[1].clone()).unwrap();
        assert_eq!(answer.audio_seconds, 5.0);
        assert!(answer.seconds > 0.0 && answer.peak_bytes > 0, "{answer:?}");
        assert!(
            answer.texts.len() == 2
                && !answer.texts[0].is_empty()
                && answer.texts[0] == answer.texts[1],
            "{answer:?}"
        );
    }
    let refused = |option| {
        String::from_utf8(run(&["transcribe", "--model", model, option, "0"], "").stderr).unwrap()
    };
    assert_snapshot!(refused("--batch"), @"error: batch: expected 1 to 256, found 0");
    assert_snapshot!(refused("--new-tokens"), @"error: max_new_tokens: expected 1 or more, found 0");
}

#[test]
fn ratios_are_of_processor_time_and_peak_memory() {
    let answer = |[seconds, processor_seconds]: [f64; 2], peak_bytes, text: &str| Answer {
        audio_seconds: 100.0,
        seconds,
        processor_seconds,
        peak_bytes,
        texts: vec![text.into()],
    };
    let theirs = vec![
        answer([10.0, 9.0], 400_000_000, "One two."),
        answer([8.0, 9.0], 500_000_000, "A cat sat, still."),
    ];
    let ours = vec![
        answer([4.0, 6.0], 300_000_000, "One two."),
        answer([6.0, 9.0], 200_000_000, "a dog sat still"),
    ];
    let (precision, engines) = (Precision::Int8, ["theirs 1".into(), "ours 2".into()]);
    let cell = Cell { precision, threads: 2, batch: 8, beams: 5, engines, answers: [theirs, ours] };
    let report = Report { rounds: 2, cells: vec![cell], ..Report::default() };
    let text = report.text();
    assert!(text.contains("2 rounds of 100 s of audio by theirs 1 and ours 2."), "{text}");
    let row =
        text.lines().find(|line| line.contains("int8, 5 beams, batches of 8, 2 threads")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(
        cells[1..],
        ["11.2", "20.8", "**1.25 < 1.3**", "500", "300", "**0.60 > 0.5**", "25.0%"]
    );
    assert_eq!(
        report.missed(),
        [
            "int8, 5 beams, batches of 8, 2 threads: ratio of time 1.25, expected at least 1.3",
            "int8, 5 beams, batches of 8, 2 threads: ratio of memory 0.60, expected at most 0.5",
        ]
    );
}
