//! Weights stored as f32, f16 and bf16, and given as any of them.

use cognate_graph::{Element, Generator, Place, Recipe, Storage, Weights};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values with their bits as f16 and as bf16, as PyTorch 2.15 rounds them.
const ROUNDED: [(f32, u16, u16); 21] = [
    (0.0, 0x0000, 0x0000),
    (-0.0, 0x8000, 0x8000),
    (1.0, 0x3c00, 0x3f80),
    (-2.5, 0xc100, 0xc020),
    (0.1, 0x2e66, 0x3dcd),
    (1.0 / 3.0, 0x3555, 0x3eab),
    (65504.0, 0x7bff, 0x4780),
    (65519.996, 0x7bff, 0x4780),
    (65520.0, 0x7c00, 0x4780),
    (1e-8, 0x0000, 0x322c),
    (6e-8, 0x0001, 0x3381),
    (5.960_464_5e-8, 0x0001, 0x3380),
    (2.980_232_2e-8, 0x0000, 0x3300),
    (2.980_232_6e-8, 0x0001, 0x3300),
    (1.000_488_3, 0x3c00, 0x3f80),
    (1.001_464_8, 0x3c02, 0x3f80),
    (f32::MAX, 0x7c00, 0x7f80),
    (f32::INFINITY, 0x7c00, 0x7f80),
    (1.003_906_3, 0x3c04, 0x3f80),
    (1.011_718_8, 0x3c0c, 0x3f82),
    (-f32::MIN_POSITIVE, 0x8000, 0x8080),
];

#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    file: Option<PathBuf>,
}

