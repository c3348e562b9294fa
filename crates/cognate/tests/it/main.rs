//! The library as programs use it.

#![allow(clippy::unwrap_used)]

mod batches;
mod encoders;
mod images;
mod manifest;
mod options;
mod pairs;
mod reports;

use cognate::{
    CancellationToken, DecodingOptions, Engine, ErrorKind, Export, Layout, Line, LoadOptions,
    Manifest, Notice, Precision, Target, Translator, TranslatorOptions, VerifyOptions, Warning,
    verify,
};
use cognate_testing::{bundled_checkpoint, golden};
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

const SENTENCES: [&str; 4] =
    ["A man is riding a bicycle.", "", "Two dogs are playing in the snow.", "Hello!"];
const TRANSLATIONS: [&str; 2] = ["Ein Mann fährt Fahrrad.", "Zwei Hunde spielen im Schnee."];

fn on_tract() -> LoadOptions {
    LoadOptions { engine: Engine::Tract, ..LoadOptions::default() }
}

fn texts(translator: &Translator) -> Vec<String> {
    translator
        .translate(&SENTENCES)
        .unwrap()
        .into_iter()
        .map(|translation| translation.text)
        .collect()
}

/// A checkpoint and its exports in every layout give the same translations.
#[test]
fn every_kind_of_folder_translates() {
    let folder = tempfile::tempdir().unwrap();
    let expected = texts(
        &Translator::open_with(
            bundled_checkpoint(),
            &TranslatorOptions { load: on_tract(), ..Default::default() },
        )
        .unwrap(),
    );
    assert_eq!([&expected[0], &expected[2]], TRANSLATIONS);
    assert_eq!(expected[1], "");
    for (name, layout, target) in [
        ("cognate", Layout::Cognate, Target::Portable),
        ("hf", Layout::HuggingFace, Target::Portable),
        ("ort", Layout::Cognate, Target::Ort),
    ] {
        if target == Target::Ort && Engine::Ort.open(cognate::Device::Cpu).is_err() {
            cognate_testing::skip(
                "no library of ONNX Runtime; `cargo xtask onnxruntime` installs it",
            );
            continue;
        }
        let out = folder.path().join(name);
        let exported = Export::open(bundled_checkpoint())
            .unwrap()
            .layout(layout)
            .target(target)
            .write(&out)
            .unwrap();
        assert_eq!(exported.manifest.files.len(), if name == "hf" { 4 } else { 3 }, "{name}");
        assert_eq!(texts(&Translator::open(&out).unwrap()), expected, "{name}");
    }
}

#[test]
fn a_translator_is_shared_by_threads() {
    let translator = Translator::open_with(
        bundled_checkpoint(),
        &TranslatorOptions { load: on_tract(), ..Default::default() },
    )
    .unwrap();
    let expected = texts(&translator);
    let threads: Vec<_> = (0..3)
        .map(|_| translator.clone())
        .map(|translator| thread::spawn(move || texts(&translator)))
        .collect();
    threads.into_iter().for_each(|found| assert_eq!(found.join().unwrap(), expected));
}

#[test]
fn a_stream_gives_the_whole_translation() {
    let translator = Translator::open_with(
        bundled_checkpoint(),
        &TranslatorOptions { load: on_tract(), ..Default::default() },
    )
    .unwrap();
    let (mut streamed, mut n_pieces) = (String::new(), 0);
    let line = Line { text: SENTENCES[0].into(), prefix: None };
    let translation = translator
        .stream::<cognate::Error>(&line, 1, &mut |words| {
            n_pieces += 1;
            streamed.push_str(words);
            Ok(())
        })
        .unwrap();
    assert_eq!((streamed.as_str(), translation.text.as_str()), (TRANSLATIONS[0], TRANSLATIONS[0]));
    assert!(n_pieces > 1, "{n_pieces}");
}

