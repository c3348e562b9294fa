//! Reading text files.

use cognate_model::read_text;
use std::path::Path;

const MOST_BYTES: u64 = 16 << 20;

#[test]
fn whole_texts_are_read_and_longer_ones_refused() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "{}").expect("written");
    assert_eq!(read_text(file.path()).expect("a text"), "{}");
    file.as_file().set_len(MOST_BYTES).expect("a hole");
    assert_eq!(read_text(file.path()).expect("a text").len() as u64, MOST_BYTES);
    file.as_file().set_len(MOST_BYTES + 1).expect("a hole");
    let refused = read_text(file.path()).expect_err("too long").to_string();
    assert_eq!(refused, "expected at most 16777216 bytes, found more");
}

#[cfg(target_os = "linux")]
#[test]
fn devices_are_not_opened() {
    let refused = read_text(Path::new("/dev/zero")).expect_err("a device").to_string();
    assert_eq!(refused, "expected a regular file, found a pipe or device");
}
