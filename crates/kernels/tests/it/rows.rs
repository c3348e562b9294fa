//! Steps over rows, compared with f64.

use cognate_kernels::*;

/// Numbers between -2 and 2 without a pattern.
fn numbers(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|index| ((index * 7_919 + seed * 104_729) % 2_003) as f32 / 500.75 - 2.0).collect()
}

fn gelu(x: f64) -> f64 {
    x * 0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}

fn tanh_gelu(x: f64) -> f64 {
    // `1 + tanh(u)` without the cancellation of a negative `u`.
    x / (1.0 + (-2.0 * std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044_715 * x.powi(3))).exp())
}

/// A row in f64.
fn expected(rows: &Rows<'_>, x: &[f32], row: usize) -> Vec<f64> {
    let width = x.len();
    let wide = |x: f32| f64::from(x);
    let mut made: Vec<f64> =
        x.iter().map(|&x| wide(x) * rows.scale.map_or(1.0, |scale| wide(scale[row]))).collect();
    for (index, made) in made.iter_mut().enumerate() {
        *made += rows.bias.map_or(0.0, |bias| wide(bias[index]))
            + rows.residual.map_or(0.0, |residual| wide(residual[row * width + index]));
    }
    if let Some(norm) = rows.norm {
        let mean = norm.bias.map_or(0.0, |_| made.iter().sum::<f64>() / width as f64);
        let variance = made.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let normal = |(index, x): (usize, &f64)| {
            (x - mean) / (variance + wide(norm.epsilon)).sqrt() * wide(norm.weight[index])
                + norm.bias.map_or(0.0, |bias| wide(bias[index]))
        };
        made = made.iter().enumerate().map(normal).collect();
    }
    let activated = made.into_iter().map(|x| match rows.activation {
        Activation::Identity => x,
        Activation::Relu => x.max(0.0),
        Activation::Swish => x / (1.0 + (-x).exp()),
        Activation::Gelu => gelu(x),
        Activation::TanhGelu => tanh_gelu(x),
    });
    activated.collect()
}

#[test]
fn every_step_is_as_in_f64() {
    for width in [64, 6, 37] {
        let n = 5;
        let (x, residual) = (numbers(n * width, 1), numbers(n * width, 2));
        let [bias, weight, scale] = [3, 4, 5].map(|seed| numbers(width, seed));
        let norm = Norm { weight: &weight, bias: Some(&bias), epsilon: 1e-5 };
        let none = Rows::default();
        let all = Rows {
            scale: Some(&scale),
            bias: Some(&bias),
            residual: Some(&residual),
            norm: Some(norm),
            activation: Activation::Swish,
        };
        for rows in [
            none,
            Rows { scale: Some(&scale), ..none },
            Rows { bias: Some(&bias), activation: Activation::Relu, ..none },
            Rows { residual: Some(&residual), norm: Some(norm), ..none },
            Rows { norm: Some(Norm { bias: None, ..norm }), ..none },
            Rows { activation: Activation::Swish, ..none },
            Rows { activation: Activation::Gelu, ..none },
            Rows { activation: Activation::TanhGelu, ..none },
            all,
        ] {
            let (mut out, mut bytes, mut largest) =
                (vec![f32::NAN; n * width], vec![0; n * width], vec![0.0; n]);
            let quantised = Quantised { bytes: &mut bytes, largest: &mut largest };
            rows.apply(0, Place::To(&x, &mut out), width, Some(quantised));
            let mut over = x[width..].to_vec();
            rows.apply(1, Place::Over(&mut over), width, None);
            assert_eq!(over, out[width..], "over itself");
            let mut again = vec![0; n * width];
            rows.apply(
                0,
                Place::Nowhere(&x),
                width,
                Some(Quantised { bytes: &mut again, largest: &mut vec![0.0; n] }),
            );
            assert_eq!(again, bytes, "without an output");
            for row in 0..n {
                let (found, at) = (&out[row * width..][..width], row * width);
                let expected = expected(&rows, &x[at..][..width], row);
                let worst = found
                    .iter()
                    .zip(&expected)
                    .map(|(&found, expected)| (f64::from(found) - expected).abs())
                    .fold(0.0, f64::max);
                assert!(worst < 1e-5, "{rows:?}: {worst:e}");
                assert_eq!(
                    largest[row],
                    found.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()))
                );
                for (&x, &byte) in found.iter().zip(&bytes[at..]) {
                    let step = f64::from(x) / f64::from(largest[row]) * 127.0;
                    assert!(
                        (step - (f64::from(byte) - 128.0)).abs() <= 0.5 + 1e-4,
                        "{step} became {byte}"
                    );
                }
            }
        }
    }
}

#[test]
fn rows_without_numbers_say_so() {
    let x = [0.0, -0.0, 0.0, 0.0, 1.0, f32::NAN, 2.0, 3.0, -4.0, 2.0, 0.0, 4.0];
    let (mut bytes, mut largest) = ([0; 12], [0.0; 3]);
    Rows::default().apply(
        0,
        Place::Nowhere(&x),
        4,
        Some(Quantised { bytes: &mut bytes, largest: &mut largest }),
    );
    assert_eq!((largest[0], largest[1].is_nan(), largest[2]), (0.0, true, 4.0));
    assert_eq!(bytes[..4], [128; 4]);
    assert_eq!(bytes[8..], [1, 192, 128, 255]);
}

#[test]
fn large_numbers_overflow_nothing() {
    let mut x = [-1e30, -200.0, -88.0, 0.0, 88.0, 200.0, 1e30, -0.5];
    Rows { activation: Activation::Swish, ..Rows::default() }.apply(
        0,
        Place::Over(&mut x),
        8,
        None,
    );
    assert!(x[..3].iter().all(|x| x.abs() < 1e-6), "{x:?}");
    assert_eq!(x[3..7], [0.0, 88.0, 200.0, 1e30]);
}

/// Against f64, over all that is neither zero nor the number itself, and beyond.
#[test]
fn gelu_is_as_in_f64() {
    for (activation, gelu) in
        [(Activation::Gelu, gelu as fn(f64) -> f64), (Activation::TanhGelu, tanh_gelu)]
    {
        let x: Vec<f32> = (-200_000..=200_000).map(|step| step as f32 * 1e-4).collect();
        let mut out = vec![f32::NAN; x.len()];
        let rows = Rows { activation, ..Rows::default() };
        rows.apply(0, Place::To(&x, &mut out), x.len(), None);
        for (x, found) in x.into_iter().map(f64::from).zip(out) {
            let error = (f64::from(found) - gelu(x)).abs();
            assert!(
                error < 2e-7 * x.abs().max(1.0),
                "{activation:?}, {x}: {found}, expected {}",
                gelu(x)
            );
        }
        let mut extremes = [f32::MIN, f32::MAX, f32::NAN];
        rows.apply(0, Place::Over(&mut extremes), 3, None);
        assert!(
            extremes[0].abs() < 1e-30 && extremes[1] == f32::MAX && extremes[2].is_nan(),
            "{activation:?}: {extremes:?}"
        );
    }
}
