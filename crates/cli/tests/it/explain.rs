//! `cognate explain`: its numbers against the checkpoint's, and those of other commands.

use crate::{SENTENCES, run, run_with, with_dir};
use cognate_pictures::{Embeddings, Summary, read_html};
use cognate_testing::bundled_checkpoint;
use insta::assert_snapshot;
use safetensors::SafeTensors;
use std::fs;

/// The column of a table's first line that begins so.
fn field<'t>(text: &'t str, begins: &str, column: usize) -> &'t str {
    let line = text.lines().find(|line| line.trim_start().starts_with(begins));
    line.and_then(|line| line.split_whitespace().nth(column))
        .unwrap_or_else(|| panic!("{begins}: no such line in\n{text}"))
}

#[test]
fn norms_are_those_of_the_checkpoint() {
    let text = run(&["explain", SENTENCES[0]]).ok();
    let bytes = fs::read(bundled_checkpoint().join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let table = tensors.tensor("model.shared.weight").unwrap();
    let (values, []) = table.data().as_chunks::<4>() else { panic!("the table is f32") };
    // `▁A` has the id 8, and Marian multiplies by the root of d_model = 128.
    let row = values[8 * 128..][..128]
        .iter()
        .map(|value| f64::from(f32::from_le_bytes(*value)).powi(2))
        .sum::<f64>();
    assert_eq!(field(&text, "1  ▁A", 3), format!("{:.3}", (128.0 * row).sqrt()));
    // A sine and a cosine of each of 64 angles.
    assert_eq!(field(&text, "1  ▁A", 4), "8.000");
    assert!(
        text.starts_with(
            "A man is riding a bicycle.\n→ Ein Mann fährt Fahrrad.\ntestdata/multi30k-en-de on "
        ),
        "{text}"
    );
    assert!(!text.contains("4. Beam search"), "the model decodes greedily");
}

#[test]
fn probabilities_are_those_of_score() {
    let (source, target) = (SENTENCES[1], "Zwei Hunde spielen im Schnee.");
    let text = run(&["explain", "--engine", "tract", source, "--target", target]).ok();
    let scored = run_with(&["score", "--engine", "tract"], format!("{source}\t{target}\n")).ok();
    let mut columns = scored.trim_end().split('\t').skip(1);
    let (logs, pieces) = (columns.next().unwrap(), columns.next().unwrap());
    for (log, piece) in logs.split(' ').zip(pieces.split(' ')) {
        let expected = format!("[{piece}] {:.3}", log.parse::<f64>().unwrap().exp());
        assert!(text.contains(&expected), "{expected}\n{text}");
    }
    let rare =
        run(&["explain", "--engine", "tract", source, "--target", "Zwei Hunde Fahrrad."]).ok();
    assert!(rare.contains("; chosen ▁Fahrrad "), "{rare}");
}

#[test]
fn the_tree_ends_in_the_hypotheses_of_translate() {
    let beams = ["--engine", "tract", "--beams", "4"];
    let text = run(&[&["explain", SENTENCES[0]], &beams[..]].concat()).ok();
    let expected =
        run(&[&["translate", SENTENCES[0], "--n-best", "4", "--scores"], &beams[..]].concat()).ok();
    assert_eq!(expected.lines().count(), 4);
    for (rank, line) in expected.lines().enumerate() {
        let mut columns = line.split('\t').skip(1);
        let (translation, score) =
            (columns.next().unwrap(), columns.next().unwrap().parse::<f64>().unwrap());
        let line = format!("  #{}  {score:.4}  {translation}\n", rank + 1);
        assert!(text.contains(&line), "{line}\n{text}");
        assert_eq!(
            text.matches(&format!("  #{} {score:.4}\n", rank + 1)).count(),
            1,
            "an end of the tree\n{text}"
        );
    }
}

/// The page of `cognate attend` has the numbers that this command prints.
#[test]
fn the_page_has_the_same_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let beams = [SENTENCES[0], "--engine", "tract", "--beams", "4"];
    let text = run(&[&["explain"], &beams[..]].concat()).ok();
    run(&[&["attend", "--out", page.to_str().unwrap()], &beams[..]].concat()).ok();
    let document = read_html(&fs::read_to_string(&page).unwrap()).unwrap();
    let explained = document.examples[0].explained.as_ref().unwrap();
    let Embeddings::Known { d_model: 128, is_scaled: true, source, .. } = &explained.embeddings
    else {
        panic!("{explained:?}")
    };
    let mut expected: Vec<String> = source
        .iter()
        .map(|norms| format!("{:.3}       8.000  {:>26.3}\n", norms.token, norms.sum))
        .collect();
    for Summary { own, first, last, words, .. } in explained.layers.iter().flatten() {
        let shares = own
            .iter()
            .flatten()
            .chain([first, last])
            .map(|share| format!("{:>6.1}%", 100.0 * share));
        expected.push(format!("{}  {words:>6.1}", shares.collect::<Vec<_>>().join("  ")));
    }
    for (step, written) in explained.steps.iter().zip(&document.examples[0].target.written) {
        assert_eq!(step.likeliest.len(), 5);
        expected.push(format!("[{}] {:.3}", written.piece, step.written.unwrap()));
        expected.extend(
            step.likeliest[1..]
                .iter()
                .map(|likely| format!("  {} {:.3}", likely.token.piece, likely.probability)),
        );
    }
    let beams = explained.beams.as_ref().unwrap();
    assert_eq!((beams.width, beams.finished.len()), (4, 4));
    expected.extend(
        beams.nodes[1..]
            .iter()
            .map(|node| format!("{} {:.2}", node.token.piece, node.log_probability)),
    );
    expected.extend(
        beams
            .finished
            .iter()
            .map(|hypothesis| format!("{:.4}  {}\n", hypothesis.score, hypothesis.text)),
    );
    let lost: Vec<_> = expected.iter().filter(|expected| !text.contains(*expected)).collect();
    assert!(lost.is_empty(), "{lost:?}\n{text}");
}

#[test]
fn exports_have_norms_if_their_weights_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let explained = |name: &str, args: &[&str]| {
        let out = folder.path().join(name).to_str().unwrap().to_owned();
        run(&[&["export", "testdata/multi30k-en-de", &out, "--no-verify", "--attentions"], args]
            .concat())
        .ok();
        run(&["explain", "--engine", "tract", "--model", &out, SENTENCES[0]]).ok()
    };
    assert_eq!(field(&explained("f32", &[]), "1  ▁A", 4), "8.000");
    let rounded = with_dir(&explained("int8", &["--precision", "int8"]), folder.path());
    let line = rounded.lines().find(|line| line.contains("Norms")).unwrap();
    assert_snapshot!(line, @"   Norms are available for checkpoints and exports in f32: DIR/int8: its weights are rounded to integers");
}
