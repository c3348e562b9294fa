//! The verification: every case through the reference and through each runtime.

use crate::alone::cosines;
use crate::cases::{Inputs, cases};
use crate::error::check;
use crate::reports::{Distances, agreement, is_known, method, run};
use crate::search::verify_search;
use crate::subject::{
    Sessions, Subject, join, least_cosine_of_audio, load_reference, load_reference_with, methods,
};
use crate::{CLOSE, Error, Result};
use cognate_folder::{RuntimeReport, Verification, open_exported};
use cognate_generate::{Hypothesis, Settings, Sources};
use cognate_model::Layout;
use cognate_model::interface::{
    ATTENTION_MASK, ENCODER_HIDDEN_STATES, LAST_HIDDEN_STATE, LOGITS, LOGITS_SCALE,
};
use cognate_runtime::{Options, Runtime, Source, Value, Values};
use ndarray::Array1;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

/// Inputs of one graph with the reference's outputs.
struct Batch {
    graph: usize,
    inputs: Values,
    expected: Values,
}

/// Measures each runtime against the f64 reference; `progress` receives the current step.
///
/// # Errors
/// If an engine cannot load or run the folder, or the verification is cancelled. A violated bound
/// is not an error: see [`Verification::passed`].
pub fn verify(
    subject: &Subject<'_>,
    runtimes: &[(Box<dyn Runtime>, Options)],
    mut progress: impl FnMut(&str),
) -> Result<Verification> {
    progress("reference evaluator");
    // Each step reads all weights.
    let exported = open_exported(subject.folder, subject.layout);
    let exported = exported.map(|model| model.weights().clone()).unwrap_or_default();
    let subject = &Subject { model: &subject.model.evaluated(&exported), ..subject.clone() };
    let config = subject.model.config();
    if subject.layout == Layout::Generate {
        let limit = subject.sizes.map(|sizes| sizes.length);
        let sources = Inputs::new(subject.seed).sources(&subject.sentences, config, limit);
        return verify_search(subject, (&sources).into(), runtimes, progress);
    }
    // Nothing else runs yet.
    let mut reference = load_reference_with(subject, thread::available_parallelism().ok())?;
    let names = graph_names(&reference);
    let mut report =
        Verification::new(reference[0].engine(), subject.tolerance.relative_l2, subject.seed);
    let mut inputs = Inputs::new(subject.seed);
    let audio = least_cosine_of_audio(subject);
    let batches = batches(subject, &mut reference, &mut inputs)?;
    drop(reference);
    report.batches = batches.len();
    let sources = inputs.sources(&subject.sentences, config, None);
    let sources = Sources::from(&sources);
    let methods = methods(subject);

    // The reference decodes in parallel to the engines, which use one thread each.
    thread::scope(|scope| {
        let mut expected =
            Pending::new(scope.spawn(|| Expected::compute(subject, sources, &methods)));
        let mut decoded = Vec::new();
        for (runtime, options) in runtimes {
            progress(runtime.name());
            let mut sessions = load_exported(runtime.as_ref(), subject, options)?;
            let engine = sessions[sessions.len() - 1].engine().to_string();
            if is_known(&report, &engine) {
                continue;
            }
            let (mut distances, mut states) = (Distances::default(), Vec::new());
            for Batch { graph, inputs, expected } in &batches {
                check(&subject.cancellation)?;
                let found = scaled(run(&mut sessions[*graph], inputs)?)?;
                if audio.is_some() {
                    states
                        .extend(rows_of_states(&found)?.into_iter().zip(rows_of_states(expected)?));
                }
                distances.add(names[*graph], [&found, expected], &engine)?;
            }
            let mut decoder = join(subject, sessions)?;
            let mut found = Vec::new();
            for settings in &methods {
                progress(&format!("{}, {}", runtime.name(), method(settings)));
                found.push(subject.decoding(sources, settings).generate(decoder.as_mut())?);
            }
            decoded.push(found);
            let steps = match subject.tolerance.relative_l2 > CLOSE.relative_l2 {
                true => {
                    progress(&format!("{}, greedy steps", runtime.name()));
                    let expected = expected.wait()?;
                    let wanted = subject.tolerance.equal_steps;
                    let (steps, found) = subject.decoding(sources, &methods[0]).along(
                        decoder.as_mut(),
                        &expected.decoded[0],
                        wanted,
                    )?;
                    if let Some(logits) = &expected.logits {
                        let [found, logits] = [found, logits.clone()].map(logits_of);
                        distances.add("decoder", [&found, &logits], &engine)?;
                    }
                    Some(steps)
                }
                false => None,
            };
            let vectors = audio.map(|wanted| cosines(&states, wanted));
            report.runtimes.push(RuntimeReport {
                engine,
                outputs: distances.rows(),
                decoding: Vec::new(),
                steps,
                vectors,
            });
        }
        progress("reference evaluator, decoding");
        let expected = expected.wait()?;
        for (report, found) in report.runtimes.iter_mut().zip(decoded) {
            let all = methods.iter().zip(&found).zip(&expected.decoded);
            report.decoding = all
                .map(|((settings, found), expected)| agreement(found, expected, settings))
                .collect();
        }
        Ok(report)
    })
}

/// The results of the reference.
struct Expected {
    /// The hypotheses of each method.
    decoded: Vec<Vec<Hypothesis>>,
    /// The logits along the tokens of the first method, if [`least_cosine_of_audio`] applies.
    logits: Option<Vec<f32>>,
}

