//! Tokenizers: `tokenizer.json`, SentencePiece models, vocabularies and merges.

use anyhow::Result;
use serde_json::{Map, Value, json};

use super::bytes::{nested, read, spread, write};
use super::case::{Case, Reader, Subject};
use super::good::{Good, Models};
use super::protobuf::{self, Message};

const TRANSLATE: &[Reader] = &[Reader::Tract];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for (good, file) in [
        (Good::Checkpoint, "tokenizer.json"),
        (Good::Marian, "source.spm"),
        (Good::Marian, "target.spm"),
        (Good::Marian, "vocab.json"),
        (Good::Bart, "vocab.json"),
        (Good::Bart, "merges.txt"),
        (Good::Encoder, "vocab.txt"),
    ] {
        let bytes = read(&models.path(good).join(file))?;
        let readers = if good == Good::Encoder { &[Reader::Embed] } else { TRANSLATE };
        let refused = Subject::new(format!("{good:?}, {file}").to_lowercase(), good, file, readers);
        let either = refused.either();
        let (is_lines, is_pieces) = (file.ends_with(".txt"), file.ends_with(".spm"));
        let places = protobuf::boundaries(&bytes, 1);
        let cuts = match is_pieces {
            true => spread(places.len(), 8).into_iter().map(|index| places[index]).collect(),
            false => spread(bytes.len(), 6),
        };
        let mut own = vec![refused.untouched()];
        // Fewer lines or pieces are also a valid tokenizer.
        own.extend(if is_lines || is_pieces { &either } else { &refused }.cuts(cuts));
        own.extend(either.changes(spread(bytes.len(), 12), 0x41));
        if !is_lines {
            own.push(refused.content("nested 100,000 deep", nested(100_000)));
        }
        own.push(refused.content("not UTF-8", b"\xff\xfe\xfd\n\xff \xfe\n\n"));
        own.push(
            if is_lines { &either } else { &refused }
                .content("16 MB of one letter", vec![b'a'; 16 << 20]),
        );
        own.extend(refused.not_files(..3));
        if good == Good::Encoder {
            // Otherwise tokenizer.json would be read instead of the vocabulary.
            own = own.into_iter().map(|case| case.without("tokenizer.json")).collect();
        }
        cases.extend(own);
    }
    cases.extend(json_cases());
    cases.extend(piece_cases());
    Ok(cases)
}

type Edit = fn(&mut Map<String, Value>);

/// Fields of a `tokenizer.json` that the library does not check.
fn json_cases() -> Vec<Case> {
    let refused = Subject::new("tokenizer.json", Good::Checkpoint, "tokenizer.json", TRANSLATE);
    let either = refused.either();
    let edits: [(&str, &Subject, Edit); 18] = [
        ("an unknown piece out of range", &either, |fields| {
            fields["model"]["unk_id"] = json!(1_000_000)
        }),
        ("no pieces", &either, |fields| fields["model"]["vocab"] = json!([])),
        ("a score that is not a number", &refused, |fields| {
            fields["model"]["vocab"][3][1] = json!("high")
        }),
        ("pieces of the same spelling", &either, |fields| {
            fields["model"]["vocab"][3][0] = json!("b")
        }),
        ("an empty piece", &either, |fields| fields["model"]["vocab"][3][0] = json!("")),
        ("more pieces than rows", &refused, |fields| {
            fields["model"]["vocab"] =
                (0..5000).map(|number| json!([format!("p{number}"), -1.0])).collect();
        }),
        ("a piece of 1 MB", &either, |fields| {
            fields["model"]["vocab"][3][0] = json!("x".repeat(1 << 20))
        }),
        ("no map of characters", &refused, |fields| {
            fields["normalizer"] = json!({ "type": "Precompiled", "precompiled_charsmap": null })
        }),
        ("a broken map of characters", &either, |fields| {
            fields["normalizer"] =
                json!({ "type": "Precompiled", "precompiled_charsmap": "AAAA/////w==" })
        }),
        ("a pattern that never ends", &either, |fields| {
            fields["normalizer"] = replace("(a*)*(a*)*(a*)*b", "")
        }),
        ("an invalid pattern", &refused, |fields| fields["normalizer"] = replace("(((", "")),
        ("a pattern of many repetitions", &either, |fields| {
            fields["normalizer"] = replace("((((a{1000}){1000}){1000}){1000})", "")
        }),
        ("a pattern that grows text", &either, |fields| {
            let grow = replace(".", &"x".repeat(1000));
            fields["normalizer"] = json!({ "type": "Sequence", "normalizers": [grow, grow, grow] });
        }),
        ("an added token of another's id", &either, |fields| {
            fields["added_tokens"] = json!([{ "id": u32::MAX, "content": "A", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true }]);
        }),
        ("a template of tokens that are not there", &either, |fields| {
            let piece = json!({ "SpecialToken": { "id": "[CLS]", "type_id": 0 } });
            fields["post_processor"] = json!({ "type": "TemplateProcessing", "single": [piece], "pair": [piece], "special_tokens": {} });
        }),
        ("padding to 10 billion", &either, |fields| {
            fields["padding"] = json!({ "strategy": { "Fixed": 10_000_000_000_u64 }, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "</s>" });
        }),
        ("truncation to nothing", &either, |fields| {
            fields["truncation"] = json!({ "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 1_000_000 });
        }),
        ("a model of another kind", &refused, |fields| {
            fields["model"] = json!({ "type": "Markov" })
        }),
    ];
    let edited = edits.into_iter().map(|(name, subject, change)| subject.json(name, change));
    let nested = [30, 60, 100_000].map(|depth| {
        let (open, close) =
            ("{\"type\":\"Sequence\",\"normalizers\":[".repeat(depth), "]}".repeat(depth));
        let model = "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",0.0]]}";
        let text =
            format!("{{\"version\":\"1.0\",\"normalizer\":{open}{close},\"model\":{model}}}");
        either.content(format_args!("normalizers nested {depth} deep"), text)
    });
    edited.chain(nested).collect()
}

