//! Tests of `onnxruntime`.

use xtask::onnxruntime::*;
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