impl Expected {
    fn compute(subject: &Subject<'_>, sources: Sources<'_>, methods: &[Settings]) -> Result<Self> {
        let mut reference = join(subject, load_reference(subject)?)?;
        let decoded = methods
            .iter()
            .map(|settings| subject.decoding(sources, settings).generate(reference.as_mut()))
            .collect::<Result<Vec<_>>>()?;
        let logits = match least_cosine_of_audio(subject) {
            Some(_) => Some(
                subject
                    .decoding(sources, &methods[0])
                    .along(reference.as_mut(), &decoded[0], subject.tolerance.equal_steps)?
                    .1,
            ),
            None => None,
        };
        Ok(Self { decoded, logits })
    }
}

/// A value that another thread computes.
enum Pending<'s, T> {
    Running(Option<ScopedJoinHandle<'s, Result<T>>>),
    Ready(T),
}

impl<'s, T> Pending<'s, T> {
    fn new(thread: ScopedJoinHandle<'s, Result<T>>) -> Self {
        Self::Running(Some(thread))
    }

    /// The value; the first call waits for it.
    fn wait(&mut self) -> Result<&T> {
        if let Self::Running(thread) = self {
            let thread = thread.take().expect("no call follows one that failed");
            *self = Self::Ready(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
        }
        match self {
            Self::Ready(value) => Ok(value),
            Self::Running(_) => unreachable!("it was waited for"),
        }
    }
}

/// The encoder's states, one by one.
fn rows_of_states(encoded: &Values) -> Result<Vec<Vec<f32>>> {
    let states =
        [ENCODER_HIDDEN_STATES, LAST_HIDDEN_STATE].into_iter().find_map(|name| encoded.get(name));
    let states = states
        .expect("the encoder gives its states")
        .to_f32()
        .map_err(|error| Error::runtime("encoder", error))?;
    Ok(states.rows().into_iter().map(|row| row.to_vec()).collect())
}

/// The names of the graphs in reports.
fn graph_names(sessions: &Sessions) -> &'static [&'static str] {
    if sessions.len() == 1 { &["model"] } else { &["encoder", "decoder"] }
}

/// The random batches of each graph; only the encoder's if [`least_cosine_of_audio`] applies.
fn batches(
    subject: &Subject<'_>,
    reference: &mut Sessions,
    inputs: &mut Inputs,
) -> Result<Vec<Batch>> {
    let (config, mut batches) = (subject.model.config(), Vec::new());
    for case in cases(config, subject.layout) {
        check(&subject.cancellation)?;
        let [encoder, decoder] = reference.as_mut_slice() else {
            let given = inputs.causal(subject.layout, case, config);
            let expected = run(&mut reference[0], &given)?;
            batches.push(Batch { graph: 0, inputs: given, expected });
            continue;
        };
        let encoder_inputs = inputs.encoder(case, config);
        let encoded = run(encoder, &encoder_inputs)?;
        if least_cosine_of_audio(subject).is_some() {
            batches.push(Batch { graph: 0, inputs: encoder_inputs, expected: encoded });
            continue;
        }
        check(&subject.cancellation)?;
        let mask = encoder_inputs.get(ATTENTION_MASK);
        let decoder_inputs =
            inputs.decoder(subject.layout, case, config, mask, &rounded(&encoded)?);
        let decoded = run(decoder, &decoder_inputs)?;
        batches.push(Batch { graph: 0, inputs: encoder_inputs, expected: encoded });
        batches.push(Batch { graph: 1, inputs: decoder_inputs, expected: decoded });
    }
    Ok(batches)
}

fn load_exported(
    runtime: &dyn Runtime,
    subject: &Subject<'_>,
    options: &Options,
) -> Result<Sessions> {
    let load = |file| {
        runtime
            .load(&Source::Onnx(subject.folder.join(file)), options)
            .map_err(|error| Error::runtime(runtime.name(), error))
    };
    subject.layout.files_of(subject.model.config().parts).into_iter().map(load).collect()
}

fn logits_of(all: Vec<f32>) -> Values {
    [(LOGITS, Array1::from(all).into_dyn())].into_iter().collect()
}

/// Outputs with the logits multiplied by their scale, if this is left to the reader.
fn scaled(mut outputs: Values) -> Result<Values> {
    let failed = |error| Error::runtime(LOGITS, error);
    if let Some(scale) = outputs.remove(LOGITS_SCALE)
        && let Some(logits) = outputs.remove(LOGITS)
    {
        let mut logits = logits.to_f32().map_err(failed)?;
        for (mut row, &scale) in
            logits.rows_mut().into_iter().zip(scale.to_f32().map_err(failed)?.iter())
        {
            row.mapv_inplace(|score| score * scale);
        }
        outputs.insert(LOGITS, logits);
    }
    Ok(outputs)
}

/// The cross keys and values in f32, so that every engine gets the same inputs.
fn rounded(encoded: &Values) -> Result<Values> {
    let round = |(name, value): (&str, &Value)| Ok((name.to_string(), Value::F32(value.to_f32()?)));
    let values = encoded.iter().map(round).collect::<cognate_runtime::Result<Vec<_>>>();
    Ok(values.map_err(|error| Error::runtime("reference", error))?.into_iter().collect())
}
