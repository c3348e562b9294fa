//! A model's graphs in half precision, where its values fit into it.
//!
//! The ranges of values are measured, not assumed: seeded random batches and whole greedy
//! translations run through the reference evaluator, which observes every value of both graphs;
//! [`cognate_passes::half`] then decides. The same evaluator runs the converted graphs, rounding as
//! f16 does: if greedy decoding chooses other tokens, more nodes stay f32.

use crate::HALF;
use crate::cases::{Inputs, RandomSources, cases};
use crate::decoding::Decoding;
use crate::error::check;
use crate::subject::NEW_TOKENS;
use crate::{Error, Result};
use cognate_folder::{Calibration, Caution, StepsReport};
use cognate_generate::{Decoder, Hypothesis, Settings, decoder};
use cognate_graph::{Program, Weights};
use cognate_model::interface::{ATTENTION_MASK, is_cross, is_past, past_of};
use cognate_model::{Attentions, Layout, Model};
use cognate_passes::fuse::fuse;
use cognate_passes::half::{Facts, Kept, half};
use cognate_pipeline::CancellationToken;
use cognate_runtime::{Options, Reference, Runtime, Session, Source};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The sample on which ranges are measured and the result is tested.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Sources on which ranges are measured and [`Caution`] is chosen, each with its end token;
    /// random ones if there are none.
    pub sentences: Vec<Vec<i64>>,
    /// Other sources, on which the choice is tested; random ones if there are none.
    pub held_out: Vec<Vec<i64>>,
    /// The decoding settings; sentences are decoded greedily, regardless of `num_beams`.
    pub settings: Settings,
    /// The seed of the random batches.
    pub seed: u64,
    /// Ends the conversion within a decoding step.
    pub cancellation: CancellationToken,
}

/// The graphs that are converted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Form {
    /// Their layout.
    pub layout: Layout,
    /// Whether the decoder outputs its attention weights.
    pub attentions: Attentions,
}

/// The graphs of a layout in half precision.
#[derive(Clone, Debug)]
pub struct InHalf {
    /// The encoder and the decoder, or the graph of a decoder-only model. In the Cognate layout
    /// `cross.{l}.*`, `past.{l}.*` and `present.{l}.*` are f16.
    pub programs: Vec<Program>,
    /// The nodes that stay f32, with the indices of their programs.
    pub kept: Vec<Kept>,
    /// How the nodes that stay f32 for precision were chosen, and the effect.
    pub calibration: Calibration,
}

/// Whether `caution` keeps this node in f32.
fn keeps(caution: Caution, node: &str) -> bool {
    let is_in = |scopes: &[&str]| {
        scopes.iter().any(|scope| node.starts_with(scope)) && !node.ends_with("/Gather")
    };
    match caution {
        Caution::Nothing => false,
        Caution::Encoder => is_in(&["encoder."]),
        Caution::Stacks => is_in(&["encoder.", "decoder.", "lm_head"]),
    }
}

/// Converts `model`; `progress` receives the current step.
///
/// Token ids, `logits`, `encoder_hidden_states` and `cross_attentions.{l}` keep their types; in the
/// Hugging Face layout all inputs and outputs do, because Optimum and transformers.js create pasts
/// of length 0 in the type of the encoder's output. If values fit into f16, but fewer than
/// [`HALF`]'s share of the sample's greedy steps would stay equal, the encoder computes in f32, and
/// if that is not enough, the decoder does. If even that is not enough, [`Calibration::gave_up`] is
/// set.
///
/// # Errors
/// If the sample cannot be run, or the conversion is cancelled.
pub fn in_half(
    model: &Model,
    form: Form,
    sample: &Sample,
    mut progress: impl FnMut(&str),
) -> Result<InHalf> {
    // Each step reads all weights.
    let model = &model.evaluated(&Weights::default());
    let is_shared = form.layout == Layout::SharedCache;
    let mut programs = model.programs(form.layout, form.attentions)?;
    if is_shared {
        programs = programs
            .iter()
            .map(fuse)
            .collect::<Result<_, _>>()
            .map_err(cognate_model::Error::from)?;
    }
    progress("largest values, by the reference evaluator in f32");
    let Measured { largest, settings, tuned, held_out } =
        measure(model, form.layout, &programs, sample)?;
    let seen = |program: usize, node: &str| largest[program].borrow().get(node).copied();
    let interface = |name: &str| match form.layout {
        Layout::Cognate | Layout::Generate => state(name),
        // One operator reads all caches of a layer.
        Layout::SharedCache => {
            state(name).map(|name| if is_cross(&name) { name } else { "caches".into() })
        }
        Layout::HuggingFace | Layout::Triton => None,
    };
    let mut made = None;
    for caution in Caution::ALL {
        let facts = Facts {
            seen: &seen,
            interface: &interface,
            keep: &|_, node| keeps(caution, node),
            computes_in_f32: is_shared,
        };
        let converted = half(&programs.iter().collect::<Vec<_>>(), facts)?;
        progress("greedy steps in f16, by the reference evaluator in f32");
        let mut joined = join(model, form.layout, loaded(&converted.programs)?, &settings)?;
        let steps = tuned.steps(joined.as_mut(), &settings, &sample.cancellation)?;
        made = Some((converted, caution, steps, joined));
        if steps.passed() {
            break;
        }
    }
    let (converted, caution, tuned, mut joined) = made.expect("there is a first try");
    progress("greedy steps of held-out sentences in f16, by the reference evaluator in f32");
    let held_out = held_out.steps(joined.as_mut(), &settings, &sample.cancellation)?;
    Ok(InHalf {
        programs: converted.programs,
        kept: converted.kept,
        calibration: Calibration { caution, tuned, held_out },
    })
}

