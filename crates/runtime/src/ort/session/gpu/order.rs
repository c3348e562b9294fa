//! The order of elements of keys on a GPU: `[rows, heads, d_k / n, places, n]`, where `n` elements
//! have 16 bytes.

use ::ort::value::{DynTensor, TensorElementType};
use ndarray::ArrayD;

/// The order of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ort::session) enum Order {
    Declared,
    /// That of keys on a GPU.
    Interleaved,
}

/// The elements of keys that are together on a GPU.
pub(super) fn interleaved(tensor: &DynTensor) -> usize {
    if *tensor.data_type() == TensorElementType::Float16 { 8 } else { 4 }
}

/// `[rows, heads, places, d_k]` in the order of keys on a GPU, with `n` elements together.
pub(super) fn interleave(keys: ArrayD<f32>, n: usize) -> ArrayD<f32> {
    reordered(keys, |[rows, heads, places, d_k]| [rows, heads, places, d_k / n, n])
}

/// The opposite of [`interleave`].
pub(in crate::ort::session) fn in_declared_order(
    keys: ArrayD<f32>,
    tensor: &DynTensor,
) -> ArrayD<f32> {
    let n = interleaved(tensor);
    reordered(keys, |[rows, heads, places, d_k]| [rows, heads, d_k / n, places, n])
}

/// Exchanges two of five axes.
fn reordered(keys: ArrayD<f32>, axes: impl Fn([usize; 4]) -> [usize; 5]) -> ArrayD<f32> {
    let shape: [usize; 4] = keys.shape().try_into().expect("keys have four axes");
    let parts = keys.into_shape_with_order(axes(shape)).expect("as many elements");
    let turned = parts.permuted_axes([0, 1, 3, 2, 4]).as_standard_layout().into_owned();
    turned.into_shape_with_order(shape).expect("as many elements").into_dyn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    /// As ONNX Runtime's BeamSearch orders keys for the operator: `n` numbers of a position follow
    /// those of the position before.
    #[test]
    fn keys_are_interleaved_and_back() {
        let keys = array![[[[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]]].into_dyn();
        let expected = array![[[[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]]].into_dyn();
        let found = interleave(keys.clone(), 2);
        assert_eq!(found, expected);
        let back = reordered(found, |[rows, heads, places, d_k]| [rows, heads, d_k / 2, places, 2]);
        assert_eq!(back, keys);
    }
}
