//! The form for ONNX Runtime alone, and 8-bit integers: every family, against the f64 reference of the model as it is.

use crate::engines::{everywhere, output};
use cognate_export::{Existing, Export, Metadata, Target, write_folder};
use cognate_generate::{SCALE, Settings};
use cognate_graph::{Program, Steps};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use cognate_passes::quantize::{Options as Quantize, quantize};
use cognate_runtime::{Options, Ort};
use cognate_testing::{Golden, bundled_checkpoint, golden, golden_models};
use cognate_verify::{CLOSE, QUANTISED, Report, Subject, Tolerance, compare, verify};
use ndarray::ArrayD;

/// The model in the shared-cache layout, layers joined, and in 8 bits if steps are given; measured on ONNX Runtime.
fn report(model: &Model, steps: Option<Steps>, tolerance: Tolerance) -> Option<Report> {
    let Ok(ort) = Ort::find() else {
        eprintln!("skipped: no library of ONNX Runtime; `cargo xtask onnxruntime` brings it");
        return None;
    };
    let layout = Layout::SharedCache;
    let mut programs: Vec<Program> = model.graphs(layout, Attentions::Omit).unwrap().iter().map(|program| fuse(program).unwrap()).collect();
    if let Some(steps) = steps {
        programs = quantize(&[&programs[0], &programs[1]], Quantize { steps, unscaled: Some(["logits", SCALE]) }).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata::default();
    let graphs: Vec<_> = layout.files().into_iter().zip(&programs).collect();
    let export = Export { target: Target::Ort, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    let settings = Settings::from_json(model.config_json(), None, model.config()).unwrap();
    let subject = Subject { folder: folder.path(), layout, model, settings, sentences: Vec::new(), seed: 1, tolerance };
    Some(verify(&subject, &[(Box::new(ort), Options::default())], |_| {}).unwrap())
}

/// One state of this model's encoder amplifies roundings a hundredfold: PyTorch's own f32 is 1.5e-4 from its float64.
const ILL_CONDITIONED: Tolerance = Tolerance { name: "ILL_CONDITIONED", relative_l2: 1e-4, ..CLOSE };

#[test]
fn every_family_passes_with_shared_caches() {
    let mut failures = Vec::new();
    for name in golden_models() {
        let tolerance = if name == "marian" { ILL_CONDITIONED } else { CLOSE };
        let Some(report) = report(&Model::open(&golden(&name)).unwrap(), None, tolerance) else { return };
        eprintln!("{name}: {report}");
        if !report.passed() {
            failures.push(format!("{name}: {report}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_bundled_checkpoint_passes_in_8_bits() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    for steps in [Steps::Row, Steps::Tensor] {
        let Some(report) = report(&model, Some(steps), QUANTISED) else { return };
        eprintln!("{steps:?}: {report}");
        assert!(report.passed(), "{steps:?}: {report}");
    }
}

/// The largest relative L2 distance of an engine in 8 bits to the evaluator in f64 of the same graph: now and then an activation
/// lies so near the middle of two steps that roundings differ, by a 127th of the row's range.
const SAME_STEPS: f64 = 2e-2;

#[test]
fn engines_take_the_same_steps_in_8_bits() {
    let array = |array: &cognate_testing::Array<i64>| ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap();
    let mut failures = Vec::new();
    for name in golden_models() {
        let (model, expected) = (Model::open(&golden(&name)).unwrap(), Golden::open(&name));
        let inputs = ["input_ids", "attention_mask", "decoder_input_ids"].map(|name| (name, array(expected.ids(name))));
        let program = fuse(&model.teacher_forced().unwrap()).unwrap();
        let programs = quantize(&[&program], Quantize { steps: Steps::Row, unscaled: None }).unwrap();
        let mut sessions = everywhere(&programs[0]);
        let run = |session: &mut Box<dyn cognate_runtime::Session>| {
            output(&session.run(&inputs.clone().into_iter().collect()).unwrap(), "logits")
        };
        let reference = run(&mut sessions[0]);
        for session in &mut sessions[1..] {
            let measured = compare(&run(session), &reference).unwrap();
            eprintln!("{name:30} {:45} {:.1e}", session.engine(), measured.relative_l2);
            if measured.relative_l2.is_nan() || measured.relative_l2 > SAME_STEPS {
                failures.push(format!("{name}, {}: {:e}", session.engine(), measured.relative_l2));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
