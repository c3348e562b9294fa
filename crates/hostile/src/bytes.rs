//! Changes of files: of their bytes, of JSON, and of parts of safetensors.

use fs_err as fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> Result<()> {
    Ok(fs::write(path, bytes)?)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(fs::read(path)?)
}

/// Changes the bytes of a file.
pub(super) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
    let mut bytes = read(path)?;
    change(&mut bytes);
    write(path, bytes)
}

/// Changes the fields of a JSON file.
pub(super) fn edit_json(path: &Path, change: impl FnOnce(&mut Map<String, Value>)) -> Result<()> {
    let mut fields: Map<String, Value> =
        serde_json::from_slice(&read(path)?).with_context(|| path.display().to_string())?;
    change(&mut fields);
    write(path, serde_json::to_string_pretty(&fields)?)
}

/// A change of a file.
type FileChange = fn(&Path) -> Result<()>;

/// Replacements of a file by something that is not a readable file; cases take a range of them.
pub(super) const NOT_FILES: [(&str, FileChange); 4] = [
    ("a hole of 10 GB", |path| Ok(fs::File::create(path)?.set_len(10_000_000_000)?)),
    ("a pipe", pipe),
    ("a device without end", |path| link(path, "/dev/zero")),
    ("a folder", |path| {
        let _ = fs::remove_file(path);
        Ok(fs::create_dir(path)?)
    }),
];

/// Replaces a file by a pipe without a writer.
pub(super) fn pipe(path: &Path) -> Result<()> {
    let _ = fs::remove_file(path);
    xtask::workspace::call(std::process::Command::new("mkfifo").arg(path))
}

/// Replaces a file by a symbolic link.
pub(super) fn link(path: &Path, target: &str) -> Result<()> {
    let _ = fs::remove_file(path);
    #[cfg(unix)]
    return Ok(fs_err::os::unix::fs::symlink(target, path)?);
    #[cfg(not(unix))]
    anyhow::bail!("{}: a link to {target} is made on Unix only", path.display());
}

/// Nested brackets.
pub(super) fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

pub(super) fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        if path.is_dir() {
            copy_folder(&path, &to.join(name))?;
        } else {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

/// `count` evenly spaced positions in `0..length`, starting with the first.
pub(super) fn spread(length: usize, count: usize) -> Vec<usize> {
    let count = count.min(length);
    (0..count).map(|index| index * length / count).collect()
}

/// A safetensors file: a header and the values.
pub(super) struct Weights {
    pub(super) header: Map<String, Value>,
    pub(super) data: Vec<u8>,
}

impl Weights {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let bytes = read(path)?;
        let (length, rest) = bytes.split_first_chunk::<8>().context("a header's length")?;
        let length = usize::try_from(u64::from_le_bytes(*length))?;
        ensure!(length <= rest.len(), "a header that is cut off");
        Ok(Self { header: serde_json::from_slice(&rest[..length])?, data: rest[length..].to_vec() })
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        self.write_with(path, &serde_json::to_string(&self.header)?)
    }

    /// Writes the file with another header.
    pub(super) fn write_with(&self, path: &Path, header: &str) -> Result<()> {
        write(
            path,
            [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &self.data].concat(),
        )
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.header.keys().map(String::as_str).filter(|name| *name != "__metadata__")
    }

    /// Replaces the value of a field of the last tensor, on which no other depends.
    pub(super) fn with_last(mut self, field: &str, value: &Value) -> Self {
        if let Some((_, tensor)) = self.header.iter_mut().rfind(|(name, _)| *name != "__metadata__")
        {
            tensor[field] = value.clone();
        }
        self
    }

    /// Keeps only some of the tensors.
    pub(super) fn only(&self, names: &[String]) -> Result<Self> {
        let mut part = Self { header: Map::new(), data: Vec::new() };
        for name in names {
            let mut tensor = self.header[name].clone();
            let range = range(&tensor)?;
            let first = part.data.len();
            part.data.extend(&self.data[range]);
            tensor["data_offsets"] = json!([first, part.data.len()]);
            part.header.insert(name.clone(), tensor);
        }
        Ok(part)
    }

    /// Changes tensors and their values, one by one.
    pub(super) fn tensors(
        &mut self,
        mut change: impl FnMut(&mut Value, &mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let mut data = Vec::new();
        for (name, tensor) in &mut self.header {
            if name == "__metadata__" {
                continue;
            }
            let mut values = self.data[range(tensor)?].to_vec();
            change(tensor, &mut values)?;
            tensor["data_offsets"] = json!([data.len(), data.len() + values.len()]);
            data.extend(values);
        }
        self.data = data;
        Ok(())
    }
}

fn range(tensor: &Value) -> Result<std::ops::Range<usize>> {
    let [first, last]: [usize; 2] = serde_json::from_value(tensor["data_offsets"].clone())?;
    Ok(first..last)
}
