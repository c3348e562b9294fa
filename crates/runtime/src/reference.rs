//! The reference evaluator as a runtime, to which the others are compared.

use crate::{
    Device, Engine, Error, ErrorKind, Loaded, Options, Result, Runtime, Session, Value, Values,
};
use cognate_eval::{Evaluator, Precision, Value as Computed};
use cognate_graph::{Node, Program};
use ndarray::{ArcArray, ArrayD, IxDyn};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

/// Evaluates graphs in memory; rejects ONNX files. By default with one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// Single precision, as in engines.
    F32,
    /// Double precision, as the reference for engines.
    F64,
}

impl Runtime for Reference {
    fn engine(&self) -> Engine {
        Engine::Reference
    }

    fn read_file(&self, path: &Path, _: &Options) -> Result<Arc<dyn Loaded>> {
        let message =
            "expected a graph, found an ONNX file; use the checkpoint, or the engine tract or ort";
        Err(Error::new(ErrorKind::Load, path.display(), message))
    }

    fn read_graphs(&self, programs: &[Program], options: &Options) -> Result<Vec<Arc<dyn Loaded>>> {
        if options.device != Device::Cpu {
            return Err(Error::new(
                ErrorKind::Unavailable,
                self.name(),
                "supports only the CPU; omit `--device cuda`",
            ));
        }
        let threads = options.threads.unwrap_or(NonZeroUsize::MIN);
        let evaluated = |program: &Program| {
            Arc::new(Evaluated { program: program.clone(), precision: *self, threads })
                as Arc<dyn Loaded>
        };
        Ok(programs.iter().map(evaluated).collect())
    }
}

struct Evaluated {
    program: Program,
    precision: Reference,
    threads: NonZeroUsize,
}

impl Loaded for Evaluated {
    fn session(self: Arc<Self>) -> Box<dyn Session> {
        match self.precision {
            Reference::F32 => Box::new(Evaluation::<f32>::new(
                &self.program,
                self.threads,
                "reference evaluator, f32",
            )),
            Reference::F64 => Box::new(Evaluation::<f64>::new(
                &self.program,
                self.threads,
                "reference evaluator, f64",
            )),
        }
    }
}

impl Reference {
    /// A session in single precision that also calls `observe` with the maximum magnitude of each
    /// floating-point value, input or computed, except weights; NaN if a value contains NaN.
    pub fn observed(
        program: &Program,
        observe: impl FnMut(&Node, f32) + 'static,
    ) -> Box<dyn Session> {
        let mut evaluation =
            Evaluation::<f32>::new(program, NonZeroUsize::MIN, "reference evaluator, f32");
        evaluation.observe = Some(Box::new(observe));
        Box::new(evaluation)
    }
}

/// Receives each node's maximum magnitude.
type Observe = Box<dyn FnMut(&Node, f32)>;

struct Evaluation<F> {
    graph: String,
    inputs: Vec<String>,
    outputs: Vec<String>,
    evaluator: Evaluator<F>,
    engine: &'static str,
    observe: Option<Observe>,
}

impl<F: Precision> Evaluation<F> {
    fn new(program: &Program, threads: NonZeroUsize, engine: &'static str) -> Self {
        let graph = program.graph();
        Self {
            graph: graph.name().into(),
            inputs: graph.inputs().map(|(_, node)| node.name.clone()).collect(),
            outputs: graph.outputs().iter().map(|output| output.name.clone()).collect(),
            evaluator: Evaluator::new(program).with_threads(threads),
            engine,
            observe: None,
        }
    }
}

/// The maximum magnitude; NaN if a value is NaN.
fn largest<F: Precision>(values: &ArcArray<F, IxDyn>) -> f32 {
    let larger = |largest: F, &value: &F| {
        if largest.is_nan() || value.abs() <= largest { largest } else { value.abs() }
    };
    values.iter().fold(F::zero(), larger).to_f32().unwrap_or(f32::NAN)
}

/// A precision that converts to and from [`Value`].
trait Host: Precision {
    fn bring(value: &Value) -> Result<ArrayD<Self>>;
    fn give(array: ArrayD<Self>) -> Value;
}

impl Host for f32 {
    fn bring(value: &Value) -> Result<ArrayD<f32>> {
        value.to_f32()
    }
    fn give(array: ArrayD<f32>) -> Value {
        Value::F32(array)
    }
}

impl Host for f64 {
    fn bring(value: &Value) -> Result<ArrayD<f64>> {
        value.to_f64()
    }
    fn give(array: ArrayD<f64>) -> Value {
        Value::F64(array)
    }
}

impl<F: Host> Session for Evaluation<F> {
    fn engine(&self) -> &str {
        self.engine
    }

    fn inputs(&self) -> &[String] {
        &self.inputs
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        if let Some((name, _)) =
            inputs.iter().find(|(name, _)| !self.inputs.iter().any(|known| known == name))
        {
            let message = format!("unknown input; the graph has {}", self.inputs.join(", "));
            return Err(Error::new(
                ErrorKind::Input,
                format!("{}: input {name}", self.graph),
                message,
            ));
        }
        let mut given = Vec::new();
        for (name, value) in inputs.iter() {
            let value = match value {
                Value::I64(array) => Computed::Int(array.to_shared()),
                Value::Engine(held) => match held.to_host()? {
                    Value::I64(array) => Computed::Int(array.into_shared()),
                    other => Computed::Float(F::bring(&other)?.into_shared()),
                },
                other => Computed::Float(F::bring(other)?.into_shared()),
            };
            given.push((name, value));
        }
        let lookup = |name: &str| {
            given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone())
        };
        let Self { evaluator, observe, .. } = self;
        let computed = match observe {
            None => evaluator.run(lookup),
            Some(observe) => evaluator.run_observed(lookup, |node, value| {
                if let Computed::Float(values) = value {
                    observe(node, largest(values));
                }
            }),
        };
        let computed = computed.map_err(|error| match error.kind() {
            cognate_eval::ErrorKind::Input => Error::new(ErrorKind::Input, "reference", error),
            _ => Error::new(ErrorKind::Run, "reference", error),
        })?;
        let give = |value: Computed<F>| match value {
            Computed::Float(array) => F::give(array.into_owned()),
            Computed::Int(array) => Value::I64(array.into_owned()),
            Computed::Bool(array) => Value::I64(array.mapv(i64::from)),
        };
        Ok(computed.into_iter().map(|(name, value)| (name, give(value))).collect())
    }
}
