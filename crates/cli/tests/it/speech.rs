//! Speech models: exports in every layout, and commands given a model of the other kind.

use crate::run;
use cognate_testing::{
    IMAGE_MODELS, SPEECH_MODELS, bundled_checkpoint, golden, make_speech_model, testdata,
};
use std::fs;
use std::path::PathBuf;

/// Exported and verified on every engine that is here, with seeded frames.
#[test]
fn speech_models_are_verified_in_every_layout() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, out) = (folder.path().join("checkpoint"), folder.path().join("out"));
    let mut failures = Vec::new();
    for name in SPEECH_MODELS {
        fs::create_dir(&checkpoint).unwrap();
        for file in ["config.json", "generation_config.json", "model.safetensors"] {
            fs::copy(golden(name).join(file), checkpoint.join(file)).unwrap();
        }
        fs::write(checkpoint.join("preprocessor_config.json"), "{}").unwrap();
        let kinds: [&[&str]; 4] =
            [&[], &["--layout", "hf"], &["--attentions"], &["--target", "ort"]];
        for kind in kinds {
            let ended = run(&[
                &["export", checkpoint.to_str().unwrap(), out.to_str().unwrap(), "--force"],
                kind,
            ]
            .concat());
            let has_engine =
                kind.first() != Some(&"--target") || ended.err.contains("ONNX Runtime");
            if ended.status != Some(0) && has_engine
                || !out.join("preprocessor_config.json").is_file()
            {
                failures.push(format!("{name} {kind:?}\n{}{}", ended.out, ended.err));
            }
        }
        // In 8 bits these random models, which magnify roundings, pass the bounds of real ones:
        // each comparison is made, and may fail.
        for layout in ["cognate", "hf"] {
            let ended = run(&[
                "export",
                checkpoint.to_str().unwrap(),
                out.to_str().unwrap(),
                "--force",
                "--precision=int8",
                "--layout",
                layout,
            ]);
            if !["decoder: logits", "greedy steps", "cosines"]
                .iter()
                .all(|part| ended.out.contains(part))
            {
                failures.push(format!("{name} int8 {layout}\n{}{}", ended.out, ended.err));
            }
        }
        let ended = run(&["export", checkpoint.to_str().unwrap(), "--in-place"]);
        if ended.status != Some(0) {
            failures.push(format!("{name} in place\n{}{}", ended.out, ended.err));
        }
        fs::remove_dir_all(&checkpoint).unwrap();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn models_of_text_and_of_speech_have_their_own_commands() {
    let (text, speech) = (bundled_checkpoint(), golden(SPEECH_MODELS[0]));
    let refused = run(&["translate", "--model", speech.to_str().unwrap(), "Two dogs."]).failed(1);
    assert!(
        refused.ends_with("whisper: a model of audio; `cognate transcribe` reads it"),
        "{refused}"
    );
    let refused = run(&["transcribe", "--model", text.to_str().unwrap(), "clip.wav"]).failed(1);
    assert!(
        refused
            .ends_with("multi30k-en-de: a model of text; expected a speech model such as Whisper"),
        "{refused}"
    );
    let refused = run(&["transcribe", "--model", speech.to_str().unwrap(), "clip.wav"]).failed(1);
    assert!(refused.contains("preprocessor_config.json: missing"), "{refused}");
}

/// A small speech model, and a path beside it; they are removed with the folder.
fn speech_model() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, out) = (folder.path().join("checkpoint"), folder.path().join("out"));
    fs::create_dir(&checkpoint).unwrap();
    make_speech_model(&checkpoint);
    (folder, checkpoint, out)
}

