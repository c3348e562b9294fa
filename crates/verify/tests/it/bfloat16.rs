//! Models in bfloat16, by our operators and by those of ONNX Runtime.

use crate::engines::{models_with_shared_caches, output, own_and_plain};
use crate::golden::array;
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::bfloat16::in_bfloat16;
use cognate_passes::fuse::fuse;
use cognate_runtime::{Session, Values};
use cognate_testing::{Golden, golden};
use cognate_verify::{CLOSE, compare};

/// What engines make of a golden model's source, as far from the evaluator as a few numbers that
/// lie so near to the middle of two that the order of a sum decides which is nearer: much less far
/// than the rounding itself takes the evaluator.
#[test]
fn engines_compute_what_the_graph_says() {
    for name in models_with_shared_caches() {
        let (model, expected) = (Model::open(&golden(&name)).unwrap(), Golden::open(&name));
        let mut inputs = Values::new();
        for input in ["input_ids", "attention_mask"] {
            inputs.insert(input, array(expected.ids(input)));
        }
        let run = |session: &mut Box<dyn Session>| {
            output(&session.run(&inputs).unwrap(), "encoder_hidden_states")
        };
        let whole = fuse(&model.graphs(Layout::SharedCache, Attentions::Omit).unwrap()[0]).unwrap();
        let in_f32 = run(&mut own_and_plain(&whole)[0]);
        let mut sessions = own_and_plain(&in_bfloat16(&whole).unwrap());
        let reference = run(&mut sessions[0]);
        let rounding = compare(&reference, &in_f32).unwrap().relative_l2;
        assert!(rounding > 100.0 * CLOSE.relative_l2, "{name}: {rounding:e}");
        for session in &mut sessions[1..] {
            let found = compare(&run(session), &reference).unwrap().relative_l2;
            assert!(
                found < rounding / 4.0,
                "{name}, {}: {found:e}, where rounding itself is {rounding:e}",
                session.engine()
            );
        }
    }
}
