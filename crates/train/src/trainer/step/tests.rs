//! Blocks of state, which only GPUs use, on the processor.
#![allow(clippy::unwrap_used)]

use super::*;
use cognate_model::DropoutRates;
use cognate_runtime::{Device, Ort};
use ndarray::{Array2, array};

fn arrays(first: i64) -> Arrays {
    Arrays {
        input_ids: array![[5, first, 4, 0], [7, 6, 0, 2]],
        attention_mask: array![[1, 1, 1, 1], [1, 1, 1, 0]],
        decoder_input_ids: array![[2, 4, first], [2, 8, 2]],
        labels: array![[4, first, 0], [8, 0, -100]],
        label_mask: array![[1, 1, 1], [1, 1, 0]],
    }
}

fn step(ort: &Ort, model: &Model, in_blocks: bool, in_half: bool) -> Step<'static> {
    step_with(Options::default(), ort, model, [in_blocks, in_half])
}

fn step_with(
    options: Options,
    ort: &Ort,
    model: &Model,
    [in_blocks, in_half]: [bool; 2],
) -> Step<'static> {
    let recipes = Recipes {
        model,
        learned: Learned::all(model),
        loss: Loss { label_smoothing: 0.1, dropout: DropoutRates::paper(0.1), ..Loss::default() },
        optimiser: Optimiser { average: Some(0.75), ..Optimiser::default() },
        in_blocks,
        in_half,
    };
    let options = Options { training: true, ..options };
    Step::new(&recipes, ort, &options, &crate::ranks::Alone).unwrap()
}

/// An update by two batches.
fn update(step: &mut Step<'_>) -> (Sums, Updated) {
    for first in [9, 11] {
        let found = step.add_gradients(&arrays(first), first).unwrap();
        step.sum += found;
    }
    (step.sum, step.update(1e-3).unwrap())
}

fn state(step: &Step<'_>) -> Vec<(String, ArrayD<f32>)> {
    let mut state: Vec<_> = step
        .state()
        .filter(|(name, _)| *name != LOSS_SCALE)
        .map(|(name, value)| (name.to_owned(), value.to_f32().unwrap()))
        .collect();
    state.sort_by(|(a, _), (b, _)| a.cmp(b));
    state
}

/// The largest distance of a tensor, relative to its norm.
fn distance(found: &[(String, ArrayD<f32>)], expected: &[(String, ArrayD<f32>)]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm =
        |array: &ArrayD<f32>| array.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let distances = found.iter().zip(expected).map(|((name, found), (other, expected))| {
        assert_eq!(name, other);
        norm(&(found - expected)) / norm(expected).max(1e-12)
    });
    distances.fold(0.0, f64::max)
}

fn ort() -> Option<(Ort, Model)> {
    // The process loads one library.
    let tests_cuda = std::env::var_os("COGNATE_TEST_CUDA").is_some();
    let device = if tests_cuda { Device::CUDA } else { Device::Cpu };
    let Ok(ort) = Ort::find_for(device) else {
        cognate_testing::skip("no library of ONNX Runtime; `cargo xtask onnxruntime` installs it");
        return None;
    };
    Some((ort, Model::open(&cognate_testing::bundled_checkpoint()).unwrap()))
}

#[test]
fn blocks_are_updated_as_single_weights() {
    let Some((ort, model)) = ort() else { return };
    let (mut single, mut together) =
        (step(&ort, &model, false, false), step(&ort, &model, true, false));
    assert_eq!(distance(&state(&together), &state(&single)), 0.0);
    for _ in 0..3 {
        let (sums, Updated { norm, is_skipped }) = update(&mut single);
        let (found, updated) = update(&mut together);
        assert!(!is_skipped && !updated.is_skipped);
        assert!((found.loss / sums.loss - 1.0).abs() < 1e-5, "{found:?} {sums:?}");
        // ONNX Runtime sums a long vector on the processor one by one, in f32.
        assert!((updated.norm / norm - 1.0).abs() < 1e-4, "{updated:?} {norm}");
    }
    let error = distance(&state(&together), &state(&single));
    assert!(error < 1e-6, "{error:e}");

    let held = [arrays(9)];
    let sums = single.evaluate(&held).unwrap();
    let found = together.evaluate(&held).unwrap();
    assert!((found.loss / sums.loss - 1.0).abs() < 1e-6, "{found:?} {sums:?}");

    // A restored state goes on as the one that was saved.
    let saved = state(&together);
    let mut restored = step(&ort, &model, true, false);
    let value = |name: &str, _: &[usize]| {
        Ok(saved.iter().find(|(known, _)| known == name).unwrap().1.clone())
    };
    restored.restore(3, value).unwrap();
    assert_eq!(distance(&state(&restored), &state(&together)), 0.0);
    update(&mut restored);
    update(&mut together);
    assert_eq!(distance(&state(&restored), &state(&together)), 0.0);
}

