//! The repository's folders, and calls of other programs: `cargo` and `cognate`.

use std::env::consts::EXE_SUFFIX;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::{Metadata, MetadataCommand};

/// The repository, from `cargo metadata`.
pub struct Workspace {
    metadata: Metadata,
}

impl Workspace {
    /// Reads the workspace from Cargo, which respects `CARGO_TARGET_DIR` and configuration files.
    pub fn find() -> Result<Workspace> {
        let metadata = MetadataCommand::new()
            .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .no_deps()
            .exec()
            .context("cargo metadata: cannot read the workspace's manifests")?;
        Ok(Workspace { metadata })
    }

    /// The folder of the repository.
    pub fn root(&self) -> &Path {
        self.metadata.workspace_root.as_std_path()
    }

    /// A path in Cargo's target folder, which may not exist.
    pub fn target(&self, name: &str) -> PathBuf {
        self.metadata.target_directory.as_std_path().join(name)
    }

    /// The metadata of the workspace.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// `path` for display, relative to the repository's root if it is inside.
    pub fn readable<'a>(&self, path: &'a Path) -> std::path::Display<'a> {
        path.strip_prefix(self.root()).unwrap_or(path).display()
    }

    /// The `cargo` that started this program, run in the repository's root.
    pub fn cargo(&self) -> Command {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.current_dir(self.root()).stdin(Stdio::null());
        // Nothing is compiled a second time from here, and a panic names its line without tables.
        // Both would take gigabytes.
        command.envs([("CARGO_INCREMENTAL", "0"), ("CARGO_PROFILE_DEV_DEBUG", "false")]);
        command
    }

    /// Builds the `cognate` command with its server, as tests are built, and returns its path.
    pub fn build_served(&self) -> Result<PathBuf> {
        let arguments = ["build", "--quiet", "--package", "cognate-command", "--features", "serve"];
        call(self.cargo().args(arguments))?;
        Ok(self.target("debug").join(format!("cognate{EXE_SUFFIX}")))
    }

    /// Builds the `cognate` command in release mode and returns its path.
    pub fn build_cognate(&self) -> Result<PathBuf> {
        call(self.cargo().args(["build", "--release", "--package", "cognate-command"]))?;
        Ok(self.target("release").join(format!("cognate{EXE_SUFFIX}")))
    }
}

/// The `cognate` command to run.
#[derive(clap::Args)]
pub struct Cognate {
    /// Path of a built `cognate`, instead of building it in release mode
    #[arg(long, value_name = "PROGRAM")]
    cognate: Option<PathBuf>,
}

impl Cognate {
    /// The path of the given command, or of the one built in release mode.
    pub fn path(&self, workspace: &Workspace) -> Result<PathBuf> {
        match &self.cognate {
            Some(program) => program.canonicalize().with_context(|| program.display().to_string()),
            None => workspace.build_cognate(),
        }
    }
}

/// Runs a command with inherited output. The error of a failure contains the command.
pub fn call(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command.status().with_context(|| format!("{shown}: cannot start"))?;
    if !status.success() {
        bail!("{shown}: {status}");
    }
    Ok(())
}

/// Whether a command can be run and succeeds; its output is not shown.
pub fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Runs a command and returns its standard output. The error of a failure contains its
/// standard error.
pub fn capture(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("{shown}: cannot start"))?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{shown}: expected output in UTF-8"))
}

/// The command for display, with the program's name only and long arguments shortened.
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

/// Total size in bytes of the files under `folder` whose names satisfy `wanted`.
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

/// All files under `folder`, sorted, without build output and hidden folders.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut entries = fs_err::read_dir(folder)
        .and_then(|entries| entries.collect::<std::io::Result<Vec<_>>>())
        .with_context(|| format!("{}: cannot list", folder.display()))?;
    entries.sort_by_key(fs_err::DirEntry::file_name);
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
