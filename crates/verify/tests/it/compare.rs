//! Measured errors.

use cognate_verify::*;
use ndarray::array;

#[test]
fn what_is_not_a_number_is_never_close() {
    let expected = array![1.0, 2.0].into_dyn();
    for found in [array![1.0, f64::NAN], array![f64::INFINITY, 2.0]] {
        let measured = compare(&found.into_dyn(), &expected).expect("same shape");
        assert!(!measured.within(CLOSE), "{measured:?}");
        assert!(!Measured::default().or_worse(measured).within(CLOSE));
        assert!(!measured.or_worse(Measured::default()).within(CLOSE));
    }
    assert_eq!(compare(&array![1.0].into_dyn(), &expected), None);
    assert!(compare(&expected, &expected).expect("same shape").within(EXACT));
}
