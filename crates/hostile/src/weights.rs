//! Weights of checkpoints: safetensors, and the index of several files.

use fs_err::{self as fs, File};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::bytes::{Weights, edit, link, nested, pipe, read, spread, write};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

const FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
const HEADER: &[Reader] = &[Reader::Show, Reader::Export];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let path = models.path(Good::Checkpoint).join(FILE);
    let (whole, length) =
        (read(&path)?.len(), read(&path)?.len() - Weights::read(&path)?.data.len());
    let header = String::from_utf8(read(&path)?[8..length].to_vec()).context("the header")?;
    let refused = Subject::new("safetensors", Good::Checkpoint, FILE, HEADER);
    let all = refused.read_by(&[
        Reader::Show,
        Reader::Export,
        Reader::InPlace,
        Reader::Tract,
        Reader::Reference,
    ]);
    let mut cases = vec![all.untouched()];
    let is_structural = |(_, byte): &(usize, u8)| b"{}[]:,\"".contains(byte);
    let structural: Vec<usize> =
        header.bytes().enumerate().filter(is_structural).map(|(place, _)| 8 + place).collect();
    cases.extend(refused.cuts([0, 1, 7, 8, 9, length, length + 1, whole - 1]));
    cases.extend(
        refused.cuts(spread(structural.len(), 24).into_iter().map(|index| structural[index])),
    );
    for place in (0..8).chain(spread(length - 8, 24).into_iter().map(|place| 8 + place)) {
        for bit in [0, 7] {
            let flip = move |path: &Path| edit(path, |bytes| bytes[place] ^= 1 << bit);
            cases.push(
                refused
                    .either()
                    .read_by(&[Reader::Show])
                    .case(format_args!("bit {bit} of byte {place} flipped"), flip),
            );
        }
    }
    for (name, length) in
        [("2^64 - 1", u64::MAX), ("10 GB", 10_000_000_000), ("2^63", 1 << 63), ("0", 0)]
    {
        let change = move |path: &Path| {
            edit(path, |bytes| bytes[..8].copy_from_slice(&length.to_le_bytes()))
        };
        cases.push(refused.case(format_args!("a header of {name} bytes"), change));
    }
    for (name, field, value) in [
        ("an unknown type", "dtype", json!("F99")),
        ("another type of the same size", "dtype", json!("I32")),
        ("a type of another size", "dtype", json!("F64")),
        ("a type that is not a text", "dtype", json!(7)),
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
        cases.push(
            refused
                .case(name, move |path| Weights::read(path)?.with_last(field, &value).write(path)),
        );
    }
    let twice = "{\"final_logits_bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},";
    for (name, text) in [
        ("nested 100,000 deep", nested(100_000)),
        ("nested 100,000 deep, not closed", "[".repeat(100_000)),
        ("in a tensor, nested 100,000 deep", format!("{{\"a\":{}}}", nested(100_000))),
        ("empty", "{}".into()),
        ("that is a list", "[]".into()),
        ("of 1 MB of spaces", " ".repeat(1 << 20)),
        ("with a text without end", "{\"".to_owned() + &"a".repeat(1 << 20)),
        ("with the same name twice", header.replacen('{', twice, 1)),
    ] {
        cases.push(refused.case(format_args!("a header {name}"), move |path| {
            Weights::read(path)?.write_with(path, &text)
        }));
    }
    for (name, value) in [("NaN", f32::NAN), ("infinity", f32::INFINITY)] {
        let export = refused.read_by(&[Reader::Export]).expecting(Expect::Refused("shared.weight"));
        cases.push(export.case(format_args!("a weight of {name}"), move |path| {
            let mut weights = Weights::read(path)?;
            let first = weights.header["model.shared.weight"]["data_offsets"][0]
                .as_u64()
                .context("an offset")? as usize;
            weights.data[first + 64..first + 68].copy_from_slice(&value.to_le_bytes());
            weights.write(path)
        }));
    }
    let empty =
        |number| format!("\"{number}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let many = (0..50_000).map(empty).collect::<Vec<_>>().join(",");
    let nothing = Weights { header: Map::new(), data: Vec::new() };
    cases.extend(refused.not_files(1..));
    cases.extend([
        refused.case("a header that is not UTF-8", |path| edit(path, |bytes| bytes[12] = 0xff)),
        refused.case("50,000 empty tensors", move |path| {
            nothing.write_with(path, &format!("{{{many}}}"))
        }),
        refused.case("bytes behind the last tensor", |path| edit(path, |bytes| bytes.push(0))),
        refused.case("a link to itself", |path| link(path, FILE)),
        refused.case("a hole of 10 GB behind it", |path| {
            Ok(File::options().write(true).open(path)?.set_len(10_000_000_000)?)
        }),
        refused.expecting(Expect::Refused("pytorch_model.bin")).case(
            "a pickle in its place",
            |path| {
                fs::remove_file(path)?;
                write(&path.with_file_name("pytorch_model.bin"), b"\x80\x02cos\nsystem\n.")
            },
        ),
    ]);
    cases.extend(index_cases());
    Ok(cases)
}

fn index_cases() -> Vec<Case> {
    let index = Subject::new("index", Good::Sharded, INDEX, HEADER);
    let mut cases = vec![
        index.untouched(),
        index.json("a tensor that is in no file", |fields| {
            fields["weight_map"]["nowhere"] = "model-1-of-2.safetensors".into()
        }),
        index.json("no weight_map", Map::clear),
        index.json("a number for a file", |fields| {
            fields["weight_map"]["final_logits_bias"] = 7.into()
        }),
        index.content("empty", ""),
        index.content("nested 100,000 deep", nested(100_000)),
        index.content("not UTF-8", b"{\xff"),
        index.content("a list", "[]"),
        index.case("a pipe", pipe),
    ];
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
        cases.push(index.json(name, move |fields| {
            fields["weight_map"]
                .as_object_mut()
                .into_iter()
                .flatten()
                .for_each(|(_, value): (_, &mut Value)| *value = location.into());
        }));
    }
    cases
}
