//! The whole of decoding as one graph: the encoder, and a loop around the decoder's step that
//! searches.
//!
//! The search is that of [`decode`](crate::decode) with beams, as in transformers; with one beam it
//! is greedy search. The values that sizes depend on (`num_beams`, `max_length`) are inputs; tokens
//! of the configuration are constants.

mod beams;
mod body;
mod looped;
mod phases;
mod repetition;
mod rows;
mod sampling;
mod scores;
mod sizes;
mod state;

pub use sizes::FixedSizes;

use crate::error::Cause;
use crate::settings::EarlyStopping;
use crate::{Result, Sampling, Settings};
use cognate_graph::{Builder, DType, Dim, Node, Program, Scalar, Tensor, Weights};
use cognate_model::interface::{ATTENTION_MASK, ENCODER_HIDDEN_STATES, INPUT_IDS};
use looped::Search;
use scores::reads_source;
use sizes::with_sizes;
use std::collections::HashMap;

/// Maximum number of tokens of a target if the model has no limit.
pub(crate) const UNLIMITED: usize = 512;

/// Maximum number of beams or samples of a sentence; larger numbers are reduced to it.
pub const MOST_BEAMS: usize = 1024;

/// Joins a model's graphs, the encoder and a step of one token (of
/// [`Layout::Generate`](cognate_model::Layout::Generate)), to one graph that decodes, within
/// limits.
///
/// Inputs: `input_ids, attention_mask: i64 [batch, src]`, or for speech `input_features:
/// [batch, n_mels, 2 * src]` and `prefix_ids: i64 [batch, prefix]`, the tokens of each target after
/// the start token; and optional scalars, whose defaults are those of `settings`:
///
/// - i64: `max_length`, `min_length`, `num_beams`, `num_return_sequences`, `no_repeat_ngram_size`,
///   `early_stopping` (0: false, 1: true, 2: never), `forced_bos_token_id` (-1: none), `do_sample`,
///   `top_k`, `seed`;
/// - f32: `length_penalty`, `repetition_penalty`, `temperature`, `top_p`.
///
/// Numbers out of range are replaced by the nearest valid one: at least one beam, at most
/// [`MOST_BEAMS`].
///
/// Outputs: `sequences: i64 [batch, returned, generated]`, which begin with the start token and are
/// padded after an end token, and their `scores: [batch, returned]`, best first. If the step
/// outputs cross-attentions, there are two more, 0 for the start token and after the end: the
/// log-probabilities of the tokens `token_scores: [batch, returned, generated]`, and
/// `cross_attentions: [batch, returned, generated, layers, heads, src]`, those of the step that
/// chose a token.
///
/// With [`FixedSizes`] all shapes are constants: `num_beams` and `num_return_sequences` are those
/// of `settings` and not inputs, `generated` is the maximum length, and caches have a fixed
/// capacity.
///
/// The body of the loop contains the step once, and after it two ways to continue, of which a run
/// takes one: independent rows (one beam, or samples), and beams. Around it is a loop of phases: a
/// phase ends when an eighth of its sentences have ended, which leave. With [`FixedSizes`] all
/// sentences stay.
///
/// # Errors
/// If the graphs are not those of a model, or do not support these sizes.
pub fn search_program(
    [encoder, step]: [&Program; 2],
    settings: &Settings,
    limits: impl Into<SearchLimits>,
) -> Result<Program> {
    let SearchLimits { positions, sizes } = limits.into();
    let most = positions.unwrap_or_else(|| UNLIMITED.max(settings.max_new_tokens));
    let n_beams = fixed_beams(settings);
    let graphs = match sizes {
        None => [encoder, step].map(|program| Ok(program.graph().clone())),
        Some(sizes) => {
            sizes.check(most)?;
            [encoder, step].map(|program| with_sizes(program.graph(), &sizes.bindings(n_beams)))
        }
    };
    let [encode, one_step] = graphs;
    let (encode, one_step) = (encode?, one_step?);
    let builder = Builder::new("generate");
    let sources: Vec<_> = encode
        .inputs()
        .map(|(_, Node { name, ty, .. })| {
            (name.as_str(), builder.input(name, ty.dtype, ty.shape.clone()))
        })
        .collect();
    let source = |name: &str| sources.iter().find(|(known, _)| *known == name).map(|pair| pair.1);
    let tokens = source(INPUT_IDS).zip(source(ATTENTION_MASK)).map(<[_; 2]>::from);
    if tokens.is_none() && reads_source(settings) {
        let message = "encoder_repetition_penalty, encoder_no_repeat_ngram_size: expected none for a source without tokens";
        return Err(Cause::Contradiction(message.into()).into());
    }
    let prefix =
        tokens.is_none().then(|| builder.input(PREFIX_IDS, DType::I64, ["batch", "prefix"]));
    let inputs = Inputs { prefix, ..Inputs::declare(&builder, settings, most, sizes) };
    let encoded =
        builder.inline(&encode, |node| source(&node.name).expect("declared for each input"));
    let names = encode.outputs().iter().map(|output| output.name.as_str());
    let given: HashMap<_, _> = names.zip(encoded).chain(sources.iter().copied()).collect();
    let whole = tokens.map(|[ids, _]| ids).or_else(|| given.get(ENCODER_HIDDEN_STATES).copied());
    let whole = whole.ok_or_else(|| crate::decoder::missing("encoder", ENCODER_HIDDEN_STATES))?;
    let [batch, src] = [0, 1].map(|axis| whole.dim(axis));
    let most = sizes.map_or(most, |sizes| sizes.length - 1);
    let search =
        Search { settings, inputs, most, sizes, batch, src, tokens, step: &one_step, given };
    let found = search.run(&builder)?;
    builder.output(SEQUENCES, found.sequences);
    builder.output(SCORES, found.scores);
    for (name, values) in
        [TOKEN_SCORES, CROSS_ATTENTIONS].into_iter().zip(found.per_token.into_iter().flatten())
    {
        builder.output(name, values);
    }
    let weights = |program: &Program| {
        program
            .weights()
            .iter()
            .map(|(path, recipe)| (path.to_owned(), recipe.clone()))
            .collect::<Vec<_>>()
    };
    let weights: Weights = weights(encoder).into_iter().chain(weights(step)).collect();
    Ok(Program::new(builder.finish()?, weights)?)
}

