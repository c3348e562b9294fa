//! The committed page of measurements: a section for each bench with a part for each processor. A
//! bench writes the part of the processor that it runs on, and keeps the others.

use fs_err as fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// The output of a bench.
#[derive(Debug)]
pub struct Section {
    /// `Speed of decoding`
    pub title: &'static str,
    /// The method, the same on every processor.
    pub introduction: String,
    /// The title of the part.
    pub processor: String,
    /// The part, whose own headings begin with `###`.
    pub text: String,
}

/// Replaces the part of the same processor, or appends it to the section.
pub fn put(page: &Path, section: &Section) -> Result<()> {
    let before = match fs::read_to_string(page) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| page.display().to_string()),
    };
    Ok(fs::write(page, with(&before, section))?)
}

pub fn with(page: &str, section: &Section) -> String {
    let heading = format!("# {}", section.title);
    let mut sections = split(page, "# ");
    let old = sections.iter().position(|old| old.lines().next() == Some(&heading));
    let mut parts = split(&old.map(|place| sections[place].clone()).unwrap_or_default(), "## ");
    // The text before the first part is the introduction.
    parts.retain(|part| part.starts_with("## "));
    put_in(&mut parts, format!("## {}\n\n{}", section.processor, section.text));
    let text = joined([format!("{heading}\n\n{}", section.introduction)].iter().chain(&parts));
    match old {
        Some(place) => sections[place] = text,
        None => sections.push(text),
    }
    joined(&sections) + "\n"
}

/// Pieces of the text, each from a line with this beginning to the next.
pub fn split(text: &str, heading: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match pieces.last_mut() {
            Some(last) if !line.starts_with(heading) => last.push_str(line),
            _ => pieces.push(line.to_owned()),
        }
    }
    pieces
}

/// Replaces the piece with the same first line, or appends it.
pub fn put_in(pieces: &mut Vec<String>, piece: String) {
    match pieces.iter_mut().find(|old| old.lines().next() == piece.lines().next()) {
        Some(old) => *old = piece,
        None => pieces.push(piece),
    }
}

pub fn joined<'a>(pieces: impl IntoIterator<Item = &'a String>) -> String {
    pieces.into_iter().map(|piece| piece.trim_end()).collect::<Vec<_>>().join("\n\n")
}
