//! Where things are, and how other programs are called: the repository's folders, `cargo`, and `cognate` itself.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

/// The repository, as `cargo metadata` sees it.
pub struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// Asks Cargo, which knows of `CARGO_TARGET_DIR` and configuration files.
    pub fn find() -> Result<Workspace> {
        let metadata = MetadataCommand::new()
            .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata: the workspace's manifests cannot be read")?;
        Ok(Workspace { metadata })
    }

    /// The folder of the repository.
    pub fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// A path under Cargo's target folder, which need not exist yet.
    pub fn target(&self, name: &str) -> PathBuf {
        self.metadata.target_directory.as_std_path().join(name)
    }

    /// What Cargo says about the workspace.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// `path` as people read it: from the top of the repository, where it lies inside.
    pub fn readable<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(self.root()).unwrap_or(path).display()
    }

    /// `cargo`, the one that started this program, at the top of the repository.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.root()).stdin(Stdio::null());
        command
    }

    /// Builds the `cognate` command in release mode and returns its path.
    pub fn build_cognate(&self) -> Result<PathBuf> {
        call(self.cargo().args(["build", "--release", "--package", "cognate-command"]))?;
        Ok(self.target("release").join(format!("cognate{EXE_SUFFIX}")))
    }
}

/// Runs a command that speaks for itself; an unsuccessful end is an error that shows how it was called.
pub fn call(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("{shown}: cannot be started"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Runs a command for its standard output; where it fails, its standard error is in the message.
pub fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{shown}: cannot be started"))?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown}: its output is not UTF-8"))
}

/// The command as one would type it; of the program only its name, and of a long argument only its beginning.
pub fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(program.as_os_str());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| {
            let word = word.to_string_lossy();
            match word.split_once('\n') {
                Some((first, _)) => format!("'{first} ...'"),
                None => word.into_owned(),
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// Total size in bytes of the files under `folder` of which `wanted` approves the name.
pub fn size(folder: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<u64> {
    let mut bytes = 0;
    for path in files(folder)? {
        let name: OsString = path.file_name().map(Into::into).unwrap_or_default();
        if wanted(&name.to_string_lossy()) {
            bytes += path.metadata().with_context(|| path.display().to_string())?.len();
        }
    }
    Ok(bytes)
}

/// Every file under `folder`, sorted; build output and hidden folders are passed over.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries = std::fs::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .with_context(|| format!("{}: cannot be listed", folder.display()))?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        let build_output = path.join("CACHEDIR.TAG").exists();
        if !path.is_dir() {
            found.push(path);
        } else if !hidden && !build_output {
            found.extend(files(&path)?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_command_shows_how_it_was_called() {
        let error = call(Workspace::find().unwrap().cargo().args(["no-such-command", "a\nb"]).stderr(Stdio::null()));
        let message = error.unwrap_err().to_string();
        assert!(message.contains("no-such-command 'a ...': exit status: 101"), "{message}");
    }

    #[test]
    fn files_are_sorted_and_target_is_passed_over() {
        let workspace = Workspace::find().unwrap();
        let all = files(workspace.root()).unwrap();
        assert!(all.is_sorted());
        assert!(all.contains(&workspace.root().join("Cargo.toml")));
        assert!(!all.iter().any(|path| path.starts_with(workspace.target(""))));
    }
}
