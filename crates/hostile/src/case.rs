//! Cases: changes of a file of a good model, the commands that read it, and the expected outcome.

use fs_err as fs;
use std::fmt::Display;
use std::ops::RangeBounds;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value};

use super::bytes::{NOT_FILES, edit, edit_json, write};
use super::good::Good;

/// The command that reads each of [`CLIPS`](super::good::CLIPS).
const TRANSCRIBE: [(&str, &str); 7] = [
    (
        "transcribe WAV",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.wav",
    ),
    (
        "transcribe FLAC",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.flac",
    ),
    (
        "transcribe MP3",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.mp3",
    ),
    (
        "transcribe Vorbis",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.ogg",
    ),
    (
        "transcribe Opus",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.opus",
    ),
    (
        "transcribe AAC",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.m4a",
    ),
    (
        "transcribe WebM",
        "transcribe --batch 2 --beams 1 --temperature-increment-on-fallback 0 --engine tract --model {dir} {dir}/clip.webm",
    ),
];

/// A command that reads files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    Show,
    Listing,
    Export,
    InPlace,
    Verify,
    Reference,
    Tract,
    Ort,
    Input,
    Evaluate,
    Embed,
    Generate,
    Classify,
    ClassifyImage,
    Read,
    /// The clip of this number in [`CLIPS`](super::good::CLIPS).
    Transcribe(usize),
    Train,
    Resume,
}

impl Reader {
    /// The name in the table, and the arguments: `{dir}` is the changed folder, `{good}` an
    /// unchanged model.
    pub(super) fn command(self) -> (&'static str, &'static str) {
        match self {
            Reader::Show => ("show", "show {dir}"),
            Reader::Listing => ("show FILE", "show {dir}/encoder.onnx"),
            Reader::Export => ("export", "export {dir} {out} --no-verify"),
            Reader::InPlace => ("export --in-place", "export {dir} --in-place --force"),
            Reader::Verify => ("verify", "verify {dir}"),
            Reader::Reference => (
                "translate, reference",
                "translate --max-new-tokens 4 --engine reference --model {dir} Dogs.",
            ),
            Reader::Tract => (
                "translate, tract",
                "translate --max-new-tokens 4 --engine tract --model {dir} Dogs.",
            ),
            Reader::Ort => {
                ("translate, ort", "translate --max-new-tokens 4 --engine ort --model {dir} Dogs.")
            }
            Reader::Input => (
                "translate --input",
                "translate --max-new-tokens 4 --engine tract --model {good} --input {dir}/text",
            ),
            Reader::Evaluate => ("evaluate", "evaluate --reference {dir}/text {dir}/text"),
            Reader::Embed => ("embed", "embed --engine tract --model {dir} Dogs."),
            Reader::Generate => {
                ("generate", "generate --max-new-tokens 4 --engine tract --model {dir} Dogs.")
            }
            Reader::Classify => ("classify", "classify --engine tract --model {dir} Dogs."),
            Reader::ClassifyImage => {
                ("classify IMAGE", "classify --engine tract --model {dir} {dir}/picture.png")
            }
            Reader::Read => {
                ("read", "read --max-new-tokens 4 --engine tract --model {dir} {dir}/picture.jpg")
            }
            Reader::Transcribe(clip) => TRANSCRIBE[clip],
            Reader::Train => ("train", "train {dir}/run.toml --engine tract --out {out}"),
            Reader::Resume => ("train --resume", "train --resume --engine tract --out {dir}"),
        }
    }
}

/// The expected outcome of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    /// An error whose message contains this text: the name of the file, or a part of it.
    Refused(&'static str),
    /// Such an error, or success: the change may be harmless.
    Either(&'static str),
}

type Change = Box<dyn Fn(&Path) -> Result<()>>;

/// A change of a good model, and the commands that read it.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) good: Good,
    /// Changes the folder.
    pub(super) change: Change,
    pub(super) readers: &'static [Reader],
    pub(super) expect: Expect,
    /// The file in the folder from which ONNX Runtime is loaded.
    pub(super) library: Option<&'static str>,
}

