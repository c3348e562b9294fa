//! The gradient rule of each operation.
//!
//! With `y = op(x, ...)` and `dy = ∂loss/∂y`, a rule returns `dx = (∂y/∂x)ᵀ dy` for each operand.

use super::conv::conv;
use super::cotangent::{Cotangent, Part, Rows, full, summed};
use cognate_graph::{Binary, DType, Dim, Op, Scalar, Shape, Statistic, Tensor, Unary, concat};

/// The parts of the operands, by their position; `None` if the operation has no gradient. `y` is
/// the operation's output.
pub(super) fn parts<'b>(
    op: &Op,
    inputs: &[Tensor<'b>],
    y: Tensor<'b>,
    cotangent: Cotangent<'b>,
) -> Option<Vec<(usize, Part<'b>)>> {
    let shape = y.ty().shape;
    if let Op::Reshape(_) = op {
        // A sparse gradient stays sparse.
        return Some(
            cotangent
                .reshaped(y, &inputs[0].ty().shape)
                .into_iter()
                .map(|part| (0, part))
                .collect(),
        );
    }
    let dy = cotangent.tensor(y);
    let whole = || full(dy, &shape);
    let dense: Vec<Tensor<'b>> = match op {
        Op::Input
        | Op::Parameter
        | Op::Scalar(Scalar::F32(_) | Scalar::F16(_) | Scalar::I64(_))
        | Op::Integers(_)
        | Op::Range { .. }
        | Op::Indices(_)
        | Op::LessOrEqual
        | Op::Equal => vec![],
        Op::Unary(function) => unary(*function, inputs[0], y, dy).into_iter().collect(),
        Op::Binary(function) => {
            let (left, right) = (inputs[0], inputs[1]);
            let [to_left, to_right] = match function {
                Binary::Add => [dy, dy],
                Binary::Sub => [dy, dy * -1.0],
                Binary::Mul => [dy * right, dy * left],
                Binary::Div => [dy / right, dy * y / right * -1.0],
                // Integers have no gradient.
                Binary::Rem | Binary::And | Binary::Or => return Some(vec![]),
                Binary::Min | Binary::Max | Binary::Pow => return None,
            };
            vec![
                summed(to_left, &shape, &left.ty().shape),
                summed(to_right, &shape, &right.ty().shape),
            ]
        }
        Op::Select => {
            let zero = dy.number(0.0);
            let parts = [inputs[0].select(dy, zero), inputs[0].select(zero, dy)];
            let back = parts
                .into_iter()
                .zip(&inputs[1..])
                .map(|(part, operand)| Part::Dense(summed(part, &shape, &operand.ty().shape)));
            return Some((1..).zip(back).collect());
        }
        Op::Cast(_) => vec![dy.cast(inputs[0].ty().dtype)],
        Op::Gather => {
            return Some(vec![(
                0,
                Part::Rows(Rows::new(&inputs[0].ty().shape, inputs[1], whole())),
            )]);
        }
        Op::MatMul => matmul(inputs[0], inputs[1], whole()),
        Op::Linear => linear(inputs, whole()),
        Op::Reshape(_) => unreachable!("above"),
        Op::Transpose(order) => {
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
            vec![whole().transpose(&back)]
        }
        Op::Concat { axis } => {
            let mut start = Dim::from(0);
            let dy = whole();
            let part = |input: &Tensor<'b>| {
                let end = &start + input.dim(*axis);
                let part = dy.slice(*axis, &start, &end);
                start = end;
                part
            };
            inputs.iter().map(part).collect()
        }
        Op::Slice { axis, start, end } => vec![padded(inputs[0], whole(), *axis, start, end)],
        Op::CumSum => {
            // The sums from each element on.
            let dy = whole();
            let axis = shape.rank() - 1;
            vec![dy.sum(&[axis]) - dy.cumulative_sum() + dy]
        }
        // Summed axes have size 1: the gradient is broadcast along them.
        Op::Sum(_) => vec![dy],
        Op::Expand(_) => vec![summed(dy, &shape, &inputs[0].ty().shape)],
        Op::ScatterAdd => {
            return Some(vec![(0, Part::Dense(dy)), (2, Part::Dense(whole().gather(inputs[1])))]);
        }
        Op::Gemm { transposed } => gemm(*transposed, inputs[0], inputs[1], whole()),
        Op::Conv(kernel) => conv(kernel, inputs, whole())?,
        Op::Softmax => {
            let weighted = dy * y;
            vec![weighted - weighted.sum(&[shape.rank() - 1]) * y]
        }
        Op::LogSumExp => {
            let exponentials = inputs[0].shifted_exp();
            vec![exponentials * (dy / exponentials.sum(&[shape.rank() - 1]))]
        }
        Op::LayerNorm { epsilon } => layer_norm(inputs[0], inputs[1], *epsilon, whole()),
        Op::LayerNormStatistic { statistic, epsilon } => {
            let (x, axis) = (inputs[0], shape.rank() - 1);
            let share = dy / count(x, axis);
            match statistic {
                Statistic::Mean => vec![share.expand(x.ty().shape)],
                Statistic::InverseDeviation => {
                    let centred = x - x.layer_norm_statistic(Statistic::Mean, *epsilon);
                    vec![centred * (share * (y * y * y)) * -1.0]
                }
            }
        }
        Op::RmsNorm { epsilon } => rms_norm(inputs[0], inputs[1], *epsilon, whole()),
        Op::ShiftedExp
        | Op::LogSoftmax
        | Op::GatherElements
        | Op::ScatterElements
        | Op::TopK { .. }
        | Op::Loop(_)
        | Op::LoopResult { .. }
        | Op::QuantizedLinear(_)
        | Op::BlockLinear(_)
        | Op::LargestMagnitude
        | Op::CacheWrite { .. }
        | Op::CachedAttention(_) => return None,
    };
    Some(dense.into_iter().map(Part::Dense).enumerate().collect())
}

