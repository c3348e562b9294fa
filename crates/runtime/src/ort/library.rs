//! Finds the library and checks its version before it is used.
//!
//! The search order is: `ORT_DYLIB_PATH`, which must be valid if it is set; `onnxruntime/VERSION/`
//! or `onnxruntime/VERSION-cuda/` in the folder `CARGO_TARGET_DIR`, or in a folder `target` in or
//! above the program's and the current folder; the folders of [`add_folder`]; the system's loader.

use crate::{Device, Error, ErrorKind, Result};
use ::ort::MINOR_VERSION;
use ::ort::sys::{ORT_API_VERSION, OrtApiBase};
use std::cmp::Reverse;
use std::env;
use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::error::Error as _;
use std::ffi::{CStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

const VARIABLE: &str = "ORT_DYLIB_PATH";

/// A library of ONNX Runtime with a supported version.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) path: PathBuf,
    pub(super) version: String,
    /// Keeps the library loaded until the engine has opened it.
    _handle: libloading::Library,
}

/// The result of a search.
#[derive(Debug)]
pub(super) enum Found {
    Library(Library),
    /// The places that were searched, and what to do.
    Nothing(String),
}

/// The folders of [`add_folder`].
static ADDED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

pub(super) fn add_folder(folder: PathBuf) {
    ADDED.lock().unwrap_or_else(PoisonError::into_inner).push(folder);
}

/// The places to search.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// `ORT_DYLIB_PATH`, if it is set and not empty.
    pub(super) variable: Option<OsString>,
    /// Folders that may contain `VERSION/` or `VERSION-cuda/`, nearest first.
    pub(super) folders: Vec<PathBuf>,
    /// Libraries that were not installed for this program: paths, and names for the system's
    /// loader.
    pub(super) names: Vec<PathBuf>,
}

impl Places {
    /// The search places of this process.
    pub(super) fn of_process() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty());
        let mut folders: Vec<PathBuf> = set("CARGO_TARGET_DIR")
            .map(|target| Path::new(&target).join("onnxruntime"))
            .into_iter()
            .collect();
        let program = env::current_exe().ok().and_then(|path| path.parent().map(Path::to_path_buf));
        for start in [program, env::current_dir().ok()].into_iter().flatten() {
            folders
                .extend(start.ancestors().map(|folder| folder.join("target").join("onnxruntime")));
        }
        let name = format!("{DLL_PREFIX}onnxruntime{DLL_SUFFIX}");
        // A Linux system without development files has only the versioned name.
        let system = if DLL_SUFFIX == ".so" { vec![format!("{name}.1"), name] } else { vec![name] };
        let added = ADDED.lock().unwrap_or_else(PoisonError::into_inner);
        let names = added
            .iter()
            .filter_map(|folder| library_in(folder))
            .chain(system.into_iter().map(PathBuf::from))
            .collect();
        Self { variable: set(VARIABLE), folders, names }
    }
}

/// Searches for a library, preferring one with CUDA if `device` needs it.
///
/// # Errors
/// If the library in the variable or in the nearest folder is not ONNX Runtime of a
/// supported version.
pub(super) fn search(places: &Places, device: Device) -> Result<Found> {
    if let Some(variable) = &places.variable {
        let path = named(Path::new(variable));
        return probe(&format!("{VARIABLE}: {}", path.display()), &path).map(Found::Library);
    }
    if let Some(path) = places.folders.iter().find_map(|folder| cached(folder, device)) {
        return probe(&path.display().to_string(), &path).map(Found::Library);
    }
    // An unusable library is skipped, and reported if none is found.
    let mut unusable = String::new();
    for name in &places.names {
        let Ok(handle) = load(name) else { continue };
        match identify(&name.display().to_string(), name, handle) {
            Ok(library) => return Ok(Found::Library(library)),
            Err(error) => unusable.push_str(&format!(" ({error})")),
        }
    }
    Ok(Found::Nothing(format!(
        "no library of ONNX Runtime 1.{MINOR_VERSION} or newer: none named by {VARIABLE}, none in a folder `target/onnxruntime` in or \
         above the program's or the current folder, none in the system{unusable}; run `cargo xtask onnxruntime`, or set {VARIABLE}"
    )))
}

/// Opens the library at `path`; the system's loader finds a bare name. Errors begin with `place`.
///
/// # Errors
/// If it is not a library, not ONNX Runtime, or of an unsupported version.
pub(super) fn probe(place: &str, path: &Path) -> Result<Library> {
    let is_bare_name = path.parent() == Some(Path::new(""));
    let path = match path.canonicalize() {
        Ok(path) if path.is_file() => path,
        Ok(_) => return Err(wrong(place, "a folder")),
        Err(_) if is_bare_name => path.to_path_buf(),
        Err(error) => return Err(wrong(place, format!("nothing: {error}"))),
    };
    // libloading has the system's message as the source.
    let reason = |error: libloading::Error| {
        error.source().map_or_else(|| error.to_string(), ToString::to_string)
    };
    let handle = load(&path).map_err(|error| {
        wrong(place, format!("a file that cannot be loaded: {}", reason(error)))
    })?;
    identify(place, &path, handle)
}

fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: loading runs the library's initialisers. The user, the cache or the system names this
    // file as ONNX Runtime, whose initialisers have no preconditions.
    unsafe { libloading::Library::new(path) }
}