/// The group of an input or output of the Cognate layout that may be f16: keys and values, where an
/// output of one graph or step is an input of the next.
fn state(name: &str) -> Option<String> {
    if is_past(name) || is_cross(name) { Some(name.to_owned()) } else { past_of(name) }
}

/// The largest magnitude of each value, by node.
pub(crate) type Largest = Rc<RefCell<HashMap<String, f32>>>;

/// The results of the f32 graphs on the sample.
struct Measured {
    /// For each graph.
    largest: Vec<Largest>,
    settings: Settings,
    tuned: Translated,
    held_out: Translated,
}

/// Sentences with their greedy translations in f32.
struct Translated {
    sources: RandomSources,
    hypotheses: Vec<Hypothesis>,
}

impl Translated {
    fn new(
        decoder: &mut dyn Decoder,
        sources: RandomSources,
        settings: &Settings,
        cancellation: &CancellationToken,
    ) -> Result<Self> {
        let decoding = Decoding { sources: (&sources).into(), settings, cancellation };
        let hypotheses = decoding.generate(decoder)?;
        Ok(Self { sources, hypotheses })
    }

    /// Counts the steps in which `decoder` makes the same choice.
    fn steps(
        &self,
        decoder: &mut dyn Decoder,
        settings: &Settings,
        cancellation: &CancellationToken,
    ) -> Result<StepsReport> {
        let decoding = Decoding { sources: (&self.sources).into(), settings, cancellation };
        Ok(decoding.along(decoder, &self.hypotheses, HALF.equal_steps)?.0)
    }
}

/// Runs the sample through both graphs.
fn measure(
    model: &Model,
    layout: Layout,
    programs: &[Program],
    sample: &Sample,
) -> Result<Measured> {
    let largest: Vec<_> = programs.iter().map(|_| Largest::default()).collect();
    let config = model.config();
    let mut sessions: Vec<_> = programs
        .iter()
        .zip(&largest)
        .map(|(program, largest)| observed(program, largest))
        .collect();
    let mut inputs = Inputs::new(sample.seed);
    for case in cases(config, layout) {
        check(&sample.cancellation)?;
        let [encoder, decoder] = sessions.as_mut_slice() else {
            sessions[0].run(&inputs.causal(layout, case, config)).map_err(failed)?;
            continue;
        };
        let encoder_inputs = inputs.encoder(case, config);
        let encoded = encoder.run(&encoder_inputs).map_err(failed)?;
        check(&sample.cancellation)?;
        let mask = encoder_inputs.get(ATTENTION_MASK);
        decoder.run(&inputs.decoder(layout, case, config, mask, &encoded)).map_err(failed)?;
    }
    let [sentences, held_out] =
        [&sample.sentences, &sample.held_out].map(|given| inputs.sources(given, config, None));
    let settings = Settings {
        num_beams: 1,
        num_return_sequences: 1,
        sampling: None,
        max_new_tokens: sample.settings.max_new_tokens.min(NEW_TOKENS),
        ..sample.settings.clone()
    };
    let mut joined = join(model, layout, sessions, &settings)?;
    let tuned = Translated::new(joined.as_mut(), sentences, &settings, &sample.cancellation)?;
    drop(joined);
    // The held-out sentences do not contribute to the ranges.
    let mut unseen = join(model, layout, loaded(programs)?, &settings)?;
    let held_out = Translated::new(unseen.as_mut(), held_out, &settings, &sample.cancellation)?;
    Ok(Measured { largest, settings, tuned, held_out })
}

/// A session that records the largest magnitude of each value.
pub(crate) fn observed(program: &Program, largest: &Largest) -> Box<dyn Session> {
    let largest = largest.clone();
    Reference::observed(program, move |node, value| {
        let mut largest = largest.borrow_mut();
        match largest.get_mut(&node.name) {
            // NaN is kept.
            Some(known) if value <= *known || known.is_nan() => {}
            Some(known) => *known = value,
            None => drop(largest.insert(node.name.clone(), value)),
        }
    })
}

fn loaded(programs: &[Program]) -> Result<Vec<Box<dyn Session>>> {
    let load = |program: &Program| {
        Reference::F32.load(&Source::Graph(program.clone()), &Options::default()).map_err(failed)
    };
    programs.iter().map(load).collect()
}

fn join(
    model: &Model,
    layout: Layout,
    sessions: Vec<Box<dyn Session>>,
    settings: &Settings,
) -> Result<Box<dyn Decoder>> {
    // The parts of a graph that decodes are an encoder and a decoder.
    let layout = if layout == Layout::Generate { Layout::Cognate } else { layout };
    decoder(layout, sessions, model.config(), settings.pad_token).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::runtime("reference", error)
}
