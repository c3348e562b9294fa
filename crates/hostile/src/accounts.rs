//! `cognate.json` of an export, and of an export in place.

use anyhow::Result;
use serde_json::json;

use super::bytes::{nested, read, spread};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

const FILE: &str = "cognate.json";

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let length = read(&models.path(Good::Exported).join(FILE))?.len();
    let account =
        Subject::new(FILE, Good::Exported, FILE, &[Reader::Show, Reader::Tract, Reader::Verify]);
    // These read only the fields that they need.
    let briefly = account.read_by(&[Reader::Show, Reader::Tract]);
    let mut cases = vec![briefly.untouched()];
    cases.extend(account.cuts(spread(length, 10)));
    cases.extend(account.read_by(&[Reader::Show]).either().changes(spread(length, 10), 0x10));
    cases.extend([
        account.content("nested 100,000 deep", nested(100_000)),
        account.content(
            "a field nested 100,000 deep",
            format!("{{\"format_version\":1,\"source\":{}}}", nested(100_000)),
        ),
        account.content("not UTF-8", b"{\xff"),
        account.content("a list", "[]"),
        account.field("format_version", json!(2)),
    ]);
    cases.extend(briefly.not_files(1..3));
    let in_place =
        Subject::new("cognate.json, in place", Good::InPlace, FILE, &[Reader::Tract, Reader::Show]);
    cases.push(in_place.untouched());
    for (name, location) in [
        ("a file outside of the folder", "/etc/passwd"),
        ("a path that leaves the folder", "../model.safetensors"),
        ("a device without end", "/dev/zero"),
    ] {
        cases.push(in_place.expecting(Expect::Refused(location)).json(name, move |fields| {
            let files = fields["source"]["checkpoint_in_place"]["files"].as_object_mut();
            if let Some((files, stamp)) = files
                .and_then(|files| files.remove("model.safetensors").map(|stamp| (files, stamp)))
            {
                files.insert(location.into(), stamp);
            }
        }));
    }
    Ok(cases)
}
