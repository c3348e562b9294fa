//! `cognate evaluate`: sacreBLEU 2.6.0's lines, signatures, intervals and p-values
//! (`testdata/bleu`).

use crate::{SENTENCES, run, run_with, with_dir};
use cognate_testing::{bundled_checkpoint, shared_multi30k, testdata};
use insta::assert_snapshot;
use serde_json::Value;
use std::fs;
use tempfile::TempDir;

/// The recorded systems, and a folder with their texts: `system0` to `system2`, `reference0` and
/// `reference1`.
fn recorded() -> (Value, TempDir) {
    let text = fs::read_to_string(testdata("bleu/systems.json")).unwrap();
    let systems: Value = serde_json::from_str(&text).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (name, texts) in [("system", &systems["hypotheses"]), ("reference", &systems["references"])]
    {
        for (index, lines) in texts.as_array().unwrap().iter().enumerate() {
            let lines: Vec<_> =
                lines.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
            // Line ends of either kind.
            let end = if index == 0 { "\r\n" } else { "\n" };
            fs::write(folder.path().join(format!("{name}{index}")), lines.join(end) + end).unwrap();
        }
    }
    (systems, folder)
}

/// Arguments for the folder's files, `references` of them.
fn files(folder: &TempDir, references: u64, systems: &[usize]) -> Vec<String> {
    let path = |name: String| folder.path().join(name).to_str().unwrap().to_owned();
    let references = (0..references)
        .flat_map(|index| ["--reference".to_owned(), path(format!("reference{index}"))]);
    references.chain(systems.iter().map(|index| path(format!("system{index}")))).collect()
}

/// A text without the width of its columns, which is that of the folder's path.
fn squeezed(text: &str, folder: &TempDir) -> String {
    let words = |line: &str| {
        line.split("  ")
            .filter(|part| !part.is_empty())
            .map(str::trim)
            .collect::<Vec<_>>()
            .join("  ")
    };
    with_dir(text, folder.path()).lines().map(|line| words(line) + "\n").collect()
}

fn evaluate(args: &[String], more: &[&str]) -> crate::Ended {
    let args: Vec<&str> = ["evaluate"]
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .chain(more.iter().copied())
        .collect();
    run(&args)
}

/// The command's options for sacreBLEU's; `None` for those that only the library has.
fn options(row: &Value) -> Option<Vec<String>> {
    let mut args = Vec::new();
    for (name, value) in row["options"].as_object().unwrap() {
        match (name.as_str(), value) {
            ("lowercase" | "effective_order", Value::Bool(true)) => {
                args.push(format!("--{}", name.replace('_', "-")))
            }
            ("lowercase", Value::Bool(false)) => {}
            ("tokenize", Value::String(way)) => args.extend(["--tokenize".into(), way.clone()]),
            ("smooth_method", Value::String(way)) => args.extend(["--smooth".into(), way.clone()]),
            ("smooth_value", value) => args.extend(["--smooth-value".into(), value.to_string()]),
            ("word_order", value)
                if *value == 2 && row["options"].as_object().unwrap().len() == 1 => {}
            _ => return None,
        }
    }
    let name = match row["metric"].as_str().unwrap() {
        "bleu" => "bleu",
        _ if row["options"].get("word_order").is_some() => "chrf++",
        _ => "chrf",
    };
    args.extend(["--metrics".into(), name.into()]);
    Some(args)
}

