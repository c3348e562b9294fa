//! The inputs and outputs of a loaded graph, and the validation of values before an engine
//! receives them.
//!
//! An axis is a size, a name (`batch`), or open. A name must have the same size in all
//! inputs of a run.

use crate::{Error, ErrorKind, Result};
use std::borrow::Cow;
use std::fmt;

/// The name of an element type, such as `f32`.
pub(crate) type Element = Cow<'static, str>;

/// An axis of an input, as declared by the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Size(usize),
    Symbol(String),
    Open,
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Size(size) => write!(f, "{size}"),
            Axis::Symbol(name) => f.write_str(name),
            Axis::Open => f.write_str("?"),
        }
    }
}

/// An input, as declared by the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) element: Element,
    /// `None` if even the rank is open.
    pub(crate) axes: Option<Vec<Axis>>,
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(axes) = &self.axes else { return write!(f, "{} of any shape", self.element) };
        let axes: Vec<_> = axes.iter().map(Axis::to_string).collect();
        write!(f, "{} [{}]", self.element, axes.join(", "))
    }
}

/// A value before its conversion for an engine.
pub(crate) trait Given: Sized {
    fn element(&self) -> Element;
    fn shape(&self) -> Vec<usize>;
    /// An empty list of tokens: i64 `[0]`.
    fn no_tokens() -> Result<Self>;
}

/// The inputs and outputs of a loaded file.
#[derive(Debug)]
pub(crate) struct Signature {
    /// The file, as errors name it.
    place: String,
    inputs: Vec<Input>,
    input_names: Vec<String>,
    output_names: Vec<String>,
    /// The number of inputs of programs, which are the last ones and optional.
    n_own: usize,
}

impl Signature {
    pub(crate) fn new(place: String, inputs: Vec<Input>, output_names: Vec<String>) -> Self {
        let input_names = inputs.iter().map(|input| input.name.clone()).collect();
        Self { place, inputs, input_names, output_names, n_own: 0 }
    }

    /// The same if the last `n_own` inputs are those of programs: optional lists of tokens.
    pub(crate) fn with_own(self, n_own: usize) -> Self {
        Self { n_own, ..self }
    }

    /// Whether programs read this input.
    pub(crate) fn has_own(&self, input: &str) -> bool {
        self.input_names[self.input_names.len() - self.n_own..].iter().any(|own| own == input)
    }

    /// The inputs of the file.
    pub(crate) fn inputs_of_file(&self) -> &[String] {
        &self.input_names[..self.input_names.len() - self.n_own]
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    #[cfg(feature = "ort")]
    pub(crate) fn input_names(&self) -> &[String] {
        &self.input_names
    }

    pub(crate) fn output_names(&self) -> &[String] {
        &self.output_names
    }

    /// Whether the input has half precision.
    pub(crate) fn takes_half(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input.name == name && input.element == "f16")
    }

    /// Whether the input is boolean.
    #[cfg(feature = "ort")]
    pub(crate) fn takes_bool(&self, name: &str) -> bool {
        self.inputs.iter().any(|input| input.name == name && input.element == "bool")
    }

    /// Returns the given values in the graph's order, if they are valid.
    pub(crate) fn arrange<'n, T: Given>(
        &self,
        given: impl IntoIterator<Item = (&'n str, T)>,
    ) -> Result<Vec<T>> {
        let mut slots: Vec<Option<T>> = self.inputs.iter().map(|_| None).collect();
        for (name, value) in given {
            match self.input_names.iter().position(|known| known == name) {
                Some(index) => slots[index] = Some(value),
                None => {
                    return Err(self.error(
                        name,
                        format!(
                            "unknown input; the graph has {}",
                            self.inputs_of_file().join(", ")
                        ),
                    ));
                }
            }
        }
        let mut arranged = Vec::with_capacity(slots.len());
        let mut sizes = Sizes::default();
        for (input, slot) in self.inputs.iter().zip(slots) {
            let value = match slot {
                Some(value) => value,
                None if self.has_own(&input.name) => T::no_tokens()?,
                None => {
                    return Err(self.error(&input.name, format!("expected {input}, found nothing")));
                }
            };
            self.check(input, &value, &mut sizes)?;
            arranged.push(value);
        }
        Ok(arranged)
    }

    fn check<'s>(
        &'s self,
        input: &'s Input,
        value: &impl Given,
        sizes: &mut Sizes<'s>,
    ) -> Result<()> {
        let (element, shape) = (value.element(), value.shape());
        let wrong = |but: String| {
            self.error(&input.name, format!("expected {input}, found {element} {shape:?}{but}"))
        };
        let axes = input.axes.as_deref();
        if element != input.element || axes.is_some_and(|axes| axes.len() != shape.len()) {
            return Err(wrong(String::new()));
        }
        for (axis, &size) in axes.unwrap_or_default().iter().zip(&shape) {
            match axis {
                Axis::Size(wanted) if *wanted != size => return Err(wrong(String::new())),
                Axis::Symbol(symbol) => {
                    if let Some((before, place)) = sizes.bind(symbol, size, &input.name) {
                        return Err(wrong(format!(", but {symbol} is {before} in input {place}")));
                    }
                }
                Axis::Size(_) | Axis::Open => {}
            }
        }
        Ok(())
    }

    fn error(&self, input: &str, message: String) -> Error {
        Error::new(ErrorKind::Input, format!("{}: input {input}", self.place), message)
    }
}

