//! Unit tests of `checkpoint`.

use cognate_bench::checkpoint::*;
use serde_json::{Map, Value};
use std::fs::{self};
use xtask::workspace::Workspace;

#[test]
fn the_shape_is_marian_base() {
    let tensors = tensors(BASE);
    assert_eq!(tensors.iter().map(Tensor::n_elements).sum::<usize>(), 60_554_496);
    assert!(
        cognate_bench::checkpoint::tensors(LARGE).iter().map(Tensor::n_elements).sum::<usize>()
            > 1_200_000_000
    );
    assert_eq!(tensors[0].name, "final_logits_bias");
    assert_eq!(tensors[1].name, "model.decoder.layers.0.encoder_attn.k_proj.bias");
    assert!(
        tensors.iter().any(|tensor| tensor.name == "model.encoder.layers.5.fc2.weight"
            && tensor.shape == [512, 2048])
    );
}

#[test]
fn the_names_are_those_of_the_bundled_checkpoint() {
    let path = Workspace::find().unwrap().root().join("testdata/multi30k-en-de/model.safetensors");
    let file = fs::read(path).unwrap();
    let length = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let real: Map<String, Value> = serde_json::from_slice(&file[8..8 + length]).unwrap();
    // The bundled one has 4 layers a side.
    let shallow = |name: &&String| !name.contains("layers.4.") && !name.contains("layers.5.");
    let made = tensors(BASE);
    let made: Vec<&String> = made.iter().map(|tensor| &tensor.name).filter(shallow).collect();
    assert_eq!(made, real.keys().skip(1).collect::<Vec<_>>());
}

#[test]
fn the_header_is_aligned_and_ends_with_the_last_value() {
    let tensors = tensors(BASE);
    let header = header(&tensors).unwrap();
    assert!(header.len().is_multiple_of(8));
    let json: Map<String, Value> = serde_json::from_slice(&header[8..]).unwrap();
    let (_, last) = json.iter().next_back().unwrap();
    assert_eq!(last["data_offsets"][1], 4 * 60_554_496);
}

#[test]
fn random_values_are_uniform() {
    let mut random = Xorshift(1);
    let values: Vec<f32> = (0..10_000).map(|_| random.draw()).collect();
    assert!(values.iter().all(|value| (-1.0..1.0).contains(value)));
    assert!(values.iter().sum::<f32>().abs() / 10_000.0 < 0.02);
}
