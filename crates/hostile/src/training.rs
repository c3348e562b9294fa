//! The files of a training run: its state and its position.

use anyhow::{Context, Result};
use serde_json::json;

use super::bytes::{Weights, nested, read, spread};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

const STATE: &str = "training_state.safetensors";
const RUN: &str = "training.json";

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let of = |file: &'static str, path: &'static str| {
        Subject::new(format!("training state: {file}"), Good::Run, path, &[Reader::Resume])
            .expecting(Expect::Refused(file))
    };
    let state = of(STATE, "checkpoint-2/training_state.safetensors");
    let run = of(RUN, "checkpoint-2/training.json").expecting(Expect::Either(RUN));
    let mut cases =
        vec![Subject::new("training state", Good::Run, "", &[Reader::Resume]).untouched()];
    for (file, path) in [
        (STATE, "checkpoint-2/training_state.safetensors"),
        (RUN, "checkpoint-2/training.json"),
        ("model.safetensors", "checkpoint-2/model.safetensors"),
        ("config.json", "checkpoint-2/config.json"),
        ("tokenizer.json", "checkpoint-2/tokenizer.json"),
    ] {
        let length = read(&models.path(Good::Run).join(path))
            .with_context(|| format!("{path} of a run"))?
            .len();
        let subject = of(file, path);
        cases.extend(subject.cuts(spread(length, 4)));
        cases.extend(
            subject.expecting(Expect::Either(file)).changes(spread(length.min(2000), 5), 0x10),
        );
        cases.push(subject.content("nested 100,000 deep", nested(100_000)));
        cases.extend(subject.expecting(Expect::Either("")).not_files(1..3));
    }
    let fields = [
        ("update", json!(u64::MAX)),
        ("update", json!(-1)),
        ("seconds", json!(1e308)),
        ("worse", json!(u64::MAX)),
        ("unlogged", json!([u64::MAX, u64::MAX, u64::MAX])),
        ("config", json!([])),
        ("corpus", json!("another")),
    ];
    cases.extend(fields.into_iter().map(|(field, value)| run.field(field, value)));
    let overflow = json!([1_u64 << 40, 1_u64 << 40]);
    for (name, value) in [
        ("another shape", json!([1])),
        ("10 GB", json!([10_000_000_000_u64])),
        ("sizes that overflow", overflow),
    ] {
        cases.push(
            state.case(name, move |path| {
                Weights::read(path)?.with_last("shape", &value).write(path)
            }),
        );
    }
    Ok(cases)
}
