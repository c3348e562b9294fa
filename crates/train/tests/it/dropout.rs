//! Dropout: nothing at rate 0, the same elements for the same seed on every engine, the right
//! share, no pattern.

use crate::answers::{Case, EVERYWHERE, as_in, gradient_program, norm, options_of, weight};
use cognate_eval::{Evaluator, Value};
use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_graph::{DType, Op, Program};
use cognate_model::{DropoutRates, Loss, LossNames};
use cognate_runtime::{Device, Options, Reference, Runtime, Session, Source, Values, available};
use cognate_verify::{CLOSE, compare};
use ndarray::{Array2, ArrayD, arr0};

fn batch(case: &Case, session: &dyn Session, seed: i64) -> Values {
    let mut inputs = case.tokens();
    case.model
        .learned()
        .for_each(|path| inputs.insert(path, as_in(session, weight(&case.model, path))));
    inputs.insert(LossNames::DROPOUT_SEED, arr0(seed).into_dyn());
    inputs
}

#[test]
fn rate_zero_is_the_graph_without() {
    let case = Case::open("paper");
    let graph = |dropout| {
        case.model
            .loss(&Loss { label_smoothing: 0.1, dropout, ..Loss::default() })
            .unwrap()
            .graph()
            .clone()
    };
    assert_eq!(graph(DropoutRates::paper(0.0)), graph(DropoutRates::default()));
    assert!(
        graph(DropoutRates::default())
            .inputs()
            .all(|(_, node)| node.name != LossNames::DROPOUT_SEED)
    );
    let error = case
        .model
        .loss(&Loss { label_smoothing: 0.1, dropout: DropoutRates::paper(1.0), ..Loss::default() })
        .unwrap_err();
    insta::assert_snapshot!(error, @"dropout: embedding: expected 0 to 0.95, found 1");
    let error = case.model.loss(&Loss { label_smoothing: -0.1, ..Loss::default() }).unwrap_err();
    insta::assert_snapshot!(error, @"label_smoothing: expected 0 or more and less than 1, found -0.1");
}