impl Case {
    /// The same case in a folder without `file`.
    pub(super) fn without(self, file: &'static str) -> Self {
        let change = self.change;
        let change = Box::new(move |folder: &Path| {
            fs::remove_file(folder.join(file))?;
            change(folder)
        });
        Self { change, ..self }
    }
}

/// The common parts of cases: a file of a good model, its readers and the expected outcome.
#[derive(Clone)]
pub(super) struct Subject {
    /// The start of the names of the cases.
    what: String,
    good: Good,
    /// The changed file; empty for the folder.
    file: &'static str,
    readers: &'static [Reader],
    expect: Expect,
}

impl Subject {
    /// Cases that change `file`; the error is expected to name it.
    pub(super) fn new(
        what: impl Into<String>,
        good: Good,
        file: &'static str,
        readers: &'static [Reader],
    ) -> Self {
        Self { what: what.into(), good, file, readers, expect: Expect::Refused(file) }
    }

    pub(super) fn expecting(&self, expect: Expect) -> Self {
        Self { expect, ..self.clone() }
    }

    /// The file may be rejected by name, or accepted.
    pub(super) fn either(&self) -> Self {
        self.expecting(Expect::Either(self.file))
    }

    pub(super) fn read_by(&self, readers: &'static [Reader]) -> Self {
        Self { readers, ..self.clone() }
    }

    /// A case that changes the file.
    pub(super) fn case(
        &self,
        name: impl Display,
        change: impl Fn(&Path) -> Result<()> + 'static,
    ) -> Case {
        let Self { what, good, file, readers, expect } = self.clone();
        let change = Box::new(move |folder: &Path| change(&folder.join(file)));
        Case { name: format!("{what}: {name}"), good, change, readers, expect, library: None }
    }

    /// The unchanged model, which is accepted.
    pub(super) fn untouched(&self) -> Case {
        self.expecting(Expect::Either("")).case("untouched", |_| Ok(()))
    }

    /// The file is truncated at each of these positions.
    pub(super) fn cuts(
        &self,
        places: impl IntoIterator<Item = usize>,
    ) -> impl Iterator<Item = Case> {
        places.into_iter().map(|place| {
            self.case(format_args!("cut at {place}"), move |path| {
                edit(path, |bytes| bytes.truncate(place))
            })
        })
    }

    /// Some bits of each of these bytes are changed.
    pub(super) fn changes(
        &self,
        places: impl IntoIterator<Item = usize>,
        bits: u8,
    ) -> impl Iterator<Item = Case> {
        let change =
            move |place: usize| move |path: &Path| edit(path, |bytes| bytes[place] ^= bits);
        places
            .into_iter()
            .map(move |place| self.case(format_args!("byte {place} changed"), change(place)))
    }

    /// The file has this content.
    pub(super) fn content(&self, name: impl Display, bytes: impl AsRef<[u8]> + 'static) -> Case {
        self.case(name, move |path| write(path, &bytes))
    }

    /// A JSON file with other fields.
    pub(super) fn json(
        &self,
        name: impl Display,
        change: impl Fn(&mut Map<String, Value>) + 'static,
    ) -> Case {
        self.case(name, move |path| edit_json(path, &change))
    }

    /// A JSON file with another value of a field.
    pub(super) fn field(&self, field: &'static str, value: Value) -> Case {
        let shown: String = value.to_string().chars().take(24).collect();
        self.json(format_args!("{field} {shown}"), move |fields| {
            drop(fields.insert(field.into(), value.clone()))
        })
    }

    /// The file is replaced by something that is not a readable file.
    pub(super) fn not_files(&self, range: impl RangeBounds<usize>) -> impl Iterator<Item = Case> {
        let kinds = NOT_FILES.iter().enumerate().filter(move |(index, _)| range.contains(index));
        kinds.map(|(_, (name, change))| self.case(name, *change))
    }
}
