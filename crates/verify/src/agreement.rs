//! The verification: every case through the reference and through each runtime.

use crate::alone::cosines;
use crate::cases::{Inputs, cases};
use crate::decoding::Decoding;
use crate::error::check;
use crate::search::verify_search;
use crate::{CLOSE, Error, Measured, Result, Tolerance, compare};
use cognate_folder::{DecodingReport, OutputReport, RuntimeReport, Verification};
use cognate_generate::{Decoder, FixedSizes, Hypothesis, Settings, Sources, decoder};
use cognate_model::interface::{
    ATTENTION_MASK, ENCODER_HIDDEN_STATES, LAST_HIDDEN_STATE, LOGITS, LOGITS_SCALE,
};
use cognate_model::{Attentions, Front, Layout, Model, without_layer};
use cognate_pipeline::CancellationToken;
use cognate_runtime::{Options, Reference, Runtime, Session, Source, Value, Values};
use ndarray::Array1;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread::{self, ScopedJoinHandle};

/// The subject of a verification.
#[derive(Clone, Debug)]
pub struct Subject<'a> {
    /// The exported folder.
    pub folder: &'a Path,
    /// The layout of its graphs.
    pub layout: Layout,
    /// The model that the graphs must equal: of the checkpoint, or read back by
    /// [`open_exported`](cognate_folder::open_exported).
    pub model: &'a Model,
    /// The decoding settings; sentences are decoded greedily and by beam search, regardless of
    /// `num_beams`.
    pub settings: Settings,
    /// Sources to decode, each with its end token, without those that are too long for `sizes`;
    /// random ones if there are none, or the model reads audio.
    pub sentences: Vec<Vec<i64>>,
    /// The sizes of a graph whose shapes are constants.
    pub sizes: Option<FixedSizes>,
    /// The seed of the random batches.
    pub seed: u64,
    /// The bound on errors: [`CLOSE`], or a wider one for other precisions. Within [`CLOSE`],
    /// sentences must be equal; beyond it, single steps are compared, of which the share
    /// [`Tolerance::equal_steps`] must be equal.
    pub tolerance: Tolerance,
    /// Ends the verification within a decoding step.
    pub cancellation: CancellationToken,
}

impl Subject<'_> {
    pub(crate) fn decoding<'a>(
        &'a self,
        sources: Sources<'a>,
        settings: &'a Settings,
    ) -> Decoding<'a> {
        Decoding { sources, settings, cancellation: &self.cancellation }
    }
}

/// Maximum number of new tokens of a sentence: enough for pasts to grow, few enough for f64 on
/// large models.
pub(crate) const NEW_TOKENS: usize = 32;

/// Number of beams of the compared beam search.
const BEAMS: usize = 4;

/// Differences of the reference's logits or scores below this are ties.
const TIE: f32 = 1e-5;

