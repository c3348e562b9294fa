//! ONNX Runtime's library: what is none, and what is of another version.

use anyhow::Result;

use super::bytes::{NOT_FILES, write};
use super::good::{Good, Models};
use super::{Case, Change, Expect, Reader};

const FILE: &str = "libonnxruntime.so";

pub(super) fn cases(_models: &Models) -> Result<Vec<Case>> {
    let case = |name: &str, change: Change| {
        let mut case = Case::new(format!("library: {name}"), Good::Exported, &[Reader::Ort], Expect::Refused(FILE), move |folder| {
            change(&folder.join(FILE))
        });
        case.library = Some(FILE);
        case
    };
    let mut cases = vec![
        case("a text", Box::new(|path| write(path, "no library"))),
        case("empty", Box::new(|path| write(path, ""))),
        case("a header alone", Box::new(|path| write(path, b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0"))),
        case("missing", Box::new(|_| Ok(()))),
    ];
    cases.extend(NOT_FILES[1..].iter().map(|(name, change)| case(name, Box::new(change))));
    // A library, but another.
    if let Some(other) = ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/usr/lib/libm.so.6"]
        .into_iter()
        .find(|path| std::path::Path::new(path).exists())
    {
        cases.push(case("another library", Box::new(move |path| Ok(std::fs::copy(other, path).map(drop)?))));
    }
    Ok(cases)
}
