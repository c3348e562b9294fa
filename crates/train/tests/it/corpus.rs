use std::fs;

use cognate_train::{Cleaning, Corpus, Dropped, ErrorKind, Files, Pair, Result};
use insta::assert_snapshot;

use crate::{Folder, sentences};

fn pairs(corpus: &Corpus) -> Vec<(String, String)> {
    corpus
        .pairs()
        .unwrap()
        .map(|pair| pair.map(|Pair { source, target, .. }| (source, target)))
        .collect::<Result<_>>()
        .unwrap()
}

fn sides(pairs: &[(String, String)]) -> (Vec<&str>, Vec<&str>) {
    pairs.iter().map(|(source, target)| (source.as_str(), target.as_str())).unzip()
}

#[test]
fn lines_meet_their_translations() {
    let folder = Folder::new();
    // Byte order marks, other line ends, no line end, other separators of Unicode, NUL: line n
    // stays line n.
    let files = folder.parallel(
        "\u{feff}one\r\n\u{2028}two\r\n\r\n  \r\nf\0ve\r",
        "\u{feff}eins\nzwei\x0b\ndrei\nvier\nfünf",
    );
    let corpus = Corpus::open(&[files], &Cleaning::default()).unwrap();
    let found = pairs(&corpus);
    assert_eq!(
        sides(&found),
        (vec!["one", "\u{2028}two", "f\0ve\r"], vec!["eins", "zwei\x0b", "fünf"])
    );
    assert_eq!(
        (corpus.n_lines(), corpus.n_pairs(), corpus.dropped()),
        (5, 3, Dropped { empty: 2, long: 0 })
    );
    let places: Vec<u64> = corpus.pairs().unwrap().map(|pair| pair.unwrap().place.line).collect();
    assert_eq!(places, [1, 2, 5]);
}

#[test]
fn columns_of_a_table_are_chosen() {
    let folder = Folder::new();
    let file = folder.write("train.tsv", "id\ta\tA\tx\n1\tb c\tB\n2\t\tC\n3\td\tD\t\n");
    for (source_column, target_column, expected) in [
        (2, 3, vec![("a", "A"), ("b c", "B"), ("d", "D")]),
        (3, 1, vec![("A", "id"), ("B", "1"), ("C", "2"), ("D", "3")]),
    ] {
        let corpus = Corpus::open(
            &[Files::Tsv { file: file.clone(), source_column, target_column }],
            &Cleaning::default(),
        )
        .unwrap();
        let found = pairs(&corpus);
        assert_eq!(sides(&found), expected.into_iter().unzip());
    }
}

#[test]
fn any_number_of_lines_reads_back() {
    for n in [1, 2, 63, 64, 65, 127, 128, 129, 1_000] {
        let folder = Folder::new();
        let (source, target) = sentences(n, 9);
        // Without the last line feed too.
        let corpus =
            Corpus::open(&[folder.parallel(&source, target.trim_end())], &Cleaning::default())
                .unwrap();
        let found = pairs(&corpus);
        assert_eq!(sides(&found), (source.lines().collect(), target.lines().collect()), "{n}");
    }
}

#[test]
fn corpora_follow_each_other() {
    let folder = Folder::new();
    let (source, target) = sentences(100, 9);
    let table: String = source
        .lines()
        .zip(target.lines())
        .map(|(source, target)| format!("{target}\t{source}\r\n"))
        .collect();
    let table =
        Files::Tsv { file: folder.write("more.tsv", table), source_column: 2, target_column: 1 };
    let corpus =
        Corpus::open(&[folder.parallel(&source, &target), table.clone()], &Cleaning::default())
            .unwrap();
    let found = pairs(&corpus);
    let (sources, targets) = sides(&found);
    assert_eq!(sources, source.lines().chain(source.lines()).collect::<Vec<_>>());
    assert_eq!(targets, target.lines().chain(target.lines()).collect::<Vec<_>>());
    let last = corpus.pairs().unwrap().last().unwrap().unwrap();
    assert_eq!(folder.shown(corpus.name(last.place)), "more.tsv: line 100");
    // The fingerprint is that of the sentences, wherever they lie.
    let alone = Corpus::open(&[folder.parallel(&source, &target)], &Cleaning::default()).unwrap();
    assert_eq!(
        alone.fingerprint(),
        Corpus::open(&[table], &Cleaning::default()).unwrap().fingerprint()
    );
    assert_ne!(alone.fingerprint(), corpus.fingerprint());
}

