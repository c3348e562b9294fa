//! Detects whether distributed training can be built and tested here.

use fs_err as fs;
use std::process::Command;

use crate::workspace::succeeds;

/// The cargo arguments that enable it.
pub const FEATURES: [&str; 2] = ["--features", "cognate-command/mpi"];

/// Folders in which bindgen searches for libclang.
const LIBRARIES: [&str; 5] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
];

/// Whether an MPI with compiler and launcher is installed, and libclang, which parses its headers.
pub fn is_here() -> bool {
    let runs = |program: &str| succeeds(Command::new(program).arg("--version"));
    runs("mpicc") && runs("mpirun") && has_libclang()
}

fn has_libclang() -> bool {
    let entries = |folder: &str| {
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
    };
    // Debian has a folder per version.
    let versions = entries("/usr/lib").filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("llvm-"))
    });
    let folders = versions
        .map(|path| path.join("lib").display().to_string())
        .chain(LIBRARIES.map(str::to_owned));
    let is_libclang = |name: &str| {
        name.starts_with("libclang.so") || (name.starts_with("libclang-") && name.contains(".so"))
    };
    std::env::var_os("LIBCLANG_PATH").is_some()
        || folders.into_iter().any(|folder| {
            entries(&folder).any(|path| {
                path.file_name().is_some_and(|name| is_libclang(&name.to_string_lossy()))
            })
        })
}
