//! The columns that are found in rows, compared with a sort.

use crate::common::numbers;
use cognate_kernels::{Wanted, best, largest};

/// Compared with a sort and a softmax in f64, for rows that end within stripes, chunks and
/// vectors; with ties.
#[test]
fn wanted_columns_and_the_softmax_are_those_of_whole_rows() {
    for (n, outputs, count) in [
        (1, 5, 3),
        (2, 64, 9),
        (3, 1_023, 1),
        (1, 1_040, 4),
        (100, 2_100, 9),
        (2, 3, 5),
        (1, 7, 0),
        (0, 9, 1),
    ] {
        let mut rows = numbers(n * outputs, 7);
        rows.iter_mut()
            .enumerate()
            .for_each(|(index, number)| *number = if index % 5 == 0 { 0.75 } else { *number });
        let always = [outputs - 1, 0];
        let factor_of = |row: usize| 0.5 + row as f32;
        let found = best(
            [n, outputs],
            Wanted { count, always: &always },
            factor_of,
            |some, columns, out| {
                for (row, out) in some.zip(out.chunks_exact_mut(columns.len())) {
                    out.copy_from_slice(&rows[row * outputs..][columns.clone()]);
                }
            },
            None,
        );
        assert_eq!(found.len(), n);
        for (row, found) in found.iter().enumerate() {
            let numbers = &rows[row * outputs..][..outputs];
            let mut order: Vec<usize> = (0..outputs).collect();
            order.sort_by(|&a, &b| numbers[b].total_cmp(&numbers[a]).then(a.cmp(&b)));
            let mut expected: Vec<usize> = order.into_iter().take(count).chain(always).collect();
            expected.sort_unstable();
            expected.dedup();
            assert_eq!(
                found.columns,
                expected.iter().map(|&column| (column, numbers[column])).collect::<Vec<_>>()
            );
            let scaled: Vec<f64> =
                numbers.iter().map(|&number| f64::from(number * factor_of(row))).collect();
            let most = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            assert_eq!(f64::from(found.largest), most);
            let log_sum = scaled.iter().map(|number| (number - most).exp()).sum::<f64>().ln();
            assert!(
                (f64::from(found.log_sum) - log_sum).abs() < 1e-6,
                "{n} {outputs}: {} {log_sum}",
                found.log_sum
            );
        }
    }
}

#[test]
fn numbers_that_are_not_finite_are_reported() {
    for (odd, place) in
        [(f32::NAN, 0), (f32::NAN, 1_500), (f32::INFINITY, 1_999), (f32::NEG_INFINITY, 3)]
    {
        let mut row = numbers(2_000, 1);
        row[place] = odd;
        let wanted = Wanted { count: 2, always: &[] };
        let copy = |_, columns, out: &mut [f32]| out.copy_from_slice(&row[columns]);
        let found = best([1, 2_000], wanted, |_| 2.0, copy, None);
        let expected = if odd == f32::NEG_INFINITY { 2.0 * largest(&row) } else { odd };
        assert!(
            found[0].largest == expected || (odd.is_nan() && found[0].largest.is_nan()),
            "{odd} {place}: {found:?}"
        );
        assert_eq!(found[0].columns.iter().any(|(_, number)| number.is_nan()), odd.is_nan());
    }
    let found = best(
        [1, 3],
        Wanted { count: 2, always: &[] },
        |_| 1.0,
        |_, _, out| out.fill(f32::NEG_INFINITY),
        None,
    );
    assert_eq!((found[0].largest, found[0].columns.len()), (f32::NEG_INFINITY, 2));
}
