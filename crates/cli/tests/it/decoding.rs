//! Ways of decoding, and scoring: the bundled checkpoint's numbers are transformers' (`generate`,
//! and log-softmax on given targets).

use crate::{SENTENCES, run, run_with};
use insta::assert_snapshot;
use std::fs;

/// Lines with a text column and a score column, after columns that are returned.
fn assert_scored(out: &str, expected: &[(&str, f64)]) -> Vec<String> {
    let lines: Vec<_> = out.lines().map(|line| line.rsplitn(3, '\t').collect::<Vec<_>>()).collect();
    let found: Vec<_> =
        lines.iter().map(|columns| (columns[1], columns[0].parse::<f64>().unwrap())).collect();
    assert_eq!(found.len(), expected.len(), "{out}");
    for ((text, score), (expected_text, expected_score)) in found.iter().zip(expected) {
        assert_eq!(text, expected_text, "{out}");
        assert!(
            (score - expected_score).abs() < 1e-4 * expected_score.abs().max(1.0),
            "{text}: {score}, expected {expected_score}"
        );
    }
    lines.iter().filter_map(|columns| columns.get(2)).map(|&column| column.to_owned()).collect()
}

#[test]
fn n_best_lists_have_the_scores_of_transformers() {
    let args = ["translate", "--engine", "tract", "--beams", "4", "--n-best", "3", "--scores"];
    let numbers = assert_scored(
        &run(&[&args[..], &SENTENCES].concat()).ok(),
        &[
            ("Ein Mann fährt Fahrrad.", -0.219966),
            ("Ein Mann fährt auf einem Fahrrad.", -0.250554),
            ("Ein Mann fährt ein Fahrrad.", -0.310256),
            ("Zwei Hunde spielen im Schnee.", -0.070008),
            ("Zwei Hund spielen im Schnee.", -0.681526),
            ("Zwei Hunde spielen in den Schnee.", -0.691158),
        ],
    );
    assert_eq!(numbers, ["1", "1", "1", "2", "2", "2"]);
    let odd = [
        "--length-penalty",
        "-1",
        "--repetition-penalty",
        "1.5",
        "--min-new-tokens",
        "9",
        "--early-stopping",
        "true",
    ];
    assert_scored(
        &run(&[
            &["translate", "--engine", "tract", "--beams", "4", "--scores"],
            &odd[..],
            &SENTENCES,
        ]
        .concat())
        .ok(),
        &[
            ("Ein Mann fährt auf einem Fahrrad.“", -127.496109),
            ("Zwei Hunde spielen im Schnee. Ein Hund.", -123.460503),
        ],
    );
}

