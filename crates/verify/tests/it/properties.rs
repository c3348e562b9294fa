//! What holds for every Transformer, on every engine.

use crate::engines::{assert_close, everywhere, output};
use crate::research::CASES;
use cognate_graph::{Generator, Recipe};
use cognate_model::{
    Attentions, Initialisation, Model, Names, Positions, Preset, Sinusoids, Stack,
};
use cognate_runtime::{Session, Value, Values};
use cognate_testing::{golden, golden_models, testdata};
use ndarray::{Array2, ArrayD, Axis, IxDyn, Slice, array, s};
use std::sync::Arc;

const KINDS: [Positions; 2] =
    [Positions::Sinusoidal(Sinusoids::Interleaved), Positions::Learned { offset: 0 }];

/// Rounding of f32 through two layers; what a property forbids is a thousand times larger.
const ROUNDING: f64 = 2e-5;

/// The golden models are livelier: their logits are larger by one to two orders of magnitude.
const GOLDEN_ROUNDING: f64 = 2e-4;

/// Two layers of width 16, so that a run takes no time.
fn small(positions: Positions) -> Model {
    let stack = Stack { n_layers: 2, heads: 4, key_heads: 4, d_k: 4, d_ff: 24 };
    let mut config = Preset::Tiny.config();
    (config.vocab, config.source_vocab, config.d_model, config.max_positions) =
        (50, 50, 16, Some(40));
    (config.encoder, config.decoder, config.positions) = (stack, stack, positions);
    Model::initial(config, Initialisation::Glorot, 7).unwrap()
}

fn teacher_forced(
    session: &mut Box<dyn Session>,
    source: &Array2<i64>,
    mask: &Array2<i64>,
    target: &Array2<i64>,
) -> Values {
    let inputs = [("input_ids", source), ("attention_mask", mask), ("decoder_input_ids", target)];
    session
        .run(&inputs.into_iter().map(|(name, ids)| (name, ids.clone().into_dyn())).collect())
        .unwrap()
}

#[test]
fn steps_give_the_teacher_forced_logits() {
    for positions in KINDS {
        steps_of(&format!("{positions:?}"), &small(positions), ROUNDING);
    }
    for name in golden_models() {
        steps_of(&name, &Model::open(&golden(&name)).unwrap(), GOLDEN_ROUNDING);
    }
    for name in CASES {
        steps_of(name, &Model::open(&testdata("research").join(name)).unwrap(), ROUNDING);
    }
}