/// The limits of a graph that decodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SearchLimits {
    /// The number of the decoder's positions, if it is limited.
    pub positions: Option<usize>,
    /// Constant sizes.
    pub sizes: Option<FixedSizes>,
}

impl From<Option<usize>> for SearchLimits {
    fn from(positions: Option<usize>) -> Self {
        Self { positions, sizes: None }
    }
}

/// The number of beams or samples of a graph with constant sizes.
fn fixed_beams(settings: &Settings) -> usize {
    let samples = if settings.sampling.is_some() { settings.num_return_sequences } else { 1 };
    settings.num_beams.max(samples).clamp(1, MOST_BEAMS)
}

/// Checks that settings match those of a graph that was built with `built` and `sizes`, except for
/// its inputs.
///
/// # Errors
/// If a constant of the graph differs, or a setting is not supported by it.
pub fn check_search(built: &Settings, wanted: &Settings, sizes: Option<FixedSizes>) -> Result<()> {
    let is_plain = |settings: &Settings| {
        settings.sampling.is_none_or(|sampling| {
            let Sampling { temperature, top_k, top_p, seed, .. } = sampling;
            sampling == Sampling { temperature, top_k, top_p, seed, ..Sampling::default() }
                && settings.num_beams <= 1
        })
    };
    let is_of_speech = |settings: &Settings| {
        settings.timestamps.is_some()
            || settings.observe.is_some()
            || matches!(settings.early_stopping, EarlyStopping::Finished(_))
    };
    let constants = |settings: &Settings| {
        let Settings { start_token, pad_token, eos_tokens, forced_eos_token, bad_words, .. } =
            settings;
        let Settings { suppressed_tokens, suppressed_first_tokens, renormalize, .. } = settings;
        [
            ("decoder_start_token_id", start_token.to_string()),
            ("pad_token_id", pad_token.to_string()),
            ("eos_token_id", format!("{eos_tokens:?}")),
            ("forced_eos_token_id", format!("{forced_eos_token:?}")),
            ("bad_words_ids", format!("{bad_words:?}")),
            ("suppress_tokens", format!("{suppressed_tokens:?}")),
            ("begin_suppress_tokens", format!("{suppressed_first_tokens:?}")),
            ("encoder_repetition_penalty", settings.encoder_repetition_penalty.to_string()),
            ("encoder_no_repeat_ngram_size", settings.encoder_no_repeat_ngram_size.to_string()),
            ("renormalize_logits", renormalize.to_string()),
            (
                "sampling with beams, or by other filters than top_k and top_p",
                if is_plain(settings) { "off" } else { "on" }.into(),
            ),
            (
                "timestamps, patience or an observed probability",
                if is_of_speech(settings) { "on" } else { "off" }.into(),
            ),
            ("num_beams", sizes.map_or_else(String::new, |_| fixed_beams(settings).to_string())),
            (
                "num_return_sequences",
                sizes
                    .map_or_else(String::new, |_| settings.num_return_sequences.max(1).to_string()),
            ),
        ]
    };
    let most_rows = wanted.num_beams.max(wanted.num_return_sequences);
    if most_rows > MOST_BEAMS {
        let message = format!(
            "num_beams: expected at most {MOST_BEAMS} in generate.onnx, found {most_rows}; export without --layout generate"
        );
        return Err(Cause::Contradiction(message).into());
    }
    for ((name, built), (_, wanted)) in constants(built).into_iter().zip(constants(wanted)) {
        if built != wanted {
            let message = format!(
                "{name}: expected {built}, a constant of generate.onnx, found {wanted}; export without --layout generate"
            );
            return Err(Cause::Contradiction(message).into());
        }
    }
    Ok(())
}

