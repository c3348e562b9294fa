//! Tokenizers: `tokenizer.json`, SentencePiece models, vocabularies and merges.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::bytes::{NOT_FILES, edit, edit_json, nested, read, spread, write};
use super::good::{Good, Models};
use super::protobuf::{self, Message};
use super::{Case, Change, Expect, Reader};

const READERS: &[Reader] = &[Reader::Tract];
const ENCODER_READERS: &[Reader] = &[Reader::Embed];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let files = [
        (Good::Checkpoint, "tokenizer.json"),
        (Good::Marian, "source.spm"),
        (Good::Marian, "target.spm"),
        (Good::Marian, "vocab.json"),
        (Good::Bart, "vocab.json"),
        (Good::Bart, "merges.txt"),
        (Good::Encoder, "vocab.txt"),
    ];
    for (good, file) in files {
        let bytes = read(&models.path(good).join(file))?;
        let length = bytes.len();
        let readers = if good == Good::Encoder { ENCODER_READERS } else { READERS };
        let case = |name: String, expect, change: Change| {
            Case::new(format!("{good:?}, {file}: {name}").to_lowercase(), good, readers, expect, move |folder| {
                if good == Good::Encoder {
                    // It would be read in place of the vocabulary.
                    std::fs::remove_file(folder.join("tokenizer.json"))?;
                }
                change(&folder.join(file))
            })
        };
        let is_lines = file.ends_with(".txt");
        let either = Expect::Either(file);
        let refused = Expect::Refused(file);
        cases.push(case("untouched".into(), Expect::Either(""), Box::new(|_| Ok(()))));
        let is_spm = file.ends_with(".spm");
        let cuts = if is_spm {
            let places = protobuf::boundaries(&bytes, 1);
            spread(places.len(), 8).into_iter().map(|index| places[index]).collect()
        } else {
            spread(length, 6)
        };
        for place in cuts {
            // Merges are lines: fewer of them make a tokenizer, too. So do fewer pieces.
            let expect = if is_lines || is_spm { either } else { refused };
            cases.push(case(format!("cut at {place}"), expect, Box::new(move |path| edit(path, |bytes| bytes.truncate(place)))));
        }
        for place in spread(length, 12) {
            cases.push(case(format!("byte {place} changed"), either, Box::new(move |path| edit(path, |bytes| bytes[place] ^= 0x41))));
        }
        if !is_lines {
            cases.push(case("nested 100,000 deep".into(), refused, Box::new(|path| write(path, nested(100_000)))));
        }
        cases.push(case("not UTF-8".into(), refused, Box::new(|path| write(path, b"\xff\xfe\xfd\n\xff \xfe\n\n"))));
        let expect = if is_lines { either } else { refused };
        cases.push(case("16 MB of one letter".into(), expect, Box::new(|path| write(path, vec![b'a'; 16 << 20]))));
        cases.extend(NOT_FILES[..3].iter().map(|(name, change)| case((*name).into(), refused, Box::new(change))));
    }
    cases.extend(json_cases());
    cases.extend(piece_cases());
    Ok(cases)
}

type Edit = fn(&mut Map<String, Value>);