#[test]
fn lines_are_sacrebleus() {
    let (systems, folder) = recorded();
    let (mut failures, mut compared) = (Vec::new(), 0);
    for row in systems["scores"].as_array().unwrap() {
        let Some(options) = options(row) else { continue };
        for (index, expected) in row["lines"].as_array().unwrap().iter().enumerate() {
            compared += 1;
            let args =
                [files(&folder, row["references"].as_u64().unwrap(), &[index]), options.clone()]
                    .concat();
            let found = evaluate(&args, &[]).ok();
            if found.trim_end() != expected.as_str().unwrap() {
                failures.push(format!("{options:?}: {found}expected {expected}"));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared > 100, "{compared}");
}

#[test]
fn comparisons_are_sacrebleus() {
    let (systems, folder) = recorded();
    let paired = systems["paired"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["options"].get("smooth_method").is_none());
    for row in paired {
        let [samples, seed] = ["samples", "seed"].map(|name| row[name].to_string());
        let name = row["name"].as_str().unwrap();
        let args = files(&folder, row["references"].as_u64().unwrap(), &[0, 1, 2]);
        let more = [
            "--paired-bs",
            "--json",
            "--metrics",
            "bleu,chrf,chrf++",
            "--samples",
            &samples,
            "--seed",
            &seed,
        ];
        let found = evaluate(&args, &more).ok();
        assert_eq!(found.lines().count(), 3);
        for (system, expected) in found.lines().zip(row["results"].as_array().unwrap()) {
            let system: Value = serde_json::from_str(system).unwrap();
            let score = &system["scores"][name];
            assert_eq!(score["signature"], row["signature"]);
            for (field, expected) in
                ["score", "mean", "ci", "p_value"].into_iter().zip(expected.as_array().unwrap())
            {
                let found = score.get(field).and_then(Value::as_f64);
                let near = found
                    .zip(expected.as_f64())
                    .map_or(found.is_none() && expected.is_null(), |(a, b)| (a - b).abs() < 1e-9);
                assert!(near, "{name} {field}: {score}, expected {expected}");
            }
        }
    }
}

/// One system with intervals; several with and without a comparison; sentences.
#[test]
fn forms() {
    let (_, folder) = recorded();
    let shown = |systems: &[usize], more: &[&str]| {
        squeezed(&evaluate(&files(&folder, 1, systems), more).ok(), &folder)
    };
    assert_snapshot!(shown(&[0], &["--confidence"]), @"
    BLEU|nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0 = 36.04 (μ = 35.96 ± 7.72) 67.3/45.4/30.9/21.3 (BP = 0.957 ratio = 0.958 hyp_len = 496 ref_len = 518)
    chrF2|nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0 = 55.53 (μ = 55.41 ± 7.24)
    ");
    assert_snapshot!(shown(&[0, 1], &["--metrics", "bleu", "--width", "1"]), @"
    System  BLEU
    DIR/system0  36.0
    DIR/system1  25.7

    BLEU  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
    ");
    assert_snapshot!(shown(&[0, 1, 2], &["--paired-bs"]), @"
    System  BLEU (μ ± 95% CI)  chrF2 (μ ± 95% CI)
    Baseline: DIR/system0  36.04 (35.96 ± 7.72)  55.53 (55.41 ± 7.24)
    DIR/system1  25.71 (25.65 ± 6.75) (p = 0.0270)*  36.46 (36.58 ± 5.88) (p = 0.0010)*
    DIR/system2  8.01 (7.88 ± 4.32) (p = 0.0010)*  11.56 (11.48 ± 2.51) (p = 0.0010)*

    p: p-value of the difference from the baseline; *: p <= 0.05
    BLEU  nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
    chrF2  nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
    ");
    let sentences = shown(&[0], &["--sentence-level", "--metrics", "bleu,chrf"]);
    assert_eq!(sentences.lines().count(), 60);
    assert_snapshot!(sentences.lines().skip(2).take(2).collect::<Vec<_>>().join(" | "), @"47.80	70.72 | 100.00	100.00");
}

#[test]
fn a_model_is_scored_by_what_it_translates() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let source = write("source", &format!("{}\n\n{}\n", SENTENCES[0], SENTENCES[1]));
    let reference = write("reference", "Ein Mann fährt Fahrrad.\n\nZwei Hunde spielen im Gras.\n");
    let model = ["--engine", "tract", "--reference", &reference];
    let ended = run(&[&["evaluate", "--source", &source], &model[..]].concat());
    let translated = run(&["translate", "--engine", "tract", "--input", &source]).ok();
    let given = run_with(&["evaluate", "--reference", &reference, "-"], &translated);
    assert_snapshot!(with_dir(&ended.err, folder.path()), @"cognate: warning: DIR/source: line 2: empty; its translation is empty");
    assert_eq!(ended.ok(), given.ok());
    let output = write("output", &translated);
    let table =
        run(&[&["evaluate", &output, "--source", &source, "--paired-bs"], &model[..]].concat())
            .ok();
    assert_snapshot!(squeezed(&table, &folder), @"
    System  BLEU (μ ± 95% CI)  chrF2 (μ ± 95% CI)
    Baseline: DIR/output  74.19 (72.88 ± 50.00)  86.21 (83.17 ± 50.00)
    testdata/multi30k-en-de  74.19 (72.88 ± 50.00) (p = 0.0010)*  86.21 (83.17 ± 50.00) (p = 0.0010)*

    p: p-value of the difference from the baseline; *: p <= 0.05
    BLEU  nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0
    chrF2  nrefs:1|bs:1000|seed:12345|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0
    ");
}

#[test]
fn reference_translations_have_their_scores() {
    let Some(data) = shared_multi30k() else { return };
    let reference = data.join("test_2016_flickr.de");
    let file = |name: &str| {
        bundled_checkpoint()
            .join(format!("reference/test_2016_flickr.{name}.de"))
            .to_str()
            .unwrap()
            .to_owned()
    };
    let args = [
        file("greedy"),
        file("beam5"),
        "--reference".into(),
        reference.to_str().unwrap().into(),
        "--width".into(),
        "4".into(),
    ];
    let out = evaluate(&args, &["--paired-bs"]).ok();
    let rows: Vec<_> =
        out.lines().skip(1).take(2).map(|line| line.rsplit_once(".de").unwrap().1.trim()).collect();
    assert_snapshot!(rows[0], @"38.5687 (38.5080 ± 1.6267)                62.3993 (62.3782 ± 1.1527)");
    assert_snapshot!(rows[1], @"39.8110 (39.7368 ± 1.5862) (p = 0.0010)*  63.4899 (63.4797 ± 1.1301) (p = 0.0010)*");
}

#[test]
fn texts_that_do_not_belong_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let two = write("two", b"Ein Hund.\nEine Katze.\n");
    let three = write("three", b"Ein Hund.\nEine Katze.\n\n");
    let (empty, latin) = (write("empty", b""), write("latin", b"Ein Hund.\nK\xe4se.\n"));
    let missing = folder.path().join("missing").to_str().unwrap().to_owned();
    let refused =
        |args: &[&str]| with_dir(&run(&[&["evaluate"], args].concat()).failed(1), folder.path());
    assert_snapshot!(refused(&["-r", &two, &three]), @"cognate: error: DIR/three: has 3 lines, expected 2 as in DIR/two");
    assert_snapshot!(refused(&["-r", &two, "-r", &three, &two]), @"cognate: error: --reference: DIR/three: has 3 lines, expected 2 as in DIR/two");
    assert_snapshot!(refused(&["-r", &two, "--source", &three]), @"cognate: error: --source: DIR/three: has 3 lines, expected 2 as in DIR/two");
    assert_snapshot!(refused(&["-r", &two, &empty]), @"cognate: error: DIR/empty: is empty; expected one sentence a line");
    assert_snapshot!(refused(&["-r", &empty, &empty]), @"cognate: error: --reference: DIR/empty: is empty; expected one sentence a line");
    assert_snapshot!(refused(&["-r", &two, &latin]), @"cognate: error: DIR/latin: line 2: not UTF-8 at byte 2; convert the file to UTF-8");
    assert_snapshot!(refused(&["-r", &missing, &two]), @"cognate: error: --reference: DIR/missing: cannot read: No such file or directory (os error 2)");
    assert_snapshot!(refused(&["-r", &two, &two, &two]), @"cognate: error: DIR/two: occurs twice; expected files of different names");
    assert_snapshot!(refused(&["-r", &two, &two, "--paired-bs"]), @"cognate: error: --paired-bs: expected two systems or more, found 1; --confidence prints the confidence interval of one");
    assert_snapshot!(refused(&["-r", &two, &two, &three, "--sentence-level"]), @"cognate: error: DIR/three: has 3 lines, expected 2 as in DIR/two");
    assert_snapshot!(refused(&["-r", &two, &two, "--model", "testdata/multi30k-en-de"]), @"cognate: error: --model: expected --source FILE with it, the sentences to translate");
    assert_snapshot!(refused(&["-r", &two, &two, "--smooth-value", "1"]), @"cognate: error: --smooth-value: expected --smooth floor or add-k with it");
    assert_snapshot!(refused(&["-r", "-", "-"]), @"cognate: error: -: standard input is another text already; pass a file");
    for (args, expected) in [
        (&["--normalizer", "english"][..], "--normalizer: expected wer or cer among --metrics"),
        (&["--metrics", "chrf", "--tokenize", "char"], "--tokenize: expected bleu among --metrics"),
        (&["--metrics", "wer", "--smooth", "none"], "--smooth: expected bleu among --metrics"),
        (
            &["--metrics", "chrf", "--effective-order"],
            "--effective-order: expected bleu among --metrics",
        ),
    ] {
        let said = refused(&[&["-r", &two, &two], args].concat());
        assert_eq!(said, format!("cognate: error: {expected}"));
    }
    let seed = run(&["evaluate", "-r", &two, &two, "--seed", "5"]).failed(2);
    assert!(seed.contains("--confidence|--paired-bs"), "{seed}");
    let tokenised = write("tokenised", "Ein Hund .\n".repeat(100).as_bytes());
    assert_snapshot!(with_dir(&run(&["evaluate", "-r", &tokenised, &tokenised]).err, folder.path()), @"cognate: warning: DIR/tokenised: 100 lines end in a period after a space, as in tokenised text, whose BLEU is not comparable; detokenise it, or pass --tokenize none");
}
