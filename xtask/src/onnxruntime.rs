//! `cargo xtask onnxruntime`: brings the ONNX Runtime library out of its Python wheel.
//!
//! The library lands in `target/onnxruntime/VERSION/` (with CUDA: `VERSION-cuda/`), where the `cognate` command and the
//! tests look for it. A folder is whole or absent: it is filled beside its place and renamed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::python::Python;
use crate::workspace::{Workspace, capture};

/// The release of ONNX Runtime on which the figures of this repository were measured.
pub const VERSION: &str = "1.31.1";

/// Bring the ONNX Runtime library with pip, so that `cognate` and the tests find it
///
/// Downloads the wheel `onnxruntime` from PyPI with the pip of your Python 3 and keeps only the library, in
/// `target/onnxruntime/`. `cognate --engine ort` finds it there; where it already is, nothing is downloaded.
/// An own library is used instead when ORT_DYLIB_PATH names it.
#[derive(clap::Args)]
pub struct Options {
    /// The build for CUDA 13 and cuDNN 9, which must be installed (a download of 256 MB)
    #[arg(long)]
    cuda: bool,
    /// Print only the library's path: ORT_DYLIB_PATH=$(cargo xtask onnxruntime --print)
    #[arg(long)]
    print: bool,
}

/// Which of the two builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For processors.
    Cpu,
    /// For NVIDIA GPUs.
    Cuda,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let build = if options.cuda { Build::Cuda } else { Build::Cpu };
    let library = bring(workspace, build)?;
    match options.print {
        true => println!("{}", library.display()),
        false => println!("ONNX Runtime {VERSION}: {}", workspace.readable(&library)),
    }
    Ok(())
}

/// The library's path; downloaded when it is not there yet.
pub fn bring(workspace: &Workspace, build: Build) -> Result<PathBuf> {
    let (package, folder) = match build {
        Build::Cpu => ("onnxruntime", format!("onnxruntime/{VERSION}")),
        Build::Cuda => ("onnxruntime-gpu", format!("onnxruntime/{VERSION}-cuda")),
    };
    let folder = workspace.target(&folder);
    if let Some(library) = library_in(&folder) {
        return Ok(library);
    }
    if folder.exists() {
        bail!("{}: holds no ONNX Runtime library; remove the folder and try again", folder.display());
    }
    let by_hand = || {
        format!(
            "ONNX Runtime {VERSION} was not brought by pip (is PyPI reached?). By hand: take the libraries from `onnxruntime/capi/` of the wheel \
             {package} {VERSION} and put them into {}, or name another library in ORT_DYLIB_PATH",
            folder.display()
        )
    };
    download(package, build, &folder).with_context(by_hand)?;
    library_in(&folder).with_context(by_hand)
}

/// Fills `folder` from the wheel of `package`.
fn download(package: &str, build: Build, folder: &Path) -> Result<()> {
    let python = Python::find()?;
    let parent = folder.parent().context("the folder lies under target")?;
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let work = tempfile::tempdir_in(parent)?;
    eprintln!("downloading {package} {VERSION} with pip");
    let wheel = download_wheel(&python, package, work.path())?;
    let filled = work.path().join("libraries");
    fs::create_dir(&filled)?;
    capture(python.command(["-c", EXTRACT]).arg(&wheel).arg(&filled).arg(pattern(build)))?;
    match fs::rename(&filled, folder) {
        // Another process was quicker; its folder is as good.
        Err(_) if library_in(folder).is_some() => Ok(()),
        result => result.with_context(|| format!("{}: cannot be written", folder.display())),
    }
}

/// The wheel for this machine. The library inside does not depend on Python's version: where none fits the Python that is
/// there, one for another Python serves.
fn download_wheel(python: &Python, package: &str, folder: &Path) -> Result<PathBuf> {
    let requirement = format!("{package}=={VERSION}");
    let platform = format!("manylinux_2_28_{}", std::env::consts::ARCH);
    let fixed = ["download", "--no-deps", "--only-binary=:all:", "--progress-bar=off", "--dest"];
    let mut first = python.pip(fixed);
    first.arg(folder).arg(&requirement);
    if let Err(error) = capture(&mut first) {
        if !cfg!(target_os = "linux") {
            return Err(error);
        }
        let mut second = python.pip(fixed);
        second.arg(folder).args(["--python-version", "3.12", "--platform", &platform]);
        // The first failure says more about this machine than the second.
        if capture(second.arg(&requirement)).is_err() {
            return Err(error);
        }
    }
    let wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).find(wheel);
    found.with_context(|| format!("pip download {requirement} left no wheel"))
}

/// The main library in a folder that was brought, on any system.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    names.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        is_main_library(&name)
    })
}

/// `libonnxruntime.so.1.31.1`, `libonnxruntime.1.31.1.dylib` or `onnxruntime.dll`; not a provider, not Python's module.
fn is_main_library(name: &str) -> bool {
    let name = name.strip_prefix("lib").unwrap_or(name);
    let Some(rest) = name.strip_prefix("onnxruntime.") else {
        return false;
    };
    rest.split('.').any(|part| matches!(part, "so" | "dylib" | "dll"))
}

/// Names of the wheel's files to keep, as a regular expression of Python.
fn pattern(build: Build) -> &'static str {
    match build {
        Build::Cpu => r"(lib)?onnxruntime\.[0-9.]*(so|dylib|dll)[0-9.]*",
        Build::Cuda => r"(lib)?onnxruntime(_providers_(shared|cuda))?\.[0-9.]*(so|dylib|dll)[0-9.]*",
    }
}

/// `python -c EXTRACT wheel folder pattern`
const EXTRACT: &str = "import os, re, shutil, sys, zipfile
wheel, folder, pattern = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    for member in archive.namelist():
        parent, name = os.path.split(member)
        if parent == 'onnxruntime/capi' and re.fullmatch(pattern, name):
            with archive.open(member) as source, open(os.path.join(folder, name), 'wb') as target:
                shutil.copyfileobj(source, target, 1 << 20)
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_library_is_told_from_its_neighbours() {
        for (name, main) in [
            ("libonnxruntime.so.1.31.1", true),
            ("libonnxruntime.so", true),
            ("libonnxruntime.1.31.1.dylib", true),
            ("onnxruntime.dll", true),
            ("libonnxruntime_providers_shared.so", false),
            ("onnxruntime_pybind11_state.cpython-311-x86_64-linux-gnu.so", false),
            ("onnxruntime_providers_cuda.dll", false),
            ("libonnxruntime.txt", false),
        ] {
            assert_eq!(is_main_library(name), main, "{name}");
        }
    }
}
