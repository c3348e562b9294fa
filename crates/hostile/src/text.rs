//! Text, to be translated, evaluated and trained on, and settings of a training run.

use anyhow::Result;

use super::bytes::{NOT_FILES, edit, nested, read, spread, write};
use super::good::{Good, Models};
use super::{Case, Expect, Reader};

const READ: &[Reader] = &[Reader::Input, Reader::Evaluate];

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let texts: [(&str, Expect, Vec<u8>); 10] = [
        ("untouched", Expect::Either(""), b"A dog.\n".to_vec()),
        ("empty", Expect::Either("text"), Vec::new()),
        ("not UTF-8", Expect::Refused("text"), b"A dog.\nA \xff\n".to_vec()),
        ("UTF-16", Expect::Refused("text"), b"\xff\xfeA\0 \0d\0".to_vec()),
        ("zeros", Expect::Either("text"), vec![0; 4096]),
        ("a line of 2 MB", Expect::Refused("text"), vec![b'a'; 2 << 20]),
        ("4 MB without a line's end", Expect::Refused("text"), vec![b'a'; 4 << 20]),
        ("control characters", Expect::Either("text"), b"\x1b[2J\x07\x08\r\r\r\n\x7f\n".to_vec()),
        ("marks that combine", Expect::Either("text"), ("a".to_owned() + &"\u{301}".repeat(10_000) + "\n").into_bytes()),
        ("letters that normalization makes long", Expect::Either("text"), ("\u{fdfa}".repeat(2_000) + "\n").into_bytes()),
    ];
    let mut cases = Vec::new();
    for (name, expect, bytes) in texts {
        cases.push(Case::new(format!("text: {name}"), Good::Text, READ, expect, move |folder| write(&folder.join("text"), &bytes)));
    }
    // A pipe is read: somebody may write to it.
    for (name, change) in &NOT_FILES[2..] {
        cases.push(Case::new(format!("text: {name}"), Good::Text, READ, Expect::Refused("text"), |folder| change(&folder.join("text"))));
    }
    let train: [(&str, &'static str, Vec<u8>); 6] = [
        ("not UTF-8", "a.src", b"A dog.\nA \xff\n".to_vec()),
        ("empty", "a.src", Vec::new()),
        ("fewer lines", "a.src", b"a\n".to_vec()),
        ("4 MB without a line's end", "a.src", vec![b'a'; 4 << 20]),
        ("settings that are not UTF-8", "run.toml", vec![0xff; 10]),
        ("settings nested 100,000 deep", "run.toml", format!("a = {}", nested(100_000)).into_bytes()),
    ];
    for (name, file, bytes) in train {
        cases.push(Case::new(format!("training: {name}"), Good::Text, &[Reader::Train], Expect::Refused(file), move |folder| {
            write(&folder.join(file), &bytes)
        }));
    }
    for file in ["a.src", "run.toml"] {
        for (name, change) in &NOT_FILES[1..2] {
            cases.push(Case::new(
                format!("training, {file}: {name}"),
                Good::Text,
                &[Reader::Train],
                Expect::Refused(file),
                move |folder| change(&folder.join(file)),
            ));
        }
    }
    let settings = read(&models.path(Good::Text).join("run.toml"))?;
    for place in spread(settings.len(), 8) {
        cases.push(Case::new(
            format!("training: settings cut at {place}"),
            Good::Text,
            &[Reader::Train],
            Expect::Either("run.toml"),
            move |folder| edit(&folder.join("run.toml"), |bytes| bytes.truncate(place)),
        ));
    }
    for line in [
        "model.d_model = 100000000000",
        "model.d_model = -8",
        "model.encoder_layers = 1000000000",
        "tokenizer.vocab_size = 9223372036854775807",
        "tokenizer.vocab_size = 0",
        "data.max_tokens = 9223372036854775807",
        "data.max_tokens = 0",
        "threads = 9223372036854775807",
        "optimiser.learning_rate = nan",
        "optimiser.learning_rate = inf",
        "schedule.max_updates = -1",
    ] {
        cases.push(Case::new(format!("training: {line}"), Good::Text, &[Reader::Train], Expect::Either("run.toml"), move |folder| {
            let path = folder.join("run.toml");
            let field = line.split(" = ").next().unwrap_or_default();
            let text = String::from_utf8(read(&path)?)?;
            let others: Vec<&str> = text.lines().filter(|other| !other.starts_with(&format!("{field} "))).collect();
            write(&path, others.join("\n") + "\n" + line + "\n")
        }));
    }
    Ok(cases)
}
