//! Checkpoints' weights: safetensors and the index of several.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::bytes::{NOT_FILES, Weights, edit, edit_json, link, nested, pipe, read, spread, write};
use super::good::{Good, Models};
use super::{Case, Expect, Reader};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const HEADER: &[Reader] = &[Reader::Show, Reader::Export];
const ALL: &[Reader] = &[Reader::Show, Reader::Export, Reader::InPlace, Reader::Tract, Reader::Reference];
const REFUSED: Expect = Expect::Refused(FILE);

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let path = models.path(Good::Checkpoint).join(FILE);
    let (whole, length) = (read(&path)?.len(), read(&path)?.len() - Weights::read(&path)?.data.len());
    let header = String::from_utf8(read(&path)?[8..length].to_vec()).context("the header")?;
    let mut cases = vec![Case::new("safetensors: untouched", Good::Checkpoint, ALL, Expect::Either(""), |_| Ok(()))];
    // Behind every bracket and comma a reader expects something else.
    let structural: Vec<usize> =
        header.bytes().enumerate().filter(|(_, byte)| b"{}[]:,\"".contains(byte)).map(|(place, _)| 8 + place).collect();
    let cuts = [0, 1, 7, 8, 9].into_iter().chain(spread(structural.len(), 24).into_iter().map(|index| structural[index])).chain([
        length,
        length + 1,
        whole - 1,
    ]);
    for place in cuts {
        cases.push(file(format!("safetensors: cut at {place}"), HEADER, REFUSED, move |path| edit(path, |bytes| bytes.truncate(place))));
    }
    for place in (0..8).chain(spread(length - 8, 24).into_iter().map(|place| 8 + place)) {
        for bit in [0, 7] {
            let name = format!("safetensors: bit {bit} of byte {place} flipped");
            cases.push(file(name, &[Reader::Show], Expect::Either(FILE), move |path| edit(path, |bytes| bytes[place] ^= 1 << bit)));
        }
    }
    for (name, length) in [("2^64 - 1", u64::MAX), ("10 GB", 10_000_000_000), ("2^63", 1 << 63), ("0", 0)] {
        let change = move |path: &Path| edit(path, |bytes| bytes[..8].copy_from_slice(&length.to_le_bytes()));
        cases.push(file(format!("safetensors: a header of {name} bytes"), HEADER, REFUSED, change));
    }
    for (name, field, value) in [
        ("an unknown type", "dtype", json!("F99")),
        ("another type of the same size", "dtype", json!("I32")),
        ("a type of another size", "dtype", json!("F64")),
        ("a type that is no text", "dtype", json!(7)),
        ("a negative size", "shape", json!([-1, 32])),
        ("sizes that overflow", "shape", json!([1_u64 << 32, 1_u64 << 32, 4])),
        ("sizes that overflow to a small number", "shape", json!([1_u64 << 63, 2, 32])),
        ("a size of zero and one that overflows", "shape", json!([0, u64::MAX, u64::MAX])),
        ("10 GB", "shape", json!([10_000_000_000_u64])),
        ("too many axes", "shape", json!(vec![1; 100_000])),
        ("a fraction", "shape", json!([1.5])),
        ("offsets before the file", "data_offsets", json!([-4, 0])),
        ("offsets behind the file", "data_offsets", json!([1_u64 << 40, (1_u64 << 40) + 4])),
        ("offsets that overflow", "data_offsets", json!([u64::MAX - 3, u64::MAX])),
        ("offsets in the wrong order", "data_offsets", json!([4, 0])),
        ("the bytes of another tensor", "data_offsets", json!([0, 4])),
        ("one offset", "data_offsets", json!([0])),
        ("nested offsets", "data_offsets", serde_json::from_str(&nested(100))?),
    ] {
        cases.push(header_case(format!("safetensors: {name}"), REFUSED, move |header| {
            // The last one, which no other depends on.
            if let Some((_, tensor)) = header.iter_mut().rfind(|(name, _)| *name != "__metadata__") {
                tensor[field] = value.clone();
            }
        }));
    }
    let brackets = nested(100_000);
    let texts = [
        ("nested 100,000 deep", brackets.clone()),
        ("nested 100,000 deep, not closed", "[".repeat(100_000)),
        ("in a tensor, nested 100,000 deep", format!("{{\"a\":{brackets}}}")),
        ("empty", "{}".into()),
        ("no object", "[]".into()),
        ("of 1 MB of spaces", " ".repeat(1 << 20)),
        ("a text without end", "{\"".to_owned() + &"a".repeat(1 << 20)),
        (
            "with the same name twice",
            header.replacen('{', "{\"final_logits_bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},", 1),
        ),
    ];
    for (name, text) in texts {
        cases
            .push(file(format!("safetensors: a header {name}"), HEADER, REFUSED, move |path| Weights::read(path)?.write_with(path, &text)));
    }
    cases.push(file("safetensors: a header that is not UTF-8", HEADER, REFUSED, |path| edit(path, |bytes| bytes[12] = 0xff)));
    cases.push(file("safetensors: 50,000 empty tensors", HEADER, REFUSED, |path| {
        let tensors: Vec<String> =
            (0..50_000).map(|number| format!("\"{number}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}")).collect();
        let weights = Weights { header: serde_json::Map::new(), data: Vec::new() };
        weights.write_with(path, &format!("{{{}}}", tensors.join(",")))
    }));
    cases.push(file("safetensors: bytes behind the last tensor", HEADER, REFUSED, |path| edit(path, |bytes| bytes.push(0))));
    for (name, value) in [("NaN", f32::NAN), ("infinity", f32::INFINITY)] {
        cases.push(file(format!("safetensors: a weight of {name}"), &[Reader::Export], Expect::Refused("shared.weight"), move |path| {
            let mut weights = Weights::read(path)?;
            let first = weights.header["model.shared.weight"]["data_offsets"][0].as_u64().context("an offset")? as usize;
            weights.data[first + 64..first + 68].copy_from_slice(&value.to_le_bytes());
            weights.write(path)
        }));
    }
    cases.extend(NOT_FILES[1..].iter().map(|(name, change)| file(format!("safetensors: {name}"), HEADER, REFUSED, change)));
    cases.push(file("safetensors: a link to itself", HEADER, REFUSED, |path| link(path, FILE)));
    cases.push(file("safetensors: a hole of 10 GB behind it", HEADER, REFUSED, |path| {
        Ok(File::options().write(true).open(path)?.set_len(10_000_000_000)?)
    }));
    cases.push(Case::new("pickle: in place of the weights", Good::Checkpoint, HEADER, Expect::Refused("pytorch_model.bin"), |folder| {
        std::fs::remove_file(folder.join(FILE))?;
        write(&folder.join("pytorch_model.bin"), b"\x80\x02cos\nsystem\n.")
    }));
    cases.extend(index_cases());
    Ok(cases)
}

