//! Images in patches (Dosovitskiy et al. 2021, section 3.1).
//!
//! `x = [class; patch_1 E; ...; patch_n E] + P`, where `E` is a convolution whose stride is its
//! kernel size. A learned distillation token (Touvron et al. 2021) may follow the class token.
//!
//! `pixels: [batch, channels, height, width]` -> `[batch, tokens + rows · columns, d_model]`

use crate::embedding::{Embedded, Side};
use crate::{Config, Patches};
use cognate_graph::{Builder, Conv, DType, Dim, Scope, Tensor, Unary, concat};

/// The cubic coefficient of PyTorch's `interpolate(mode="bicubic")`.
const CUBIC: f32 = -0.75;

/// The sizes of the images that a graph accepts: numbers of patches, and the remaining pixels of
/// the model's own size.
pub(crate) fn image_sizes(patches: &Patches) -> [Dim; 2] {
    let size = |axis: usize| {
        GRID.map(Dim::from)[axis].clone() * patches.patch[axis]
            + patches.image[axis] % patches.patch[axis]
    };
    [size(0), size(1)]
}

/// The names of the numbers of patches.
const GRID: [&str; 2] = ["rows", "columns"];

/// The number of positions of an encoder that reads `patches`.
pub(crate) fn n_positions(patches: &Patches) -> Dim {
    Dim::from(GRID[0]) * GRID[1] + patches.n_tokens()
}

/// The input of the first layer for `pixels`.
pub(crate) fn embed_patches<'g>(
    root: &Scope<'g>,
    config: &Config,
    patches: &Patches,
    pixels: Tensor<'g>,
) -> Embedded<'g> {
    let stack = Side::Encoder.at(root);
    let width = Dim::from(config.d_model);
    let batch = pixels.dim(0);
    let projected = {
        let scope = stack.at("embed_patches");
        let _scope = scope.enter();
        let [height, columns] = patches.patch.map(Dim::from);
        let weight =
            scope.parameter("weight", [width.clone(), patches.channels.into(), height, columns]);
        // The remaining pixels are not read. tract 0.23.9 does not infer that the number of patches
        // is the same without them.
        let whole = |x: Tensor<'g>, axis: usize| match patches.image[axis] % patches.patch[axis] {
            0 => x,
            _ => x.slice(2 + axis, 0, Dim::from(GRID[axis]) * patches.patch[axis]),
        };
        let pixels = whole(whole(pixels, 0), 1);
        let conv = Conv { strides: patches.patch.to_vec(), pads: vec![0, 0] };
        let projected = pixels.conv(weight, Some(scope.parameter("bias", [&width])), conv);
        let n_patches = projected.dim(2) * projected.dim(3);
        projected.reshape([batch.clone(), width.clone(), n_patches]).transpose(&[0, 2, 1])
    };
    let token = |name: &str| {
        let scope = stack.at(name);
        let _scope = scope.enter();
        scope.parameter("weight", [&width]).reshape([&1.into(), &1.into(), &width]).expand([
            &batch,
            &1.into(),
            &width,
        ])
    };
    let distillation = patches.distilled.then(|| token("distillation_token"));
    let parts: Vec<_> =
        [token("class_token")].into_iter().chain(distillation).chain([projected]).collect();
    let scope = stack.at("embed_positions");
    let _scope = scope.enter();
    let tokens = concat(1, &parts);
    let positions = positions(&scope, config, patches);
    Embedded { tokens, positions: Some(positions), sum: tokens + positions }
}

/// The learned positions, `[tokens + rows · columns, d_model]`: those of the model's own number of
/// patches, interpolated as transformers does (`interpolate_pos_encoding`). For that number itself
/// the weights are exactly 0 and 1.
fn positions<'g>(scope: &Scope<'g>, config: &Config, patches: &Patches) -> Tensor<'g> {
    let builder = scope.builder();
    let (n_tokens, [rows, columns], width) = (patches.n_tokens(), patches.grid(), config.d_model);
    let table = scope.parameter("weight", [n_tokens + rows * columns, width]);
    // The cubic filter reaches two places beyond the edges, which are repeated there.
    let framed =
        |size: usize| (-2..size as i64 + 2).map(move |place| place.clamp(0, size as i64 - 1));
    let ids = framed(rows).flat_map(|row| {
        framed(columns).map(move |column| n_tokens as i64 + row * columns as i64 + column)
    });
    let frame = table.gather(builder.integers(ids.collect()).reshape([rows + 4, columns + 4]));
    let [tall, wide] = GRID.map(Dim::from);
    let columns_of = |wanted: &Dim, given: usize| weights(builder, wanted, given);
    let across = columns_of(&tall, rows).matmul(frame.reshape([rows + 4, (columns + 4) * width]));
    let across = across.reshape([tall.clone(), (columns + 4).into(), width.into()]);
    let interpolated =
        columns_of(&wide, columns).matmul(across).reshape([tall * wide, width.into()]);
    concat(0, &[table.slice(0, 0, n_tokens), interpolated])
}

/// The weights of places `-2..given + 2` in each of `wanted` places: `[wanted, given + 4]`.
fn weights<'g>(builder: &'g Builder, wanted: &Dim, given: usize) -> Tensor<'g> {
    let column = |x: Tensor<'g>| x.cast(DType::F32).reshape([x.dim(0), 1.into()]);
    let scale = builder.scalar(given as f32) / column(builder.range(wanted, wanted + 1));
    let center = (column(builder.range(0, wanted)) + 0.5) * scale - 0.5;
    let places = builder.integers((-2..given as i64 + 2).collect()).cast(DType::F32);
    let difference = center - places;
    let x = difference.map(Unary::Relu) + (difference * -1.0).map(Unary::Relu);
    let inner = ((x * (CUBIC + 2.0) - (CUBIC + 3.0)) * x) * x + 1.0;
    let outer = ((x * CUBIC - 5.0 * CUBIC) * x + 8.0 * CUBIC) * x - 4.0 * CUBIC;
    let far = x.less_or_equal(builder.scalar(2.0)).select(outer, builder.scalar(0.0));
    x.less_or_equal(builder.scalar(1.0)).select(inner, far)
}
