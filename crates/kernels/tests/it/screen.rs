//! The largest numbers of products, compared with whole products.

use crate::common::numbers;
use cognate_kernels::{IntegerWeights, Room, Screen, Serial, Wanted, Weights, dots};

const ONE: Wanted<'_> = Wanted { count: 1, always: &[] };

/// Products of integers are exact: the candidates are the largest, with the same numbers.
#[test]
fn candidates_of_integers_have_the_largest_numbers() {
    let (n, inputs, outputs) = (5, 30, 900);
    let x: Vec<u8> = (0..n * inputs).map(|index| (index * 7_919 % 256) as u8).collect();
    let weights: Vec<u8> =
        (0..inputs * outputs).map(|index| (index * 104_729 % 253) as u8).collect();
    let factors: Vec<f32> = (0..outputs).map(|index| 1.0 + (index % 7) as f32).collect();
    let integers = IntegerWeights::pack(inputs, &weights, &factors);
    let mut all = vec![0.0; n * outputs];
    integers.multiply(&x, &mut all, &Serial);
    let bias = numbers(outputs, 3);
    let step_of = |row: usize| 0.25 + row as f32;
    for (index, number) in all.iter_mut().enumerate() {
        *number = *number * step_of(index / outputs) + bias[index % outputs];
    }
    let mut rows = 0;
    Screen::of(integers, Some(&bias)).candidates_of_integers(
        &x,
        step_of,
        Wanted { count: 3, always: &[5] },
        &Serial,
        &mut Room::default(),
        |index, found| {
            let all = &all[index * outputs..][..outputs];
            assert_eq!(
                found.numbers,
                found.columns.iter().map(|&column| all[column]).collect::<Vec<_>>()
            );
            let mut order: Vec<usize> = (0..outputs).collect();
            order.sort_by(|&a, &b| all[b].total_cmp(&all[a]));
            assert!(
                order[..3].iter().chain(&[5]).all(|best| found.columns.contains(best))
                    && found.columns.len() < 30,
                "{found:?}"
            );
            rows += 1;
        },
    );
    assert_eq!(rows, n);
}

/// The candidates include the largest numbers, exactly as the product computes them; and they
/// are few.
#[test]
fn candidates_have_the_largest_numbers() {
    for (n, inputs, outputs, count) in [
        (1, 64, 2000, 3),
        (30, 128, 1000, 2),
        (3, 7, 65, 4),
        (2, 16, 40, 50),
        (0, 4, 4, 1),
        (2, 33, 129, 1),
    ] {
        let (x, weights, mut bias) =
            (numbers(n * inputs, 1), numbers(inputs * outputs, 2), numbers(outputs, 3));
        let row = |output: usize| &weights[output * inputs..][..inputs];
        let fill = |output: usize, to: &mut [f32]| to.copy_from_slice(row(output));
        // A token that is never chosen.
        bias[1] = f32::NEG_INFINITY;
        for bias in [Some(&*bias), None] {
            let mut all = vec![0.0; n * outputs];
            Weights::pack(inputs, outputs, fill, bias).multiply(&x, &mut all, &Serial);
            let (mut rows, mut columns) = (0, 0);
            let always = [outputs - 1, 0, 2];
            let wanted = Wanted { count, always: &always };
            let screen = Screen::new(inputs, outputs, &mut &fill, bias).expect("finite");
            screen.candidates(&x, wanted, &Serial, &mut Room::default(), |index, found| {
                assert!(index == rows && !found.is_unknown && found.columns.is_sorted());
                let all = &all[index * outputs..][..outputs];
                let mut out = vec![f32::NAN; found.columns.len()];
                let chosen: Vec<f32> =
                    found.columns.iter().flat_map(|&column| row(column)).copied().collect();
                dots(&x[index * inputs..][..inputs], &chosen, &mut out);
                out.iter_mut()
                    .zip(&found.columns)
                    .for_each(|(out, &column)| *out += bias.map_or(0.0, |bias| bias[column]));
                assert_eq!(
                    out,
                    found.columns.iter().map(|&column| all[column]).collect::<Vec<_>>(),
                    "the same bits"
                );
                let mut order: Vec<usize> = (0..outputs).collect();
                order.sort_by(|&a, &b| all[b].total_cmp(&all[a]));
                for best in order[..count.min(outputs)].iter().chain(&always) {
                    assert!(
                        found.columns.contains(best),
                        "{n} {inputs} {outputs}: row {index}, column {best} of {found:?}"
                    );
                }
                (rows, columns) = (rows + 1, columns + found.columns.len());
            });
            // Of every third output, the same are found as if there were no others.
            let some: Vec<usize> = (0..outputs).step_by(3).collect();
            let of_some = |place: usize, to: &mut [f32]| fill(some[place], to);
            let bias: Option<Vec<f32>> =
                bias.map(|bias| some.iter().map(|&output| bias[output]).collect());
            let alone =
                Screen::new(inputs, some.len(), &mut &of_some, bias.as_deref()).expect("finite");
            let selected = screen.select(&some);
            let found = |screen: &Screen| {
                let mut found = Vec::new();
                let wanted = Wanted { count, always: &[] };
                screen.candidates(&x, wanted, &Serial, &mut Room::default(), |_, candidates| {
                    found.push(candidates.columns.clone())
                });
                found
            };
            assert_eq!(found(&selected), found(&alone));
            assert_eq!(rows, n);
            assert!(outputs < 1000 || columns < n * outputs / 10, "{columns} of {}", n * outputs);
        }
    }
}

/// The largest number is not the largest of the rounded ones.
#[test]
fn what_rounding_hides_is_found() {
    let (inputs, outputs) = (32, 2000);
    // The first sets the step size to 1; the row is rounded to its second.
    let x: Vec<f32> =
        (0..inputs).map(|input| [0.0, 127.0].get(input).copied().unwrap_or(0.49)).collect();
    let fill = |output: usize, row: &mut [f32]| {
        let (second, rest) = match output {
            3 => (100.51, 0.0),
            1777 => (100.49, 10.0),
            _ => (50.0, 0.0),
        };
        row.fill(rest);
        row[..2].copy_from_slice(&[127.0, second]);
    };
    let screen = Screen::new(inputs, outputs, &mut &fill, None).expect("finite");
    screen.candidates(&x, ONE, &Serial, &mut Room::default(), |_, found| {
        assert_eq!(found.columns, [3, 1777])
    });
}

#[test]
fn rows_and_weights_that_are_not_finite_are_unknown() {
    let fill = |_: usize, to: &mut [f32]| to.fill(1.0);
    let screen = Screen::new(4, 3, &mut &fill, None).expect("finite");
    for odd in [f32::NAN, f32::INFINITY, f32::MAX] {
        screen.candidates(
            &[1.0, 1.0, 1.0, 1.0, 0.0, odd, 0.0, 0.0],
            ONE,
            &Serial,
            &mut Room::default(),
            |row, found| assert_eq!(found.is_unknown, row == 1),
        );
        assert!(odd == f32::MAX || Screen::new(4, 3, &mut |_, to| to.fill(odd), None).is_none());
        assert!(odd == f32::MAX || Screen::new(4, 3, &mut &fill, Some(&[0.0, odd, 0.0])).is_none());
    }
    // Zeros have no step size.
    screen.candidates(&[0.0; 4], ONE, &Serial, &mut Room::default(), |_, found| {
        assert_eq!(found.columns, [0, 1, 2])
    });
}
