//! `cognate.json` of an export, and of one in place.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::bytes::{NOT_FILES, edit, edit_json, nested, read, spread, write};
use super::good::{Good, Models};
use super::{Case, Change, Expect, Reader};

const FILE: &str = "cognate.json";
const READERS: &[Reader] = &[Reader::Show, Reader::Tract, Reader::Verify];
/// Those that read only what they go by.
const PLACE: &[Reader] = &[Reader::Show, Reader::Tract];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let length = read(&models.path(Good::Exported).join(FILE))?.len();
    let case = |name: String, readers, expect, change: Change| {
        Case::new(format!("{FILE}: {name}"), Good::Exported, readers, expect, move |folder| change(&folder.join(FILE)))
    };
    let refused = Expect::Refused(FILE);
    let mut cases = vec![case("untouched".into(), PLACE, Expect::Either(""), Box::new(|_| Ok(())))];
    for place in spread(length, 10) {
        cases.push(case(format!("cut at {place}"), READERS, refused, Box::new(move |path| edit(path, |bytes| bytes.truncate(place)))));
        cases.push(case(
            format!("byte {place} changed"),
            &[Reader::Show],
            Expect::Either(FILE),
            Box::new(move |path| edit(path, |bytes| bytes[place] ^= 0x10)),
        ));
    }
    for (name, bytes) in [
        ("nested 100,000 deep", nested(100_000).into_bytes()),
        ("a field nested 100,000 deep", format!("{{\"format_version\":1,\"source\":{}}}", nested(100_000)).into_bytes()),
        ("not UTF-8", vec![b'{', 0xff]),
        ("a list", b"[]".to_vec()),
    ] {
        cases.push(case(name.into(), READERS, refused, Box::new(move |path| write(path, &bytes))));
    }
    cases.extend(NOT_FILES[1..3].iter().map(|(name, change)| case((*name).into(), PLACE, refused, Box::new(change))));
    cases.push(case(
        "a newer form".into(),
        READERS,
        refused,
        Box::new(|path| edit_json(path, |fields| drop(fields.insert("format_version".into(), json!(2))))),
    ));
    let in_place = |name: &str, expect, change: fn(&mut Map<String, Value>)| {
        let stamps = move |fields: &mut Map<String, Value>| {
            if let Some(files) = fields["source"]["checkpoint_in_place"]["files"].as_object_mut() {
                change(files);
            }
        };
        Case::new(format!("{FILE}, in place: {name}"), Good::InPlace, &[Reader::Tract, Reader::Show], expect, move |folder| {
            edit_json(&folder.join(FILE), stamps)
        })
    };
    cases.push(in_place("untouched", Expect::Either(""), |_| ()));
    cases.push(in_place("a file outside of the folder", Expect::Refused("/etc/passwd"), |files| rename(files, "/etc/passwd")));
    cases.push(in_place("a path that leaves the folder", Expect::Refused("../model.safetensors"), |files| {
        rename(files, "../model.safetensors")
    }));
    cases.push(in_place("a device without end", Expect::Refused("/dev/zero"), |files| rename(files, "/dev/zero")));
    Ok(cases)
}

fn rename(files: &mut Map<String, Value>, to: &str) {
    if let Some(stamp) = files.remove("model.safetensors") {
        files.insert(to.into(), stamp);
    }
}