fn replace(pattern: &str, content: &str) -> Value {
    json!({ "type": "Replace", "pattern": { "Regex": pattern }, "content": content })
}

/// SentencePiece models and vocabularies with inconsistent fields.
fn piece_cases() -> Vec<Case> {
    let refused = Subject::new("source.spm", Good::Marian, "source.spm", TRANSLATE);
    let either = refused.either();
    type Change = fn(Message) -> Message;
    let changes: [(&str, &Subject, Change); 10] = [
        ("no pieces", &refused, |model| model.without(1)),
        ("a piece that is not UTF-8", &refused, |model| {
            model.message(1, &piece_of(b"\xff\xfe", -1.0, 1))
        }),
        ("a score that is NaN", &refused, |model| model.message(1, &piece_of(b"new", f32::NAN, 1))),
        ("a score that is infinite", &refused, |model| {
            model.message(1, &piece_of(b"new", f32::INFINITY, 1))
        }),
        ("a piece of an unknown kind", &either, |model| {
            model.message(1, &piece_of(b"new", -1.0, 99))
        }),
        ("two unknown pieces", &refused, |model| model.message(1, &piece_of(b"new", -1.0, 2))),
        ("an invalid byte", &refused, |model| model.message(1, &piece_of(b"<0xZZ>", -1.0, 6))),
        ("two million pieces", &refused, |model| {
            (0..2_000_000).fold(model, |model, _| model.text(1, ""))
        }),
        ("a map of characters that claims 4 GB", &refused, |model| {
            model.without(3).message(
                3,
                &Message::default().text(2, [&u32::MAX.to_le_bytes()[..], &[0; 64]].concat()),
            )
        }),
        ("a map of characters that points outside", &refused, |model| {
            let units = [0xff_u8; 1024];
            model.without(3).message(
                3,
                &Message::default().text(2, [&1024_u32.to_le_bytes()[..], &units, b"a\0"].concat()),
            )
        }),
    ];
    let change = |change: Change| {
        move |path: &std::path::Path| write(path, change(Message::parse(&read(path)?)?).encode())
    };
    let mut cases: Vec<_> = changes
        .into_iter()
        .map(|(name, subject, changed)| subject.case(name, change(changed)))
        .collect();
    let deep = (0..10_000).fold(Vec::new(), |inner, _| Message::default().text(2, inner).encode());
    cases.push(refused.content("messages nested 10,000 deep", deep));
    let vocabulary = Subject::new("vocab.json", Good::Marian, "vocab.json", TRANSLATE).either();
    let edits: [(&str, Edit); 6] = [
        ("ids beyond the table", |fields| drop(fields.insert("new".into(), json!(1_000_000)))),
        ("a negative id", |fields| drop(fields.insert("new".into(), json!(-1)))),
        ("an id beyond 64 bits", |fields| drop(fields.insert("new".into(), json!(1e30)))),
        ("duplicate ids", |fields| drop(fields.insert("new".into(), json!(5)))),
        ("no end of a sentence", |fields| drop(fields.remove("</s>"))),
        ("no unknown piece", |fields| drop(fields.remove("<unk>"))),
    ];
    cases.extend(edits.map(|(name, change)| vocabulary.json(name, change)));
    cases
}

fn piece_of(text: &[u8], score: f32, kind: i64) -> Message {
    let mut piece = Message::default().text(1, text);
    piece.fields.push((2, protobuf::Value::Fixed32(score.to_le_bytes())));
    piece.number(3, kind)
}
