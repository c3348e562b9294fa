//! The public behaviour of `cognate-train`.
#![allow(clippy::unwrap_used)]

mod answers;
mod batches;
mod config;
mod corpus;
mod dropout;
mod gradients;
mod grid;
mod half;
mod prefetch;
mod ranks;
mod steps;
mod tokenizers;
mod trainer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cognate_text::Tokenizer;
use cognate_train::{Cleaning, Corpus, Files};

/// A temporary folder with files, and their paths.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn parallel(&self, source: impl AsRef<[u8]>, target: impl AsRef<[u8]>) -> Files {
        Files::Parallel {
            source: self.write("train.en", source),
            target: self.write("train.de", target),
        }
    }

    /// An error's text without the folder's name.
    fn shown(&self, error: impl std::fmt::Display) -> String {
        error.to_string().replace(&format!("{}/", self.path().display()), "")
    }
}

/// Sentences of 1 to `most` words, as many as there are in the source as in the target or some more
/// or less.
fn sentences(n: usize, most: usize) -> (String, String) {
    let words = [
        "man", "dog", "a", "the", "red", "on", "bicycle", "water", "plays", "guitar", "eine",
        "Frau", "und", "steht",
    ];
    let (mut source, mut target, mut state) = (String::new(), String::new(), 7_u64);
    let mut number = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for line in 0..n {
        let length = 1 + number(most);
        for (text, extra) in [(&mut source, number(3)), (&mut target, number(3))] {
            let line_words: Vec<&str> =
                (0..length + extra).map(|_| words[number(words.len())]).collect();
            text.push_str(&format!("{line} {}\n", line_words.join(" ")));
        }
    }
    (source, target)
}

fn open(files: Files) -> Arc<Corpus> {
    Arc::new(Corpus::open(&[files], &Cleaning::default()).unwrap())
}

/// Multi30k's tokenizer: `</s>` 0, `<unk>` 1, `<pad>` 2.
fn bundled() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::from_folder(cognate_testing::bundled_checkpoint()).unwrap())
}