#[test]
fn prefixes_and_alignments_are_those_of_transformers() {
    let out = run(&[
        &["translate", "--engine", "tract", "--target-prefix", "Zwei Hunde tollen", "--alignments"],
        &SENTENCES[..],
    ]
    .concat())
    .ok();
    assert_snapshot!(out, @"
    Zwei Hunde tollen fahren ein Fahrrad.	1-0 1-1 3-2 7-3 3-4 3-5 5-6 5-7 7-8
    Zwei Hunde tollen im Schnee.	0-0 1-1 3-2 8-3 3-4 3-5 6-6 3-7
    ");
}

/// Each line as if all had its prefix, in batches and streamed; and what does not fit, by file and
/// line.
#[test]
fn each_line_has_a_prefix_of_its_own() {
    let prefixes = ["Zwei Hunde tollen", "", "Der", "Ein großer", "Niemand"];
    let sentences = [SENTENCES[1], SENTENCES[1], "", SENTENCES[0], SENTENCES[0]];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prefixes");
    let translate = |args: &[&str]| {
        run(&[&["translate", "--engine", "tract", "--batch-tokens", "1"], args].concat())
    };
    let alone =
        |(prefix, sentence): (&str, &str)| translate(&["--target-prefix", prefix, sentence]).ok();
    let expected: String = prefixes.into_iter().zip(sentences).map(alone).collect();
    assert!(
        expected.starts_with("Zwei Hunde tollen") && expected.contains("\nNiemand"),
        "{expected}"
    );

    fs::write(&file, prefixes.join("\r\n")).unwrap();
    let path = file.to_str().unwrap();
    let given = ["translate", "--engine", "tract", "--target-prefixes", path];
    for args in [&["--workers", "2", "--window", "2"][..], &["--stream"], &[]] {
        assert_eq!(
            run_with(&[&given, args].concat(), sentences.join("\n")).ok(),
            expected,
            "{args:?}"
        );
        assert_eq!(run(&[&given, args, &sentences].concat()).ok(), expected, "{args:?}");
    }

    let last = |text: &str, args: &[&str]| {
        fs::write(&file, text).unwrap();
        let ended = run(&[&given, args].concat());
        assert_eq!(ended.status, Some(1));
        crate::with_dir(ended.err.lines().last().unwrap(), folder.path())
    };
    assert_snapshot!(last("Der", &SENTENCES), @"cognate: error: DIR/prefixes: line 2 is missing; expected as many lines as in the arguments");
    assert_snapshot!(last("Der\nDer\nDer", &SENTENCES), @"cognate: error: the arguments: line 3 is missing; expected as many lines as in DIR/prefixes");
    assert_snapshot!(last("Der\nDer Hund spielt", &[&["--max-new-tokens", "3"], &SENTENCES[..]].concat()), @"cognate: error: DIR/prefixes: line 2: has 3 tokens; expected at most 2");
    assert_snapshot!(last("Der\nDer Hund spielt", &[&["--stream", "--max-new-tokens", "3"], &SENTENCES[..]].concat()), @"cognate: error: DIR/prefixes: line 2: has 3 tokens; expected at most 2");
    fs::remove_file(&file).unwrap();
    assert_snapshot!(crate::with_dir(&run(&[&given[..], &SENTENCES].concat()).failed(1), folder.path()), @"cognate: error: --target-prefixes: DIR/prefixes: cannot be read: No such file or directory (os error 2)");
    let both = run(&["translate", "--target-prefixes", "-"]).failed(1);
    assert_snapshot!(both, @"cognate: error: --target-prefixes: standard input is another text already; pass a file");
}

#[test]
fn an_export_aligns_if_it_gives_its_attentions() {
    let folder = tempfile::tempdir().unwrap();
    let exported = |name: &str, args: &[&str]| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        run(&[&["export", "testdata/multi30k-en-de", &out, "--no-verify"], args].concat()).ok();
        out
    };
    let (with, without) = (exported("with", &["--attentions"]), exported("without", &[]));
    let align = |model: &str| {
        run(&["translate", "--engine", "tract", "--alignments", "--model", model, SENTENCES[1]])
    };
    assert_snapshot!(align(&with).ok(), @"Zwei Hunde spielen im Schnee.	0-0 1-1 3-2 4-3 6-4 8-5");
    let refused = align(&without).failed(1);
    assert_snapshot!(crate::with_dir(refused.lines().last().unwrap(), folder.path()), @"cognate: error: --alignments: DIR/without gives no attention weights, by which tokens are aligned; load an export with attentions, or a checkpoint with alignments");
}

#[test]
fn draws_depend_on_the_seed_and_the_line_alone() {
    let draw = |args: &[&str], text: &str| {
        run_with(
            &[
                &[
                    "translate",
                    "--engine",
                    "tract",
                    "--sample",
                    "--temperature",
                    "1.3",
                    "--top-k",
                    "0",
                ],
                args,
            ]
            .concat(),
            text,
        )
        .ok()
    };
    let text = "A dog.\nTwo young girls are sitting on a bench in a park.\n\nA man in a blue shirt is standing on a ladder.\n";
    let beams = |args: &[&str]| draw(&[&["--beams", "3", "--n-best", "2"], args].concat(), text);
    assert_eq!(beams(&["--seed", "7"]), beams(&["--seed", "7", "--window", "1"]));
    assert_ne!(beams(&["--seed", "7"]), beams(&["--seed", "8"]));
    let expected = draw(&["--seed", "7"], text);
    for args in [["--window", "1"], ["--batch-tokens", "1"]] {
        assert_eq!(draw(&[&["--seed", "7"], &args[..]].concat(), text), expected, "{args:?}");
    }
    assert_ne!(draw(&["--seed", "8"], text), expected);
    let several = draw(&["--seed", "7", "--n-best", "2"], text);
    let firsts: String = several
        .lines()
        .filter(|line| !line.is_empty())
        .step_by(2)
        .map(|line| format!("{line}\n"))
        .collect();
    let numbered = expected.lines().enumerate().filter(|(_, line)| !line.is_empty());
    assert_eq!(
        firsts,
        numbered.map(|(index, line)| format!("{}\t{line}\n", index + 1)).collect::<String>()
    );
}

