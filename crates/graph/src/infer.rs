//! Shape inference: the type of a node from its operation and the types of its inputs.

mod choice;
mod conv;
mod repeat;
mod sums;

use crate::op::{Blocks, CachedAttention, Steps};
use crate::{Binary, DType, Dim, Op, Shape, Type, Unary};

/// The output type of `op` for `inputs`; an error states expected and found.
///
/// [`Op::Input`] and [`Op::Parameter`] have no rule: their types are declared.
pub(crate) fn infer(op: &Op, inputs: &[&Type]) -> Result<Type, String> {
    match op {
        Op::Input | Op::Parameter => Err("a declared value has no inference rule".into()),
        Op::Scalar(value) => {
            let [] = take(inputs)?;
            Ok(Type::new(value.dtype(), Shape::default()))
        }
        Op::Integers(values) => {
            let [] = take(inputs)?;
            Ok(Type::new(DType::I64, [values.len()]))
        }
        Op::Range { start, end } => {
            let [] = take(inputs)?;
            Ok(Type::new(DType::I64, [end - start]))
        }
        Op::Indices(symbol) => {
            let [n] = take(inputs)?;
            expect_type("input", n, &Type::new(DType::I64, Shape::default()))?;
            Ok(Type::new(DType::I64, [Dim::symbol(symbol)]))
        }
        Op::Unary(function) => {
            let [x] = take(inputs)?;
            match function {
                Unary::Not => expect_dtype("input", x, DType::Bool)?,
                _ => float("input", x)?,
            }
            Ok(x.clone())
        }
        Op::Binary(function) => {
            let [left, right] = take(inputs)?;
            same_dtype(left, right)?;
            match function {
                Binary::Rem => expect_dtype("left", left, DType::I64)?,
                Binary::And | Binary::Or => expect_dtype("left", left, DType::Bool)?,
                Binary::Pow => float("left", left)?,
                Binary::Add
                | Binary::Sub
                | Binary::Mul
                | Binary::Div
                | Binary::Min
                | Binary::Max => number(left)?,
            }
            Ok(Type::new(left.dtype, broadcast(&left.shape, &right.shape)?))
        }
        Op::LessOrEqual | Op::Equal => {
            let [left, right] = take(inputs)?;
            same_dtype(left, right)?;
            Ok(Type::new(DType::Bool, broadcast(&left.shape, &right.shape)?))
        }
        Op::Select => {
            let [condition, left, right] = take(inputs)?;
            expect_dtype("condition", condition, DType::Bool)?;
            same_dtype(left, right)?;
            let values = broadcast(&left.shape, &right.shape)?;
            Ok(Type::new(left.dtype, broadcast(&condition.shape, &values)?))
        }
        Op::Cast(dtype) => {
            let [x] = take(inputs)?;
            Ok(Type::new(*dtype, x.shape.clone()))
        }
        Op::Gather => {
            let [table, ids] = take(inputs)?;
            expect_dtype("ids", ids, DType::I64)?;
            let [_, row @ ..] = table.shape.dims() else {
                return Err("table: expected at least one axis, found a scalar".into());
            };
            let shape: Shape = ids.shape.dims().iter().chain(row).collect();
            Ok(Type::new(table.dtype, shape))
        }
        Op::GatherElements => choice::gather_elements(take(inputs)?),
        Op::ScatterElements => choice::scatter_elements(take(inputs)?),
        Op::TopK { count, result } => choice::top_k(count, *result, take(inputs)?),
        Op::MatMul => {
            let [left, right] = take(inputs)?;
            float("left", left)?;
            expect_dtype("right", right, left.dtype)?;
            let ([left_batch @ .., m, k], [right_batch @ .., right_k, n]) =
                (left.shape.dims(), right.shape.dims())
            else {
                return Err(format!(
                    "expected matrices of two axes or more, found {} and {}",
                    left.shape, right.shape
                ));
            };
            if k != right_k {
                return Err(format!(
                    "inner sizes differ: {} x {} ({k} against {right_k})",
                    left.shape, right.shape
                ));
            }
            let batch = broadcast(&left_batch.iter().collect(), &right_batch.iter().collect())?;
            let shape: Shape = batch.dims().iter().chain([m, n]).collect();
            Ok(Type::new(left.dtype, shape))
        }
        Op::Linear => linear(inputs),
        Op::Reshape(shape) => {
            let [x] = take(inputs)?;
            if x.shape.elements() != shape.elements() {
                return Err(format!(
                    "cannot reshape {} to {shape}: {} elements against {}",
                    x.shape,
                    x.shape.elements(),
                    shape.elements()
                ));
            }
            Ok(Type::new(x.dtype, shape.clone()))
        }
        Op::Transpose(order) => {
            let [x] = take(inputs)?;
            let mut sorted = order.clone();
            sorted.sort_unstable();
            if !sorted.into_iter().eq(0..x.shape.rank()) {
                return Err(format!(
                    "order {order:?} is not a permutation of the axes of {}",
                    x.shape
                ));
            }
            let shape: Shape = order.iter().map(|&axis| &x.shape.dims()[axis]).collect();
            Ok(Type::new(x.dtype, shape))
        }
        Op::Concat { axis } => concat(*axis, inputs),
        Op::Slice { axis, start, end } => {
            let [x] = take(inputs)?;
            let mut dims = x.shape.dims().to_vec();
            let Some(dim) = dims.get_mut(*axis) else {
                return Err(format!("axis {axis} does not exist in {}", x.shape));
            };
            *dim = end - start;
            Ok(Type::new(x.dtype, dims))
        }
        Op::CumSum => {
            let [x] = take(inputs)?;
            last(x)?;
            number(x)?;
            Ok(x.clone())
        }
        Op::Sum(axes) => sums::sum(axes, take(inputs)?),
        Op::Expand(shape) => sums::expand(shape, take(inputs)?),
        Op::ScatterAdd => sums::scatter_add(take(inputs)?),
        Op::Gemm { transposed } => sums::gemm(*transposed, take(inputs)?),
        Op::Conv(conv) => conv::conv(conv, inputs),
        Op::Softmax | Op::LogSoftmax | Op::ShiftedExp => {
            let [x] = take(inputs)?;
            float("input", x)?;
            last(x)?;
            Ok(x.clone())
        }
        Op::LogSumExp => {
            let [x] = take(inputs)?;
            sums::of_rows(x)
        }
        Op::LayerNorm { epsilon } => {
            let [x, scale, bias] = take(inputs)?;
            normalised(x, *epsilon, &[("scale", scale), ("bias", bias)])
        }
        Op::LayerNormStatistic { epsilon, .. } => {
            let [x] = take(inputs)?;
            // tract 0.23.9 reads the statistics of an f16 normalisation as f32, and then rejects
            // it.
            expect_dtype("input", x, DType::F32)?;
            normalised(x, *epsilon, &[])?;
            sums::of_rows(x)
        }
        Op::RmsNorm { epsilon } => {
            let [x, scale] = take(inputs)?;
            normalised(x, *epsilon, &[("scale", scale)])
        }
        Op::QuantizedLinear(steps) => quantized_linear(*steps, inputs),
        Op::BlockLinear(blocks) => block_linear(*blocks, inputs),
        Op::LargestMagnitude => {
            let [x] = take(inputs)?;
            expect_dtype("input", x, DType::F32)?;
            sums::of_rows(x)
        }
        Op::CacheWrite { .. } => {
            let [cache, new] = take(inputs)?;
            let [rows, heads, _, d_k] = cache_dims("cache", cache)?;
            let new_shape = [rows, &Dim::from(1), &(heads * d_k)];
            expect_type("new", new, &Type::new(cache.dtype, new_shape))?;
            Ok(cache.clone())
        }
        Op::CachedAttention(attention) => cached_attention(attention, inputs),
        Op::Loop(repeat) => repeat::repeat(repeat, inputs),
        Op::LoopResult { ty, .. } => {
            let [_] = take(inputs)?;
            Ok(ty.as_ref().clone())
        }
    }
}

