//! Attention weights of one sentence along a given target: all layers and heads, from the graphs'
//! outputs.
//!
//! Each position of the decoder reads one token and predicts the next; position 0 reads the start
//! token.

use crate::decoder::{encode, missing};
use crate::error::Cause;
use crate::scores::{Candidates, best_continuations, log_softmax};
use crate::{Result, Sources};
use cognate_model::interface::{
    ATTENTION_MASK, ENCODER_ATTENTION_MASK, ENCODER_HIDDEN_STATES, INPUT_IDS, LAST_HIDDEN_STATE,
    LOGITS, present_of,
};
use cognate_model::{Config, Layout, Names, Stack};
use cognate_runtime::{Session, Value, Values};
use ndarray::{Array4, ArrayD, ArrayViewMut3, s};

/// The maximum number of logits of a run of the decoder: long targets are read in parts.
const MOST_LOGITS: usize = 1 << 24;

/// The attention weights of one sentence; each row sums to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct SentenceAttention {
    /// Self-attention of the encoder: `[layers, heads, src, src]`, of no layers if it was not
    /// requested.
    pub encoder: Array4<f32>,
    /// Self-attention of the decoder: `[layers, heads, tgt, tgt]`, 0 where it is masked.
    pub decoder: Array4<f32>,
    /// Cross-attention: `[layers, heads, tgt, src]`.
    pub cross: Array4<f32>,
    /// For each position the most probable next tokens with the model's log-probabilities, without
    /// constraints.
    pub next: Vec<Vec<(i64, f32)>>,
    /// For each position except the last the log-probability of the target's next token.
    pub followed: Vec<f32>,
}

/// One sentence.
#[derive(Clone, Copy, Debug)]
pub struct AttentionRequest<'a> {
    /// The source, alone in its batch.
    pub source: Sources<'a>,
    /// The decoder's input: the start token and the ids of the target.
    pub target: &'a [i64],
    /// The number of most probable next tokens, at least 1.
    pub likeliest: usize,
    /// Whether to return the encoder's self-attention, whose size is quadratic in the length of the
    /// source.
    pub of_encoder: bool,
}

/// Runs the encoder and the decoder of a layout on one sentence.
///
/// # Errors
/// If the graphs do not output attention weights, the sentence is empty, or the engine fails.
pub fn attend(
    layout: Layout,
    [encoder, decoder]: [&mut dyn Session; 2],
    config: &Config,
    sentence: AttentionRequest<'_>,
) -> Result<SentenceAttention> {
    let encoder_stack = Stack {
        n_layers: if sentence.of_encoder { config.encoder.n_layers } else { 0 },
        ..config.encoder
    };
    check_outputs(layout, [&*encoder, &*decoder], [encoder_stack, config.decoder])?;
    let (mut encoded, mask) = encode(encoder, sentence.source, config.pad_token as i64, None)?;
    let states =
        [ENCODER_HIDDEN_STATES, LAST_HIDDEN_STATE].into_iter().find_map(|name| encoded.get(name));
    let src = states
        .map(|states| states.shape()[1])
        .ok_or_else(|| missing("encoder", LAST_HIDDEN_STATE))?;
    let tgt = sentence.target.len();
    let layers =
        |stack: Stack, rows, columns| Array4::zeros((stack.n_layers, stack.heads, rows, columns));
    let mut found = SentenceAttention {
        encoder: layers(encoder_stack, src, src),
        decoder: layers(config.decoder, tgt, tgt),
        cross: layers(config.decoder, tgt, src),
        next: Vec::new(),
        followed: Vec::new(),
    };
    for (layer_index, layer) in found.encoder.outer_iter_mut().enumerate() {
        put(layer, &mut encoded, "encoder", &Names::encoder_attentions(layer_index))?;
    }
    let (mut state, pasts) = first_state(layout, decoder, config, encoded, mask)?;
    let at_once = (MOST_LOGITS / config.vocab.max(1)).max(1);
    for (piece, first) in sentence.target.chunks(at_once).zip((0..).step_by(at_once)) {
        let (n_read, seen) = (piece.len(), first + piece.len());
        let shape = if layout.is_optimum() { vec![1, n_read] } else { vec![1, 1, n_read] };
        state.insert(
            INPUT_IDS,
            ArrayD::from_shape_vec(shape, piece.to_vec()).expect("as many ids as the shape holds"),
        );
        let mut outputs = decoder.run(&state)?;
        for layer_index in 0..config.decoder.n_layers {
            let (cross, own) =
                (Names::cross_attentions(layer_index), Names::decoder_attentions(layer_index));
            put(
                found.cross.slice_mut(s![layer_index, .., first..seen, ..]),
                &mut outputs,
                "decoder",
                &cross,
            )?;
            put(
                found.decoder.slice_mut(s![layer_index, .., first..seen, ..seen]),
                &mut outputs,
                "decoder",
                &own,
            )?;
        }
        let logits = take(&mut outputs, "decoder", LOGITS)?.to_f32()?;
        let (mut scores, _) = logits.as_standard_layout().into_owned().into_raw_vec_and_offset();
        for (row, position) in scores.chunks_mut(config.vocab.max(1)).zip(first..) {
            log_softmax(row);
            let following = sentence
                .target
                .get(position + 1)
                .and_then(|&id| row.get(usize::try_from(id).ok()?));
            found.followed.extend(following);
            let best = best_continuations(
                [Candidates::of_log_probabilities(row, 0.0)],
                sentence.likeliest.max(1),
            );
            found.next.push(best.iter().map(|best| (best.token, best.score)).collect());
        }
        for (past, present) in &pasts {
            state.insert(past, take(&mut outputs, "decoder", present)?);
        }
    }
    Ok(found)
}

