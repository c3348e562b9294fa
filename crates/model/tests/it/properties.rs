//! What holds for every Transformer: prefixes, padding, steps, initial weights.

use cognate_eval::{Evaluator, Value};
use cognate_model::{Attentions, Config, Model, Names, Positions, Preset, Sinusoids, Stack, sinusoid};
use ndarray::{Array, ArrayD, Axis, IxDyn, Slice, array, s};
use std::collections::BTreeMap;

type Named = BTreeMap<String, Value<f64>>;

/// Two layers of width 16, so that a run takes no time.
fn small(positions: Positions) -> Model {
    let stack = Stack { n_layers: 2, heads: 4, d_ff: 24 };
    let mut config: Config = Preset::Tiny.config();
    (config.vocab, config.d_model, config.max_positions) = (50, 16, 40);
    (config.encoder, config.decoder, config.positions) = (stack, stack, positions);
    Model::initial(config, 7).unwrap()
}

fn run(program: &cognate_graph::Program, inputs: &Named) -> Named {
    Evaluator::<f64>::new(program).run(|name| inputs.get(name).cloned()).unwrap().into_iter().collect()
}

fn ids(values: ndarray::ArrayD<i64>) -> Value<f64> {
    Value::from(values)
}

fn floats(named: &Named, name: &str) -> ArrayD<f64> {
    named[name].as_float().unwrap().to_owned()
}

fn teacher_forced(model: &Model, source: ArrayD<i64>, mask: ArrayD<i64>, target: ArrayD<i64>) -> Named {
    let inputs = [("input_ids", source), ("attention_mask", mask), ("decoder_input_ids", target)];
    run(&model.teacher_forced().unwrap(), &inputs.map(|(name, value)| (name.to_string(), ids(value))).into())
}