fn quantized_linear(steps: Steps, inputs: &[&Type]) -> Result<Type, String> {
    let ([x, weight, scale], bias) = take_with_option(inputs)?;
    expect_dtype("input", x, DType::F32)?;
    expect_dtype("weight", weight, DType::I8)?;
    let [in_features, out_features] = weight.shape.dims() else {
        return Err(format!("weight: expected [in, out], found {}", weight.shape));
    };
    if last(x)? != in_features {
        return Err(format!(
            "weight {}: expected inputs of width {in_features}, found {}",
            weight.shape, x.shape
        ));
    }
    expect_type("scale", scale, &Type::new(DType::F32, [out_features]))?;
    match bias {
        Some(_) if steps == Steps::RowUnscaled => {
            return Err("an unscaled product must not have a bias".into());
        }
        Some(bias) => expect_type("bias", bias, &Type::new(DType::F32, [out_features]))?,
        None => {}
    }
    Ok(with_last(x, out_features))
}

fn block_linear(blocks: Blocks, inputs: &[&Type]) -> Result<Type, String> {
    let ([x, weight, scale], bias) = take_with_option(inputs)?;
    expect_dtype("input", x, DType::F32)?;
    let [out_features, ..] = weight.shape.dims() else {
        return Err("weight: expected [out, blocks, bytes], found a scalar".into());
    };
    let Some(in_features) = last(x)?.as_constant().and_then(|size| usize::try_from(size).ok())
    else {
        return Err(format!("expected inputs of constant width, found {}", x.shape));
    };
    let (count, bytes) = (Dim::from(blocks.count(in_features)), Dim::from(blocks.bytes()));
    expect_type("weight", weight, &Type::new(DType::U8, [out_features, &count, &bytes]))?;
    expect_type("scale", scale, &Type::new(DType::F32, [out_features, &count]))?;
    if let Some(bias) = bias {
        expect_type("bias", bias, &Type::new(DType::F32, [out_features]))?;
    }
    Ok(with_last(x, out_features))
}

