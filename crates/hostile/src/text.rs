//! Text to translate, to evaluate and to train on, and the settings of a training run.

use anyhow::Result;

use super::bytes::{nested, read, spread, write};
use super::case::{Case, Expect, Reader, Subject};
use super::good::{Good, Models};

pub(super) fn cases(models: &Models) -> Result<Vec<Case>> {
    let text = Subject::new("text", Good::Text, "text", &[Reader::Input, Reader::Evaluate]);
    let mut cases = vec![
        text.expecting(Expect::Either("")).content("untouched", "A dog.\n"),
        text.either().content("empty", ""),
        text.content("not UTF-8", b"A dog.\nA \xff\n"),
        text.content("UTF-16", b"\xff\xfeA\0 \0d\0"),
        text.either().content("zeros", [0; 4096]),
        text.content("a line of 2 MB", vec![b'a'; 2 << 20]),
        text.content("4 MB without a line's end", vec![b'a'; 4 << 20]),
        text.either().content("control characters", "\x1b[2J\x07\x08\r\r\r\n\x7f\n"),
        text.either().content("combining marks", format!("a{}\n", "\u{301}".repeat(10_000))),
        text.either()
            .content("letters that normalization makes long", "\u{fdfa}".repeat(2_000) + "\n"),
    ];
    // A pipe is read: another process may write to it.
    cases.extend(text.not_files(2..));
    let training = |file| Subject::new("training", Good::Text, file, &[Reader::Train]);
    cases.extend([
        training("a.src").content("not UTF-8", b"A dog.\nA \xff\n"),
        training("a.src").content("empty", ""),
        training("a.src").content("fewer lines", "a\n"),
        training("a.src").content("4 MB without a line's end", vec![b'a'; 4 << 20]),
        training("run.toml").content("settings that are not UTF-8", [0xff; 10]),
        training("run.toml")
            .content("settings nested 100,000 deep", format!("a = {}", nested(100_000))),
    ]);
    for file in ["a.src", "run.toml"] {
        cases.extend(
            Subject::new(format!("training, {file}"), Good::Text, file, &[Reader::Train])
                .not_files(1..2),
        );
    }
    let settings =
        Subject::new("training: settings", Good::Text, "run.toml", &[Reader::Train]).either();
    let length = read(&models.path(Good::Text).join("run.toml"))?.len();
    cases.extend(settings.cuts(spread(length, 8)));
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
        cases.push(settings.case(line, move |path| {
            let field = line.split('=').next().unwrap_or_default();
            let text = String::from_utf8(read(path)?)?;
            let others: Vec<&str> =
                text.lines().filter(|other| !other.starts_with(field)).collect();
            write(path, others.join("\n") + "\n" + line + "\n")
        }));
    }
    Ok(cases)
}