/// The sizes of the named axes in a run, each with the input that set it.
#[derive(Default)]
struct Sizes<'s>(Vec<(&'s str, usize, &'s str)>);

impl<'s> Sizes<'s> {
    /// Sets the size of `symbol`; returns its previous size and input if they differ.
    fn bind(&mut self, symbol: &'s str, size: usize, input: &'s str) -> Option<(usize, &'s str)> {
        match self.0.iter().find(|(known, ..)| *known == symbol) {
            Some(&(_, before, place)) => (before != size).then_some((before, place)),
            None => {
                self.0.push((symbol, size, input));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;

    struct Tensor(&'static str, Vec<usize>);

    impl Given for Tensor {
        fn element(&self) -> Element {
            self.0.into()
        }
        fn shape(&self) -> Vec<usize> {
            self.1.clone()
        }
        fn no_tokens() -> Result<Self> {
            Ok(Self("i64", vec![0]))
        }
    }

    fn signature() -> Signature {
        let input = |name: &str, element: &'static str, axes| Input {
            name: name.into(),
            element: element.into(),
            axes,
        };
        let symbol = |name: &str| Axis::Symbol(name.into());
        let inputs = vec![
            input("ids", "i64", Some(vec![symbol("batch"), symbol("src")])),
            input("states", "f32", Some(vec![symbol("batch"), Axis::Open, Axis::Size(4)])),
            input("free", "f32", None),
        ];
        Signature::new("decoder.onnx".into(), inputs, vec!["logits".into()])
    }

    fn ids(shape: [usize; 2]) -> (&'static str, Tensor) {
        ("ids", Tensor("i64", shape.into()))
    }

    fn states(shape: &[usize]) -> (&'static str, Tensor) {
        ("states", Tensor("f32", shape.into()))
    }

    fn free() -> (&'static str, Tensor) {
        ("free", Tensor("f32", vec![7]))
    }

    #[test]
    fn values_come_in_the_order_of_the_graph() {
        let arranged =
            signature().arrange([free(), states(&[2, 0, 4]), ids([2, 3])]).expect("all fit");
        let shapes: Vec<_> = arranged.into_iter().map(|tensor| tensor.1).collect();
        assert_eq!(shapes, [vec![2, 3], vec![2, 0, 4], vec![7]]);
    }

    #[test]
    fn inputs_of_programs_can_be_left_out() {
        let mut signature = signature();
        let names = signature.input_names.clone();
        signature.inputs[2] = Input {
            name: "own".into(),
            element: "i64".into(),
            axes: Some(vec![Axis::Symbol("tokens".into())]),
        };
        signature.input_names[2] = "own".into();
        assert!(
            signature.arrange([ids([2, 3]), states(&[2, 0, 4])]).is_err(),
            "an input of the file"
        );
        let signature = signature.with_own(1);
        assert!(signature.has_own("own") && !signature.has_own("ids"));
        assert_eq!(signature.inputs_of_file(), &names[..2]);
        let last = |given: Vec<(&'static str, Tensor)>| {
            signature.arrange(given).expect("all fit").pop().expect("three").1
        };
        assert_eq!(last(vec![ids([2, 3]), states(&[2, 0, 4])]), [0]);
        assert_eq!(
            last(vec![ids([2, 3]), states(&[2, 0, 4]), ("own", Tensor("i64", vec![5]))]),
            [5]
        );
    }

    #[test]
    fn errors_name_input_expected_and_found() {
        let error = |given: Vec<(&'static str, Tensor)>| match signature().arrange(given) {
            Ok(_) => "accepted".to_string(),
            Err(error) => error.to_string(),
        };
        assert_snapshot!(error(vec![ids([2, 3]), free()]), @"decoder.onnx: input states: expected f32 [batch, ?, 4], found nothing");
        assert_snapshot!(error(vec![ids([2, 3]), states(&[2, 1, 4])]), @"decoder.onnx: input free: expected f32 of any shape, found nothing");
        assert_snapshot!(error(vec![("mask", free().1)]), @"decoder.onnx: input mask: unknown input; the graph has ids, states, free");
        assert_snapshot!(error(vec![ids([2, 3]), ("states", Tensor("f64", vec![2, 1, 4])), free()]), @"decoder.onnx: input states: expected f32 [batch, ?, 4], found f64 [2, 1, 4]");
        assert_snapshot!(error(vec![ids([2, 3]), states(&[2, 4]), free()]), @"decoder.onnx: input states: expected f32 [batch, ?, 4], found f32 [2, 4]");
        assert_snapshot!(error(vec![ids([2, 3]), states(&[2, 1, 5]), free()]), @"decoder.onnx: input states: expected f32 [batch, ?, 4], found f32 [2, 1, 5]");
        assert_snapshot!(error(vec![ids([2, 3]), states(&[3, 1, 4]), free()]), @"decoder.onnx: input states: expected f32 [batch, ?, 4], found f32 [3, 1, 4], but batch is 2 in input ids");
    }
}