fn cached_attention(attention: &CachedAttention, inputs: &[&Type]) -> Result<Type, String> {
    let ([query, keys, values, beams], bias) = take_with_option(inputs)?;
    let one = Dim::from(1);
    let [rows, key_heads, _, d_k] = cache_dims("keys", keys)?;
    expect_type("values", values, keys)?;
    if *key_heads != Dim::from(attention.key_heads)
        || attention.key_heads == 0
        || !attention.heads.is_multiple_of(attention.key_heads)
    {
        return Err(format!(
            "{} heads in groups of {}, but keys {}",
            attention.heads, attention.key_heads, keys.shape
        ));
    }
    if attention.window == Some(0) {
        return Err("window: expected 1 or more, found 0".into());
    }
    let heads = &Dim::from(attention.heads);
    expect_type("query", query, &Type::new(keys.dtype, [rows, &one, &(heads * d_k)]))?;
    let [batch, n_beams, past] = beams.shape.dims() else {
        return Err(format!("beams: expected [batch, beams, past], found {}", beams.shape));
    };
    expect_dtype("beams", beams, DType::I64)?;
    if batch * n_beams != *rows {
        return Err(format!("keys {}: expected {rows} beams, found {}", keys.shape, beams.shape));
    }
    if let Some(bias) = bias {
        expect_type("bias", bias, &Type::new(keys.dtype, [&one, heads, &one, &(past + &one)]))?;
    }
    Ok((*query).clone())
}

fn cache_dims<'a>(name: &str, cache: &'a Type) -> Result<&'a [Dim; 4], String> {
    if !matches!(cache.dtype, DType::F32 | DType::F16) {
        return Err(format!("{name}: expected f32 or f16, found {}", cache.dtype));
    }
    cache.shape.dims().try_into().map_err(|_| {
        format!("{name}: expected [rows, heads, capacity, d_k], found {}", cache.shape)
    })
}

fn normalised(x: &Type, epsilon: f32, parameters: &[(&str, &Type)]) -> Result<Type, String> {
    float("input", x)?;
    if epsilon.is_nan() || epsilon < 0.0 {
        return Err(format!("epsilon: expected 0 or more, found {epsilon}"));
    }
    let width = last(x)?;
    for (name, parameter) in parameters {
        expect_type(name, parameter, &Type::new(x.dtype, [width]))?;
    }
    Ok(x.clone())
}

