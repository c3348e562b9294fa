//! `cargo xtask onnxruntime`: installs the ONNX Runtime library from its Python wheel.
//!
//! The library is installed in `target/onnxruntime/VERSION/` (with CUDA: `VERSION-cuda/`), where
//! `cognate` and the tests search for it. A folder is complete or absent: it is filled under a
//! temporary name and renamed.

use fs_err as fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::python::Python;
use crate::workspace::{Workspace, capture};

/// The version of ONNX Runtime with which this repository is tested and measured.
pub const VERSION: &str = "1.31.1";

/// Install the ONNX Runtime library with pip for `cognate` and the tests
///
/// Downloads the wheel `onnxruntime` from PyPI with the pip of your Python 3 and keeps only the
/// library, in `target/onnxruntime/`, where `cognate --engine ort` finds it. Downloads nothing if
/// the library is already installed. Set ORT_DYLIB_PATH to use another library.
#[derive(clap::Args)]
pub struct Options {
    /// Install the build for CUDA 13 and cuDNN 9, which must be installed (downloads 256 MB)
    #[arg(long)]
    cuda: bool,
    /// Print only the library's path: ORT_DYLIB_PATH=$(cargo xtask onnxruntime --print)
    #[arg(long)]
    print: bool,
}

/// The builds of ONNX Runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// For CPUs.
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

/// Returns the library's path; downloads it if it is missing.
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
        bail!(
            "{}: expected an ONNX Runtime library, found none; remove the folder and try again",
            folder.display()
        );
    }
    let by_hand = || {
        format!(
            "pip cannot install ONNX Runtime {VERSION} (is PyPI reachable?); copy the libraries in `onnxruntime/capi/` of the wheel \
             {package} {VERSION} to {}, or set ORT_DYLIB_PATH to another library",
            folder.display()
        )
    };
    download(package, build, &folder).with_context(by_hand)?;
    library_in(&folder).with_context(by_hand)
}

/// Fills `folder` from the wheel of `package`.
fn download(package: &str, build: Build, folder: &Path) -> Result<()> {
    let python = Python::find()?;
    let parent = folder.parent().context("the folder is below target")?;
    fs::create_dir_all(parent)?;
    let work = tempfile::tempdir_in(parent)?;
    eprintln!("downloading {package} {VERSION} with pip");
    let wheel = download_wheel(&python, package, work.path())?;
    let filled = work.path().join("libraries");
    fs::create_dir(&filled)?;
    capture(python.command(["-c", EXTRACT]).arg(&wheel).arg(&filled).arg(pattern(build)))?;
    match fs::rename(&filled, folder) {
        // Another process was faster; its folder is equal.
        Err(_) if library_in(folder).is_some() => Ok(()),
        result => result.with_context(|| format!("{}: cannot write", folder.display())),
    }
}

/// Downloads the wheel for this machine. The library does not depend on Python's version: if no
/// wheel matches the installed Python, one for another version is downloaded.
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
        // The first error is more specific than the second.
        if capture(second.arg(&requirement)).is_err() {
            return Err(error);
        }
    }
    let wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path())).find(wheel);
    found.with_context(|| format!("pip download {requirement}: expected a wheel, found none"))
}

/// The main library in an installed folder, on any system.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    names.into_iter().find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        is_main_library(&name)
    })
}

/// `libonnxruntime.so.1.31.1`, `libonnxruntime.1.31.1.dylib` or `onnxruntime.dll`; not a provider,
/// not Python's module.
pub fn is_main_library(name: &str) -> bool {
    let name = name.strip_prefix("lib").unwrap_or(name);
    let Some(rest) = name.strip_prefix("onnxruntime.") else {
        return false;
    };
    rest.split('.').any(|part| matches!(part, "so" | "dylib" | "dll"))
}

/// A regular expression of the wheel's files to keep.
fn pattern(build: Build) -> &'static str {
    match build {
        Build::Cpu => r"(lib)?onnxruntime\.[0-9.]*(so|dylib|dll)[0-9.]*",
        Build::Cuda => {
            r"(lib)?onnxruntime(_providers_(shared|cuda))?\.[0-9.]*(so|dylib|dll)[0-9.]*"
        }
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