#[test]
fn features_may_be_described_as_transformers_5_does() {
    let (_folder, checkpoint, _) = speech_model();
    let clip = testdata("audio/clip.wav");
    let transcribe =
        || run(&["transcribe", "--model", checkpoint.to_str().unwrap(), clip.to_str().unwrap()]);
    let expected = transcribe().ok();
    let [older, newer] =
        ["preprocessor_config.json", "processor_config.json"].map(|name| checkpoint.join(name));
    let features = fs::read_to_string(&older).unwrap();
    fs::remove_file(&older).unwrap();
    let all =
        format!(r#"{{"feature_extractor": {features}, "processor_class": "WhisperProcessor"}}"#);
    fs::write(&newer, all).unwrap();
    assert_eq!(transcribe().ok(), expected);

    fs::write(&newer, r#"{"feature_extractor": {"feature_size": 0}}"#).unwrap();
    let refused = transcribe().failed(1);
    assert!(
        refused.contains("processor_config.json: feature_extractor: feature_size: expected 1 to"),
        "{refused}"
    );
    fs::write(&newer, r#"{"feature_extractor": 3}"#).unwrap();
    let refused = transcribe().failed(1);
    assert!(refused.ends_with("feature_extractor: expected an object of settings, found 3"));
    fs::write(&newer, r#"{"feature_extractor": null}"#).unwrap();
    let refused = transcribe().failed(1);
    assert!(refused.contains("preprocessor_config.json: missing"), "{refused}");
}

#[test]
fn exports_read_short_windows_unless_their_frames_are_fixed() {
    const FRAMES: [&[u8]; 2] = [b"\x12\x052*src", b"\x08\xe4\x80\x80\x80\x80\x00"];
    let (_folder, checkpoint, out) = speech_model();
    let clip = testdata("audio/clip.wav");
    let transcribe = || {
        run(&[
            "transcribe",
            "--model",
            out.to_str().unwrap(),
            "--short-windows",
            clip.to_str().unwrap(),
        ])
    };
    let export = |kind: &[&str]| {
        let all = [
            &[
                "export",
                checkpoint.to_str().unwrap(),
                out.to_str().unwrap(),
                "--force",
                "--no-verify",
            ],
            kind,
        ]
        .concat();
        assert_eq!(run(&all).status, Some(0));
        transcribe().ok();
    };
    export(&[]);
    // An axis of 100 frames, as long in the file as the name of one.
    let file = out.join("encoder.onnx");
    let mut bytes = fs::read(&file).unwrap();
    let at = bytes.windows(FRAMES[0].len()).position(|part| part == FRAMES[0]).unwrap();
    bytes[at..at + FRAMES[1].len()].copy_from_slice(FRAMES[1]);
    fs::write(&file, bytes).unwrap();
    let refused = transcribe().failed(1);
    assert!(
        refused.contains("--short-windows: ") && refused.contains("takes windows of one length"),
        "{refused}"
    );
    fs::remove_dir_all(&out).unwrap();
    export(&["--layout", "hf"]);
    // Now it looks as if Optimum had written it.
    fs::remove_file(out.join("cognate.json")).unwrap();
    let refused = transcribe().failed(1);
    assert!(refused.contains("takes windows of one length"), "{refused}");
}

/// One graph writes text without timestamps, for other programs.
#[test]
fn the_layout_generate_reads_frames() {
    let (_folder, checkpoint, out) = speech_model();
    let export = |model: &std::path::Path, more: &[&str]| {
        let paths = [model, &out].map(|path| path.to_str().unwrap());
        run(&[&["export", paths[0], paths[1], "--layout", "generate"], more].concat())
    };
    for (more, reason) in [
        (
            &["--with-tokenizer"][..],
            "--with-tokenizer: expected a model that reads text with it, found frames",
        ),
        (
            &["--max-batch", "2", "--max-length", "9"],
            "--max-batch: expected a model that reads text with it, found frames",
        ),
    ] {
        let refused = export(&checkpoint, more).failed(1);
        assert!(refused.contains(reason), "{refused}");
    }
    let refused = export(&golden(IMAGE_MODELS[0]), &[]).failed(1);
    assert!(refused.contains("reads text or frames, not pixels"), "{refused}");
    assert!(!out.exists());
    let ended = export(&checkpoint, &["--no-verify"]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    if cognate_runtime::Ort::find().is_err() {
        return cognate_testing::skip(
            "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
        );
    }
    let paths = [&out, &checkpoint].map(|path| path.to_str().unwrap());
    assert!(run(&["verify", paths[0], "--checkpoint", paths[1]]).ok().contains("passed"));
    let clip = testdata("audio/clip.wav");
    let refused = run(&["transcribe", "--model", paths[0], clip.to_str().unwrap()]).failed(1);
    assert!(
        refused.contains("out: generate.onnx searches by itself, without timestamps; expected an export without --layout generate"),
        "{refused}"
    );
}

#[test]
fn times_of_words_need_an_export_with_attention() {
    let (_folder, checkpoint, out) = speech_model();
    let clip = testdata("audio/clip.wav");
    let words = |model: &std::path::Path| {
        run(&[
            "transcribe",
            "--model",
            model.to_str().unwrap(),
            "--word-timestamps",
            "--format",
            "json",
            clip.to_str().unwrap(),
        ])
    };
    let export = |more: &[&str]| {
        let all = [
            &[
                "export",
                checkpoint.to_str().unwrap(),
                out.to_str().unwrap(),
                "--force",
                "--no-verify",
            ],
            more,
        ]
        .concat();
        assert_eq!(run(&all).status, Some(0));
    };
    export(&[]);
    let refused = words(&out).failed(1);
    assert!(
        refused.contains("was exported without attention weights")
            && refused.contains("--attentions"),
        "{refused}"
    );
    export(&["--attentions"]);
    let ended = words(&out);
    assert!(
        ended.status == Some(0) && ended.out.contains("\"words\""),
        "{}{}",
        ended.out,
        ended.err
    );
}

#[test]
fn a_bad_file_of_several_does_not_stop_the_others() {
    let (folder, checkpoint, _) = speech_model();
    let (clip, bad) = (testdata("audio/clip.wav"), folder.path().join("bad.wav"));
    fs::write(&bad, "no audio").unwrap();
    let transcribe = |more: &[&str]| {
        run(&[&["transcribe", "--model", checkpoint.to_str().unwrap()], more].concat())
    };
    let clip = clip.to_str().unwrap();
    let (both, alone) = (transcribe(&[bad.to_str().unwrap(), clip]), transcribe(&[clip]));
    assert_eq!((both.status, both.out), (Some(1), alone.ok()));
    assert!(both.err.contains("bad.wav"), "{}", both.err);
    let names = ["--output-dir", folder.path().to_str().unwrap(), clip, "other/clip.flac"];
    let refused = transcribe(&names).failed(1);
    assert!(refused.contains("would have the same name"), "{refused}");
}

#[test]
fn subtitles_are_laid_out_by_words() {
    let (folder, checkpoint, _) = speech_model();
    let clip = testdata("audio/clip.wav");
    let transcribe = |more: &[&str]| {
        let common =
            ["transcribe", "--model", checkpoint.to_str().unwrap(), clip.to_str().unwrap()];
        run(&[&common, more].concat())
    };
    let width = ["--word-timestamps", "--max-line-width", "12", "--max-line-count", "2"];
    let dir = ["--format", "all", "--output-dir", folder.path().to_str().unwrap()];
    transcribe(&[&width[..], &dir].concat()).ok();
    let file = |ending: &str| fs::read_to_string(folder.path().join(format!("clip.{ending}")));
    for (_, ending) in cognate::TranscriptFormat::ALL {
        assert!(!file(ending).unwrap().is_empty(), "{ending}");
    }
    let subtitles = file("srt").unwrap();
    let blocks: Vec<_> = subtitles.trim_end().split("\n\n").collect();
    assert!(blocks.len() > 1, "{subtitles}");
    for block in &blocks {
        let lines: Vec<_> = block.lines().skip(2).collect();
        let is_narrow = |line: &&str| line.chars().count() <= 12 || !line.contains(' ');
        assert!((1..=2).contains(&lines.len()) && lines.iter().all(is_narrow), "{block}");
    }
    // As they come.
    assert_eq!(transcribe(&[&width[..], &["--format", "srt"]].concat()).ok(), subtitles);
    for (options, message) in [
        (&["--format", "all"][..], "name their folder with --output-dir"),
        (&["--word-timestamps", "--highlight-words"], "need --format srt, vtt or all"),
        (&["--clip-timestamps", "3,1"], "--clip-timestamps: expected times in order"),
        (&["--clip-timestamps", "900"], "the first clip begins at 900 s"),
    ] {
        let refused = transcribe(options).failed(1);
        assert!(refused.contains(message), "{refused}");
    }
    transcribe(&["--max-line-width", "9", "--format", "srt"]).failed(2);
}