#[test]
fn contradictions_are_refused() {
    let refused = |args: &[&str]| {
        run(&[&["translate", "--engine", "tract"], args, &["Hello."]].concat()).failed(1)
    };
    assert_snapshot!(refused(&["--n-best", "3"]), @"cognate: error: --n-best: expected at most 1, the number of beams, found 3; set beams to 3, or set sample");
    assert_snapshot!(refused(&["--sample", "--beams", "2", "--n-best", "3"]), @"cognate: error: --n-best: expected at most 2, the number of beams, found 3; set beams to 3, or do not set beams");
    assert_snapshot!(refused(&["--min-new-tokens", "9", "--max-new-tokens", "5"]), @"cognate: error: --min-new-tokens: expected at most 5, the maximum number of tokens, found 9");
    assert_snapshot!(refused(&["--target-prefix", "Zwei Hunde spielen", "--max-new-tokens", "3"]), @"cognate: error: --target-prefix: has 3 tokens; expected at most 2");
    let wrong = |args: &[&str]| {
        let err = run(&[&["translate"], args, &["Hello."]].concat()).failed(2);
        err.lines().next().unwrap().to_owned()
    };
    assert_snapshot!(wrong(&["--temperature", "0.5"]), @"error: the following required arguments were not provided:");
    assert_snapshot!(wrong(&["--sample", "--temperature", "0"]), @"error: invalid value '0' for '--temperature <X>': expected a number above 0");
    assert_snapshot!(wrong(&["--sample", "--top-p", "1.5"]), @"error: invalid value '1.5' for '--top-p <P>': expected a number above 0 and at most 1");
    assert_snapshot!(wrong(&["--length-penalty", "long"]), @"error: invalid value 'long' for '--length-penalty <X>': expected a number");
    assert_snapshot!(wrong(&["--early-stopping", "soon"]), @"error: invalid value 'soon' for '--early-stopping <WHEN>'");
}

const PAIRS: &str = "A dog.\tEin Hund.\nTwo dogs are playing in the snow.\tZwei Hunde spielen im Schnee.\nA dog.\tEine Katze.\n";