#[test]
fn cleaning_counts_what_it_drops() {
    let folder = Folder::new();
    let source = "a b c\na b\n\na b c d\n \t \u{a0}\na\n";
    let target = "a b c\na b c d\nx\na\nx\n\u{3000}\n";
    let corpus =
        Corpus::open(&[folder.parallel(source, target)], &Cleaning { max_words: Some(3) }).unwrap();
    assert_eq!((corpus.n_pairs(), corpus.dropped()), (1, Dropped { empty: 3, long: 2 }));
}

/// The error of opening a pair of files.
fn error(source: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    let error = Corpus::open(&[folder.parallel(source, target)], &Cleaning { max_words: Some(3) })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corpus);
    folder.shown(error)
}

#[test]
fn text_that_cannot_be_trained_on_is_refused() {
    assert_snapshot!(error("a\nb\n", "a\nb\nc\nd"), @"train.en has 2 lines, train.de has 4; expected as many: line n of one is the translation of line n of the other");
    assert_snapshot!(error("a\nb\n\n", "a\nb\n"), @"train.en has 3 lines, train.de has 2; expected as many: line n of one is the translation of line n of the other");
    assert_snapshot!(error("", "a\n"), @"train.en: is empty; expected one sentence a line");
    assert_snapshot!(error("a", ""), @"train.de: is empty; expected one sentence a line");
    assert_snapshot!(error("", ""), @"train.en: is empty; expected one sentence a line");
    assert_snapshot!(error("\n \na b c d\n", "a\nb\nc\n"), @"train.en: no pair of sentences is left of 3: 2 with an empty side, 1 with too many words");
    assert_snapshot!(error("a\nb\n", b"a\nb \xfc\n"), @"train.de: line 2: not UTF-8 at byte 3; convert the file to UTF-8");
    assert_snapshot!(error(b"\xff\xfea\0\n\0", "a\nb"), @"train.en: line 1: not UTF-8 at byte 1; convert the file to UTF-8");
    assert_snapshot!(error(vec![b'x'; (1 << 20) + 1], "a"), @"train.en: line 1: longer than 1048576 bytes; expected text with one sentence a line");
}

#[test]
fn files_that_are_no_corpus_are_refused() {
    let folder = Folder::new();
    let table = folder.write("train.tsv", "a\tA\nb\n");
    let table = |source_column, target_column| Files::Tsv {
        file: table.clone(),
        source_column,
        target_column,
    };
    let missing = Files::Parallel {
        source: folder.path().join("no.en"),
        target: folder.path().join("no.de"),
    };
    let error = |files: &[Files], kind: ErrorKind| {
        let error = Corpus::open(files, &Cleaning::default()).unwrap_err();
        assert_eq!(error.kind(), kind);
        folder.shown(error)
    };
    assert_snapshot!(error(&[table(1, 2)], ErrorKind::Corpus), @"train.tsv: line 2: has 1 columns, expected at least 2, separated by tabs");
    assert_snapshot!(error(&[table(1, 0)], ErrorKind::Settings), @"train.tsv: columns are counted from 1, found 0");
    assert_snapshot!(error(&[missing], ErrorKind::File), @"no.en: cannot read: No such file or directory (os error 2)");
    assert_snapshot!(error(&[], ErrorKind::Settings), @"no corpus; expected at least one pair of files");
}

#[test]
fn files_that_change_meanwhile_are_named() {
    let folder = Folder::new();
    let (source, target) = sentences(200, 9);
    let corpus = Corpus::open(&[folder.parallel(&source, &target)], &Cleaning::default()).unwrap();
    let error = || {
        let error = corpus.pairs().unwrap().find_map(Result::err).unwrap();
        assert_eq!(error.kind(), ErrorKind::File);
        folder.shown(error)
    };
    folder.write("train.de", &target[..target.len() / 2]);
    assert_snapshot!(error(), @"train.de: changed since it was opened (line 65 is not where it was); start again");
    folder.write("train.de", target.replace('\n', " "));
    assert_snapshot!(error(), @"train.de: changed since it was opened (line 1 is not where it was); start again");
    fs::write(folder.path().join("train.de"), vec![0xff; target.len()]).unwrap();
    assert_snapshot!(error(), @"train.de: changed since it was opened (line 1 is not where it was); start again");
}
