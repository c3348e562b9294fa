//! The gradient of a convolution: two convolutions.

use cognate_graph::{Conv, Dim, Tensor, concat};

/// With `z` the gradient `dy` with `stride - 1` zeros between its elements: `dW = x * z` over the
/// batch, and `dx = z * W'` with the kernel reversed. `None` if the padding extends beyond the
/// kernel.
pub(super) fn conv<'b>(
    conv: &Conv,
    inputs: &[Tensor<'b>],
    dy: Tensor<'b>,
) -> Option<Vec<Tensor<'b>>> {
    let (x, weight, axes) = (inputs[0], inputs[1], 2..conv.strides.len() + 2);
    let kernel = axes
        .clone()
        .map(|axis| usize::try_from(weight.dim(axis).as_constant()?).ok())
        .collect::<Option<Vec<_>>>()?;
    let pads = kernel
        .iter()
        .zip(&conv.pads)
        .map(|(kernel, pad)| (kernel - 1).checked_sub(*pad))
        .collect::<Option<Vec<_>>>()?;
    let spread =
        axes.clone().zip(&conv.strides).fold(dy, |dy, (axis, &stride)| spread(dy, axis, stride));
    let step = |pads| Conv { strides: vec![1; kernel.len()], pads };
    let to_weight = swapped(swapped(x).conv(swapped(spread), None, step(conv.pads.clone())));
    // Elements of `x` that the strides skip are under no kernel position.
    let to_weight = axes.clone().fold(to_weight, |all, axis| all.slice(axis, 0, weight.dim(axis)));
    let reversed = axes
        .clone()
        .zip(&kernel)
        .fold(weight, |weight, (axis, &size)| reversed(weight, axis, size));
    let to_x = spread.conv(swapped(reversed), None, step(pads));
    let to_x = axes.clone().fold(to_x, |part, axis| extended(part, axis, &x.dim(axis)));
    let others: Vec<_> = [0].into_iter().chain(axes).collect();
    let bias = (inputs.len() > 2).then(|| dy.sum(&others).reshape([dy.dim(1)]));
    Some([to_x, to_weight].into_iter().chain(bias).collect())
}

/// The first two axes exchanged.
fn swapped(x: Tensor<'_>) -> Tensor<'_> {
    let order: Vec<_> = [1, 0].into_iter().chain(2..x.ty().shape.rank()).collect();
    x.transpose(&order)
}

/// With `stride - 1` zeros between the elements of an axis.
fn spread(x: Tensor<'_>, axis: usize, stride: usize) -> Tensor<'_> {
    if stride == 1 {
        return x;
    }
    let mut dims = x.ty().shape.dims().to_vec();
    dims.insert(axis + 1, Dim::from(1));
    let elements = x.reshape(dims.clone());
    dims[axis + 1] = Dim::from(stride - 1);
    let all = concat(axis + 1, &[elements, x.number(0.0).expand(dims.clone())]);
    dims.remove(axis + 1);
    dims[axis] = &dims[axis] * stride;
    let end = &dims[axis] - (stride - 1);
    all.reshape(dims).slice(axis, 0, end)
}

/// The elements of an axis in the opposite order.
fn reversed(x: Tensor<'_>, axis: usize, size: usize) -> Tensor<'_> {
    if size == 1 {
        return x;
    }
    // Exchanging two axes twice restores them.
    let mut order: Vec<_> = (0..x.ty().shape.rank()).collect();
    order.swap(0, axis);
    let ids = x.builder().integers((0..size as i64).rev().collect());
    x.transpose(&order).gather(ids).transpose(&order)
}

/// With zeros at the end of an axis, up to `size`.
fn extended<'b>(x: Tensor<'b>, axis: usize, size: &Dim) -> Tensor<'b> {
    let mut dims = x.ty().shape.dims().to_vec();
    dims[axis] = size - &dims[axis];
    if dims[axis] == Dim::from(0) { x } else { concat(axis, &[x, x.number(0.0).expand(dims)]) }
}