fn steps_of(name: &str, model: &Model, bound: f64) {
    let (source, mask) =
        (array![[4, 5, 6, 0, 2], [7, 8, 9, 10, 0]], array![[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]);
    let target = array![[2, 11, 12, 13, 14], [2, 21, 22, 23, 24]];
    let config = model.config();
    let (source, target) = (
        source.mapv(|id| id % config.source_vocab as i64),
        target.mapv(|id| id % config.vocab as i64),
    );
    let past_shape = IxDyn(&[2, 1, config.decoder.key_heads, 0, config.decoder.d_k]);
    let whole = everywhere(&model.teacher_forced().unwrap());
    let encode = everywhere(&model.encode().unwrap());
    let step = everywhere(&model.step(Attentions::Omit).unwrap());
    for ((mut whole, mut encode), mut step) in whole.into_iter().zip(encode).zip(step) {
        let expected = output(&teacher_forced(&mut whole, &source, &mask, &target), "logits");
        let encoder_inputs =
            [("input_ids", source.clone().into_dyn()), ("attention_mask", mask.clone().into_dyn())];
        let encoded = encode.run(&encoder_inputs.into_iter().collect()).unwrap();
        let mut state: Values = encoded
            .iter()
            .filter(|(name, _)| name.starts_with("cross."))
            .map(|(name, value)| (name, value.clone()))
            .collect();
        state.insert("attention_mask", mask.clone().into_dyn());
        for name in (0..config.decoder.n_layers).flat_map(Names::past) {
            state.insert(name, ArrayD::<f32>::zeros(past_shape.clone()));
        }
        // A token, then two at once, then two: what came before is always the past.
        for (first, last) in [(0, 1), (1, 3), (3, 5)] {
            state.insert(
                "input_ids",
                target.slice(s![.., first..last]).to_owned().insert_axis(Axis(1)).into_dyn(),
            );
            let mut outputs = step.run(&state).unwrap();
            let logits = output(&outputs, "logits").index_axis_move(Axis(1), 0);
            let expected = expected.slice_axis(Axis(1), Slice::from(first..last)).to_owned();
            assert_close(
                &logits,
                &expected,
                bound,
                &format!("{}, {name}, tokens {first}..{last}", step.engine()),
            );
            for layer_index in 0..config.decoder.n_layers {
                for (past, present) in
                    Names::past(layer_index).into_iter().zip(Names::present(layer_index))
                {
                    let held: Value = outputs.remove(&present).unwrap();
                    state.insert(past, held);
                }
            }
        }
    }
}

#[test]
fn a_later_token_never_changes_an_earlier_output() {
    for mut session in everywhere(&small(KINDS[0]).teacher_forced().unwrap()) {
        let mut logits = |target| {
            output(
                &teacher_forced(&mut session, &array![[4, 5, 0]], &array![[1, 1, 1]], &target),
                "logits",
            )
        };
        let (one, other) = (logits(array![[2, 11, 12, 13]]), logits(array![[2, 11, 40, 41]]));
        let head = |logits: &ArrayD<f64>| logits.slice_axis(Axis(1), Slice::from(..2)).to_owned();
        assert_close(&head(&one), &head(&other), ROUNDING, session.engine());
        let difference = (&one - &other).mapv(f64::abs).slice_axis(Axis(1), Slice::from(2..)).sum();
        assert!(
            difference > 0.1,
            "{}: the tokens themselves must matter: {difference:e}",
            session.engine()
        );
    }
}

#[test]
fn padding_never_changes_an_unpadded_position() {
    for mut session in everywhere(&small(KINDS[1]).teacher_forced().unwrap()) {
        let target = array![[2, 11, 12]];
        let bare = teacher_forced(&mut session, &array![[4, 5, 0]], &array![[1, 1, 1]], &target);
        for filler in [2, 33] {
            let padded = teacher_forced(
                &mut session,
                &array![[4, 5, 0, filler, filler]],
                &array![[1, 1, 1, 0, 0]],
                &target,
            );
            assert_close(
                &output(&padded, "logits"),
                &output(&bare, "logits"),
                ROUNDING,
                &format!("{}: logits", session.engine()),
            );
            let states = output(&padded, "encoder_hidden_states")
                .slice_axis(Axis(1), Slice::from(..3))
                .to_owned();
            assert_close(
                &states,
                &output(&bare, "encoder_hidden_states"),
                ROUNDING,
                &format!("{}: encoder states", session.engine()),
            );
        }
    }
}

#[test]
fn attention_rows_sum_to_one() {
    for mut session in everywhere(&small(KINDS[0]).teacher_forced().unwrap()) {
        let outputs = teacher_forced(
            &mut session,
            &array![[4, 5, 0, 2]],
            &array![[1, 1, 1, 0]],
            &array![[2, 11, 12]],
        );
        for layer_index in 0..2 {
            let weights = output(&outputs, &Names::cross_attentions(layer_index));
            let sums = weights.sum_axis(Axis(3));
            assert_close(&sums, &ArrayD::ones(sums.raw_dim()), 1e-6, session.engine());
            assert_eq!(
                weights.slice_axis(Axis(3), Slice::from(3..)).sum(),
                0.0,
                "{}: weight on padding",
                session.engine()
            );
        }
    }
}

#[derive(Debug)]
struct Zeros;

impl Generator for Zeros {
    fn fill(&self, _first: usize, values: &mut [f32]) {
        values.fill(0.0);
    }
}

#[test]
fn self_attention_without_positions_is_permutation_equivariant() {
    let model = small(Positions::Learned { offset: 0 });
    let path = "encoder.embed_positions.weight";
    let without_positions = model.weights().iter().map(|(name, recipe)| {
        let recipe = if name == path {
            Recipe::generated(Arc::new(Zeros), recipe.shape())
        } else {
            recipe.clone()
        };
        (name.to_string(), recipe)
    });
    let blind =
        Model::with_weights(model.config_json().into(), without_positions.collect()).unwrap();
    let order = [3, 0, 4, 2, 1];
    let ids = array![[4, 5, 6, 7, 8]];
    let encode = |session: &mut Box<dyn Session>, ids: Array2<i64>| {
        let inputs =
            [("input_ids", ids.into_dyn()), ("attention_mask", Array2::ones((1, 5)).into_dyn())];
        output(&session.run(&inputs.into_iter().collect()).unwrap(), "encoder_hidden_states")
    };
    for (mut blind, mut seeing) in
        everywhere(&blind.encode().unwrap()).into_iter().zip(everywhere(&model.encode().unwrap()))
    {
        let permuted_ids = ids.select(Axis(1), &order);
        let permuted = |states: ArrayD<f64>| states.select(Axis(1), &order);
        assert_close(
            &encode(&mut blind, permuted_ids.clone()),
            &permuted(encode(&mut blind, ids.clone())),
            ROUNDING,
            blind.engine(),
        );
        let difference = (encode(&mut seeing, permuted_ids)
            - permuted(encode(&mut seeing, ids.clone())))
        .mapv(f64::abs)
        .sum();
        assert!(difference > 0.1, "{}: positions must matter: {difference:e}", seeing.engine());
    }
}
