//! Shortlists: made from parallel text, and used.

use crate::{SENTENCES, run, run_with};
use insta::assert_snapshot;
use std::fs;

const DATA: [&str; 3] = ["--data", "testdata/parallel/train.en", "testdata/parallel/train.de"];

/// The shortlist of the bundled parallel text.
fn made(file: &str, args: &[&str]) {
    let ended = run(&[&["shortlist"][..], &DATA, &["--out", file], args].concat());
    assert_eq!(ended.ok(), "");
}

#[test]
fn translations_have_the_tokens_of_their_shortlist() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shortlist.txt");
    let path = file.to_str().unwrap();
    made(path, &["--frequent", "40", "--translations", "6", "--least-probability", "0.01"]);
    let text = fs::read_to_string(&file).unwrap();
    let (frequent, rest) = text.split_once('\n').unwrap();
    assert_eq!(frequent.split_whitespace().count(), 40);
    assert!(
        rest.lines().all(|line| line.split('\t').nth(1).unwrap().split(' ').count() <= 6),
        "{rest}"
    );
    assert!(rest.lines().any(|line| line.starts_with("▁dog\t▁Hund")), "{rest}");
    // In kernels, and left out of all logits.
    for options in
        [&["--beams", "1"][..], &["--beams", "4", "--scores"], &["--sample", "--seed", "3"]]
    {
        let translate = |engine| {
            run(&[&["translate", "--engine", engine, "--shortlist", path, SENTENCES[1]], options]
                .concat())
            .ok()
        };
        let [fast, plain] = ["tract", "reference"].map(translate);
        let words = |text: &str| text.split('\t').next().unwrap().trim().to_owned();
        assert_eq!(words(&fast), words(&plain), "{options:?}");
        let allowed: Vec<&str> = text.split_whitespace().collect();
        let pieces = run(&["tokenize", "--target", &words(&fast)]).ok();
        assert!(pieces.split_whitespace().all(|piece| allowed.contains(&piece)), "{pieces}");
    }
    // Several source tokens in order, as CTranslate2's files have them, and the end of a sentence
    // without being named.
    fs::write(&file, "\t▁Zwei\n▁dogs ▁are\t▁Hunde\n▁are ▁dogs\t▁Frau\n▁snow\t▁Schnee .\n").unwrap();
    let found = run(&[
        "translate",
        "--engine",
        "tract",
        "--shortlist",
        path,
        "--max-new-tokens",
        "9",
        SENTENCES[1],
    ])
    .ok();
    assert!(found.starts_with("Zwei Hunde"), "{found}");
    assert!(
        found
            .split_whitespace()
            .all(|word| ["Zwei", "Hunde", "Hunde.", "Schnee", "Schnee.", "."].contains(&word)),
        "{found}"
    );
}

#[test]
fn what_is_wrong_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shortlist.txt");
    let path = file.to_str().unwrap();
    let mut refused = Vec::new();
    for text in
        ["▁dog ▁Hund\n", "\t▁Hund\n▁dog\t▁Hund ▁cognate-none\n", "▁cognate-none\t▁Hund\n", ""]
    {
        fs::write(&file, text).unwrap();
        let ended = run(&["translate", "--engine", "tract", "--shortlist", path, "A dog."]);
        assert_eq!(ended.status, Some(1));
        refused.push(ended.err.replace(path, "FILE"));
    }
    let missing = run(&["translate", "--engine", "tract", "--shortlist", "none.txt", "A dog."]);
    refused.push(missing.err);
    let uneven = run_with(
        &["shortlist", "--data", "testdata/parallel/train.en", "-", "--out", path],
        "Ein Hund.\n",
    );
    assert_eq!(uneven.status, Some(1));
    refused.push(uneven.err);
    refused.push(
        run_with(&["shortlist", "--data", "testdata/parallel/train.en", "-", "--out", path], "")
            .err,
    );
    refused.push(run(&[&["shortlist"][..], &DATA, &["--out", "none/shortlist.txt"]].concat()).err);
    refused.push(run(&["evaluate", "--reference", DATA[2], "--shortlist", path, DATA[2]]).err);
    assert_snapshot!(refused.join("\n"));
}
