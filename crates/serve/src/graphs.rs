//! Models that are an ONNX graph, such as the encoder or the decoder of an export: tensors in,
//! tensors out.

use crate::arguments::Arguments;
use crate::error::{Error, ErrorKind, Failure};
use crate::metrics::Metrics;
use crate::models::late;
use crate::oip::{Datatype, Elements, Tensor, TensorType};
use crate::room::Room;
use axum::http::StatusCode;
use cognate_export::Listing;
use cognate_runtime::{Loaded, Options, Value, Values};
use ndarray::{ArrayD, IxDyn};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A loaded graph.
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) engine: String,
    pub(crate) inputs: Vec<TensorType>,
    pub(crate) outputs: Vec<TensorType>,
    loaded: Arc<dyn Loaded>,
    room: Room,
    max_integers: usize,
    timeout: Duration,
    metrics: Arc<Metrics>,
}

impl Graph {
    pub(crate) fn load(
        name: &str,
        file: &Path,
        arguments: &Arguments,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, Error> {
        let wrong =
            |message: String| Error::new(ErrorKind::Model, format_args!("{name}: {message}"));
        let workers = arguments
            .workers
            .or_else(|| std::thread::available_parallelism().ok())
            .unwrap_or(NonZeroUsize::MIN);
        let threads = Some(arguments.threads.unwrap_or(NonZeroUsize::MIN));
        let options = Options {
            device: arguments.device.first(),
            threads,
            workers: Some(workers),
            ..Options::default()
        };
        let runtime = arguments
            .engine
            .open(arguments.device.first())
            .map_err(|error| wrong(error.to_string()))?;
        // The engine's reader checks the file, so it comes first.
        let loaded = runtime.read_file(file, &options).map_err(|error| wrong(error.to_string()))?;
        let listing = Listing::read(file).map_err(|error| wrong(error.to_string()))?;
        let types = |values: &[(String, String)]| -> Result<Vec<TensorType>, Error> {
            let of_value = |(value, described): &(String, String)| {
                let expected = || {
                    wrong(format!(
                        "{}: {value}: expected tensors of f32, f16 and i64, found {described}",
                        file.display()
                    ))
                };
                TensorType::of_graph(value, described).ok_or_else(expected)
            };
            values.iter().map(of_value).collect()
        };
        let (inputs, outputs) = (types(&listing.inputs)?, types(&listing.outputs)?);
        let engine = loaded.clone().session().engine().to_owned();
        let room = Room::new(workers.get(), arguments.max_waiting);
        let metrics = metrics.clone();
        let (max_integers, timeout) = (arguments.batch_tokens.get(), arguments.timeout);
        Ok(Self {
            name: name.into(),
            engine,
            inputs,
            outputs,
            loaded,
            room,
            max_integers,
            timeout,
            metrics,
        })
    }

    /// The outputs for a request's inputs, as soon as a worker is free.
    pub(crate) async fn run(self: &Arc<Self>, inputs: Vec<Tensor>) -> Result<Vec<Tensor>, Failure> {
        let values = self.values(inputs)?;
        let (graph, began) = (self.clone(), Instant::now());
        let running = async {
            let worker = self.room.worker().await?;
            self.metrics.latency(&self.name, "queue", began.elapsed());
            let work = move || {
                // A request that exceeded its time limit keeps its worker until it ends.
                let (_worker, began) = (worker, Instant::now());
                let found = graph.compute(&values);
                graph.metrics.latency(&graph.name, "decode", began.elapsed());
                found
            };
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|error| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, error))?
        };
        let done = tokio::time::timeout(self.timeout, running).await;
        self.metrics.latency(&self.name, "request", began.elapsed());
        done.unwrap_or_else(|_| Err(late(self.timeout)))
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.room.n_waiting()
    }

    /// The values of all inputs, each given once, with its type.
    fn values(&self, inputs: Vec<Tensor>) -> Result<Values, Failure> {
        let mut values = Values::new();
        for Tensor { name, shape, elements } in inputs {
            let Some(expected) = self.inputs.iter().find(|expected| expected.name == name) else {
                let names: Vec<_> = self.inputs.iter().map(|input| input.name.as_str()).collect();
                return Err(Failure::bad(format_args!(
                    "inputs: expected {}, found {name}",
                    names.join(", ")
                )));
            };
            let fits = shape.len() == expected.shape.len()
                && shape
                    .iter()
                    .zip(&expected.shape)
                    .all(|(&size, &wanted)| wanted < 0 || i64::try_from(size) == Ok(wanted));
            if !fits || elements.datatype() != expected.datatype {
                let found = TensorType {
                    name,
                    datatype: elements.datatype(),
                    shape: shape.iter().map(|&size| size as i64).collect(),
                };
                return Err(Failure::bad(format_args!(
                    "inputs: expected {expected}, found {found}"
                )));
            }
            let (value, limit) = (array(shape, elements), self.max_integers);
            if let Value::I64(numbers) = &value
                && numbers.len() > limit
            {
                let message = format!(
                    "{name}: expected at most {limit} tokens (--batch-tokens), found {}",
                    numbers.len()
                );
                return Err(Failure::new(StatusCode::PAYLOAD_TOO_LARGE, message));
            }
            if values.get(&name).is_some() {
                return Err(Failure::bad(format_args!("inputs: {name} is given twice")));
            }
            values.insert(name, value);
        }
        match self.inputs.iter().find(|input| values.get(&input.name).is_none()) {
            Some(missing) => {
                Err(Failure::bad(format_args!("inputs: expected {missing}, found none")))
            }
            None => Ok(values),
        }
    }

    fn compute(&self, values: &Values) -> Result<Vec<Tensor>, Failure> {
        // Engines detect ids beyond the vocabulary and sizes that do not match.
        let wrong =
            |error: cognate_runtime::Error| Failure::bad(format_args!("{}: {error}", self.name));
        let mut session = self.loaded.clone().session();
        let found = session.run(values).map_err(wrong)?;
        let of_value = |(name, value): (String, Value)| {
            let shape = value.shape().to_vec();
            let elements = match value.into_host().map_err(wrong)? {
                Value::I64(numbers) => Elements::Int64(numbers.into_iter().collect()),
                other => Elements::Fp32(other.to_f32().map_err(wrong)?.into_iter().collect()),
            };
            Ok(Tensor { name, shape, elements })
        };
        found.into_iter().map(of_value).collect()
    }
}

/// The elements in their shape; graphs have no strings.
fn array(shape: Vec<usize>, elements: Elements) -> Value {
    const FITS: &str = "a request's tensor has as many elements as its shape";
    match elements {
        Elements::Fp32(numbers) => {
            ArrayD::from_shape_vec(IxDyn(&shape), numbers).expect(FITS).into()
        }
        Elements::Int64(numbers) => {
            ArrayD::from_shape_vec(IxDyn(&shape), numbers).expect(FITS).into()
        }
        Elements::Bytes(_) => {
            unreachable!("{:?} was compared with the graph's input", Datatype::Bytes)
        }
    }
}
