//! Custom operators for tract: one that it computes differently from ONNX, and those that it lacks.

use crate::program::PROGRAM;
use tract_onnx::Onnx;
use tract_onnx::tract_core::broadcast::multi_broadcast;
use tract_onnx::tract_core::ndarray::Zip;
use tract_onnx::tract_core::ops::cast::{cast, wire_cast};
use tract_onnx::tract_hir::internal::*;
use tract_onnx::tract_hir::ops::math;

/// Converts sizes of shapes to plain integers.
pub(super) const NUMBERS: &str = "CognateNumbers";

/// tract's ONNX reader with these operators.
pub(super) fn reader() -> Onnx {
    let mut onnx = tract_onnx::onnx();
    onnx.op_register.insert(PROGRAM, super::program::read);
    onnx.op_register.insert(NUMBERS, |_, _| Ok((expand(Integers::Numbers), Vec::new())));
    onnx.op_register.insert("Mod", |_, node| {
        let of_floats =
            node.attribute.iter().any(|attribute| attribute.name == "fmod" && attribute.i != 0);
        let operator = if of_floats { math::Rem.into_hir() } else { expand(Integers::Remainder) };
        Ok((operator, Vec::new()))
    });
    onnx
}

/// Operators on integers. tract may treat their inputs as sizes of shapes, such as those of `Range`
/// and of floats cast to integers; their outputs are integers without a formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Integers {
    /// The input.
    Numbers,
    /// The remainder with the sign of the divisor: ONNX's `Mod` with `fmod = 0`. tract
    /// 0.23.9 returns -2 instead of 2 for `-2 mod 4` of sizes, and 1 instead of 0 for
    /// `x mod 1` of a `Range`.
    Remainder,
}

impl Integers {
    fn arity(self) -> usize {
        match self {
            Self::Numbers => 1,
            Self::Remainder => 2,
        }
    }
}

impl Op for Integers {
    fn name(&self) -> StaticName {
        format!("Cognate{self:?}").into()
    }

    op_as_typed_op!();
}

impl Expansion for Integers {
    fn name(&self) -> StaticName {
        Op::name(self)
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> InferenceResult {
        check_input_arity(inputs, self.arity())?;
        check_output_arity(outputs, 1)?;
        s.given(&inputs[0].datum_type, |s, given| s.equals(&outputs[0].datum_type, number(given)))?;
        let shapes = inputs.iter().map(|input| &input.shape).collect::<Vec<_>>();
        s.given_all(shapes, |s, shapes| s.equals(&outputs[0].shape, multi_broadcast(&shapes)?))
    }

    fn wire(
        &self,
        name: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let given = model.outlet_fact(inputs[0])?.datum_type;
        if *self == Self::Numbers && number(given) == given {
            return Ok(inputs.into());
        }
        ensure!(
            given == TDim::datum_type() || given.is_integer(),
            "{name}: expected integers for {}, found {given:?}",
            Op::name(self)
        );
        let computed = model.wire_node(name, *self, inputs)?;
        wire_cast(name, model, &computed, number(given))
    }
}

impl EvalOp for Integers {
    op_out_of_plan!();

    fn eval(&self, context: &EvalContext<'_>, inputs: TVec<TValue>) -> TractResult<TVec<TValue>> {
        let number = |input| Ok(cast(DatumType::I64).eval(context, tvec!(input))?.remove(0));
        let given = inputs.into_iter().map(number).collect::<TractResult<TVec<TValue>>>()?;
        let [x, y] = match self {
            Self::Numbers => return Ok(given),
            Self::Remainder => {
                [given[0].to_plain_array_view::<i64>()?, given[1].to_plain_array_view::<i64>()?]
            }
        };
        ensure!(y.iter().all(|&y| y != 0), "a remainder of a division by zero");
        let shape = multi_broadcast(&[x.shape(), y.shape()])?;
        let mut remainders = tract_ndarray::ArrayD::<i64>::zeros(&*shape);
        Zip::from(&mut remainders).and_broadcast(x).and_broadcast(y).for_each(
            |remainder, &x, &y| {
                *remainder = x.wrapping_rem(y);
                if *remainder != 0 && (*remainder < 0) != (y < 0) {
                    *remainder += y;
                }
            },
        );
        Ok(tvec!(remainders.into_tvalue()))
    }
}

impl TypedOp for Integers {
    as_op!();

    fn output_facts(&self, inputs: &[&TypedFact]) -> TractResult<TVec<TypedFact>> {
        let shapes: Vec<_> = inputs.iter().map(|fact| &*fact.shape).collect();
        Ok(tvec!(DatumType::I64.fact(multi_broadcast(&shapes)?)))
    }
}

/// The integer type of a value that may be a size.
fn number(given: DatumType) -> DatumType {
    if given == TDim::datum_type() { DatumType::I64 } else { given }
}