/// At lower temperatures the most probable token is drawn.
const SMALLEST_TEMPERATURE: f32 = 1e-6;

/// The size that grows from step to step.
const PAST: &str = "past";

/// Inputs that are constants with constant sizes.
const NUM_BEAMS: &str = "num_beams";
const NUM_RETURN_SEQUENCES: &str = "num_return_sequences";

/// The outputs.
pub(crate) const SEQUENCES: &str = "sequences";
pub(crate) const SCORES: &str = "scores";
pub(crate) const TOKEN_SCORES: &str = "token_scores";
pub(crate) const CROSS_ATTENTIONS: &str = "cross_attentions";

/// The input of the tokens after the start token, for sources of frames.
pub(crate) const PREFIX_IDS: &str = "prefix_ids";

/// The scalar inputs, within their ranges.
struct Inputs<'g> {
    max_length: Tensor<'g>,
    min_length: Tensor<'g>,
    num_beams: Tensor<'g>,
    /// The numbers of the beams, `[beams]`, and the places of a sequence, `[length]`.
    beam_ids: Tensor<'g>,
    places: Tensor<'g>,
    /// The number of returned hypotheses.
    returned: Dim,
    length_penalty: Tensor<'g>,
    early_stopping: Tensor<'g>,
    forced_bos_token: Tensor<'g>,
    /// The tokens after the start token, instead of `forced_bos_token`: i64 `[batch, prefix]`.
    prefix: Option<Tensor<'g>>,
    repetition_penalty: Tensor<'g>,
    no_repeat_ngram_size: Tensor<'g>,
    /// Whether tokens are drawn; bool `[]`.
    is_sampling: Tensor<'g>,
    temperature: Tensor<'g>,
    top_k: Tensor<'g>,
    top_p: Tensor<'g>,
    seed: Tensor<'g>,
}

/// The maximum number of tokens of a target: a start token, and at least one more.
pub(crate) fn max_length(settings: &Settings) -> usize {
    settings.max_length.min(settings.max_new_tokens.saturating_add(1)).max(2)
}

/// The names and values of the scalar inputs for settings.
pub(crate) fn scalars(settings: &Settings) -> Vec<(&'static str, Scalar)> {
    let count = |count: usize| Scalar::I64(i64::try_from(count).unwrap_or(i64::MAX));
    let min_new =
        if settings.min_new_tokens == 0 { 0 } else { settings.min_new_tokens.saturating_add(1) };
    let sampling = settings.sampling.unwrap_or_default();
    let early_stopping = match settings.early_stopping {
        EarlyStopping::Heuristic => 0,
        EarlyStopping::Full | EarlyStopping::Finished(_) => 1,
        EarlyStopping::Never => 2,
    };
    vec![
        ("max_length", count(max_length(settings))),
        ("min_length", count(settings.min_length.max(min_new))),
        (NUM_BEAMS, count(settings.num_beams.max(1))),
        (NUM_RETURN_SEQUENCES, count(settings.num_return_sequences.max(1))),
        ("length_penalty", Scalar::F32(settings.length_penalty)),
        ("early_stopping", Scalar::I64(early_stopping)),
        ("forced_bos_token_id", Scalar::I64(settings.forced_bos_token.unwrap_or(-1))),
        ("repetition_penalty", Scalar::F32(settings.repetition_penalty)),
        ("no_repeat_ngram_size", count(settings.no_repeat_ngram_size)),
        ("do_sample", Scalar::I64(settings.sampling.is_some().into())),
        ("temperature", Scalar::F32(sampling.temperature)),
        ("top_k", count(sampling.top_k)),
        ("top_p", Scalar::F32(sampling.top_p)),
        ("seed", Scalar::I64((sampling.seed & i64::MAX as u64) as i64)),
    ]
}