#[test]
fn every_engine_leaves_out_the_same() {
    let case = Case::open("paper");
    let program = gradient_program(
        &case.model,
        &Loss { label_smoothing: 0.1, dropout: EVERYWHERE, ..Loss::default() },
    );
    let folder = tempfile::tempdir().unwrap();
    let (metadata, graphs) = (Metadata::default(), [("gradients.onnx", &program)]);
    write_folder(
        folder.path(),
        &Export::new(&graphs, "weights.onnx_data", &metadata),
        &[],
        Existing::Replace,
    )
    .unwrap();
    let mut sessions =
        vec![Reference::F64.load(&Source::Graph(program.clone()), &Options::default()).unwrap()];
    for engine in available(Device::Cpu).unwrap() {
        for options in options_of(&*engine) {
            let source = Source::Onnx(folder.path().join("gradients.onnx"));
            sessions.push(engine.load(&source, &options).unwrap());
        }
    }
    let mut failures = Vec::new();
    let mut losses = Vec::new();
    for seed in [1, 2, 1, (1 << 31) - 1, -7] {
        let inputs = batch(&case, &*sessions[0], seed);
        let expected = sessions[0].run(&inputs).unwrap();
        losses.push(
            expected.get(LossNames::LOSS).unwrap().to_f64().unwrap().first().copied().unwrap(),
        );
        for session in &mut sessions[1..] {
            let found = session.run(&batch(&case, &**session, seed)).unwrap();
            for (name, value) in expected.iter().filter(|(name, _)| !name.ends_with("k_proj.bias"))
            {
                let measured =
                    compare(&found.get(name).unwrap().to_f64().unwrap(), &value.to_f64().unwrap())
                        .unwrap();
                if !measured.within(CLOSE) {
                    failures.push(format!(
                        "{}, seed {seed}: {name}: {:.1e}",
                        session.engine(),
                        measured.relative_l2
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(losses[0], losses[2], "the same seed");
    assert!(
        losses[0] != losses[1] && losses[1] != losses[3] && losses[3] != losses[4],
        "other seeds: {losses:?}"
    );
}

/// R-Drop against its definition, from the logits of a batch that has each sentence twice.
#[test]
fn the_divergence_of_two_passes_is_that_of_its_definition() {
    let (case, alpha) = (Case::open("paper"), 0.7);
    let program = |consistency| {
        case.model.loss(&Loss { label_smoothing: 0.1, dropout: EVERYWHERE, consistency }).unwrap()
    };
    let evaluate = |program: &Program, tokens: &Values| {
        let mut logits = None;
        let input = |name: &str| match name {
            LossNames::DROPOUT_SEED => Some(Value::from(arr0(5i64).into_dyn())),
            _ => tokens.get(name).map(|value| Value::from(integers(value))),
        };
        let observe = |_: &cognate_graph::Node, value: &Value<f64>| {
            let shape = value.shape();
            if shape.len() == 3 && shape[2] == case.model.config().vocab {
                logits = value.as_float().map(|value| value.to_owned());
            }
        };
        let outputs = Evaluator::<f64>::new(program).run_observed(input, observe).unwrap();
        let number = |name: &str| {
            outputs.iter().find(|(found, _)| found == name).unwrap().1.as_float().unwrap().sum()
        };
        (number(LossNames::LOSS), number(LossNames::NEGATIVE_LOG_LIKELIHOOD), logits.unwrap())
    };
    let mut twice = Values::new();
    for (name, value) in case.tokens().iter() {
        let rows = integers(value);
        twice.insert(
            name,
            ndarray::concatenate(ndarray::Axis(0), &[rows.view(), rows.view()]).unwrap(),
        );
    }
    let (loss, plain, logits) = evaluate(&program(0.0), &twice);
    let labels = integers(twice.get(LossNames::LABELS).unwrap());
    let n_labels = labels.len() / 2;
    let rows: Vec<Vec<f64>> = logits.rows().into_iter().map(|row| row.to_vec()).collect();
    let logarithms = |row: &Vec<f64>| {
        let sum = row.iter().map(|logit| logit.exp()).sum::<f64>().ln();
        row.iter().map(|logit| logit - sum).collect::<Vec<_>>()
    };
    let divergence = |one: &[f64], other: &[f64]| {
        one.iter().zip(other).map(|(one, other)| one.exp() * (one - other)).sum::<f64>()
    };
    let of_label = |label: usize| {
        let [one, other] = [&rows[label], &rows[label + n_labels]].map(logarithms);
        divergence(&one, &other) + divergence(&other, &one)
    };
    let counted = labels.iter().take(n_labels).enumerate().filter(|(_, label)| **label >= 0);
    let divergence: f64 = counted.map(|(label, _)| of_label(label)).sum();
    assert!(divergence > 0.0);
    let (found, found_plain, _) = evaluate(&program(alpha), &case.tokens());
    let expected = loss / 2.0 + f64::from(alpha) / 4.0 * divergence;
    assert!((found / expected - 1.0).abs() < CLOSE.relative_l2, "{found}, expected {expected}");
    assert!(
        (found_plain / plain * 2.0 - 1.0).abs() < CLOSE.relative_l2,
        "{found_plain}, expected half of {plain}"
    );
    let error = case.model.loss(&Loss { consistency: 1.0, ..Loss::default() }).unwrap_err();
    insta::assert_snapshot!(error, @"consistency: expected 0, or a number above 0 with dropout, found 1");
}

fn integers(value: &cognate_runtime::Value) -> ArrayD<i64> {
    match value {
        cognate_runtime::Value::I64(array) => array.clone(),
        _ => panic!("tokens are integers"),
    }
}

/// What another element than the one in this row and column is, if there is one.
type Neighbour = fn(&Array2<f64>, usize, usize) -> Option<f64>;

fn at(mask: &Array2<f64>, row: usize, column: usize) -> Option<f64> {
    mask.get((row, column)).copied()
}

/// Which elements are kept, for each place in the model, as matrices of rows.
fn masks(program: &Program, inputs: &Values) -> Vec<Array2<f64>> {
    let mut masks = Vec::new();
    let input = |name: &str| {
        Some(match inputs.get(name)? {
            cognate_runtime::Value::I64(array) => Value::from(array.clone()),
            other => Value::from(other.to_f64().unwrap()),
        })
    };
    let observe = |node: &cognate_graph::Node, value: &Value<f64>| {
        let is_mask = node.name.starts_with("dropout/Sub")
            && node.ty.dtype == DType::F32
            && matches!(node.op, Op::Binary(_));
        if is_mask {
            let mask = value.as_float().unwrap();
            let width = *mask.shape().last().unwrap();
            let rows = mask.to_shape((mask.len() / width, width)).unwrap();
            masks.push(rows.into_owned());
        }
    };
    Evaluator::<f64>::new(program).run_observed(input, observe).unwrap();
    masks
}

#[test]
fn masks_have_the_right_share_and_no_pattern() {
    let case = Case::open("paper");
    let rate = 0.25;
    let program = case
        .model
        .loss(&Loss {
            dropout: DropoutRates { activation: rate, ..DropoutRates::paper(rate) },
            ..Loss::default()
        })
        .unwrap();
    let rate = f64::from((rate * 509.0).round()) / 509.0;
    let (batch, len) = (24, 16);
    let mut all: Vec<Array2<f64>> = Vec::new();
    for seed in 0..4 {
        let mut inputs = Values::new();
        for name in
            [LossNames::SOURCE, LossNames::SOURCE_MASK, LossNames::TARGET, LossNames::LABELS]
        {
            inputs.insert(name, ArrayD::<i64>::ones(vec![batch, len]));
        }
        inputs.insert(LossNames::DROPOUT_SEED, arr0(seed).into_dyn());
        all.extend(masks(&program, &inputs));
    }
    // Two embeddings; of two layers each, two and three sublayers and an activation.
    assert_eq!(all.len(), 4 * (2 + 2 * 3 + 2 * 4));
    assert!(all.iter().flatten().all(|&kept| kept == 0.0 || kept == 1.0));
    // In units of standard deviations of independent masks.
    let deviations = |mean: f64, probability: f64, count: f64| {
        (mean - probability).abs() / (probability * (1.0 - probability) / count).sqrt()
    };
    let dropped: Vec<_> = all.iter().map(|mask| mask.mapv(|kept| 1.0 - kept)).collect();
    let mut failures = Vec::new();
    let mut check = |what: &str, products: Vec<f64>, probability: f64| {
        let (sum, count) = (products.iter().sum::<f64>(), products.len() as f64);
        let found = deviations(sum / count, probability, count);
        eprintln!(
            "{what}: {:.5} of {count}, {probability:.5} expected: {found:.1} deviations",
            sum / count
        );
        if found > 4.0 {
            failures.push(format!("{what}: {:.5} of {count} where {probability:.5} is expected: {found:.1} deviations", sum / count));
        }
    };
    check("one", dropped.iter().flatten().copied().collect(), rate);
    let pairs = |next: Neighbour| -> Vec<f64> {
        let of = |mask: &Array2<f64>| {
            mask.indexed_iter()
                .filter_map(|((row, column), &here)| Some(here * next(mask, row, column)?))
                .collect::<Vec<_>>()
        };
        dropped.iter().flat_map(of).collect()
    };
    check("two columns", pairs(|mask, row, column| at(mask, row, column + 1)), rate * rate);
    check("two rows", pairs(|mask, row, column| at(mask, row + 1, column)), rate * rate);
    check("two far rows", pairs(|mask, row, column| at(mask, row + 97, column)), rate * rate);
    check("diagonal", pairs(|mask, row, column| at(mask, row + 1, column + 1)), rate * rate);
    let rectangle: Neighbour = |mask, row, column| {
        Some(
            at(mask, row + 1, column)?
                * at(mask, row, column + 1)?
                * at(mask, row + 1, column + 1)?,
        )
    };
    check("four corners", pairs(rectangle), rate.powi(4));
    // The same element at two places of the model, and under two seeds.
    let both = |left: &Array2<f64>, right: &Array2<f64>| {
        left.iter().zip(right).map(|(left, right)| left * right).collect::<Vec<_>>()
    };
    let same_shape = |left: usize, right: usize| dropped[left].dim() == dropped[right].dim();
    let places: Vec<_> = (1..dropped.len())
        .filter(|&index| same_shape(index - 1, index))
        .flat_map(|index| both(&dropped[index - 1], &dropped[index]))
        .collect();
    check("two places", places, rate * rate);
    let per_seed = dropped.len() / 4;
    let seeds: Vec<_> = (per_seed..dropped.len())
        .flat_map(|index| both(&dropped[index - per_seed], &dropped[index]))
        .collect();
    check("two seeds", seeds, rate * rate);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(norm(&dropped[0].clone().into_dyn()) > 0.0);
}