/// The decoder's first inputs without tokens, and each past with its present.
fn first_state(
    layout: Layout,
    decoder: &dyn Session,
    config: &Config,
    mut encoded: Values,
    mask: Option<ArrayD<i64>>,
) -> Result<(Values, Vec<(String, String)>)> {
    let (mut state, mut pasts) = (Values::new(), Vec::new());
    let (heads, d_k) = (config.decoder.key_heads, config.decoder.d_k);
    let shape = match layout {
        Layout::HuggingFace | Layout::Triton => vec![1, heads, 0, d_k],
        Layout::Cognate | Layout::SharedCache | Layout::Generate => vec![1, 1, heads, 0, d_k],
    };
    for name in decoder.inputs() {
        let value = match name.as_str() {
            INPUT_IDS => continue,
            ATTENTION_MASK | ENCODER_ATTENTION_MASK => {
                mask.clone().ok_or_else(|| missing("encoder", name))?.into()
            }
            ENCODER_HIDDEN_STATES => take(&mut encoded, "encoder", LAST_HIDDEN_STATE)?,
            name => match present_of(name) {
                Some(present) => {
                    pasts.push((name.to_owned(), present));
                    ArrayD::<f32>::zeros(shape.clone()).into()
                }
                None => take(&mut encoded, "encoder", name)?,
            },
        };
        state.insert(name, value);
    }
    Ok((state, pasts))
}

/// Copies an output for one sentence and one beam to its place `[heads, rows, columns]`.
fn put(
    mut place: ArrayViewMut3<'_, f32>,
    outputs: &mut Values,
    graph: &'static str,
    name: &str,
) -> Result<()> {
    let shape = place.dim();
    let value = take(outputs, graph, name)?.to_f32()?;
    let found = format!("{:?}", value.shape());
    let value = value.as_standard_layout().into_owned().into_shape_with_order(shape);
    let weights = value.map_err(|_| Cause::Layout {
        graph,
        expected: format!("{name} of the shape {shape:?} for one sentence"),
        found,
    })?;
    place.assign(&weights);
    Ok(())
}

/// Rejects graphs without attention weights before running them.
fn check_outputs(
    layout: Layout,
    [encoder, decoder]: [&dyn Session; 2],
    stacks: [Stack; 2],
) -> Result<()> {
    if layout == Layout::SharedCache {
        let found = "a graph of --target ort, which has no attention outputs; export with --attentions and without --target ort".into();
        let expected = format!("an output {}", Names::decoder_attentions(0));
        return Err(Cause::Layout { graph: "decoder", expected, found }.into());
    }
    if layout == Layout::Generate {
        let (expected, found) = (
            "an encoder and a decoder".into(),
            "one graph that decodes; export without --layout generate".into(),
        );
        return Err(Cause::Layout { graph: "generate", expected, found }.into());
    }
    let [encoder_layers, decoder_layers] = stacks.map(|stack| 0..stack.n_layers);
    let of_encoder = encoder_layers
        .map(|layer_index| ("encoder", encoder, Names::encoder_attentions(layer_index)));
    let of_decoder = decoder_layers.flat_map(|layer_index| {
        [Names::cross_attentions, Names::decoder_attentions]
            .map(|name| ("decoder", decoder, name(layer_index)))
    });
    for (graph, session, name) in of_encoder.chain(of_decoder) {
        if !session.outputs().contains(&name) {
            let (expected, found) =
                (format!("an output {name}"), "none; export with --attentions".into());
            return Err(Cause::Layout { graph, expected, found }.into());
        }
    }
    Ok(())
}

fn take(values: &mut Values, graph: &'static str, name: &str) -> Result<Value> {
    values.remove(name).ok_or_else(|| missing(graph, name))
}
