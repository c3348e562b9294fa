//! What a training run leaves: its state, and where it stands.

use anyhow::{Context, Result};
use serde_json::json;

use super::bytes::{NOT_FILES, Weights, edit, edit_json, nested, read, spread, write};
use super::good::{Good, Models};
use super::{Case, Change, Expect, Reader};

const READERS: &[Reader] = &[Reader::Resume];
const STATE: &str = "training_state.safetensors";
const RUN: &str = "training.json";

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let last = "checkpoint-2";
    let place = |file: &str| format!("{last}/{file}");
    let mut cases = vec![Case::new("training state: untouched", Good::Run, READERS, Expect::Either(""), |_| Ok(()))];
    for file in [STATE, RUN, "model.safetensors", "config.json", "tokenizer.json"] {
        let path = place(file);
        let length = read(&models.path(Good::Run).join(&path)).with_context(|| format!("{path} of a run"))?.len();
        let case = |name: String, expect, change: Change| {
            let path = path.clone();
            Case::new(format!("training state: {file}: {name}"), Good::Run, READERS, expect, move |folder| change(&folder.join(&path)))
        };
        let refused = Expect::Refused(file);
        for cut in spread(length, 4) {
            cases.push(case(format!("cut at {cut}"), refused, Box::new(move |path| edit(path, |bytes| bytes.truncate(cut)))));
        }
        for at in spread(length.min(2000), 5) {
            cases.push(case(
                format!("byte {at} changed"),
                Expect::Either(file),
                Box::new(move |path| edit(path, |bytes| bytes[at] ^= 0x10)),
            ));
        }
        cases.push(case("nested 100,000 deep".into(), refused, Box::new(|path| write(path, nested(100_000)))));
        cases.extend(NOT_FILES[1..3].iter().map(|(name, change)| case((*name).into(), Expect::Either(""), Box::new(change))));
    }
    for (field, value) in [
        ("update", json!(u64::MAX)),
        ("update", json!(-1)),
        ("seconds", json!(1e308)),
        ("worse", json!(u64::MAX)),
        ("unlogged", json!([u64::MAX, u64::MAX, u64::MAX])),
        ("config", json!([])),
        ("corpus", json!("another")),
    ] {
        cases.push(Case::new(format!("training state: {RUN}: {field} {value}"), Good::Run, READERS, Expect::Either(RUN), move |folder| {
            edit_json(&folder.join(last).join(RUN), |fields| drop(fields.insert(field.into(), value.clone())))
        }));
    }
    for (name, value) in
        [("another shape", json!([1])), ("10 GB", json!([10_000_000_000_u64])), ("sizes that overflow", json!([1_u64 << 40, 1_u64 << 40]))]
    {
        cases.push(Case::new(format!("training state: {STATE}: {name}"), Good::Run, READERS, Expect::Refused(STATE), move |folder| {
            let path = folder.join(last).join(STATE);
            let mut weights = Weights::read(&path)?;
            if let Some((_, tensor)) = weights.header.iter_mut().rfind(|(name, _)| *name != "__metadata__") {
                tensor["shape"] = value.clone();
            }
            weights.write(&path)
        }));
    }
    Ok(cases)
}