/// Checks the identity of a loaded library.
fn identify(place: &str, path: &Path, handle: libloading::Library) -> Result<Library> {
    // SAFETY: the type is that of the function in ONNX Runtime's C header.
    let base =
        unsafe { handle.get::<unsafe extern "system" fn() -> *const OrtApiBase>(b"OrtGetApiBase") };
    let base = base.map_err(|_| wrong(place, "a library without the function OrtGetApiBase"))?;
    // SAFETY: the function has no arguments and returns null or a pointer to a table that lives as
    // long as the library.
    let base = unsafe { base().as_ref() }
        .ok_or_else(|| wrong(place, "a library whose OrtGetApiBase returns null"))?;
    // SAFETY: the table's functions are valid while the library is loaded; the string is static and
    // ends with zero.
    let version =
        unsafe { CStr::from_ptr((base.GetVersionString)()) }.to_string_lossy().into_owned();
    // SAFETY: as above; the function returns null for an unsupported version.
    let lacks_version = || unsafe { (base.GetApi)(ORT_API_VERSION) }.is_null();
    if release(&version) < Some((1, MINOR_VERSION)) || lacks_version() {
        return Err(wrong(place, format!("version {version}")));
    }
    Ok(Library { path: path.to_path_buf(), version, _handle: handle })
}

fn wrong(place: &str, found: impl Display) -> Error {
    Error::new(
        ErrorKind::Library,
        place,
        format!("expected the library of ONNX Runtime 1.{MINOR_VERSION} or newer, found {found}"),
    )
}

/// A relative path is relative to the current folder, otherwise to the program's.
fn named(path: &Path) -> PathBuf {
    let program = env::current_exe().ok().and_then(|program| Some(program.parent()?.join(path)));
    match program {
        Some(beside) if !path.exists() && beside.exists() => beside,
        Some(_) | None => path.to_path_buf(),
    }
}

/// The library in the best subfolder: with CUDA if `device` needs it and without otherwise,
/// then the newest.
fn cached(folder: &Path, device: Device) -> Option<PathBuf> {
    let mut versions: Vec<_> = entries(folder)
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let (version, has_cuda) =
                name.strip_suffix("-cuda").map_or((name, false), |version| (version, true));
            let numbers = numbers(version);
            (!numbers.is_empty()).then_some((has_cuda == device.is_gpu(), numbers, path))
        })
        .collect();
    versions.sort_by_key(|(fits, numbers, _)| Reverse((*fits, numbers.clone())));
    versions.into_iter().find_map(|(.., path)| library_in(&path))
}

fn library_in(folder: &Path) -> Option<PathBuf> {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let rest = name.and_then(|name| name.strip_prefix(DLL_PREFIX)?.strip_prefix("onnxruntime"));
        // Matches `libonnxruntime.so.1.31.1` and `libonnxruntime.1.31.1.dylib`, but not
        // `libonnxruntime_providers_shared.so`.
        rest.is_some_and(|rest| rest.starts_with('.') && rest.contains(DLL_SUFFIX))
    };
    entries(folder).filter(is_library).min()
}

/// The paths in `folder`; empty if it cannot be read.
fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Major and minor version.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Parses `1.31.1` to `[1, 31, 1]`; empty if it is not a version.
fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|number| number.parse().ok()).collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates the named files, which are not libraries, and returns the one that a search for
    /// `device` chooses.
    fn chosen(files: &[&str], device: Device) -> String {
        let root = tempfile::tempdir().expect("a temporary folder");
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("inside the root")).expect("a folder");
            std::fs::write(path, "no library").expect("a file");
        }
        let folders = ["a/target/onnxruntime", "target/onnxruntime"]
            .map(|folder| root.path().join(folder))
            .into();
        let places = Places { folders, ..Places::default() };
        match search(&places, device) {
            Ok(Found::Library(_)) => panic!("a text file was taken for a library"),
            Ok(Found::Nothing(_)) => "nothing".into(),
            Err(error) => {
                let text = error.to_string();
                let inside = text
                    .split_once(root.path().to_str().expect("UTF-8"))
                    .expect("the error names the file")
                    .1;
                inside.split(": ").next().expect("a path").trim_start_matches('/').to_string()
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn nearest_folder_then_device_then_newest_version() {
        let (plain, cuda, newer) = (
            "target/onnxruntime/1.9.0/libonnxruntime.so.1.9.0",
            "target/onnxruntime/1.9.0-cuda/libonnxruntime.so.1.9.0",
            "target/onnxruntime/1.31.1/libonnxruntime.so.1.31.1",
        );
        let near = "a/target/onnxruntime/1.8.0/libonnxruntime.so";
        let cases: [(&[&str], Device, &str); 9] = [
            (&[], Device::Cpu, "nothing"),
            (&[plain, cuda], Device::Cpu, plain),
            (&[plain, cuda], Device::CUDA, cuda),
            (&[cuda], Device::Cpu, cuda),
            (&[plain, newer], Device::Cpu, newer),
            (&[newer, cuda], Device::CUDA, cuda),
            (&[newer, near], Device::Cpu, near),
            (
                &["target/onnxruntime/1.31.1/libonnxruntime_providers_shared.so"],
                Device::Cpu,
                "nothing",
            ),
            (&["target/onnxruntime/latest/libonnxruntime.so"], Device::Cpu, "nothing"),
        ];
        let failures: Vec<_> = cases
            .iter()
            .filter(|(files, device, wanted)| chosen(files, *device) != *wanted)
            .collect();
        assert!(failures.is_empty(), "chosen otherwise: {failures:?}");
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(numbers("1.31.1"), [1, 31, 1]);
        assert!(numbers("1.9.0") < numbers("1.31.1"));
        assert_eq!(numbers("1.31.1-dev"), [0u32; 0]);
        assert_eq!(release("1.32.0+vendor.2"), Some((1, 32)));
        assert_eq!(release("unknown"), None);
    }
}