impl Storage for Held {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

/// The bytes as a weight of the given type, behind one byte more, so that numbers are not aligned.
fn stored(element: Element, bytes: impl IntoIterator<Item = u8>) -> Recipe {
    let bytes: Vec<u8> = [7].into_iter().chain(bytes).collect();
    let (range, elements) = (1..bytes.len(), (bytes.len() - 1) / element.size());
    let storage = Arc::new(Held { bytes, file: None });
    Recipe::stored_as(element, storage, range, &[elements]).unwrap()
}

fn f32s(values: &[f32]) -> Recipe {
    stored(Element::F32, values.iter().flat_map(|value| value.to_le_bytes()))
}

/// All bytes, and where the pieces lie in which they came.
fn streamed(recipe: &Recipe) -> (Vec<u8>, Vec<Range<*const u8>>) {
    let (mut bytes, mut pieces) = (Vec::new(), Vec::new());
    let Ok(()) = recipe.stream(|piece| {
        pieces.push(piece.as_ptr_range());
        bytes.extend_from_slice(piece);
        Ok::<_, std::convert::Infallible>(())
    });
    (bytes, pieces)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn values_are_rounded_as_pytorch_rounds_them() {
    let values = ROUNDED.map(|(value, ..)| value);
    // Longer than one piece of the stream, by no whole number of repetitions; too many for an
    // interpreter.
    let length = if cfg!(miri) { 151 } else { 150_001 };
    let many: Vec<f32> = values.iter().copied().cycle().take(length).collect();
    for (element, expected) in
        [(Element::F16, ROUNDED.map(|row| row.1)), (Element::Bf16, ROUNDED.map(|row| row.2))]
    {
        let rounded = f32s(&many).to(element);
        let expected: Vec<u8> =
            expected.iter().copied().cycle().take(many.len()).flat_map(u16::to_le_bytes).collect();
        assert_eq!(streamed(&rounded).0, expected, "{element}");
        assert_eq!((rounded.byte_len(), rounded.element()), (expected.len() as u64, element));
        // What was written reads back as the same values, exactly.
        let read_back = stored(element, expected.iter().copied());
        assert_eq!(bits(&rounded.values()), bits(&read_back.values()), "{element}");
        assert_eq!(streamed(&read_back.to(element)).0, expected, "{element}");
        // The last type counts, from the source at once.
        assert_eq!(bits(&rounded.to(Element::F32).values()), bits(&many));
    }
}

#[test]
fn half_precision_is_read_exactly() {
    let f16 = [
        (0x3c01u16, 1.000_976_6f32),
        (0x0001, 5.960_464_5e-8),
        (0x7bff, 65504.0),
        (0xfc00, f32::NEG_INFINITY),
        (0x8000, -0.0),
    ];
    let bf16 = [
        (0x3f81u16, 1.007_812_5f32),
        (0x0001, 9.183_55e-41),
        (0x7f7f, 3.389_531_4e38),
        (0xff80, f32::NEG_INFINITY),
        (0x8000, -0.0),
    ];
    for (element, cases) in [(Element::F16, f16), (Element::Bf16, bf16)] {
        let recipe = stored(element, cases.iter().flat_map(|(bits, _)| bits.to_le_bytes()));
        let expected = cases.map(|(_, value)| value);
        assert_eq!(bits(&recipe.values()), bits(&expected), "{element}");
        assert_eq!(
            streamed(&recipe).0,
            expected.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>(),
            "{element}"
        );
        let nan = stored(element, 0x7fffu16.to_le_bytes());
        assert!(
            nan.values::<f32>()[0].is_nan() && nan.to(Element::F16).values::<f32>()[0].is_nan()
        );
    }
}

#[test]
fn bytes_of_the_type_wanted_are_lent() {
    let bytes: Vec<u8> = (0..=255).collect();
    for element in [Element::F32, Element::F16, Element::Bf16] {
        let storage = Arc::new(Held { bytes: bytes.clone(), file: Some("folder/file".into()) });
        let held = storage.bytes.as_ptr_range();
        let recipe = Recipe::stored_as(element, storage, 3..203, &[200 / element.size()]).unwrap();
        let (streamed, pieces) = streamed(&recipe.to(element));
        assert_eq!(streamed, bytes[3..203]);
        assert!(pieces.len() == 1 && pieces[0].start == held.start.wrapping_add(3), "{element}");
        assert_eq!(
            recipe.place(),
            Some(Place { file: Path::new("folder/file"), range: 3..203, element })
        );
    }
    assert_eq!(f32s(&[1.0]).place(), None);
}

#[derive(Debug)]
struct Halves;

impl Generator for Halves {
    fn fill(&self, first: usize, values: &mut [f32]) {
        for (index, value) in (first..).zip(values) {
            *value = index as f32 / 2.0;
        }
    }
}

#[test]
fn a_part_is_read_and_formulas_are_rounded() {
    let recipe = Recipe::generated(Arc::new(Halves), &[2, 5000]);
    let mut part = [0.0; 3];
    recipe.to(Element::F16).read(9001, &mut part);
    // At 4,500 the distance of two f16 numbers is 4; 4502 lies between, and 4504 is the even one.
    assert_eq!(part, [4500.0, 4500.0, 4500.0]);
    recipe.to(Element::F16).read(9004, &mut part);
    assert_eq!(part, [4504.0, 4504.0, 4504.0]);
    assert_eq!(recipe.place(), None);
    assert!(!recipe.same_source(&recipe.to(Element::Bf16)));
    let short = stored(Element::F16, [0, 0, 0, 0x3c]);
    let mut one = [9.0];
    short.read(1, &mut one);
    assert_eq!(one, [1.0]);
}

/// Halves, which are generated only once.
#[derive(Debug, Default)]
struct Once(AtomicBool);

impl Generator for Once {
    fn fill(&self, first: usize, values: &mut [f32]) {
        assert!(!self.0.swap(true, Ordering::Relaxed), "generated again");
        Halves.fill(first, values);
    }
}

#[test]
fn evaluated_weights_are_generated_once() {
    let recipe = Recipe::generated(Arc::new(Once::default()), &[2, 5000]).to(Element::F16);
    let file = f32s(&[1.0]);
    let weights: Weights = [("first", &recipe), ("second", &recipe), ("file", &file)]
        .map(|(path, recipe)| (path.to_owned(), recipe.clone()))
        .into_iter()
        .collect();
    let evaluated = weights.evaluated(&Weights::default());
    let first = evaluated.get("first").unwrap();
    assert!(first.same_source(evaluated.get("second").unwrap()));
    assert!(file.same_source(evaluated.get("file").unwrap()));
    assert_eq!((first.shape(), first.element()), (recipe.shape(), Element::F16));
    let generated = Recipe::generated(Arc::new(Halves), &[2, 5000]);
    assert_eq!(streamed(first).0, streamed(&generated.to(Element::F16)).0);
    let values: Vec<f32> = generated.values();
    assert_eq!(first.to(Element::F32).values::<f32>(), values, "not rounded before it is asked");
    let held = Recipe::held(&values, &[5000, 2]).unwrap();
    assert_eq!((held.shape(), held.values::<f32>()), (&[5000, 2][..], values));
    assert!(Recipe::held(&[1.0, 2.0], &[3]).is_err());
}

#[test]
fn generated_weights_are_replaced_by_equal_stored_ones_only() {
    let generated = Recipe::generated(Arc::new(Halves), &[3]);
    let taken = |stored: &Recipe| {
        let weights = |recipe: &Recipe| [("path".to_owned(), recipe.clone())].into_iter().collect();
        let evaluated = Weights::evaluated(&weights(&generated), &weights(stored));
        let evaluated = evaluated.get("path").unwrap();
        assert_eq!(evaluated.values::<f32>(), [0.0, 0.5, 1.0]);
        evaluated.same_source(stored)
    };
    let equal = f32s(&[0.0, 0.5, 1.0]);
    assert!(taken(&equal));
    assert!(!taken(&f32s(&[0.0, 0.5, 1.001])), "other values");
    assert!(!taken(&f32s(&[0.0, 0.5])), "fewer values");
    assert!(!taken(&equal.reshaped(&[3, 1]).unwrap()), "another shape");
    assert!(!taken(&equal.to(Element::F16)), "another type");
}

#[test]
#[cfg_attr(miri, ignore = "more numbers than an interpreter reads in a quarter of an hour")]
fn distances() {
    let far = |change: &dyn Fn(&mut [f32])| {
        let mut values: Vec<f32> = (0..140_000).map(|index| index as f32).collect();
        change(&mut values);
        f32s(&values)
    };
    let base = far(&|_| {});
    for (name, other, expected) in [
        ("the same", base.clone(), 0.0),
        ("equal bytes", far(&|_| {}), 0.0),
        ("the first", far(&|values| values[0] = 0.5), 0.5),
        ("the last", far(&|values| values[139_999] += 3.0), 3.0),
        ("infinite", far(&|values| values[70_000] = f32::INFINITY), f32::INFINITY),
        ("a negative zero", far(&|values| values[0] = -0.0), 0.0),
    ] {
        assert_eq!(base.distance(&other), expected, "{name}");
        assert_eq!(other.distance(&base), expected, "{name}");
    }
    // A number after it does not hide it.
    let holed = far(&|values| (values[3], values[9]) = (f32::NAN, -1e9));
    assert!(base.distance(&holed).is_nan() && holed.distance(&base).is_nan());
    assert_eq!(base.to(Element::F16).distance(&base), f32::INFINITY, "beyond the range of f16");
    assert_eq!(f32s(&[1.0, 1.125]).distance(&stored(Element::F16, [0, 0x3c, 0, 0x3c])), 0.125);
}

/// Of matrices larger than a piece and smaller, and read from places within a row and at its ends.
#[test]
fn columns_are_given_as_rows() {
    for ([rows, width], columns) in
        [([37, 5000], 1200..3900), ([70_001, 3], 1..3), ([16, 4], 0..4), ([1, 1], 0..1)]
    {
        let value = |index: usize| index as f32;
        let all: Vec<f32> = (0..rows * width).map(value).collect();
        let matrix = f32s(&all).reshaped(&[rows, width]).unwrap();
        let turned = Recipe::columns(&matrix, columns.clone()).unwrap();
        let expected: Vec<f32> = columns
            .clone()
            .flat_map(|column| (0..rows).map(move |row| value(row * width + column)))
            .collect();
        assert_eq!(turned.shape(), [columns.len(), rows]);
        assert!(turned.values::<f32>() == expected, "{rows} x {width}");
        let inner = expected.len() / 3..expected.len() - expected.len() / 5;
        let mut part = vec![f32::NAN; inner.len()];
        turned.read(inner.start, &mut part);
        assert!(part == expected[inner], "{rows} x {width}");
    }
    let mut holed: Vec<f32> = (0..12).map(|index| index as f32).collect();
    holed[4 + 2] = f32::NAN;
    let matrix = f32s(&holed).reshaped(&[3, 4]).unwrap();
    let (place, value) = Recipe::columns(&matrix, 1..3).unwrap().first_non_finite().unwrap();
    assert!(place == 4 && value.is_nan());
    assert!(Recipe::columns(&matrix, 0..2).unwrap().first_non_finite().is_none());
}
