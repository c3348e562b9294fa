//! Encoder-only models: their graph compared with the reference, and in half precision.

use crate::cases::Inputs;
use crate::error::check;
use crate::half::{Largest, observed};
use crate::reports::{Distances, is_known, run};
use crate::{Error, Form, Result, Tolerance};
use cognate_folder::{RuntimeReport, VectorComparison, VectorsReport, Verification};
use cognate_graph::Program;
use cognate_model::interface::{ATTENTION_MASK, LAST_HIDDEN_STATE, LOGITS};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::half::{Facts, Kept, half};
use cognate_pipeline::{CancellationToken, token_means};
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Values};
use ndarray::ArrayD;
use std::path::Path;

/// An exported encoder.
#[derive(Clone, Debug)]
pub struct EncoderSubject<'a> {
    /// The exported folder.
    pub folder: &'a Path,
    /// The layout of its graph.
    pub layout: Layout,
    /// The model that the graph must equal.
    pub model: &'a Model,
    /// Texts to read in addition to the random batches.
    pub sentences: Vec<Vec<i64>>,
    /// The seed of the random batches.
    pub seed: u64,
    /// The bound on errors.
    pub tolerance: Tolerance,
    /// Ends the verification after a batch.
    pub cancellation: CancellationToken,
}

/// Measures each runtime against the f64 reference; `progress` receives the current step.
///
/// # Errors
/// If an engine cannot load or run the folder, or the verification is cancelled. A violated bound
/// is not an error: see [`Verification::passed`].
pub fn verify_encoder(
    subject: &EncoderSubject<'_>,
    runtimes: &[(Box<dyn Runtime>, Options)],
    mut progress: impl FnMut(&str),
) -> Result<Verification> {
    progress("reference evaluator");
    let program = program(subject.model, subject.layout, Attentions::Omit)?;
    let mut reference =
        Reference::F64.load(&Source::Graph(program), &Options::default()).map_err(failed)?;
    let mut report =
        Verification::new(reference.engine(), subject.tolerance.relative_l2, subject.seed);
    let inputs = Inputs::new(subject.seed).alone(subject.model.config(), &subject.sentences);
    let expected = inputs.iter().map(|inputs| {
        check(&subject.cancellation)?;
        run(&mut reference, inputs)
    });
    let expected = expected.collect::<Result<Vec<_>>>()?;
    report.batches = inputs.len();
    for (runtime, options) in runtimes {
        progress(runtime.name());
        let source = Source::Onnx(subject.folder.join(subject.layout.file()));
        let mut session = runtime
            .load(&source, options)
            .map_err(|error| Error::runtime(runtime.name(), error))?;
        let engine = session.engine().to_owned();
        if is_known(&report, &engine) {
            continue;
        }
        let (mut distances, mut texts) = (Distances::default(), Vec::new());
        for (inputs, expected) in inputs.iter().zip(&expected) {
            check(&subject.cancellation)?;
            let found = run(&mut session, inputs)?;
            texts.extend(vectors(inputs, &found)?.into_iter().zip(vectors(inputs, expected)?));
            distances.add("model", [&found, expected], &engine)?;
        }
        let vectors = subject.tolerance.least_cosine.map(|wanted| cosines(&texts, wanted));
        report.runtimes.push(RuntimeReport {
            engine,
            outputs: distances.rows(),
            decoding: Vec::new(),
            steps: None,
            vectors,
        });
    }
    Ok(report)
}

/// The encoder's graph in half precision, where the values of `sentences` and of random batches fit
/// into it; inputs and outputs keep their types. Also returns the nodes that stay f32.
///
/// # Errors
/// If the reference cannot run the graph.
pub fn encoder_in_half(
    model: &Model,
    form: Form,
    sentences: &[Vec<i64>],
    seed: u64,
) -> Result<(Program, Vec<Kept>)> {
    let program = program(model, form.layout, form.attentions)?;
    let largest = Largest::default();
    let mut session: Box<dyn Session> = observed(&program, &largest);
    for inputs in Inputs::new(seed).alone(model.config(), sentences) {
        run(&mut session, &inputs)?;
    }
    let seen = |_, node: &str| largest.borrow().get(node).copied();
    let converted = half(
        &[&program],
        Facts { seen: &seen, interface: &|_| None, keep: &|_, _| false, computes_in_f32: false },
    )?;
    Ok((
        converted.programs.into_iter().next().expect("as many programs as were given"),
        converted.kept,
    ))
}

/// The vectors of a batch: the means of states or of logits over the tokens that are not padding.
fn vectors(inputs: &Values, outputs: &Values) -> Result<Vec<Vec<f32>>> {
    let name = [LAST_HIDDEN_STATE, LOGITS]
        .into_iter()
        .find(|name| outputs.get(name).is_some())
        .expect("it has one of both");
    let found = outputs.get(name).expect("it was found").to_f64().map_err(failed)?;
    // Features have no padding.
    let mask = match inputs.get(ATTENTION_MASK) {
        Some(mask) => mask.to_f64().map_err(failed)?,
        None => ArrayD::ones(&found.shape()[..2]),
    };
    let means = token_means(found, &mask.into_dimensionality().map_err(failed)?).map_err(failed)?;
    Ok(means.outer_iter().map(|row| row.iter().map(|number| *number as f32).collect()).collect())
}

pub(crate) fn cosines(vectors: &[(Vec<f32>, Vec<f32>)], wanted: f64) -> VectorsReport {
    let compared = VectorComparison::of(vectors.iter().map(|(found, expected)| (found, expected)));
    VectorsReport { vectors: vectors.len(), mean_cosine: compared.mean_cosine, wanted }
}

fn program(model: &Model, layout: Layout, attentions: Attentions) -> Result<Program> {
    let programs = model.programs(layout, attentions)?;
    Ok(programs.into_iter().next().expect("an encoder alone has a graph"))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::runtime("reference", error)
}
