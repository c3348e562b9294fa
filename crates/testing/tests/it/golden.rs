//! Golden models.

use cognate_testing::Golden;

#[test]
fn marian_is_as_its_readme_says() {
    let golden = Golden::open("marian");
    for (name, shape) in [
        ("encoder_last_hidden_state", &[3, 11, 32][..]),
        ("logits", &[3, 7, 120]),
        ("cross_attentions", &[2, 3, 4, 7, 11]),
        ("beam4_scores", &[12]),
    ] {
        let array = golden.floats(name);
        assert_eq!(array.shape, shape, "{name}");
        assert_eq!(array.data.len(), shape.iter().product::<usize>(), "{name}");
    }
    let mask = golden.ids("attention_mask");
    let lengths: Vec<i64> = mask.data.chunks(11).map(|row| row.iter().sum()).collect();
    assert_eq!(lengths, [11, 7, 4]);
}

#[test]
#[should_panic(expected = "golden/marian: expected an f32 tensor greedy")]
fn a_missing_tensor_names_those_there_are() {
    Golden::open("marian").floats("greedy");
}
