//! The engines of a verification.

use cognate_model::Layout;
use cognate_runtime::{Device, Engine, Options, Result, Runtime, available};

/// The engines on `device` that run the files of a layout. Those that Cognate's operators may speed
/// up run twice: with these operators and without.
///
/// # Errors
/// If a library of ONNX Runtime is found and cannot be used, or the GPU cannot.
pub fn engines(layout: Layout, device: Device) -> Result<Vec<(Box<dyn Runtime>, Options)>> {
    let options = Options { device, ..Options::default() };
    if device.is_gpu() {
        return Ok(vec![(Engine::Ort.open(device)?, options)]);
    }
    let needs_ort = matches!(layout, Layout::SharedCache | Layout::Generate);
    let has_own = |engine| engine == Engine::Tract || layout == Layout::SharedCache;
    let mut engines = Vec::new();
    for plain in [false, true] {
        let fit = available(device)?.into_iter().filter(|runtime| {
            let engine = runtime.engine();
            (!needs_ort || engine == Engine::Ort) && (!plain || has_own(engine))
        });
        engines.extend(fit.map(|runtime| (runtime, Options { plain, ..options })));
    }
    Ok(engines)
}