#[test]
fn targets_have_the_log_probabilities_of_pytorch() {
    let expected: [(&str, &[f64]); 3] = [
        ("▁Ein ▁Hund . </s>", &[-0.073001, -0.070031, -1.316930, -0.078230]),
        (
            "▁Zwei ▁Hunde ▁spielen ▁im ▁Schnee . </s>",
            &[-0.058881, -0.069613, -0.071400, -0.059386, -0.040116, -0.108765, -0.081892],
        ),
        ("▁Eine ▁Katze . </s>", &[-5.674602, -10.231254, -0.200893, -0.081606]),
    ];
    let out = run_with(&["score", "--engine", "tract"], PAIRS).ok();
    assert_eq!(out.lines().count(), expected.len());
    for (line, (pieces, logs)) in out.lines().zip(expected) {
        let [total, found, tokens] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let found: Vec<f64> = found.split(' ').map(|log| log.parse().unwrap()).collect();
        assert_eq!((tokens, found.len()), (pieces, logs.len()));
        assert!(found.iter().zip(logs).all(|(found, log)| (found - log).abs() < 1e-4), "{line}");
        assert!((total.parse::<f64>().unwrap() - logs.iter().sum::<f64>()).abs() < 1e-4, "{line}");
    }
    let folder = tempfile::tempdir().unwrap();
    let [source, target] =
        ["en", "de"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let column = |index: usize| {
        PAIRS
            .lines()
            .map(|line| format!("{}\n", line.split('\t').nth(index).unwrap()))
            .collect::<String>()
    };
    fs::write(&source, column(0)).unwrap();
    fs::write(&target, column(1)).unwrap();
    assert_eq!(
        run(&["score", "--engine", "tract", "--source", &source, "--target", &target]).ok(),
        out
    );
    fs::write(&target, "Ein Hund.\n").unwrap();
    let ended = run(&["score", "--engine", "tract", "--source", &source, "--target", &target]);
    assert_eq!((ended.status, ended.out.lines().count()), (Some(1), 1));
    let said = ended.err.lines().last().unwrap().replace(folder.path().to_str().unwrap(), "DIR");
    assert_snapshot!(said, @"cognate: error: DIR/de: line 2 is missing; expected as many lines as in DIR/en");
}

/// What is given counts for nothing; the others count as they did.
#[test]
fn targets_may_begin_with_what_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prefixes");
    let scored = |prefixes: &str| {
        fs::write(&file, prefixes).unwrap();
        run_with(
            &["score", "--engine", "tract", "--target-prefixes", file.to_str().unwrap()],
            PAIRS,
        )
    };
    let whole = run_with(&["score", "--engine", "tract"], PAIRS).ok();
    for (line, (expected, given)) in
        scored("Ein\nZwei Hunde\n\n").ok().lines().zip(whole.lines().zip([1, 2, 0]))
    {
        let columns = |line: &str| {
            line.split('\t')
                .skip(1)
                .map(|column| column.split(' ').map(str::to_owned).collect::<Vec<_>>())
                .collect::<Vec<_>>()
        };
        let expected: Vec<_> =
            columns(expected).into_iter().map(|column| column[given..].to_vec()).collect();
        assert_eq!(columns(line), expected);
        let sum: f64 = expected[0].iter().map(|log| log.parse::<f64>().unwrap()).sum();
        assert!(
            (line.split('\t').next().unwrap().parse::<f64>().unwrap() - sum).abs() < 1e-5,
            "{line}"
        );
    }
    let refused = |prefixes: &str| {
        let ended = scored(prefixes);
        assert_eq!(ended.status, Some(1));
        crate::with_dir(ended.err.lines().last().unwrap(), folder.path())
    };
    assert_snapshot!(refused("Ein\nZwei Katzen\n\n"), @r#"cognate: error: stdin: line 2: the translation does not begin with the tokens of its prefix "Zwei Katzen"; expected a prefix of whole words"#);
    assert_snapshot!(refused("Ein\n"), @"cognate: error: DIR/prefixes: line 2 is missing; expected as many lines as in stdin");
    assert_snapshot!(refused("\n\n\n\n"), @"cognate: error: stdin: line 4 is missing; expected as many lines as in DIR/prefixes");
    let both = run(&["score", "--target-prefixes", "-"]).failed(1);
    assert_snapshot!(both, @"cognate: error: --target-prefixes: standard input is another text already; pass a file");
}

#[test]
fn pairs_that_are_none_are_refused() {
    let refused = |text: &str| {
        run_with(&["score", "--engine", "tract"], text).failed(1).lines().last().unwrap().to_owned()
    };
    assert_snapshot!(refused("A dog."), @"cognate: error: stdin: line 1: expected a source, one tab and a translation, found 0 tabs");
    assert_snapshot!(refused("A dog.\tEin\tHund."), @"cognate: error: stdin: line 1: expected a source, one tab and a translation, found 2 tabs");
    assert_snapshot!(refused(" \tEin Hund."), @"cognate: error: stdin: line 1: the source is empty; expected a sentence");
    assert_snapshot!(refused(&format!("A dog.\t{}", ["Hund"; 400].join(" "))), @"cognate: error: stdin: line 1: the translation has 401 tokens; expected at most 256, the positions of the model");
}
