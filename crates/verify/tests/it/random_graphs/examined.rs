//! A graph of the language made of a list of numbers, each of which appends one operation to what
//! is there; and whether all engines compute the same of it.
//!
//! Values stay small and functions that jump see inputs only, so that rounding cannot be taken for
//! a mistake.

use cognate_export::{Existing, Export, Metadata, write_folder};
use cognate_graph::{
    Bindings, Builder, DType, Dim, Generator, Graph, Program, Recipe, Shape, Statistic, Tensor,
    Unary, Weights, concat,
};
use cognate_runtime::{Device, Options, Reference, Runtime, Source, Value, Values, available};
use cognate_verify::{CLOSE, compare};
use ndarray::{ArrayD, IxDyn};
use std::sync::Arc;

/// What appends one operation: which, and of what.
pub(crate) type Gene = (u8, u16, u16, u16);

/// Sizes of `batch` and `src`.
const SIZES: [[usize; 2]; 2] = [[2, 3], [1, 1]];
/// Elements of a tensor at most.
const LARGEST: usize = 3000;
const RANK: usize = 5;
/// The size of constant axes, and the rows of tables.
const WIDTH: usize = 4;
const ROWS: usize = 6;

/// A tensor, and what is known of its values.
#[derive(Clone, Copy)]
struct Made<'g> {
    tensor: Tensor<'g>,
    /// No magnitude is larger.
    bound: f64,
    /// Inputs and what is only moved: engines have the same bits.
    exact: bool,
    /// Integers from 0 to below this, if they are.
    below: Option<usize>,
}

impl Made<'_> {
    fn dtype(&self) -> DType {
        self.tensor.ty().dtype
    }

    fn shape(&self) -> Shape {
        self.tensor.ty().shape
    }

    fn dims(&self) -> Vec<Dim> {
        self.shape().dims().to_vec()
    }

    fn is_float(&self) -> bool {
        self.dtype() == DType::F32
    }
}

struct Growing<'g> {
    builder: &'g Builder,
    made: Vec<Made<'g>>,
    /// The largest bound so far.
    scale: f64,
}

impl<'g> Growing<'g> {
    fn new(builder: &'g Builder) -> Self {
        let root = builder.root();
        let [batch, src] = ["batch", "src"].map(Dim::from);
        let number = |tensor| Made { tensor, bound: 2.0, exact: true, below: None };
        let ids = builder.input("ids", DType::I64, [batch.clone(), src.clone()]);
        let made = vec![
            number(builder.input("x", DType::F32, [batch, src.clone(), WIDTH.into()])),
            number(builder.input("y", DType::F32, [src, WIDTH.into()])),
            number(root.parameter("square", [WIDTH, WIDTH])),
            number(root.parameter("table", [ROWS, WIDTH])),
            number(root.parameter("row", [WIDTH])),
            Made { below: Some(ROWS), bound: ROWS as f64, ..number(ids) },
        ];
        Self { builder, made, scale: ROWS as f64 }
    }