fn unary<'b>(function: Unary, x: Tensor<'b>, y: Tensor<'b>, dy: Tensor<'b>) -> Option<Tensor<'b>> {
    match function {
        // 0 at 0, as in PyTorch. A product with 0 or 1 is faster than a Select, on ONNX Runtime by
        // a quarter.
        Unary::Relu => Some(dy * smallest(y).less_or_equal(y).cast(y.ty().dtype)),
        Unary::Sigmoid => Some(dy * (y - y * y)),
        Unary::Tanh => Some(dy * (y.number(1.0) - y * y)),
        Unary::Erf => {
            Some(dy * ((x * x * -1.0).map(Unary::Exp) * std::f32::consts::FRAC_2_SQRT_PI))
        }
        Unary::Exp => Some(dy * y),
        Unary::Sqrt => Some(dy / (y + y)),
        // The derivative is 0 wherever it exists.
        Unary::Floor | Unary::Not => None,
        Unary::Log => Some(dy / x),
    }
}

/// The smallest positive number.
fn smallest(x: Tensor<'_>) -> Tensor<'_> {
    x.number(match x.ty().dtype {
        DType::F16 => cognate_graph::f16::MIN_POSITIVE_SUBNORMAL.to_f32(),
        DType::F32 | DType::Bf16 | DType::I8 | DType::U8 | DType::I64 | DType::Bool => {
            f32::MIN_POSITIVE
        }
    })
}

/// The size of an axis of `x` as a number of its type.
fn count(x: Tensor<'_>, axis: usize) -> Tensor<'_> {
    match x.dim(axis).as_constant() {
        Some(size) => x.number(size as f32),
        None => x.number(1.0).expand([x.dim(axis)]).sum(&[0]).reshape(Shape::default()),
    }
}

/// The elements as a matrix whose columns are the last axis.
fn as_rows(x: Tensor<'_>) -> Tensor<'_> {
    match x.ty().shape.dims() {
        [] => x.reshape([1, 1]),
        [leading @ .., width] => x.reshape([&leading.iter().collect::<Shape>().elements(), width]),
    }
}

/// The sum of the rows: `[..., n]` -> `[n]`
fn sum_of_rows(x: Tensor<'_>) -> Tensor<'_> {
    let rows = as_rows(x);
    rows.sum(&[0]).reshape([rows.dim(1)])
}

/// `y = x Wᵀ + b`: `dx = dy W`, `dW = dyᵀ x`, `db` the sum of the rows of `dy`.
fn linear<'b>(inputs: &[Tensor<'b>], dy: Tensor<'b>) -> Vec<Tensor<'b>> {
    let (x, weight) = (inputs[0], inputs[1]);
    let dy = as_rows(dy);
    let to_x = dy.gemm(weight, [false, false]).reshape(x.ty().shape);
    let to_weight = dy.gemm(as_rows(x), [true, false]);
    [to_x, to_weight].into_iter().chain((inputs.len() > 2).then(|| sum_of_rows(dy))).collect()
}

/// `y = A B`: `dA = dy Bᵀ`, `dB = Aᵀ dy`, summed where an operand was broadcast.
fn matmul<'b>(left: Tensor<'b>, right: Tensor<'b>, dy: Tensor<'b>) -> Vec<Tensor<'b>> {
    let (left_shape, right_shape) = (left.ty().shape, right.ty().shape);
    if right_shape.rank() == 2 {
        // All rows are multiplied by the same matrix.
        let dy = as_rows(dy);
        return vec![
            dy.gemm(right, [false, true]).reshape(left_shape),
            as_rows(left).gemm(dy, [true, false]),
        ];
    }
    let back = |product: Tensor<'b>, to: &Shape| summed(product, &product.ty().shape, to);
    vec![back(dy.matmul(right.t()), &left_shape), back(left.t().matmul(dy), &right_shape)]
}

/// `y = op(A) op(B)`, where `op` transposes or not.
fn gemm<'b>(
    [turn_left, turn_right]: [bool; 2],
    left: Tensor<'b>,
    right: Tensor<'b>,
    dy: Tensor<'b>,
) -> Vec<Tensor<'b>> {
    let to_left = if turn_left {
        right.gemm(dy, [turn_right, true])
    } else {
        dy.gemm(right, [false, !turn_right])
    };
    let to_right = if turn_right {
        dy.gemm(left, [true, turn_left])
    } else {
        left.gemm(dy, [!turn_left, false])
    };
    vec![to_left, to_right]
}

