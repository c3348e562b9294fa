//! Arithmetic of sizes.

use cognate_graph::{Bindings, Dim};

#[test]
fn arithmetic_is_canonical() {
    let (a, b) = (Dim::symbol("a"), Dim::symbol("b"));
    let cases = [
        (&a + &b + &a, "2*a + b"),
        (&a * &b - &b * &a, "0"),
        ((&a + 1) * (&a - 1), "a*a - 1"),
        (Dim::from(3) - &a, "-a + 3"),
        (Dim::from(4) * &b * &a, "4*a*b"),
        (Dim::from(-7), "-7"),
    ];
    for (dim, text) in cases {
        assert_eq!(dim.to_string(), text);
    }
}

#[test]
fn division_rounds_the_constant_down() {
    let frames = Dim::symbol("frames");
    assert_eq!((Dim::from(2) * &frames - 1).divided(2), Some(&frames - 1));
    assert_eq!((&frames + 2).divided(2), None);
    assert_eq!(Dim::from(7).divided(2), Some(Dim::from(3)));
    assert_eq!((Dim::from(3) * &frames + 2).divided(3), Some(frames));
}

#[test]
fn evaluation_needs_every_symbol_and_never_overflows() {
    let mut bindings = Bindings::default();
    let dim = Dim::symbol("past") + Dim::symbol("tgt");
    bindings.bind(&"past".into(), 5).expect("first binding");
    assert_eq!(dim.evaluate(&bindings), None);
    bindings.bind(&"tgt".into(), 2).expect("first binding");
    assert_eq!(dim.evaluate(&bindings), Some(7));
    assert_eq!(bindings.bind(&"tgt".into(), 3), Err(2));
    bindings = Bindings::default();
    bindings.bind(&"past".into(), usize::MAX).expect("first binding");
    assert_eq!((Dim::symbol("past") * 2).evaluate(&bindings), None);
}
