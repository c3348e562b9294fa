//! The same program on every engine that is here.

use cognate_export::{Existing, Export, LAYOUT_KEY, Metadata, Target, write_folder};
use cognate_graph::Program;
use cognate_model::{Layout, Model};
use cognate_runtime::{
    Device, Engine, Options, Ort, Reference, Runtime, Session, Source, Values, available,
};
use cognate_testing::{golden, golden_models};
use ndarray::ArrayD;
use tempfile::TempDir;

/// The layouts whose decoder is a graph of one step.
pub(crate) const STEPPED: [Layout; 3] = [Layout::Cognate, Layout::HuggingFace, Layout::SharedCache];

/// `program` loaded by the reference evaluator in f64, by tract, and by ONNX Runtime where its
/// library is found.
pub(crate) fn everywhere(program: &Program) -> Vec<Box<dyn Session>> {
    loaded(program, Target::Portable)
}

/// `program`, written for ONNX Runtime alone, loaded by the reference evaluator in f64 and by ONNX
/// Runtime where it is found.
pub(crate) fn on_ort(program: &Program) -> Vec<Box<dyn Session>> {
    loaded(program, Target::Ort)
}

/// `program` with shared caches, loaded by the reference evaluator in f64, and where ONNX Runtime
/// is found by it, with our operators and without.
pub(crate) fn own_and_plain(program: &Program) -> Vec<Box<dyn Session>> {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata {
        properties: [(LAYOUT_KEY.into(), Layout::SharedCache.name().into())].into(),
        ..Metadata::default()
    };
    let graphs = [(FILE, program)];
    let export =
        Export { target: Target::Ort, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    let mut sessions =
        vec![Reference::F64.load(&Source::Graph(program.clone()), &Options::default()).unwrap()];
    let Ok(ort) = Ort::find() else {
        cognate_testing::skip("no library of ONNX Runtime; `cargo xtask onnxruntime` installs it");
        return sessions;
    };
    for plain in [false, true] {
        let options = Options { plain, ..Options::default() };
        sessions.push(ort.load(&Source::Onnx(folder.path().join(FILE)), &options).unwrap());
    }
    sessions
}

fn loaded(program: &Program, target: Target) -> Vec<Box<dyn Session>> {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata::default();
    let graphs = [(FILE, program)];
    let export = Export { target, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    let path = folder.path().join(FILE);
    let mut sessions =
        vec![Reference::F64.load(&Source::Graph(program.clone()), &Options::default()).unwrap()];
    let engines = available(Device::Cpu).unwrap();
    if !engines.iter().any(|engine| engine.name() == Engine::Ort.to_string()) {
        cognate_testing::skip("no library of ONNX Runtime; `cargo xtask onnxruntime` installs it");
    }
    for engine in
        engines.into_iter().filter(|engine| target == Target::Portable || engine.name() == "ort")
    {
        let load = |plain| {
            let options = Options { plain, ..Options::default() };
            engine.load(&Source::Onnx(path.clone()), &options).unwrap()
        };
        let session = load(false);
        // Where none of our operators applies, the plain engine is the same.
        let has_ours = session.engine().ends_with("with Cognate's operators");
        sessions.push(session);
        if has_ours {
            sessions.push(load(true));
        }
    }
    sessions
}

/// The encoder and the decoder of [`Layout::SharedCache`] in a folder, as `--target ort` exports
/// them.
pub(crate) fn for_our_operators(programs: &[Program]) -> TempDir {
    let (folder, layout) = (tempfile::tempdir().unwrap(), Layout::SharedCache);
    let metadata = Metadata {
        properties: [(LAYOUT_KEY.into(), layout.name().into())].into(),
        ..Metadata::default()
    };
    let graphs: Vec<_> = layout.files().iter().copied().zip(programs).collect();
    let export =
        Export { target: Target::Ort, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    folder
}

const FILE: &str = "program.onnx";

/// The output called `name` in f64.
pub(crate) fn output(values: &Values, name: &str) -> ArrayD<f64> {
    values.get(name).unwrap().to_f64().unwrap()
}

/// Fails if the arrays differ by more than `bound` anywhere.
pub(crate) fn assert_close(found: &ArrayD<f64>, expected: &ArrayD<f64>, bound: f64, what: &str) {
    let error = cognate_verify::compare(found, expected)
        .unwrap_or_else(|| panic!("{what}: shapes {:?} and {:?}", found.shape(), expected.shape()));
    assert!(error.max_absolute <= bound, "{what}: {:e}", error.max_absolute);
}

/// The golden models whose attention has a form over caches that beams share.
pub(crate) fn models_with_shared_caches() -> Vec<String> {
    let has_form = |name: &String| {
        Model::open(&golden(name)).unwrap().config().require_shared_caches().is_ok()
    };
    let (with, without): (Vec<_>, Vec<_>) = golden_models().into_iter().partition(has_form);
    assert_eq!(without, Vec::<String>::new());
    with
}