#[test]
fn an_overflow_in_half_precision_skips_the_update() {
    let Some((ort, model)) = ort() else { return };
    let (mut single, mut half) = (step(&ort, &model, false, false), step(&ort, &model, true, true));
    let (sums, Updated { norm, .. }) = update(&mut single);
    let (found, updated) = update(&mut half);
    assert!((found.loss / sums.loss - 1.0).abs() < 1e-2, "{found:?} {sums:?}");
    assert!((updated.norm / norm - 1.0).abs() < 1e-2, "{updated:?} {norm}");

    let factor = |step: &Step<'_>| Scale::in_state(&step.rest).unwrap().factor;
    let mut large = Scale::in_state(&half.rest).unwrap();
    large.factor = 1e9;
    large.put(&mut half.rest);
    let before = state(&half);
    let (_, updated) = update(&mut half);
    assert!(updated.is_skipped && !updated.norm.is_finite());
    assert_eq!(distance(&state(&half), &before), 0.0);
    assert_eq!(factor(&half), 5e8);
    large.factor = 8.0;
    large.put(&mut half.rest);
    assert!(!update(&mut half).1.is_skipped);
    assert!(distance(&state(&half), &before) > 0.0);
}

/// Rounding to 8 bits changes a little, if the processor multiplies bfloat16.
#[test]
fn bfloat16_trains_as_single_precision_does() {
    let Some((ort, model)) = ort() else { return };
    let ids = |first: i64| {
        Array2::from_shape_fn((8, 6), |(row, column)| first + (row * 7 + column * 11) as i64 % 40)
    };
    // Enough rows for products in bfloat16.
    let batch = Arrays {
        input_ids: ids(4),
        attention_mask: Array2::ones((8, 6)),
        decoder_input_ids: ids(5),
        labels: ids(6),
        label_mask: Array2::ones((8, 6)),
    };
    let options = Options { in_bf16: true, ..Options::default() };
    let steps = [Options::default(), options].map(|options| {
        let mut step = step_with(options, &ort, &model, [false; 2]);
        (0..3)
            .map(|seed| {
                let sums = step.add_gradients(&batch, seed).unwrap();
                step.sum += sums;
                [sums.loss, step.update(1e-3).unwrap().norm]
            })
            .collect::<Vec<_>>()
    });
    for (expected, found) in steps[0].as_flattened().iter().zip(steps[1].as_flattened()) {
        let error = (found / expected - 1.0).abs();
        assert!(error < 1e-2, "{steps:?}");
        assert_eq!(error > 0.0, cognate_runtime::multiplies_bf16(), "{steps:?}");
    }
}

/// Small differences grow: Adam divides gradients near 0 by their own size.
#[test]
fn a_gpu_trains_as_the_processor_does() {
    if !cognate_testing::cuda() {
        return;
    }
    let (ort, model) = ort().expect("a library with CUDA");
    for (in_half, bound) in [(false, 1e-3), (true, 2e-2)] {
        let mut expected = step(&ort, &model, false, false);
        let options = Options { device: Device::CUDA, ..Options::default() };
        let mut found = step_with(options, &ort, &model, [true, in_half]);
        assert!(found.left_to_processor().is_empty(), "{:?}", found.left_to_processor());
        for _ in 0..3 {
            let (expected, found) = (update(&mut expected), update(&mut found));
            assert!((found.0.loss / expected.0.loss - 1.0).abs() < bound, "{found:?} {expected:?}");
            assert!((found.1.norm / expected.1.norm - 1.0).abs() < bound, "{found:?} {expected:?}");
        }
    }
}