/// With `u = (x - mean) / deviation` and `y = u · scale + bias`:
/// `dx = (g - mean(g) - u · mean(g · u)) / deviation`, `g = dy · scale`   (Ba et al. 2016, from the
/// definition)
fn layer_norm<'b>(
    x: Tensor<'b>,
    scale: Tensor<'b>,
    epsilon: f32,
    dy: Tensor<'b>,
) -> Vec<Tensor<'b>> {
    let inverse_deviation = x.layer_norm_statistic(Statistic::InverseDeviation, epsilon);
    let unit = (x - x.layer_norm_statistic(Statistic::Mean, epsilon)) * inverse_deviation;
    let weighted = dy * unit;
    let to_x =
        (dy * scale - mean_of_products(dy, scale) - unit * mean_of_products(weighted, scale))
            * inverse_deviation;
    vec![to_x, sum_of_rows(weighted), sum_of_rows(dy)]
}

/// With `u = x / root` and `y = u · scale`: `dx = (g - u · mean(g · u)) / root`, `g = dy · scale`.
fn rms_norm<'b>(x: Tensor<'b>, scale: Tensor<'b>, epsilon: f32, dy: Tensor<'b>) -> Vec<Tensor<'b>> {
    let axis = x.ty().shape.rank() - 1;
    let mean_square = (x * x).sum(&[axis]) / count(x, axis);
    let inverse_root = x.number(1.0) / (mean_square + epsilon).map(Unary::Sqrt);
    let unit = x * inverse_root;
    let weighted = dy * unit;
    let to_x = (dy * scale - unit * mean_of_products(weighted, scale)) * inverse_root;
    vec![to_x, sum_of_rows(weighted)]
}

/// The mean of each row of `x · factor`: `[..., n]`, `[n]` -> `[..., 1]`. As a product with a
/// matrix of one column it reads the elements once and writes none.
fn mean_of_products<'b>(x: Tensor<'b>, factor: Tensor<'b>) -> Tensor<'b> {
    let axis = x.ty().shape.rank() - 1;
    let sums = as_rows(x).gemm(factor.reshape([factor.dim(0), 1.into()]), [false, false]);
    let mut dims = x.ty().shape.dims().to_vec();
    dims[axis] = Dim::from(1);
    sums.reshape(dims) / count(x, axis)
}

/// `dy` at the places `start..end` of an axis of `x`, and zeros at the others.
fn padded<'b>(x: Tensor<'b>, dy: Tensor<'b>, axis: usize, start: &Dim, end: &Dim) -> Tensor<'b> {
    let zeros = |size: Dim| {
        let mut dims = x.ty().shape.dims().to_vec();
        dims[axis] = size.clone();
        (size != Dim::from(0)).then(|| dy.number(0.0).expand(dims))
    };
    let parts: Vec<_> =
        zeros(start.clone()).into_iter().chain([dy]).chain(zeros(x.dim(axis) - end)).collect();
    if let [only] = parts[..] { only } else { concat(axis, &parts) }
}