    /// The first one from a place on that fits.
    fn find(&self, from: u16, fits: impl Fn(&Made<'g>) -> bool) -> Option<Made<'g>> {
        (0..self.made.len())
            .map(|step| self.made[(usize::from(from) + step) % self.made.len()])
            .find(fits)
    }

    /// One whose values allow another product or sum.
    fn tame(&self, from: u16, fits: impl Fn(&Made<'g>) -> bool) -> Option<Made<'g>> {
        let found = self.find(from, fits)?;
        Some(if found.bound <= 20.0 {
            found
        } else if found.dtype() == DType::I64 {
            found.below?;
            Made {
                tensor: found.tensor % self.builder.integer(7),
                bound: 7.0,
                below: Some(7),
                ..found
            }
        } else {
            Made { tensor: found.tensor.map(Unary::Tanh), bound: 1.0, exact: false, below: None }
        })
    }

    fn push(&mut self, tensor: Tensor<'g>, bound: f64) {
        self.made.push(Made { tensor, bound, exact: false, below: None });
        self.scale = self.scale.max(bound);
    }

    /// What only moves values.
    fn push_moved(&mut self, tensor: Tensor<'g>, from: Made<'g>) {
        self.made.push(Made { tensor, ..from });
    }

    /// Appends what the gene says, unless nothing fits.
    fn grow(&mut self, (kind, a, b, c): Gene) -> Option<()> {
        let numbers = |made: &Made<'_>| matches!(made.dtype(), DType::F32 | DType::I64);
        let float = |made: &Made<'_>| made.is_float();
        let row = |made: &Made<'_>| made.is_float() && !made.dims().is_empty();
        let wide = |made: &Made<'_>| made.is_float() && made.dims().last() == Some(&WIDTH.into());
        let choice = usize::from(c);
        let builder = self.builder;
        match kind % 32 {
            0 => {
                let x = self.tame(a, float)?;
                let function = [Unary::Relu, Unary::Sigmoid, Unary::Tanh, Unary::Erf][choice % 4];
                self.push(x.tensor.map(function), x.bound.max(1.0));
            }
            1 => {
                let x = self.find(a, float)?;
                self.push(x.tensor.map(Unary::Tanh).map(Unary::Exp), 3.0);
            }
            2 => {
                let x = self.tame(a, float)?;
                self.push((x.tensor * x.tensor + 0.1).map(Unary::Sqrt), x.bound + 1.0);
            }
            3 => {
                let x = self.find(a, |made| made.is_float() && made.exact)?;
                self.push_moved(
                    (x.tensor * 2.0).map(Unary::Floor),
                    Made { bound: x.bound * 2.0 + 1.0, ..x },
                );
            }
            4..=7 => {
                let x = self.tame(a, numbers)?;
                let y = self.tame(b, |made| {
                    made.dtype() == x.dtype() && x.shape().broadcast(&made.shape()).is_some()
                })?;
                let (tensor, bound) = match kind % 32 {
                    4 => (x.tensor + y.tensor, x.bound + y.bound),
                    5 => (x.tensor - y.tensor, x.bound + y.bound),
                    6 if x.is_float() => (x.tensor / (y.tensor * y.tensor + 0.5), x.bound * 2.0),
                    _ => (x.tensor * y.tensor, x.bound * y.bound),
                };
                self.push(tensor, bound);
                if x.dtype() == DType::I64 {
                    self.made.last_mut()?.exact = true;
                }
            }
            8 => {
                let x = self.find(a, |made| made.dtype() == DType::I64 && made.exact)?;
                let divisor = choice % 5 + 1;
                self.push(x.tensor % builder.integer(divisor as i64), divisor as f64);
                let made = self.made.last_mut()?;
                (made.exact, made.below) = (true, Some(divisor));
            }
            9 | 10 => {
                let x = self.tame(a, |made| made.is_float() && made.dims().len() >= 2)?;
                let inner = x.dims().last()?.clone();
                let y = self.tame(b, |made| {
                    let dims = made.dims();
                    made.is_float()
                        && dims.len() >= 2
                        && dims[dims.len() - 2] == inner
                        && leading(&x.shape()).broadcast(&leading(&made.shape())).is_some()
                })?;
                self.push(x.tensor.matmul(y.tensor), x.bound * y.bound * ROWS as f64);
            }
            11 => {
                let x = self.tame(a, wide)?;
                let weight = self.find(b, |made| {
                    made.is_float() && made.dims().len() == 2 && made.dims()[1] == WIDTH.into()
                })?;
                let bias = self.find(c, |made| {
                    made.is_float()
                        && made.dims() == weight.dims()[..1]
                        && !choice.is_multiple_of(3)
                });
                let bound =
                    x.bound * weight.bound * WIDTH as f64 + bias.map_or(0.0, |bias| bias.bound);
                self.push(x.tensor.linear(weight.tensor, bias.map(|bias| bias.tensor)), bound);
            }
            12 => {
                let x = self.tame(a, |made| made.is_float() && made.dims().len() == 2)?;
                let transposed = [choice & 1 == 1, choice & 2 == 2];
                let inner = x.dims()[usize::from(!transposed[0])].clone();
                let axis = usize::from(transposed[1]);
                let y = self.tame(b, |made| {
                    made.is_float() && made.dims().len() == 2 && made.dims()[axis] == inner
                })?;
                self.push(x.tensor.gemm(y.tensor, transposed), x.bound * y.bound * ROWS as f64);
            }
            13 => {
                let x = self.tame(a, row)?;
                self.push(x.tensor.softmax(), 1.0);
            }
            14 => {
                let x = self.tame(a, row)?;
                let tensor = if choice.is_multiple_of(2) {
                    x.tensor.log_sum_exp()
                } else {
                    x.tensor.shifted_exp()
                };
                self.push(tensor, x.bound + 10.0);
            }
            15 => {
                let (x, scale) = (
                    self.tame(a, wide)?,
                    self.find(b, |made| made.is_float() && made.dims() == [Dim::from(WIDTH)])?,
                );
                let tensor = match choice % 4 {
                    0 => x.tensor.rms_norm(scale.tensor, 0.1),
                    1 => {
                        x.tensor.layer_norm(scale.tensor, scale.tensor, 0.1)
                            + x.tensor.layer_norm_statistic(Statistic::Mean, 0.1)
                    }
                    2 => x.tensor.layer_norm_statistic(Statistic::InverseDeviation, 0.1),
                    _ => x.tensor.layer_norm(scale.tensor, scale.tensor, 0.1),
                };
                self.push(tensor, 4.0 + x.bound + 2.0 * scale.bound);
            }
            16 => {
                let x = self.find(a, |made| made.dims().len() >= 2)?;
                let mut order: Vec<usize> = (0..x.dims().len()).collect();
                order.rotate_left(usize::from(b) % x.dims().len());
                order.swap(0, choice % x.dims().len());
                self.push_moved(x.tensor.transpose(&order), x);
            }
            17 => {
                // Two neighbours become one.
                let x = self.find(a, |made| made.dims().len() >= 2)?;
                let mut dims = x.dims();
                let axis = usize::from(b) % (dims.len() - 1);
                let next = dims.remove(axis + 1);
                dims[axis] = &dims[axis] * &next;
                self.push_moved(x.tensor.reshape(dims), x);
            }
            18 => {
                let x = self.find(a, |made| made.dims().len() < RANK)?;
                let mut dims = x.dims();
                dims.insert(usize::from(b) % (dims.len() + 1), 1.into());
                self.push_moved(x.tensor.reshape(dims), x);
            }
            19 => {
                // A constant axis becomes two.
                let x = self.find(a, |made| {
                    made.dims().len() < RANK && made.dims().contains(&WIDTH.into())
                })?;
                let mut dims = x.dims();
                let axis = dims.iter().position(|dim| *dim == WIDTH.into())?;
                dims.splice(axis..=axis, [Dim::from(2), 2.into()]);
                self.push_moved(x.tensor.reshape(dims), x);
            }
            20 => {
                let x = self.find(a, |made| !made.dims().is_empty())?;
                let axis = choice % x.dims().len();
                let without = |mut dims: Vec<Dim>| {
                    dims.remove(axis);
                    dims
                };
                let y = self.find(b, |made| {
                    made.dtype() == x.dtype()
                        && made.dims().len() == x.dims().len()
                        && without(made.dims()) == without(x.dims())
                })?;
                let below = x.below.zip(y.below).map(|(one, other)| one.max(other));
                let made =
                    Made { bound: x.bound.max(y.bound), exact: x.exact && y.exact, below, ..x };
                self.push_moved(concat(axis, &[x.tensor, y.tensor]), made);
            }
            21 => {
                let x = self.find(a, |made| !made.dims().is_empty())?;
                let axis = usize::from(b) % x.dims().len();
                let dim = x.dims()[axis].clone();
                let tensor = match choice % 3 {
                    0 => x.tensor.slice(axis, 0, 1),
                    1 => x.tensor.slice(axis, dim.clone() - 1, dim),
                    _ => x.tensor.slice(axis, 0, dim),
                };
                self.push_moved(tensor, x);
            }
            22 => {
                let x = self.tame(a, |made| numbers(made) && !made.dims().is_empty())?;
                let axes: Vec<usize> =
                    (0..x.dims().len()).filter(|axis| (choice + 1) >> axis & 1 == 1).collect();
                let axes = if axes.is_empty() { vec![0] } else { axes };
                let exact = x.dtype() == DType::I64;
                // Numbers of elements that do not make sums large: what is summed here has no more
                // than some hundreds.
                self.push(x.tensor.sum(&axes), x.bound * 300.0);
                self.made.last_mut()?.exact = exact;
            }
            23 => {
                // tract 0.23.9 takes integers that it made of floats for sizes, of which it has no
                // such sums.
                let summed = |made: &Made<'_>| {
                    (made.is_float() || made.below.is_some()) && !made.dims().is_empty()
                };
                let x = self.tame(a, summed)?;
                let exact = x.dtype() == DType::I64;
                self.push(x.tensor.cumulative_sum(), x.bound * 100.0);
                self.made.last_mut()?.exact = exact;
            }
            24 => {
                let x = self.find(a, |made| made.dims().len() < RANK)?;
                let more = [Dim::from(2), Dim::from("batch")][choice % 2].clone();
                let shape: Vec<Dim> = [more].into_iter().chain(x.dims()).collect();
                self.push_moved(x.tensor.expand(shape), x);
            }
            25 | 26 => {
                let ids = self.find(a, |made| made.below.is_some() && made.dims().len() == 2)?;
                let rows = |made: &Made<'_>| made.dims().first().and_then(Dim::as_constant);
                let table = self.find(b, |made| {
                    rows(made)
                        .is_some_and(|rows| ids.below.is_some_and(|below| below as i64 <= rows))
                })?;
                if kind % 32 == 25 || !table.is_float() || table.bound > 20.0 {
                    self.push_moved(table.tensor.gather(ids.tensor), table);
                } else {
                    self.push(
                        table.tensor.scatter_add(ids.tensor, table.tensor.gather(ids.tensor)),
                        table.bound * 100.0,
                    );
                }
            }
            27 => {
                let x = self.find(a, |made| made.exact)?;
                match (x.dtype(), choice % 3) {
                    (DType::F32, 0) => {
                        self.push_moved(x.tensor.cast(DType::F16).cast(DType::F32), x)
                    }
                    (DType::F32, 1) if x.bound < 1e6 => {
                        self.push_moved(
                            (x.tensor * 2.0).cast(DType::I64),
                            Made { bound: x.bound * 2.0, below: None, ..x },
                        );
                    }
                    (DType::F32, _) => return None,
                    // A float has no bounds of an index.
                    _ => self.push_moved(x.tensor.cast(DType::F32), Made { below: None, ..x }),
                }
            }
            28 | 29 => {
                let x = self.find(a, |made| made.exact && numbers(made))?;
                let y = self.find(b, |made| {
                    made.exact
                        && made.dtype() == x.dtype()
                        && x.shape().broadcast(&made.shape()).is_some()
                })?;
                let condition = if kind % 32 == 28 {
                    x.tensor.less_or_equal(y.tensor)
                } else {
                    x.tensor.equal(y.tensor)
                };
                self.push_moved(condition, Made { bound: 1.0, below: None, ..x });
            }
            30 => {
                let condition = self.find(a, |made| made.dtype() == DType::Bool)?;
                let x = self.find(b, |made| {
                    condition.shape().broadcast(&made.shape()).is_some() && numbers(made)
                })?;
                let shape = condition.shape().broadcast(&x.shape())?;
                let y = self.find(c, |made| {
                    made.dtype() == x.dtype() && shape.broadcast(&made.shape()).is_some()
                })?;
                let made = Made {
                    bound: x.bound.max(y.bound),
                    exact: x.exact && y.exact,
                    below: None,
                    ..x
                };
                self.push_moved(condition.tensor.select(x.tensor, y.tensor), made);
            }
            31 => {
                let limit =
                    [Dim::from("src"), Dim::from("src") + 2, Dim::from(3)][choice % 3].clone();
                let range = builder.range(0, limit);
                self.made.push(Made { tensor: range, bound: 5.0, exact: true, below: Some(5) });
            }
            // A byte has no other remainder.
            _ => return None,
        }
        // Larger ones would take time and show no more.
        let elements = SIZES
            .iter()
            .map(|sizes| elements(&self.made.last().map(Made::shape).unwrap_or_default(), sizes))
            .max();
        if elements > Some(LARGEST) {
            self.made.pop();
        }
        Some(())
    }

    /// What no type allows, or any: the builder must say.
    fn grow_freely(&mut self, (kind, a, b, _): Gene) {
        let any = |from: u16| self.made[usize::from(from) % self.made.len()];
        let (x, y) = (any(a), any(b));
        let tensor = match kind % 8 {
            0 => x.tensor + y.tensor,
            1 => x.tensor.matmul(y.tensor),
            2 => x.tensor.gather(y.tensor),
            3 => x.tensor.reshape(y.shape()),
            4 => x.tensor.select(y.tensor, x.tensor),
            5 => concat(0, &[x.tensor, y.tensor]),
            6 => x.tensor.transpose(&[1, 0]),
            _ => x.tensor.scatter_add(y.tensor, x.tensor),
        };
        // Of those that are allowed, some read outside of tables: they are made and not run.
        self.made.push(Made { tensor, bound: f64::INFINITY, exact: false, below: None });
    }
}

fn leading(shape: &Shape) -> Shape {
    shape.dims()[..shape.rank() - 2].iter().collect()
}

fn elements(shape: &Shape, [batch, src]: &[usize; 2]) -> usize {
    let mut sizes = Bindings::default();
    sizes.bind(&"batch".into(), *batch).unwrap();
    sizes.bind(&"src".into(), *src).unwrap();
    shape
        .elements()
        .evaluate(&sizes)
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(usize::MAX)
}

#[derive(Debug)]
struct Wave(f32);

impl Generator for Wave {
    fn fill(&self, first: usize, values: &mut [f32]) {
        values
            .iter_mut()
            .zip(first..)
            .for_each(|(value, place)| *value = (place as f32 * 0.7 + self.0).sin() * 2.0);
    }
}

fn wave(shape: &[usize], phase: f32) -> ArrayD<f32> {
    let mut values = vec![0.0; shape.iter().product()];
    Wave(phase).fill(0, &mut values);
    ArrayD::from_shape_vec(IxDyn(shape), values).unwrap()
}

/// What became of one graph.
pub(crate) enum Outcome {
    /// All engines computed the same.
    Agreed,
    /// The builder allowed no such graph.
    Refused,
    /// The others agreed.
    RefusedByTract,
}

/// Builds the graph of the genes; the error where the builder refuses, and the largest magnitude in
/// it.
fn graph(genes: &[Gene]) -> (Result<Graph, cognate_graph::Error>, f64) {
    let builder = Builder::new("random");
    let mut growing = Growing::new(&builder);
    let n_given = growing.made.len();
    for &gene in genes {
        // One gene of 64.
        if gene.0 >= 252 {
            growing.grow_freely(gene);
        } else {
            let _ = growing.grow(gene);
        }
    }
    // The last three; of none that was made, an input.
    let made = growing.made[n_given - 1..].iter().rev().take(3).enumerate();
    for (index, made) in made {
        builder.output(
            &format!("out.{index}"),
            if made.dtype() == DType::Bool { made.tensor.cast(DType::F32) } else { made.tensor },
        );
    }
    let scale = growing.made.iter().fold(growing.scale, |scale, made| scale.max(made.bound));
    (builder.finish(), scale)
}

pub(crate) fn examine(genes: &[Gene]) -> Result<Outcome, String> {
    let (graph, scale) = graph(genes);
    let Ok(graph) = graph else { return Ok(Outcome::Refused) };
    let text = graph.to_string();
    let shapes =
        [("square", vec![WIDTH, WIDTH]), ("table", vec![ROWS, WIDTH]), ("row", vec![WIDTH])];
    let weights: Weights = shapes
        .iter()
        .filter(|(name, _)| graph.parameters().any(|(_, node)| node.name == *name))
        .zip([1.0, 2.0, 3.0])
        .map(|((name, shape), phase)| {
            (String::from(*name), Recipe::generated(Arc::new(Wave(phase)), shape))
        })
        .collect();
    let program = Program::new(graph, weights).map_err(|error| format!("{error}\n{text}"))?;
    if scale.is_infinite() {
        // What it would compute is not known, but it can be written.
        return written(&program, |_| Ok(Outcome::Agreed))
            .map_err(|error| format!("{error}\n{text}"));
    }
    written(&program, |path| agree(&program, path, scale))
        .map_err(|error| format!("{error}\n{text}"))
}

/// Calls `then` with the exported file.
fn written(
    program: &Program,
    then: impl FnOnce(&std::path::Path) -> Result<Outcome, String>,
) -> Result<Outcome, String> {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata::default();
    let graphs = [("random.onnx", program)];
    let export = Export::new(&graphs, "weights.onnx_data", &metadata);
    write_folder(folder.path(), &export, &[], Existing::Replace)
        .map_err(|error| format!("the export refuses what the builder allows: {error}"))?;
    then(&folder.path().join("random.onnx"))
}

fn agree(program: &Program, path: &std::path::Path, scale: f64) -> Result<Outcome, String> {
    let source = Source::Onnx(path.to_owned());
    let load_with = |runtime: &dyn Runtime, source: &Source, options| {
        runtime.load(source, &options).map_err(|error| error.to_string())
    };
    let load =
        |runtime: &dyn Runtime, source: &Source| load_with(runtime, source, Options::default());
    let graph = Source::Graph(program.clone());
    let mut sessions = vec![
        ("reference".to_owned(), load(&Reference::F64, &graph)),
        ("reference in f32".to_owned(), load(&Reference::F32, &graph)),
    ];
    for engine in available(Device::Cpu).unwrap() {
        for plain in [false, true] {
            let options = Options { plain, ..Options::default() };
            sessions.push((engine.name().into(), load_with(&*engine, &source, options)));
        }
    }
    let mut tract_refuses = false;
    for [batch, src] in SIZES {
        let mut inputs: Values =
            [("x", wave(&[batch, src, WIDTH], 0.3)), ("y", wave(&[src, WIDTH], 1.3))]
                .into_iter()
                .collect();
        let ids = (0..batch * src).map(|place| (place * 5 % ROWS) as i64).collect();
        inputs
            .insert("ids", Value::I64(ArrayD::from_shape_vec(IxDyn(&[batch, src]), ids).unwrap()));
        let mut found = Vec::new();
        for (name, session) in &mut sessions {
            let session = session.as_mut().map_err(|error| error.clone());
            found.push((
                name.as_str(),
                session.and_then(|session| session.run(&inputs).map_err(|error| error.to_string())),
            ));
        }
        if found.iter().all(|(_, outputs)| outputs.is_err()) {
            return Ok(Outcome::Refused);
        }
        let before = found.len();
        found.retain(|(name, result)| *name != "tract" || result.is_ok());
        tract_refuses |= found.len() < before;
        let refused: Vec<String> = found
            .iter()
            .filter_map(|(name, result)| Some(format!("{name}: {}", result.as_ref().err()?)))
            .collect();
        if !refused.is_empty() {
            return Err(format!("some engines refuse: {}", refused.join("\n")));
        }
        let outputs: Vec<_> =
            found.into_iter().filter_map(|(name, outputs)| Some((name, outputs.ok()?))).collect();
        for output in program.graph().outputs() {
            let values =
                |index: usize| outputs[index].1.get(&output.name).unwrap().to_f64().unwrap();
            let expected = values(0);
            // How well the numbers can be known in f32 at all.
            let single =
                compare(&values(1), &expected).map_or(f64::NAN, |measured| measured.max_absolute);
            let bound = (CLOSE.relative_l2 * scale).max(16.0 * single);
            for (index, (name, _)) in outputs.iter().enumerate().skip(1) {
                let found = values(index);
                let Some(measured) = compare(&found, &expected) else {
                    return Err(format!(
                        "{name}, {}: shape {:?}, expected {:?}",
                        output.name,
                        found.shape(),
                        expected.shape()
                    ));
                };
                if measured.max_absolute.is_nan() || measured.max_absolute > bound {
                    let shown = format!(
                        "{name}, {}, batch {batch}, src {src}: {:e}, expected at most {bound:e}",
                        output.name, measured.max_absolute
                    );
                    return Err(format!("{shown}\n{found}\nexpected\n{expected}"));
                }
            }
        }
    }
    Ok(if tract_refuses { Outcome::RefusedByTract } else { Outcome::Agreed })
}