type FieldChange = Box<dyn Fn(&mut serde_json::Map<String, Value>)>;

fn index_cases() -> Vec<Case> {
    let index = |name: &str, change: FieldChange| {
        Case::new(format!("index: {name}"), Good::Sharded, HEADER, Expect::Refused(INDEX), move |folder| {
            edit_json(&folder.join(INDEX), &*change)
        })
    };
    let mut cases = vec![Case::new("index: untouched", Good::Sharded, HEADER, Expect::Either(""), |_| Ok(()))];
    for (name, location) in [
        ("a path that leaves the folder", "../model-1-of-2.safetensors"),
        ("an absolute path", "/etc/passwd"),
        ("an empty name", ""),
        ("the folder itself", "."),
        ("a file that is missing", "none.safetensors"),
        ("a device", "/dev/zero"),
        ("a name with a zero in it", "a\0b"),
        ("the index itself", INDEX),
        ("config.json", "config.json"),
    ] {
        cases.push(index(
            name,
            Box::new(move |fields| {
                if let Some(map) = fields["weight_map"].as_object_mut() {
                    map.values_mut().for_each(|value| *value = location.into());
                }
            }),
        ));
    }
    cases
        .push(index("a tensor that is in no file", Box::new(|fields| fields["weight_map"]["nowhere"] = "model-1-of-2.safetensors".into())));
    cases.push(index("no weight_map", Box::new(|fields| fields.clear())));
    cases.push(index("a number for a file", Box::new(|fields| fields["weight_map"]["final_logits_bias"] = 7.into())));
    for (name, text) in
        [("empty", String::new()), ("nested 100,000 deep", nested(100_000)), ("not UTF-8", "\u{ff}".into()), ("a list", "[]".into())]
    {
        let bytes = if name == "not UTF-8" { vec![b'{', 0xff] } else { text.into_bytes() };
        cases.push(Case::new(format!("index: {name}"), Good::Sharded, HEADER, Expect::Refused(INDEX), move |folder| {
            write(&folder.join(INDEX), &bytes)
        }));
    }
    cases.push(Case::new("index: a pipe", Good::Sharded, HEADER, Expect::Refused(INDEX), |folder| pipe(&folder.join(INDEX))));
    cases
}

/// A case that changes `model.safetensors`.
fn file(name: impl Into<String>, readers: &'static [Reader], expect: Expect, change: impl Fn(&Path) -> Result<()> + 'static) -> Case {
    Case::new(name, Good::Checkpoint, readers, expect, move |folder| change(&folder.join(FILE)))
}

fn header_case(name: String, expect: Expect, change: impl Fn(&mut serde_json::Map<String, Value>) + 'static) -> Case {
    file(name, HEADER, expect, move |path| {
        let mut weights = Weights::read(path)?;
        change(&mut weights.header);
        weights.write(path)
    })
}
