//! The library of ONNX Runtime: files that are not a library, and a different library.

use std::path::Path;

use anyhow::Result;

use super::case::{Case, Reader, Subject};
use super::good::{Good, Models};

const FILE: &str = "libonnxruntime.so";

pub(super) fn cases(_models: &Models) -> Result<Vec<Case>> {
    let library = Subject::new("library", Good::Exported, FILE, &[Reader::Ort]);
    let mut cases = vec![
        library.content("a text", "no library"),
        library.content("empty", ""),
        library.content("a header alone", b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"),
        library.case("missing", |_| Ok(())),
    ];
    cases.extend(library.not_files(1..));
    let others = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
        "/usr/lib/libm.so.6",
    ];
    if let Some(other) = others.into_iter().find(|path| Path::new(path).exists()) {
        cases.push(
            library.case("another library", move |path| Ok(fs_err::copy(other, path).map(drop)?)),
        );
    }
    cases.iter_mut().for_each(|case| case.library = Some(FILE));
    Ok(cases)
}