fn linear(inputs: &[&Type]) -> Result<Type, String> {
    let ([x, weight], bias) = take_with_option(inputs)?;
    float("input", x)?;
    expect_dtype("weight", weight, x.dtype)?;
    let [out_features, in_features] = weight.shape.dims() else {
        return Err(format!("weight: expected [out, in], found {}", weight.shape));
    };
    if last(x)? != in_features {
        return Err(format!(
            "weight {}: expected inputs of width {in_features}, found {}",
            weight.shape, x.shape
        ));
    }
    if let Some(bias) = bias {
        expect_type("bias", bias, &Type::new(x.dtype, [out_features]))?;
    }
    Ok(with_last(x, out_features))
}

fn concat(axis: usize, inputs: &[&Type]) -> Result<Type, String> {
    let [first, rest @ ..] = inputs else {
        return Err("expected at least one input, found none".into());
    };
    if axis >= first.shape.rank() {
        return Err(format!("axis {axis} does not exist in {}", first.shape));
    }
    let mut dims = first.shape.dims().to_vec();
    for other in rest {
        same_dtype(first, other)?;
        let fits = other.shape.rank() == dims.len()
            && (0..dims.len()).all(|index| {
                index == axis || other.shape.dims()[index] == first.shape.dims()[index]
            });
        if !fits {
            return Err(format!(
                "cannot join {} to {} along axis {axis}",
                other.shape, first.shape
            ));
        }
        dims[axis] = &dims[axis] + &other.shape.dims()[axis];
    }
    Ok(Type::new(first.dtype, dims))
}

fn take<'a, const N: usize>(inputs: &[&'a Type]) -> Result<[&'a Type; N], String> {
    <[&Type; N]>::try_from(inputs)
        .map_err(|_| format!("expected {N} inputs, found {}", inputs.len()))
}

/// `N` inputs and an optional one.
fn take_with_option<'a, const N: usize>(
    inputs: &[&'a Type],
) -> Result<([&'a Type; N], Option<&'a Type>), String> {
    match inputs.split_first_chunk() {
        Some((first, [])) => Ok((*first, None)),
        Some((first, [option])) => Ok((*first, Some(option))),
        _ => Err(format!("expected {N} or {} inputs, found {}", N + 1, inputs.len())),
    }
}

fn float(name: &str, found: &Type) -> Result<(), String> {
    if found.dtype.is_float() {
        Ok(())
    } else {
        Err(format!("{name}: expected f32 or f16, found {}", found.dtype))
    }
}

fn number(found: &Type) -> Result<(), String> {
    match found.dtype {
        DType::Bool | DType::Bf16 | DType::I8 | DType::U8 => {
            Err(format!("expected numbers, found {}", found.dtype))
        }
        DType::F32 | DType::F16 | DType::I64 => Ok(()),
    }
}

fn expect_dtype(name: &str, found: &Type, expected: DType) -> Result<(), String> {
    if found.dtype == expected {
        Ok(())
    } else {
        Err(format!("{name}: expected {expected}, found {}", found.dtype))
    }
}

fn expect_type(name: &str, found: &Type, expected: &Type) -> Result<(), String> {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{name}: expected {expected}, found {found}"))
    }
}

fn same_dtype(left: &Type, right: &Type) -> Result<(), String> {
    if left.dtype == right.dtype {
        Ok(())
    } else {
        Err(format!("element types differ: {left} and {right}"))
    }
}

fn broadcast(left: &Shape, right: &Shape) -> Result<Shape, String> {
    left.broadcast(right).ok_or_else(|| format!("shapes do not broadcast: {left} and {right}"))
}

/// The type of `x` with another size of the last axis.
fn with_last(x: &Type, size: &Dim) -> Type {
    let leading = &x.shape.dims()[..x.shape.rank() - 1];
    Type::new(x.dtype, leading.iter().chain([size]).collect::<Shape>())
}

fn last(x: &Type) -> Result<&Dim, String> {
    x.shape.dims().last().ok_or_else(|| "expected at least one axis, found a scalar".into())
}