/// Fields of a `tokenizer.json` that the library takes on trust.
fn json_cases() -> Vec<Case> {
    const EITHER: Expect = Expect::Either("tokenizer.json");
    const REFUSED: Expect = Expect::Refused("tokenizer.json");
    let edits: [(&str, Expect, Edit); 18] = [
        ("an unknown piece out of range", EITHER, |fields| fields["model"]["unk_id"] = json!(1_000_000)),
        ("no pieces", EITHER, |fields| fields["model"]["vocab"] = json!([])),
        ("a score that is no number", REFUSED, |fields| fields["model"]["vocab"][3][1] = json!("high")),
        ("pieces of the same spelling", EITHER, |fields| fields["model"]["vocab"][3][0] = json!("b")),
        ("an empty piece", EITHER, |fields| fields["model"]["vocab"][3][0] = json!("")),
        ("more pieces than rows", REFUSED, |fields| {
            fields["model"]["vocab"] = (0..5000).map(|number| json!([format!("p{number}"), -1.0])).collect();
        }),
        ("a piece of 1 MB", EITHER, |fields| fields["model"]["vocab"][3][0] = json!("x".repeat(1 << 20))),
        ("no map of characters", REFUSED, |fields| fields["normalizer"] = json!({ "type": "Precompiled", "precompiled_charsmap": null })),
        ("a broken map of characters", EITHER, |fields| {
            fields["normalizer"] = json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA/////w==" })
        }),
        ("a pattern that never ends", EITHER, |fields| {
            fields["normalizer"] = json!({ "type": "Replace", "pattern": { "Regex": "(a*)*(a*)*(a*)*b" }, "content": "" });
        }),
        ("a pattern that is none", REFUSED, |fields| {
            fields["normalizer"] = json!({ "type": "Replace", "pattern": { "Regex": "(((" }, "content": "" });
        }),
        ("a pattern of many repetitions", EITHER, |fields| {
            fields["normalizer"] = json!({ "type": "Replace", "pattern": { "Regex": "((((a{1000}){1000}){1000}){1000})" }, "content": "" });
        }),
        ("a pattern that grows text", EITHER, |fields| {
            let grow = json!({ "type": "Replace", "pattern": { "Regex": "." }, "content": "x".repeat(1000) });
            fields["normalizer"] = json!({ "type": "Sequence", "normalizers": [grow, grow, grow] });
        }),
        ("an added token of another's id", EITHER, |fields| {
            fields["added_tokens"] = json!([{ "id": u32::MAX, "content": "A", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true }]);
        }),
        ("a template of tokens that are not there", EITHER, |fields| {
            let piece = json!({ "SpecialToken": { "id": "[CLS]", "type_id": 0 } });
            fields["post_processor"] = json!({ "type": "TemplateProcessing", "single": [piece], "pair": [piece], "special_tokens": {} });
        }),
        ("padding to 10 billion", EITHER, |fields| {
            fields["padding"] = json!({ "strategy": { "Fixed": 10_000_000_000_u64 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "</s>" });
        }),
        ("truncation to nothing", EITHER, |fields| {
            fields["truncation"] = json!({ "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 1_000_000 });
        }),
        ("a model of another kind", REFUSED, |fields| fields["model"] = json!({ "type": "Markov" })),
    ];
    let case = |(name, expect, change): (&str, Expect, Edit)| {
        Case::new(format!("tokenizer.json: {name}"), Good::Checkpoint, READERS, expect, move |folder| {
            edit_json(&folder.join("tokenizer.json"), change)
        })
    };
    let mut cases: Vec<_> = edits.into_iter().map(case).collect();
    let nested_normalizers = |depth: usize| {
        let open = "{\"type\":\"Sequence\",\"normalizers\":[".repeat(depth);
        let close = "]}".repeat(depth);
        format!(
            "{{\"version\":\"1.0\",\"normalizer\":{open}{close},\"model\":{{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0.0]]}}}}"
        )
    };
    for depth in [30, 60, 100_000] {
        cases.push(Case::new(
            format!("tokenizer.json: normalizers nested {depth} deep"),
            Good::Checkpoint,
            READERS,
            Expect::Either("tokenizer.json"),
            move |folder| write(&folder.join("tokenizer.json"), nested_normalizers(depth)),
        ));
    }
    cases
}

/// SentencePiece models whose fields lie.
fn piece_cases() -> Vec<Case> {
    type Change = fn(Message) -> Message;
    let changes: [(&str, Expect, Change); 10] = [
        ("no pieces", Expect::Refused("source.spm"), |model| model.without(1)),
        ("a piece that is not UTF-8", Expect::Refused("source.spm"), |model| model.message(1, &piece_of(b"\xff\xfe", -1.0, 1))),
        ("a score that is NaN", Expect::Refused("source.spm"), |model| model.message(1, &piece_of(b"new", f32::NAN, 1))),
        ("a score that is infinite", Expect::Refused("source.spm"), |model| model.message(1, &piece_of(b"new", f32::INFINITY, 1))),
        ("a piece of an unknown kind", Expect::Either("source.spm"), |model| model.message(1, &piece_of(b"new", -1.0, 99))),
        ("two unknown pieces", Expect::Refused("source.spm"), |model| model.message(1, &piece_of(b"new", -1.0, 2))),
        ("a byte that is none", Expect::Refused("source.spm"), |model| model.message(1, &piece_of(b"<0xZZ>", -1.0, 6))),
        ("two million pieces", Expect::Refused("source.spm"), |model| (0..2_000_000).fold(model, |model, _| model.text(1, ""))),
        ("a map of characters that claims 4 GB", Expect::Refused("source.spm"), |model| {
            model.without(3).message(3, &Message::default().text(2, [&u32::MAX.to_le_bytes()[..], &[0; 64]].concat()))
        }),
        ("a map of characters that points outside", Expect::Refused("source.spm"), |model| {
            let units = [0xff_u8; 1024];
            model.without(3).message(3, &Message::default().text(2, [&1024_u32.to_le_bytes()[..], &units, b"a\0"].concat()))
        }),
    ];
    let case = |(name, expect, change): (&str, Expect, Change)| {
        Case::new(format!("source.spm: {name}"), Good::Marian, READERS, expect, move |folder| {
            let path = folder.join("source.spm");
            let model = Message::parse(&read(&path)?)?;
            write(&path, change(model).encode())
        })
    };
    let mut cases: Vec<_> = changes.into_iter().map(case).collect();
    cases.push(Case::new("source.spm: messages nested 100,000 deep", Good::Marian, READERS, Expect::Refused("source.spm"), |folder| {
        let mut bytes = Vec::new();
        for _ in 0..10_000 {
            let inner = std::mem::take(&mut bytes);
            bytes = Message::default().text(2, inner).encode();
        }
        write(&folder.join("source.spm"), bytes)
    }));
    for (name, change) in [
        ("ids beyond the table", (|fields: &mut Map<String, Value>| drop(fields.insert("new".into(), json!(1_000_000)))) as Edit),
        ("a negative id", |fields| drop(fields.insert("new".into(), json!(-1)))),
        ("an id beyond 64 bits", |fields| drop(fields.insert("new".into(), json!(1e30)))),
        ("ids that stand twice", |fields| drop(fields.insert("new".into(), json!(5)))),
        ("no end of a sentence", |fields| drop(fields.remove("</s>"))),
        ("no unknown piece", |fields| drop(fields.remove("<unk>"))),
    ] {
        cases.push(Case::new(format!("vocab.json: {name}"), Good::Marian, READERS, Expect::Either("vocab.json"), move |folder| {
            edit_json(&folder.join("vocab.json"), change)
        }));
    }
    cases
}

fn piece_of(text: &[u8], score: f32, kind: i64) -> Message {
    let mut piece = Message::default().text(1, text);
    piece.fields.push((2, protobuf::Value::Fixed32(score.to_le_bytes())));
    piece.number(3, kind)
}
