//! Names of inputs and outputs.

use cognate_model::interface::*;

#[test]
fn layers_fold() {
    assert_eq!(
        without_layer("decoder.layers.11.self_attn.q_proj.bias"),
        "decoder.layers.{l}.self_attn.q_proj.bias"
    );
    assert_eq!(without_layer("shared.weight"), "shared.weight");
}

#[test]
fn pasts_presents_and_cross_values_belong_together() {
    let [past, _] = Names::past(3);
    let [present, _] = Names::present(3);
    let [cross, _] = Names::cross(3);
    assert_eq!((present_of(&past), cross_of(&past)), (Some(present.clone()), Some(cross.clone())));
    assert_eq!((past_of(&present), past_of(&cross)), (Some(past.clone()), Some(past.clone())));
    assert!(is_past(&past) && is_cross(&cross) && !is_past(&present) && !is_cross(&past));
    for (past, present) in HuggingFaceNames::past(1).iter().zip(HuggingFaceNames::present(1)) {
        assert_eq!((is_past(past), present_of(past)), (true, Some(present)));
    }
}