impl<'g> Inputs<'g> {
    fn declare(
        builder: &'g Builder,
        settings: &Settings,
        most: usize,
        sizes: Option<FixedSizes>,
    ) -> Self {
        let count = |count: usize| builder.integer(count as i64);
        let n_beams = fixed_beams(settings);
        let scalars = scalars(settings);
        let mut inputs = scalars.into_iter().map(|(name, default)| match (sizes, name) {
            (Some(_), NUM_BEAMS) => count(n_beams),
            (Some(_), NUM_RETURN_SEQUENCES) => count(settings.num_return_sequences),
            _ => builder.input_or(name, default),
        });
        let [
            max_length,
            min_length,
            num_beams,
            num_return_sequences,
            length_penalty,
            early_stopping,
            forced_bos_token,
        ] = std::array::from_fn(|_| inputs.next().expect("an input for each"));
        let [repetition_penalty, no_repeat_ngram_size, do_sample, temperature, top_k, top_p, seed] =
            std::array::from_fn(|_| inputs.next().expect("an input for each"));
        let _scope = builder.root().at("settings").enter();
        let is_sampling = less(count(0), do_sample);
        let largest_length = sizes.map_or(most + 1, |sizes| sizes.length);
        let max_length = smaller(larger(max_length, count(2)), count(largest_length));
        let (num_beams, beam_ids, places, returned) = match sizes {
            Some(FixedSizes { length, .. }) => {
                let returned = settings.num_return_sequences.clamp(1, n_beams);
                (num_beams, builder.range(0, n_beams), builder.range(0, length), returned.into())
            }
            None => {
                // Samples are independent rows.
                let num_beams =
                    larger(is_sampling.select(num_return_sequences, num_beams), count(1));
                let num_beams = smaller(num_beams, count(MOST_BEAMS));
                let returned = smaller(larger(num_return_sequences, count(1)), num_beams)
                    .indices("returned")
                    .dim(0);
                (num_beams, num_beams.indices("beams"), max_length.indices("length"), returned)
            }
        };
        Self {
            max_length,
            min_length,
            num_beams,
            beam_ids,
            places,
            returned,
            length_penalty,
            early_stopping,
            forced_bos_token,
            prefix: None,
            repetition_penalty,
            no_repeat_ngram_size,
            is_sampling,
            temperature: larger(temperature, builder.scalar(SMALLEST_TEMPERATURE)),
            top_k,
            top_p,
            seed,
        }
    }
}

fn smaller<'g>(left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
    left.with(cognate_graph::Binary::Min, right)
}

fn larger<'g>(left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
    left.with(cognate_graph::Binary::Max, right)
}

fn and<'g>(left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
    left.with(cognate_graph::Binary::And, right)
}

fn or<'g>(left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
    left.with(cognate_graph::Binary::Or, right)
}

fn not(value: Tensor<'_>) -> Tensor<'_> {
    value.map(cognate_graph::Unary::Not)
}

/// Whether `left < right`.
fn less<'g>(left: Tensor<'g>, right: Tensor<'g>) -> Tensor<'g> {
    not(right.less_or_equal(left))
}

/// The number of values that are true; i64 `[]`.
fn count(values: Tensor<'_>) -> Tensor<'_> {
    let axes: Vec<_> = (0..values.ty().shape.rank()).collect();
    values.cast(DType::I64).sum(&axes).reshape(Vec::<Dim>::new())
}

/// `[batch, beams]` -> `[batch, beams, 1]`
fn column(values: Tensor<'_>) -> Tensor<'_> {
    values.reshape([values.dim(0), values.dim(1), 1.into()])
}

/// `[batch, beams, 1]` -> `[batch, beams]`
fn each_row(values: Tensor<'_>) -> Tensor<'_> {
    values.reshape([values.dim(0), values.dim(1)])
}