/// A session of each graph: the encoder and the decoder, or that of a decoder-only model.
pub(crate) type Sessions = Vec<Box<dyn Session>>;

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
    let config = subject.model.config();
    progress("reference evaluator");
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
            let (mut outputs, mut states) = (BTreeMap::new(), Vec::new());
            for Batch { graph, inputs, expected } in &batches {
                check(&subject.cancellation)?;
                let found = scaled(run(&mut sessions[*graph], inputs)?)?;
                if audio.is_some() {
                    states
                        .extend(rows_of_states(&found)?.into_iter().zip(rows_of_states(expected)?));
                }
                for (name, expected) in expected.iter() {
                    let measured = measure(found.get(name), expected, &engine, name)?;
                    let worst =
                        outputs.entry((names[*graph], without_layer(name))).or_insert(measured);
                    *worst = worst.or_worse(measured);
                }
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
                        let measured = measure(
                            Some(&logits_of(found)),
                            &logits_of(logits.clone()),
                            &engine,
                            LOGITS,
                        )?;
                        outputs.insert(("decoder", LOGITS.into()), measured);
                    }
                    Some(steps)
                }
                false => None,
            };
            // The encoder's outputs first, as they are computed.
            let mut outputs: Vec<_> = outputs
                .into_iter()
                .map(|((graph, output), measured)| row(graph, output, measured))
                .collect();
            outputs.sort_by_key(|output| output.graph != "encoder");
            let vectors = audio.map(|wanted| cosines(&states, wanted));
            report.runtimes.push(RuntimeReport {
                engine,
                outputs,
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

/// Whether an engine is in the report: without Cognate's operators, and these do not apply.
pub(crate) fn is_known(report: &Verification, engine: &str) -> bool {
    report.runtimes.iter().any(|known| known.engine == engine)
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

/// The bound on cosines of the encoder's states, if the model reads audio and is in integers.
///
/// One or two of the 1,500 states of a window are many times larger than the others, and rounding
/// moves them by as much as their size: for Whisper tiny.en in 8 bits half of the rows moved by
/// less than 0.03 of their size, one by 2.4 times its size. A decoder that reads random pasts
/// amplifies rounding more than any decoding: logits moved by 0.15, along the reference's tokens by
/// 0.05. The states are therefore compared one by one, and the decoder by its logits along the
/// reference's own tokens.
fn least_cosine_of_audio(subject: &Subject<'_>) -> Option<f64> {
    subject
        .tolerance
        .least_cosine
        .filter(|_| matches!(subject.model.config().front, Front::Frames { .. }))
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

/// Greedy search and beam search.
pub(crate) fn methods(subject: &Subject<'_>) -> Vec<Settings> {
    // Decoding of synthetic sound ends after a few tokens, too few for a share.
    let min_new_tokens = match least_cosine_of_audio(subject) {
        Some(_) => NEW_TOKENS.min(subject.settings.max_new_tokens),
        None => subject.settings.min_new_tokens,
    };
    let method = |num_beams| Settings {
        num_beams,
        num_return_sequences: 1,
        sampling: None,
        max_new_tokens: subject.settings.max_new_tokens.min(NEW_TOKENS),
        min_new_tokens,
        ..subject.settings.clone()
    };
    match subject.sizes {
        None => [1, BEAMS].map(method).into(),
        // The number of beams is also a constant.
        Some(_) => vec![method(subject.settings.num_beams.max(1))],
    }
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

pub(crate) fn load_reference(subject: &Subject<'_>) -> Result<Sessions> {
    load_reference_with(subject, None)
}

fn load_reference_with(subject: &Subject<'_>, threads: Option<NonZeroUsize>) -> Result<Sessions> {
    let options = Options { threads, ..Options::default() };
    let load = |program| {
        Reference::F64
            .load(&Source::Graph(program), &options)
            .map_err(|error| Error::runtime("reference", error))
    };
    subject.model.programs(subject.layout, Attentions::Omit)?.into_iter().map(load).collect()
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

pub(crate) fn join(subject: &Subject<'_>, sessions: Sessions) -> Result<Box<dyn Decoder>> {
    let engine = sessions[sessions.len() - 1].engine().to_string();
    decoder(subject.layout, sessions, subject.model.config(), subject.settings.pad_token)
        .map_err(|error| Error::runtime(&engine, error))
}

pub(crate) fn run(session: &mut Box<dyn Session>, inputs: &Values) -> Result<Values> {
    session.run(inputs).map_err(|error| Error::runtime(session.engine(), error))
}

fn logits_of(all: Vec<f32>) -> Value {
    Array1::from(all).into_dyn().into()
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

pub(crate) fn measure(
    found: Option<&Value>,
    expected: &Value,
    engine: &str,
    name: &str,
) -> Result<Measured> {
    let found = found.ok_or_else(|| Error::runtime(engine, format!("no output {name}")))?;
    let to_f64 = |value: &Value| value.to_f64().map_err(|error| Error::runtime(engine, error));
    let shapes = || {
        format!("output {name}: expected shape {:?}, found {:?}", expected.shape(), found.shape())
    };
    compare(&to_f64(found)?, &to_f64(expected)?).ok_or_else(|| Error::runtime(engine, shapes()))
}

pub(crate) fn row(graph: &str, output: String, measured: Measured) -> OutputReport {
    OutputReport {
        graph: graph.into(),
        output,
        max_absolute_error: measured.max_absolute,
        relative_l2_error: measured.relative_l2,
    }
}

fn method(settings: &Settings) -> String {
    if settings.num_beams == 1 { "greedy".into() } else { format!("beam {}", settings.num_beams) }
}

pub(crate) fn agreement(
    found: &[Hypothesis],
    expected: &[Hypothesis],
    settings: &Settings,
) -> DecodingReport {
    let (mut equal, mut ties) = (0, 0);
    for (found, expected) in found.iter().zip(expected) {
        if found.tokens == expected.tokens {
            equal += 1;
        } else if margin(found, expected) < TIE {
            ties += 1;
        }
    }
    DecodingReport { method: method(settings), sentences: expected.len(), equal, ties }
}

/// The reference's margin in the first step in which `found` differs. Steps before it are equal,
/// and those after it follow other tokens: neither excuses the difference.
fn margin(found: &Hypothesis, expected: &Hypothesis) -> f32 {
    let step = found
        .tokens
        .iter()
        .zip(&expected.tokens)
        .take_while(|(found, expected)| found == expected)
        .count();
    expected.margins.get(step).copied().unwrap_or(f32::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cognate_model::Preset;

    fn hypothesis(tokens: &[i64], margins: &[f32]) -> Hypothesis {
        let complete = margins.len() > tokens.len();
        Hypothesis {
            tokens: tokens.to_vec(),
            complete,
            score: 0.0,
            margins: margins.to_vec(),
            alignment: Vec::new(),
            observed: None,
        }
    }

    /// The reference is certain of all steps except one, whose margin is a tie.
    #[test]
    fn only_the_first_step_that_differs_may_be_a_tie() {
        const SURE: f32 = 0.5;
        let model = Model::preset(Preset::Tiny, 1).expect("a preset");
        let settings = Settings::from_json("{}", None, model.config()).expect("settings");
        let wrong: Vec<_> = [
            ("no step", &[7, 8, 9][..], [SURE, TIE / 2.0, SURE, SURE], [1, 0]),
            ("the step of the tie", &[7, 5, 4, 3], [SURE, TIE / 2.0, SURE, SURE], [0, 1]),
            ("an earlier step", &[6, 8, 9], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("a later step", &[7, 8, 5], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("an end too early", &[7, 8], [SURE, SURE, TIE / 2.0, SURE], [0, 1]),
            ("an end too early, after the tie", &[7, 8], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
            ("no end", &[7, 8, 9, 5], [SURE, SURE, SURE, TIE / 2.0], [0, 1]),
            ("no end, after the tie", &[7, 8, 9, 5], [SURE, TIE / 2.0, SURE, SURE], [0, 0]),
        ]
        .into_iter()
        .filter_map(|(what, found, margins, expected)| {
            let report = agreement(
                &[hypothesis(found, &[])],
                &[hypothesis(&[7, 8, 9], &margins)],
                &settings,
            );
            ([report.equal, report.ties] != expected)
                .then(|| format!("{what}: {report:?}, expected {expected:?}"))
        })
        .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn other_tokens_are_a_tie_by_the_margin_of_the_reference_alone() {
        let model = Model::preset(Preset::Tiny, 1).expect("a preset");
        let settings = Settings::from_json("{}", None, model.config()).expect("defaults");
        let hypothesis = |token, margin| hypothesis(&[token], &[margin; 2]);
        let expected = [hypothesis(5, 1e-6), hypothesis(5, 1e-6), hypothesis(5, 1.0)];
        for num_beams in [1, 4] {
            let settings = Settings { num_beams, ..settings.clone() };
            // Of the same score, too.
            let found = [hypothesis(5, 1.0), hypothesis(6, 1.0), hypothesis(6, 1e-6)];
            let DecodingReport { sentences, equal, ties, .. } =
                agreement(&found, &expected, &settings);
            assert_eq!((sentences, equal, ties), (3, 1, 1), "{num_beams} beams");
        }
    }
}
