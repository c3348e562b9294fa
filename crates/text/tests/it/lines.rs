use std::fs;

use cognate_text::{ErrorKind, read_lines};
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
