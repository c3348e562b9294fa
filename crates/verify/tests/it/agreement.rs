//! Whole models: exported, run by every engine, measured against the f64 reference.

use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_folder::{Verification, open_exported};
use cognate_generate::Settings;
use cognate_model::{Attentions, Layout, Model, Preset};
use cognate_pipeline::CancellationToken;
use cognate_runtime::{Device, Options, Ort};
use cognate_testing::{bundled_checkpoint, cuda, python};
use cognate_verify::{CLOSE, Subject, engines, verify};
use std::path::Path;
use tempfile::TempDir;

/// `model` in the Cognate layout.
pub(crate) fn export(model: &Model) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (encoder, decoder) = (model.encode().unwrap(), model.step(Attentions::Omit).unwrap());
    let graphs = [("encoder.onnx", &encoder), ("decoder.onnx", &decoder)];
    let metadata = Metadata::default();
    let export = Export::new(&graphs, "weights.onnx_data", &metadata);
    let config = [("config.json", model.config_json().as_bytes())];
    write_folder(folder.path(), &export, &config, Existing::Replace).unwrap();
    folder
}

pub(crate) fn report(folder: &Path, model: &Model) -> Verification {
    report_on(Device::Cpu, folder, model)
}

fn report_on(device: Device, folder: &Path, model: &Model) -> Verification {
    let settings = Settings::from_json(model.config_json(), None, model.config()).unwrap();
    let subject = Subject {
        folder,
        layout: Layout::Cognate,
        model,
        settings,
        sentences: Vec::new(),
        sizes: None,
        seed: 1,
        tolerance: CLOSE,
        cancellation: CancellationToken::default(),
    };
    verify(&subject, &engines(subject.layout, device).unwrap(), |_| {}).unwrap()
}

#[test]
fn the_bundled_checkpoint_passes() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let folder = export(&model);
    let report = report(folder.path(), &model);
    assert!(report.passed(), "{report}");
    assert!(!report.runtimes.is_empty());
    eprintln!("{report}");
}

#[test]
fn the_base_preset_passes() {
    let folder = export(&Model::preset(Preset::Base, 1).unwrap());
    // Weights that are generated at each reading take longer than all the rest.
    let model = open_exported(folder.path(), Layout::Cognate).unwrap();
    let report = report(folder.path(), &model);
    assert!(report.passed(), "{report}");
    eprintln!("{report}");
}

#[test]
fn an_exported_folder_is_its_own_model() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let folder = export(&model);
    let read_back = open_exported(folder.path(), Layout::Cognate).unwrap();
    for (path, recipe) in model.weights().iter() {
        assert_eq!(
            recipe.values::<f32>(),
            read_back.weights().get(path).unwrap().values::<f32>(),
            "{path}"
        );
    }
}

#[test]
fn a_changed_weight_is_found() {
    let model = Model::preset(Preset::Tiny, 1).unwrap();
    let folder = export(&model);
    let path = folder.path().join("weights.onnx_data");
    let mut bytes = std::fs::read(&path).unwrap();
    // The sign of one weight in the middle of the file.
    let place = bytes.len() / 2 / 4 * 4 + 3;
    bytes[place] ^= 0x80;
    std::fs::write(&path, bytes).unwrap();
    let report = report(folder.path(), &model);
    assert!(!report.passed(), "{report}");
}

#[test]
fn onnxs_own_checker_accepts_the_files() {
    let Some(python) = python() else { return };
    for model in
        [Model::open(&bundled_checkpoint()).unwrap(), Model::preset(Preset::Tiny, 1).unwrap()]
    {
        let folder = export(&model);
        for file in ["encoder.onnx", "decoder.onnx"] {
            let check = "import onnx, sys; onnx.checker.check_model(sys.argv[1], full_check=True)";
            let output = std::process::Command::new(&python)
                .args(["-c", check])
                .arg(folder.path().join(file))
                .output()
                .unwrap();
            assert!(output.status.success(), "{file}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn cuda_agrees_and_runs_on_the_gpu() {
    if !cuda() {
        return;
    }
    let ort = Ort::find_for(Device::CUDA).unwrap();
    for model in
        [Model::open(&bundled_checkpoint()).unwrap(), Model::preset(Preset::Base, 1).unwrap()]
    {
        let folder = export(&model);
        // Errors of every output, greedy and beam search.
        let report = report_on(Device::CUDA, folder.path(), &model);
        assert!(report.passed(), "{report}");
        eprintln!("{report}");
        let options = Options { device: Device::CUDA, ..Options::default() };
        let nodes = ort.placement(&folder.path().join("encoder.onnx"), &options).unwrap();
        eprintln!("nodes by provider: {nodes:?}");
        let (on_gpu, all) = (
            nodes.get("CUDAExecutionProvider").copied().unwrap_or(0),
            nodes.values().sum::<usize>(),
        );
        assert!(on_gpu * 10 > all * 8, "most nodes must run on the GPU: {nodes:?}");
    }
}
