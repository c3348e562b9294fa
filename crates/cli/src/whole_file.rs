//! Files that appear complete or not at all.

use crate::messages;
use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use cognate_export::PartialFile;
use std::fs::{self, Metadata, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The format of an output file: `given`, else that of its ending, or `standard` for standard
/// output.
///
/// # Errors
/// If the ending is not that of a format.
pub(crate) fn format<F: ValueEnum>(given: Option<F>, out: &Path, standard: F) -> Result<F> {
    let ending = out
        .extension()
        .map(|ending| ending.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default();
    let ending = if ending == "htm" { "html" } else { &ending };
    match given {
        Some(format) => Ok(format),
        None if out == Path::new("-") => Ok(standard),
        None => F::from_str(ending, false).map_err(|_| {
            let values = F::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let endings: Vec<_> = values.map(|value| format!(".{}", value.get_name())).collect();
            anyhow!(
                "--out: {}: expected a name that ends in {}, or --format",
                out.display(),
                endings.join(", ")
            )
        }),
    }
}

/// Checks, before any work, that a file can be written; `option` is the option that names it.
///
/// # Errors
/// If it is a folder, or its folder does not exist.
pub(crate) fn check(option: &str, path: &Path) -> Result<()> {
    if path == Path::new("-") {
        return Ok(());
    }
    let shown = path.display();
    if path.is_dir() {
        bail!("{option}: {shown}: is a folder; expected a file");
    }
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        bail!("{option}: {shown}: there is no folder {}; create it first", parent.display());
    }
    Ok(())
}

/// Checks that a file that exists is none of `inputs`, which are named by their options.
///
/// # Errors
/// If it is one of them.
pub(crate) fn check_differs<'i>(
    (option, path): (&str, &Path),
    existing: &Metadata,
    inputs: impl IntoIterator<Item = (&'i str, &'i Metadata)>,
) -> Result<()> {
    match inputs.into_iter().find(|(_, input)| is_same(input, existing)) {
        Some((input, _)) => {
            bail!("{option}: {}: is the file of {input}; choose another file", path.display())
        }
        None => Ok(()),
    }
}

/// [`check`], and that the file is none of `inputs`, which are named by their options.
///
/// # Errors
/// As [`check`], and if it is one of them.
pub(crate) fn check_beside<'i>(
    option: &str,
    path: &Path,
    inputs: impl IntoIterator<Item = (&'i str, &'i Path)>,
) -> Result<()> {
    check(option, path)?;
    let Some(existing) = fs::metadata(path).ok().filter(Metadata::is_file) else { return Ok(()) };
    // What cannot be read is reported where it is read.
    let inputs: Vec<_> = inputs
        .into_iter()
        .filter_map(|(input, path)| Some((input, fs::metadata(path).ok()?)))
        .collect();
    check_differs((option, path), &existing, inputs.iter().map(|(input, file)| (*input, file)))
}

/// Whether both are the metadata of one file.
#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Other systems do not identify files.
#[cfg(not(unix))]
fn is_same(_: &Metadata, _: &Metadata) -> bool {
    false
}

/// Whether a path is that of standard output: `-`, or the file that it is redirected to, which is
/// not replaced behind it.
pub(crate) fn is_standard(path: &Path) -> bool {
    let there = || {
        let [standard, named] =
            [Path::new("/dev/stdout"), path].map(|path| fs::metadata(path).ok());
        Some(is_same(&standard?, &named?))
    };
    path == Path::new("-") || there() == Some(true)
}

/// The path that a link leads to, which is written in its place, or the path itself.
pub(crate) fn target(path: &Path) -> PathBuf {
    let mut target = path.to_path_buf();
    // The system follows no more links either.
    for _ in 0..40 {
        let Ok(next) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(next);
    }
    target.canonicalize().unwrap_or(target)
}

/// Writes the file, or `standard` if it is [standard output](is_standard). An existing file is kept until the new one is
/// complete.
pub(crate) fn write(
    option: &str,
    path: &Path,
    bytes: &[u8],
    standard: &mut dyn Write,
) -> Result<()> {
    if is_standard(path) {
        return standard
            .write_all(bytes)
            .and_then(|()| standard.flush())
            .context(messages::UNWRITTEN);
    }
    let target = target(path);
    let is_device = fs::metadata(&target).is_ok_and(|metadata| !metadata.is_file());
    let write = || match is_device {
        true => OpenOptions::new().write(true).open(&target)?.write_all(bytes),
        false => {
            let mut file = PartialFile::wait_for(&target)?;
            file.write_all(bytes)?;
            file.commit()
        }
    };
    write().with_context(|| format!("{option}: {}: cannot be written", path.display()))
}
