//! Exponentials, compared with f64.

use cognate_kernels::exponential;

/// Against f64, over all that a row may hold.
#[test]
fn exponentials_are_right_to_some_units() {
    let (mut six, mut seven) = (0f64, 0f64);
    for step in 0..870_000 {
        let x = -(step as f32) * 1e-4;
        let exact = f64::from(x).exp();
        let error = |found: f32| (f64::from(found) - exact).abs() / exact / f64::from(f32::EPSILON);
        six = six.max(error(exponential::<false, 6>(x))).max(error(exponential::<true, 6>(x)));
        seven = seven.max(error(exponential::<false, 7>(x))).max(error(exponential::<true, 7>(x)));
    }
    assert!(six < 3.0 && seven < 2.0, "{six} {seven}");
    assert!(exponential::<false, 7>(f32::NEG_INFINITY) < 2e-38);
}
