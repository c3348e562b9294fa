//! The form for ONNX Runtime alone, and 8-bit integers: every family, against the f64 reference of
//! the model as it is.

use crate::engines::{everywhere, models_with_shared_caches, on_ort, output};
use crate::golden::beside_pytorch;
use cognate_export::{Existing, Export, LAYOUT_KEY, Metadata, Target, write_folder};
use cognate_folder::Verification;
use cognate_generate::Settings;
use cognate_graph::{Bits, Blocks, Program, Steps};
use cognate_model::interface::LOGITS_SCALE;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use cognate_passes::quantize::{Options as Quantize, quantize};
use cognate_pipeline::CancellationToken;
use cognate_runtime::{Options, Ort};
use cognate_testing::{Golden, bundled_checkpoint, golden, golden_models};
use cognate_verify::{CLOSE, QUANTISED, QUANTISED_4, Subject, Tolerance, compare, verify};
use ndarray::ArrayD;

/// The model in the shared-cache layout, layers joined, and in integers if it is said how; measured
/// on ONNX Runtime.
pub(crate) fn report(
    model: &Model,
    integers: Option<Quantize<'_>>,
    tolerance: Tolerance,
) -> Option<Verification> {
    let Ok(ort) = Ort::find() else {
        cognate_testing::skip("no library of ONNX Runtime; `cargo xtask onnxruntime` installs it");
        return None;
    };
    let layout = Layout::SharedCache;
    let mut programs: Vec<Program> = model
        .graphs(layout, Attentions::Omit)
        .unwrap()
        .iter()
        .map(|program| fuse(program).unwrap())
        .collect();
    if let Some(integers) = integers {
        programs = quantize(&[&programs[0], &programs[1]], integers).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata {
        properties: [(LAYOUT_KEY.into(), layout.name().into())].into(),
        ..Metadata::default()
    };
    let graphs: Vec<_> = layout.files().iter().copied().zip(&programs).collect();
    let export =
        Export { target: Target::Ort, ..Export::new(&graphs, "weights.onnx_data", &metadata) };
    write_folder(folder.path(), &export, &[], Existing::Replace).unwrap();
    let settings = Settings::from_json(model.config_json(), None, model.config()).unwrap();
    let subject = Subject {
        folder: folder.path(),
        layout,
        model,
        settings,
        sentences: Vec::new(),
        sizes: None,
        seed: 1,
        tolerance,
        cancellation: CancellationToken::default(),
    };
    let plain = Options { plain: true, ..Options::default() };
    Some(
        verify(
            &subject,
            &[(Box::new(ort.clone()), Options::default()), (Box::new(ort), plain)],
            |_| {},
        )
        .unwrap(),
    )
}

#[test]
fn every_family_passes_with_shared_caches() {
    let mut failures = Vec::new();
    for name in models_with_shared_caches() {
        let Some(report) =
            report(&Model::open(&golden(&name)).unwrap(), None, beside_pytorch(&name))
        else {
            return;
        };
        eprintln!("{name}: {report}");
        if !report.passed() {
            failures.push(format!("{name}: {report}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_bundled_checkpoint_passes_in_integers() {
    let model = Model::open(&bundled_checkpoint()).unwrap();
    let columns = |steps| Quantize::Columns { steps, unscaled: Some(["logits", LOGITS_SCALE]) };
    let blocks = |bits, size| Quantize::Blocks { blocks: Blocks { bits, size }, output: "logits" };
    for (integers, tolerance) in [
        (columns(Steps::Row), QUANTISED),
        (columns(Steps::Tensor), QUANTISED),
        (blocks(Bits::Eight, 32), QUANTISED),
        (blocks(Bits::Eight, 128), QUANTISED),
        (blocks(Bits::Four, 32), QUANTISED_4),
        (blocks(Bits::Four, 128), QUANTISED_4),
    ] {
        let Some(report) = report(&model, Some(integers), tolerance) else { return };
        eprintln!("{integers:?}: {report}");
        assert!(report.passed(), "{integers:?}: {report}");
    }
}

/// The largest relative L2 distance of an engine in integers to the evaluator in f64 of the same
/// graph: now and then an activation lies so near the middle of two steps that roundings differ, by
/// a 127th of the range of its row or block, which tiny models answer with some hundredths.
const SAME_STEPS: f64 = 4e-2;
/// Where no roundings differ, as is so for most models, engines in f32 are as near as they always
/// are.
const NEAR: f64 = CLOSE.relative_l2;

#[test]
fn engines_take_the_same_steps_in_integers() {
    let array = |array: &cognate_testing::Array<i64>| {
        ArrayD::from_shape_vec(array.shape.as_slice(), array.data.clone()).unwrap()
    };
    let (mut failures, mut n_near, mut n_all) = (Vec::new(), 0, 0);
    for name in golden_models() {
        let (model, expected) = (Model::open(&golden(&name)).unwrap(), Golden::open(&name));
        let inputs = ["input_ids", "attention_mask", "decoder_input_ids"]
            .map(|name| (name, array(expected.ids(name))));
        let program = fuse(&model.teacher_forced().unwrap()).unwrap();
        let run = |session: &mut Box<dyn cognate_runtime::Session>| {
            output(&session.run(&inputs.clone().into_iter().collect()).unwrap(), "logits")
        };
        let blocks =
            |bits| Quantize::Blocks { blocks: Blocks { bits, size: 32 }, output: "logits" };
        for (integers, load) in [
            (
                Quantize::Columns { steps: Steps::Row, unscaled: None },
                everywhere as fn(&Program) -> Vec<_>,
            ),
            (blocks(Bits::Eight), on_ort),
            (blocks(Bits::Four), on_ort),
        ] {
            let mut sessions = load(&quantize(&[&program], integers).unwrap()[0]);
            let reference = run(&mut sessions[0]);
            for session in &mut sessions[1..] {
                let measured = compare(&run(session), &reference).unwrap();
                let what = format!(
                    "{name}, {}, {integers:?}: {:.1e}",
                    session.engine(),
                    measured.relative_l2
                );
                eprintln!("{what}");
                (n_all, n_near) = (n_all + 1, n_near + usize::from(measured.relative_l2 <= NEAR));
                if measured.relative_l2.is_nan() || measured.relative_l2 > SAME_STEPS {
                    failures.push(what);
                }
            }
        }
    }
    assert!(3 * n_near > 2 * n_all, "{n_near} of {n_all} are near");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