fn assert_close(left: &ArrayD<f64>, right: &ArrayD<f64>, what: &str) {
    assert_eq!(left.shape(), right.shape(), "{what}");
    let error = left.iter().zip(right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(error < 1e-12, "{what}: {error:e}");
}

const KINDS: [Positions; 3] = [Positions::Sinusoidal(Sinusoids::Interleaved), Positions::Sinusoidal(Sinusoids::Halves), Positions::Learned];

#[test]
fn steps_give_the_teacher_forced_logits() {
    for positions in KINDS {
        let model = small(positions);
        let (source, mask) = (array![[4, 5, 6, 0, 2], [7, 8, 9, 10, 0]].into_dyn(), array![[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]].into_dyn());
        let target = array![[2, 11, 12, 13, 14], [2, 21, 22, 23, 24]];
        let whole = floats(&teacher_forced(&model, source.clone(), mask.clone(), target.clone().into_dyn()), "logits");

        let encoded = run(
            &model.encode().unwrap(),
            &[("input_ids".to_string(), ids(source)), ("attention_mask".to_string(), ids(mask.clone()))].into(),
        );
        let step = model.step(Attentions::Omit).unwrap();
        let mut state: Named = encoded.into_iter().filter(|(name, _)| name.starts_with("cross.")).collect();
        state.insert("attention_mask".into(), ids(mask));
        for layer_index in 0..2 {
            for name in Names::past(layer_index) {
                state.insert(name, Value::from(ArrayD::<f64>::zeros(IxDyn(&[2, 1, 4, 0, 4]))));
            }
        }
        // Chunks of one token, of two, and of two.
        for (first, last) in [(0, 1), (1, 3), (3, 5)] {
            state.insert("input_ids".into(), ids(target.slice(s![.., first..last]).to_owned().insert_axis(Axis(1)).into_dyn()));
            let outputs = run(&step, &state);
            let logits = floats(&outputs, "logits").index_axis_move(Axis(1), 0);
            assert_close(&logits, &whole.slice_axis(Axis(1), Slice::from(first..last)).to_owned(), "logits");
            for layer_index in 0..2 {
                for (past, present) in Names::past(layer_index).into_iter().zip(Names::present(layer_index)) {
                    state.insert(past, outputs[&present].clone());
                }
            }
        }
    }
}

#[test]
fn a_later_token_never_changes_an_earlier_output() {
    let model = small(KINDS[0]);
    let logits =
        |target: ArrayD<i64>| floats(&teacher_forced(&model, array![[4, 5, 0]].into_dyn(), array![[1, 1, 1]].into_dyn(), target), "logits");
    let (one, other) = (logits(array![[2, 11, 12, 13]].into_dyn()), logits(array![[2, 11, 40, 41]].into_dyn()));
    let head = |logits: &ArrayD<f64>| logits.slice_axis(Axis(1), Slice::from(..2)).to_owned();
    assert_close(&head(&one), &head(&other), "the first two outputs");
    let error = (&one - &other).mapv(f64::abs).slice_axis(Axis(1), Slice::from(2..)).sum();
    assert!(error > 1e-3, "the tokens themselves must matter: {error:e}");
}

#[test]
fn padding_never_changes_an_unpadded_position() {
    let model = small(KINDS[2]);
    let target = array![[2, 11, 12]].into_dyn();
    let bare = teacher_forced(&model, array![[4, 5, 0]].into_dyn(), array![[1, 1, 1]].into_dyn(), target.clone());
    for filler in [2, 33] {
        let padded =
            teacher_forced(&model, array![[4, 5, 0, filler, filler]].into_dyn(), array![[1, 1, 1, 0, 0]].into_dyn(), target.clone());
        assert_close(&floats(&padded, "logits"), &floats(&bare, "logits"), "logits");
        let states = floats(&padded, "encoder_hidden_states").slice_axis(Axis(1), Slice::from(..3)).to_owned();
        assert_close(&states, &floats(&bare, "encoder_hidden_states"), "unpadded encoder states");
    }
}

#[test]
fn attention_rows_sum_to_one() {
    let model = small(KINDS[0]);
    let outputs = teacher_forced(&model, array![[4, 5, 0, 2]].into_dyn(), array![[1, 1, 1, 0]].into_dyn(), array![[2, 11, 12]].into_dyn());
    for layer_index in 0..2 {
        let weights = floats(&outputs, &Names::cross_attentions(layer_index));
        let sums = weights.sum_axis(Axis(3));
        assert_close(&sums, &Array::ones(sums.raw_dim()), "row sums");
        assert_eq!(weights.slice_axis(Axis(3), Slice::from(3..)).sum(), 0.0, "weight on padding");
    }
}

#[test]
fn sinusoids_follow_the_formula() {
    // Vaswani et al. 2017, section 3.5, with d_model 8: PE(pos, 2i) = sin(pos / 10000^(2i/8)).
    let model = small(KINDS[0]);
    let table = model.weights().get("encoder.embed_positions.weight").unwrap().values::<f32>();
    for (position, pair) in [(0, 0), (1, 0), (5, 3), (39, 7)] {
        let angle = position as f64 * (-(10000f64.ln()) * 2.0 * pair as f64 / 16.0).exp();
        let row = &table[position * 16..][..16];
        assert!((f64::from(row[2 * pair]) - angle.sin()).abs() < 1e-6, "sine {position} {pair}");
        assert!((f64::from(row[2 * pair + 1]) - angle.cos()).abs() < 1e-6, "cosine {position} {pair}");
        assert_eq!(sinusoid(Sinusoids::Halves, position, 8 + pair, 16), sinusoid(Sinusoids::Interleaved, position, 2 * pair + 1, 16));
    }
}

#[test]
fn initial_weights_depend_on_the_seed_alone() {
    let config = Preset::Tiny.config();
    let values = |seed| Model::initial(config.clone(), seed).unwrap().weights().get("encoder.layers.0.fc1.weight").unwrap().values::<f32>();
    let (one, again, other) = (values(1), values(1), values(2));
    assert_eq!(one, again);
    assert_ne!(one, other);
    let bound = (6f32 / (128.0 + 256.0)).sqrt();
    assert!(one.iter().all(|value| value.abs() <= bound));
    let variance = one.iter().map(|value| value * value).sum::<f32>() / one.len() as f32;
    assert!((variance / (bound * bound / 3.0) - 1.0).abs() < 0.05, "variance {variance}");
}

#[test]
fn presets_have_the_papers_sizes() {
    // Table 3 gives 65 and 213 million for a vocabulary of about 37,000.
    for (preset, millions) in [(Preset::Base, 60..66), (Preset::Big, 205..215)] {
        let parameters = Model::preset(preset, 1).unwrap().parameters();
        assert!(millions.contains(&(parameters / 1_000_000)), "{}: {parameters}", preset.name());
    }
}
