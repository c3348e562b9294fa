use std::fs;

use cognate_text::{ErrorKind, Lines, Result, read_lines};
use insta::assert_snapshot;

/// The error of reading a file with these bytes, without the temporary folder's name.
fn error(bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("train.en");
    fs::write(&file, bytes).unwrap();
    let error = read_lines(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn errors_name_the_line_and_the_byte() {
    assert_snapshot!(error(b"a\nb\nA man in a blue \xfchirt\nd\n"), @"train.en: line 3: not UTF-8 at byte 17; convert the file to UTF-8");
    assert_snapshot!(error(b"\xff\xfea\0\n\0"), @"train.en: line 1: not UTF-8 at byte 1; convert the file to UTF-8");
    assert_snapshot!(error(b"\x1f\x8b\x08\0"), @"train.en: compressed with gzip; expected text: decompress the file first");
    assert_snapshot!(error(&vec![b'x'; (1 << 20) + 1]), @"train.en: line 1: longer than 1048576 bytes; expected text with one sentence a line");
}

#[test]
fn a_missing_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = read_lines(folder.path().join("train.en")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    let text = error.to_string().replace(&format!("{}/", folder.path().display()), "");
    assert_snapshot!(text, @"train.en: cannot read: No such file or directory (os error 2)");
}

fn lines(text: &[u8]) -> Result<Vec<String>> {
    Lines::new(text, "text").collect()
}

#[test]
fn lines_end_at_line_feeds_only() {
    let cases: &[(&str, &[&str])] = &[
        ("", &[]),
        ("\n", &[""]),
        ("a", &["a"]),
        ("a\nb\n", &["a", "b"]),
        ("a\r\n\r\nb", &["a", "", "b"]),
        ("a\rb\r", &["a\rb\r"]),
        ("a\0b\n", &["a\0b"]),
        (" a \u{2028}b\u{85}c\n", &[" a \u{2028}b\u{85}c"]),
        ("\u{feff}a\n\u{feff}b", &["a", "\u{feff}b"]),
    ];
    for (text, expected) in cases {
        assert_eq!(lines(text.as_bytes()).unwrap(), *expected, "{text:?}");
    }
}

#[test]
fn the_longest_line_fits_and_one_byte_more_does_not() {
    let longest = "x".repeat(1 << 20);
    for text in
        [format!("\u{feff}{longest}\r\n{longest}\r\nend"), format!("{longest}\n{longest}\nend")]
    {
        assert_eq!(lines(text.as_bytes()).unwrap(), [&longest, &longest, "end"]);
    }
    for end in ["", "\n", "\r\n"] {
        let text = format!("a\n{longest}x{end}");
        let error = lines(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error,
            "text: line 2: longer than 1048576 bytes; expected text with one sentence a line"
        );
    }
}

#[test]
fn the_position_is_where_the_next_line_begins() {
    let mut lines = Lines::new("\u{feff}a\r\n\nü".as_bytes(), "text");
    let positions: Vec<u64> =
        std::iter::from_fn(|| lines.next().map(|_| lines.position())).collect();
    assert_eq!(positions, [6, 7, 9]);
}

#[test]
fn nothing_follows_an_error() {
    let mut lines = Lines::new(&b"\xff\nb\n"[..], "text");
    assert!(lines.next().unwrap().is_err());
    assert!(lines.next().is_none());
}
