//! Operations in one pass, compared with plain loops.

use crate::common::numbers;
use cognate_kernels::{Elementwise, Extent, Function, Instruction, Serial};

/// `next = (x + row) · column - one`, `other = floor(next) · [x <= next]`, each the same bits as
/// by plain loops; the first is written over `x`.
#[test]
fn operations_in_one_pass_are_those_one_after_another() {
    use Function::*;
    let instruction = |function, operands| Instruction { function, operands };
    let extents = vec![Extent::All, Extent::Rows, Extent::Columns, Extent::One];
    let instructions = vec![
        instruction(Add, [0, 1]),
        instruction(Mul, [4, 2]),
        instruction(Sub, [5, 3]),
        instruction(LessOrEqual, [0, 6]),
        instruction(Floor, [6, 6]),
        instruction(Mul, [8, 7]),
    ];
    let work = Elementwise::new(extents, instructions, vec![2, 5]).expect("known operands");
    // Of nine results, no more than four are needed at once.
    assert!(format!("{work:?}").contains("n_registers: 4"), "{work:?}");
    for [rows, width] in [[3, 5], [7, 512], [2, 1_300], [0, 4], [1, 1]] {
        let mut x = numbers(rows * width, 1);
        let (row, column, one) = (numbers(rows, 2), numbers(width, 3), [0.25]);
        let expected: Vec<[f32; 2]> = x
            .iter()
            .enumerate()
            .map(|(place, &x)| {
                let next = (x + row[place / width]) * column[place % width] - one[0];
                [next, next.floor() * f32::from(u8::from(x <= next))]
            })
            .collect();
        let mut other = vec![f32::NAN; rows * width];
        let memory = x.as_mut_ptr();
        let inputs = [memory.cast_const(), row.as_ptr(), column.as_ptr(), one.as_ptr()];
        // SAFETY: all have these sizes; only `x` is an input and an output.
        unsafe { work.run([rows, width], &inputs, &[memory, other.as_mut_ptr()], &Serial) };
        let found: Vec<[f32; 2]> =
            x.into_iter().zip(other).map(|(next, other)| [next, other]).collect();
        assert_eq!(found, expected, "{rows} {width}");
    }
}

#[test]
fn functions_of_one_operand_are_those_of_f32() {
    let unary = [
        (Function::Sqrt, f32::sqrt as fn(f32) -> f32),
        (Function::Relu, |x| if x < 0.0 { 0.0 } else { x }),
    ];
    let x = [4.0, 0.0, -0.0, 2.5, f32::INFINITY, f32::NAN, -1.0];
    for (function, of) in unary {
        let instructions = vec![Instruction { function, operands: [0, 0] }];
        let work = Elementwise::new(vec![Extent::All], instructions, vec![0]);
        let mut found = [0.0; 7];
        // SAFETY: both have seven numbers.
        unsafe {
            work.expect("known operands").run(
                [1, 7],
                &[x.as_ptr()],
                &[found.as_mut_ptr()],
                &Serial,
            );
        }
        let bits = |numbers: [f32; 7]| numbers.map(|x| if x.is_nan() { 1 } else { x.to_bits() });
        assert_eq!(bits(found), bits(x.map(of)), "{function:?}");
    }
}

/// `y = x Σ row_k column_k`, as by plain loops.
#[test]
fn inner_products_of_fours_are_operands() {
    let extents = vec![Extent::All, Extent::RowFours, Extent::ColumnFours];
    let instructions = vec![
        Instruction { function: Function::Inner, operands: [1, 2] },
        Instruction { function: Function::Mul, operands: [0, 3] },
    ];
    let work = Elementwise::new(extents, instructions, vec![1]).expect("known operands");
    for [rows, width] in [[3, 5], [7, 512], [2, 1_300], [0, 4], [1, 1]] {
        let x = numbers(rows * width, 1);
        let (row, column) = (numbers(rows * 4, 2), numbers(width * 4, 3));
        let expected: Vec<f32> = x
            .iter()
            .enumerate()
            .map(|(place, &x)| {
                let [a, b] = [&row[place / width * 4..], &column[place % width * 4..]];
                x * (a[0] * b[0] + a[1] * b[1] + a[2] * b[2] + a[3] * b[3])
            })
            .collect();
        let mut found = vec![f32::NAN; rows * width];
        let inputs = [x.as_ptr(), row.as_ptr(), column.as_ptr()];
        // SAFETY: all have these sizes.
        unsafe { work.run([rows, width], &inputs, &[found.as_mut_ptr()], &Serial) };
        assert_eq!(found, expected, "{rows} {width}");
    }
}

#[test]
fn unknown_operands_are_refused() {
    let add = |operands| vec![Instruction { function: Function::Add, operands }];
    assert!(Elementwise::new(vec![Extent::All], add([0, 1]), vec![0]).is_none());
    assert!(Elementwise::new(vec![Extent::All], add([0, 0]), vec![1]).is_none());
    let fours = || vec![Extent::RowFours, Extent::ColumnFours, Extent::All];
    let inner = |operands| vec![Instruction { function: Function::Inner, operands }];
    assert!(Elementwise::new(fours(), inner([0, 1]), vec![0]).is_some());
    assert!(Elementwise::new(fours(), inner([1, 0]), vec![0]).is_none());
    assert!(Elementwise::new(fours(), inner([0, 2]), vec![0]).is_none());
    assert!(Elementwise::new(fours(), add([0, 2]), vec![0]).is_none());
}
