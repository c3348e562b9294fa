//! Figures of whole processes and single sentences.

use cognate_bench::measure::shares::Answer as Shares;
use cognate_bench::process::parse;
use cognate_bench::text::model::Model;
use cognate_bench::text::report::{Cell, Quality, Report, text};
use cognate_bench::text::{Precision, Search, Way};

fn exact(precision: Precision, beams: usize) -> Search {
    Search { precision, beams, has_shortlist: false }
}

/// Times of a program whose name contains a parenthesis, in hundredths of a second.
#[test]
fn times_are_read_behind_the_name() {
    let found = parse("7 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 1000 25 20 0 1").unwrap();
    assert_eq!([found.own, found.of_children], [2.0, 10.25]);
    assert_eq!(parse("7 (a) S 1 2 3"), None);
}

#[test]
fn ratios_are_of_the_least_rounds() {
    let mut cell = Cell::new(exact(Precision::Int8, 4), Some(1));
    let texts = |texts: [&str; 2]| texts.map(str::to_owned).to_vec();
    for (theirs, ours) in [([9.0, 4.0], [3.0, 2.5]), ([8.0, 5.0], [4.0, 2.0])] {
        cell.add(Way::CTranslate2, theirs, texts(["a b", "c"]));
        cell.add(Way::Cognate, ours, texts(["a b", "d"]));
    }
    cell.memory.extend([(Way::CTranslate2, 50_000_000), (Way::Cognate, 40_000_000)]);
    assert_eq!([cell.ratio(0), cell.ratio(1)], [8.0 / 3.0, 2.0]);
    let mut report = Report::new(Model::Bundled, 2, 2, vec!["a b c".into(), "d".into()]);
    report.files.push(cell);
    let text = text(&[report]);
    assert!(
        text.contains(
            "Words a line: references 2.0; CTranslate2 1.5, Cognate 1.5 (int8 4 beams, 1 worker)."
        ),
        "{text}"
    );
    let row = text
        .lines()
        .find(|line| line.starts_with('|') && line.contains("int8 4 beams, 1 worker"))
        .unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(
        cells[1..],
        ["8.00", "3.00", "2.67", "4.00", "2.00", "2.00", "1", "1", "50", "40", "1 of 2"]
    );
}

#[test]
fn a_shortlist_is_named_and_what_it_loses() {
    let with = Search { has_shortlist: true, ..exact(Precision::F32, 1) };
    assert_eq!(Cell::new(with, Some(1)).title(), "f32 greedy, shortlist, 1 worker");
    let mut report = Report::new(Model::Bundled, 1, 1, Vec::new());
    report.quality.push(Quality { precision: Precision::F32, beams: 5, bleu: [39.81, 39.7649] });
    let text = text(&[report]);
    let row = text.lines().find(|line| line.contains("f32 5 beams")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[1..], ["39.81", "39.76", "-0.05"]);
}

#[test]
fn shares_add_up() {
    let mut report = Report::new(Model::MarianBase, 1, 1, Vec::new());
    let found = Shares {
        total: 2.0,
        tokenizer: 0.1,
        encoder: 0.2,
        products: 0.8,
        output_layer: 0.4,
        attention: 0.3,
        others: 0.1,
    };
    report.shares.push((exact(Precision::Int8, 1), found));
    let text = text(&[report]);
    let row = text.lines().find(|line| line.contains("int8 greedy")).unwrap();
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[1..], ["5", "10", "40", "20", "15", "5", "5", "2.00"]);
}

#[test]
fn cells_below_their_floor_are_listed() {
    let mut report = Report::new(Model::Bundled, 1, 1, Vec::new());
    for (workers, ours) in [(Some(1), 4.0), (Some(2), 3.0), (None, 4.0), (None, 3.5)] {
        let mut cell = Cell::new(exact(Precision::F32, 1), workers);
        cell.add(Way::CTranslate2, [5.0, 5.0], vec!["a".into()]);
        cell.add(Way::Cognate, [ours, ours], vec!["a".into()]);
        cell.memory.extend([(Way::CTranslate2, 1), (Way::Cognate, 1)]);
        cell.singles.extend([(Way::CTranslate2, vec![5.0]), (Way::Cognate, vec![ours])]);
        if workers.is_some() { report.files.push(cell) } else { report.single.push(cell) }
    }
    let text = text(&[report]);
    let missed: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
    assert_eq!(
        missed,
        [
            "- f32 greedy, 1 worker: 1.25 times CTranslate2, at least 1.5",
            "- f32 greedy, one sentence at a time: 1.25 times CTranslate2, at least 1.3"
        ]
    );
}