#[test]
fn options_reach_the_search() {
    let number = NonZeroUsize::new;
    let decoding = DecodingOptions {
        beams: number(4),
        n_best: number(2),
        scores: true,
        ..DecodingOptions::default()
    };
    let options = TranslatorOptions {
        load: on_tract(),
        decoding,
        batch_size: number(1),
        ..Default::default()
    };
    let translator = Translator::open_with(bundled_checkpoint(), &options).unwrap();
    let found = translator.translate(&SENTENCES).unwrap();
    assert_eq!(found[0].hypotheses.len(), 2);
    assert!(found[0].hypotheses[0].hypothesis.score >= found[0].hypotheses[1].hypothesis.score);
    assert_eq!(found[1].warnings, [Warning::Empty]);
    let stream =
        translator.stream::<cognate::Error>(&Line::default(), 1, &mut |_| Ok(())).unwrap_err();
    assert_eq!(stream.option().map(|(name, _)| name), Some("stream"));
}

#[test]
fn options_replace_earlier_ones_by_any_of_their_names() {
    let read = |text: &str| serde_json::from_str::<serde_json::Map<_, _>>(text).unwrap();
    let earlier = read(r#"{"num_beams": 4, "do_sample": true, "top_k": 3}"#);
    let over = |options: &str| DecodingOptions::from_json_over(&earlier, &read(options)).unwrap();
    let given = over(r#"{"beams": 2, "sample": false, "top_k": null}"#);
    assert_eq!((given.beams, given.sample, given.top_k), (NonZeroUsize::new(2), false, None));
    assert_eq!(over("{}"), DecodingOptions::from_json(&earlier).unwrap());
}

#[test]
fn wrong_options_are_refused() {
    let open = |options: &str| {
        let decoding = DecodingOptions::from_json(&serde_json::from_str(options).unwrap()).unwrap();
        let options = TranslatorOptions { load: on_tract(), decoding, ..Default::default() };
        let error = Translator::open_with(bundled_checkpoint(), &options).err().unwrap();
        (error.kind(), error.to_string())
    };
    for (options, message) in [
        (r#"{"beams": 4294967296}"#, "beams: expected at most 256, found 4294967296"),
        (r#"{"n_best": 257, "sample": true}"#, "n_best: expected at most 256, found 257"),
        (r#"{"temperature": -1}"#, "temperature: expected a number from 1e-30 to 1e30, found -1"),
        (r#"{"length_penalty": 1e300}"#, "length_penalty: expected a finite number, found inf"),
    ] {
        assert_eq!(open(options), (ErrorKind::Options, message.to_owned()));
    }
    let all: Vec<_> = (0..8000).collect();
    let (kind, message) = open(&format!(r#"{{"suppress_tokens": {all:?}}}"#));
    assert_eq!(kind, ErrorKind::Options);
    assert_eq!(message, "suppress_tokens: expected a token that is allowed, found all 8000");
    let export = |size| {
        let export = cognate::Export::open(bundled_checkpoint()).unwrap();
        let export = export.precision(cognate::Precision::Int4).target(cognate::Target::Ort);
        let error = export.block_size(Some(size)).write(Path::new("no/such/folder")).err().unwrap();
        (error.kind(), error.to_string())
    };
    for size in [0, 24, usize::MAX] {
        let message = format!("block_size: expected 16, 32, 64 or 128, found {size}");
        assert_eq!(export(size), (ErrorKind::Options, message));
    }
}

#[test]
fn errors_say_what_they_are_about() {
    let open = |folder: &Path, options: &TranslatorOptions| {
        Translator::open_with(folder, options).err().unwrap()
    };
    let missing = open(Path::new("no/such"), &TranslatorOptions::default());
    assert_eq!(missing.kind(), ErrorKind::Folder);
    assert!(
        missing.to_string().ends_with(
            "download one of the Hugging Face Hub with `hf download no/such --local-dir such`"
        ),
        "{missing}"
    );
    let decoding = DecodingOptions { n_best: NonZeroUsize::new(3), ..DecodingOptions::default() };
    let contradiction =
        open(&bundled_checkpoint(), &TranslatorOptions { decoding, ..Default::default() });
    assert_eq!(
        (contradiction.kind(), contradiction.option().map(|(name, _)| name)),
        (ErrorKind::Options, Some("n_best"))
    );
    for (decoding, name) in [
        (DecodingOptions { min_length: Some(100_000), ..DecodingOptions::default() }, "min_length"),
        (
            DecodingOptions { suppress_tokens: vec![8_000], ..DecodingOptions::default() },
            "suppress_tokens",
        ),
        (
            DecodingOptions { bad_words: vec![String::new()], ..DecodingOptions::default() },
            "bad_words",
        ),
    ] {
        let error =
            open(&bundled_checkpoint(), &TranslatorOptions { decoding, ..Default::default() });
        assert_eq!(error.option().map(|(name, _)| name), Some(name), "{error}");
    }
    let seed = Export::open_with(
        &cognate::ModelSource::find(&bundled_checkpoint()).unwrap(),
        Some(2),
        false,
    )
    .err()
    .unwrap();
    assert_eq!(seed.option().map(|(name, _)| name), Some("seed"));
}

#[test]
fn an_export_is_verified_and_damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let export = Export::open("preset:tiny").unwrap();
    export.write(&out).unwrap();
    let options = VerifyOptions { model: Some(export.model()), ..VerifyOptions::default() };
    let mut stages = 0;
    let verified = verify(&out, &options, |_| stages += 1).unwrap();
    assert!(
        verified.report.passed() && verified.damaged.is_empty() && stages > 0,
        "{}",
        verified.report
    );
    let weights = out.join("weights.onnx_data");
    let mut bytes = std::fs::read(&weights).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&weights, bytes).unwrap();
    let verified = verify(&out, &options, |_| {}).unwrap();
    assert_eq!((verified.report.passed(), verified.damaged.len()), (false, 1));
}

/// Runs `work` until it is cancelled at its first stage, at its second, and so on; it must end
/// there.
fn cancel_at_each_stage(
    least: usize,
    work: impl Fn(CancellationToken, &mut dyn FnMut()) -> cognate::Result<()>,
    check_unchanged: impl Fn(),
) {
    for last in 1.. {
        let (cancellation, mut stages) = (CancellationToken::default(), 0);
        let result = work(cancellation.clone(), &mut || {
            stages += 1;
            if stages == last {
                cancellation.cancel();
            }
        });
        if stages < last {
            assert!(result.is_ok() && stages >= least, "{stages} stages: {result:?}");
            break;
        }
        assert_eq!((result.unwrap_err().kind(), stages), (ErrorKind::Cancelled, last));
        check_unchanged();
    }
}

#[test]
fn cancelled_work_begins_no_other_stage_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let export = |cancellation, stage: &mut dyn FnMut()| {
        let export = Export::open(golden("marian"))?.precision(Precision::F16);
        export.cancellation(cancellation).write_with(&out, &mut |_| stage()).map(drop)
    };
    let is_empty = || assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    cancel_at_each_stage(3, export, is_empty);
    let verify = |cancellation, stage: &mut dyn FnMut()| {
        let options = VerifyOptions { cancellation, ..VerifyOptions::default() };
        verify(&out, &options, |_| stage()).map(drop)
    };
    let is_unverified = || assert_eq!(Manifest::read(&out).unwrap().unwrap().verification, None);
    cancel_at_each_stage(4, verify, is_unverified);
}

#[test]
fn notices_are_returned_and_not_printed() {
    let number = NonZeroUsize::new(2);
    let load = LoadOptions { threads: number, workers: number, ..on_tract() };
    let translator = Translator::open_with(
        bundled_checkpoint(),
        &TranslatorOptions { load, ..Default::default() },
    )
    .unwrap();
    assert_eq!(translator.notices(), [Notice::OneThread { engine: "tract" }]);
}
