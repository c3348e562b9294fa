//! The names of a model's tensors in checkpoints.
//!
//! Parameter paths are BART's tensor names without `model.`:
//! `decoder.layers.2.encoder_attn.q_proj.weight`.

use super::{Bart, Family, Gpt, bert, gemma, gpt, pair, vit};
use crate::{Config, Embeddings, Head, OutputProjection, Parts};
use cognate_graph::{Generator, Recipe};
use std::sync::Arc;

/// The tensor names of a model.
pub(crate) struct Naming<'c> {
    pub(crate) family: Family,
    pub(crate) config: &'c Config,
}

/// Rows of a stored tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Exactly those of the parameter.
    All,
    /// Possibly more than the parameter has; the first are used.
    First,
    /// None: the parameter's rows are the `index`-th of `of` equal parts of the columns. A vector
    /// is divided in the same way.
    Columns { index: usize, of: usize },
}

impl Naming<'_> {
    /// Possible names of the parameter at `path` in a checkpoint, the usual one first.
    pub(crate) fn stored_names(&self, path: &str) -> Vec<String> {
        // Tied tensors are saved under any of their paths.
        let mut paths = vec![path];
        if path == "shared.weight" {
            paths.extend(["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]);
        }
        let projected = match self.config.embeddings {
            Embeddings::Shared => "shared.weight",
            Embeddings::Separate => "decoder.embed_tokens.weight",
        };
        let is_output = match self.config.output {
            OutputProjection::Tied => path == projected,
            OutputProjection::Source => path == "encoder.embed_tokens.weight",
            OutputProjection::Own => false,
        };
        if is_output {
            paths.push("lm_head.weight");
        }
        let tied = matches!(self.family, Family::Pair { tied: true, .. });
        let twin = pair::twin(path).filter(|_| tied);
        paths.into_iter().chain(twin.as_deref()).flat_map(|path| self.names_of(path)).collect()
    }

    /// The value of the parameter at `path` in a checkpoint that lacks it: transformers initialises
    /// the bias with zeros, and models without a head do not save it.
    pub(crate) fn where_missing(&self, path: &str, shape: &[usize]) -> Option<Recipe> {
        (path == "final_logits_bias").then(|| Recipe::generated(Arc::new(Zeros), shape))
    }

    /// Tensors that replace a missing one. If a checkpoint has four equal tables that are not tied,
    /// transformers saves one (and then reads the others as random numbers). The weights of an
    /// encoder that a decoder shares are saved as the decoder's.
    pub(crate) fn stand_ins(&self, path: &str) -> Vec<String> {
        if let (Family::Bert(_), Parts::Encoder(_)) = (self.family, self.config.parts) {
            return self.names_of(path).iter().map(|name| format!("decoder.{name}")).collect();
        }
        let is_table =
            matches!(path, "encoder.embed_tokens.weight" | "decoder.embed_tokens.weight");
        if is_table && self.has_idle_shared() { self.names_of("shared.weight") } else { Vec::new() }
    }

    /// The rows of the stored tensor that are the parameter at `path`. transformers gives Marian's
    /// decoder as many rows as the source vocabulary has, if the tables are neither shared nor
    /// tied, although it predicts fewer.
    pub(crate) fn rows(&self, path: &str) -> Rows {
        if let Some((half, _)) = self.half(path) {
            return half.rows(path);
        }
        if let Some((index, of)) = gpt::columns(self.family, path) {
            return Rows::Columns { index, of };
        }
        let own = self.config.embeddings == Embeddings::Separate
            && self.config.output == OutputProjection::Own;
        let is_marian = self.family == Family::Bart(Bart::Marian);
        if is_marian && own && path == "decoder.embed_tokens.weight" {
            Rows::First
        } else {
            Rows::All
        }
    }

    /// Whether the checkpoint has a shared table that is not used.
    fn has_idle_shared(&self) -> bool {
        self.config.embeddings == Embeddings::Separate
            && match self.family {
                Family::Bart(bart) => bart != Bart::Marian,
                Family::Bert(_) | Family::T5(_) | Family::Vit(_) => true,
                Family::Cognate
                | Family::Gpt(_)
                | Family::Pair { .. }
                | Family::T5Gemma
                | Family::Whisper => false,
            }
    }

    /// Whether checkpoints are known to contain this tensor without using it.
    pub(crate) fn is_left_over(&self, name: &str) -> bool {
        if self.has_idle_shared() && self.names_of("shared.weight").iter().any(|idle| idle == name)
        {
            return true;
        }
        match self.family {
            // fairseq's sinusoids and version number.
            Family::Bart(_) => {
                let path = name.strip_prefix("model.").unwrap_or(name);
                ["encoder", "decoder"].iter().any(|stack| {
                    let rest = path.strip_prefix(stack).and_then(|rest| rest.strip_prefix('.'));
                    matches!(
                        rest,
                        Some(
                            "embed_positions.weights" | "embed_positions._float_tensor" | "version"
                        )
                    )
                })
            }
            Family::Bert(_) => bert::is_left_over(self.head(), name),
            Family::Cognate | Family::Whisper => false,
            Family::Gpt(gpt) => gpt::is_left_over(gpt, name),
            Family::T5Gemma => gpt::is_left_over(Gpt::Gemma2, name),
            Family::Pair { .. } => self.half(name).is_some_and(|(half, prefix)| {
                name.strip_prefix(prefix).is_some_and(|rest| half.is_left_over(rest))
            }),
            Family::Vit(_) => vit::is_left_over(self.head(), name),
            // Cross-attention has no relative positions.
            Family::T5(_) => {
                name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
            }
        }
    }

    /// The head; `Head::None` if the model has a decoder.
    fn head(&self) -> Head {
        match self.config.parts {
            Parts::Both | Parts::Decoder => Head::None,
            Parts::Encoder(head) => head,
        }
    }

    /// The half of a pair that contains a parameter, and the prefix of its tensors.
    fn half(&self, path: &str) -> Option<(Naming<'_>, &'static str)> {
        let Family::Pair { encoder, decoder, .. } = self.family else { return None };
        Some(match path.starts_with("encoder.") {
            true => (Naming { family: *encoder, config: self.config.of_encoder() }, "encoder."),
            false => (Naming { family: *decoder, config: self.config }, "decoder."),
        })
    }

    fn names_of(&self, path: &str) -> Vec<String> {
        if let Some((half, prefix)) =
            self.half(path).filter(|_| !path.starts_with("enc_to_dec_proj."))
        {
            return half.names_of(path).into_iter().map(|name| format!("{prefix}{name}")).collect();
        }
        match self.family {
            Family::Cognate | Family::Pair { .. } => vec![path.into()],
            Family::Bert(bert) => bert::names(bert, self.head(), path),
            Family::Gpt(gpt) => gpt::names(gpt, path),
            // transformers' encoder-only class does not store it.
            Family::Bart(_) | Family::Whisper if self.config.parts != Parts::Both => {
                let bare = if path == "shared.weight" {
                    "embed_tokens.weight"
                } else {
                    path.strip_prefix("encoder.").unwrap_or(path)
                };
                vec![bare.into(), path.into(), format!("model.{path}")]
            }
            Family::Whisper if path == "lm_head.weight" => vec!["proj_out.weight".into()],
            Family::Bart(Bart::Trocr) if path == "lm_head.weight" => {
                vec!["output_projection.weight".into()]
            }
            Family::Bart(_) if matches!(path, "final_logits_bias" | "lm_head.weight") => {
                vec![path.into()]
            }
            // Checkpoints without the output projection, as of `BartModel`, lack the prefix.
            Family::Bart(_) | Family::Whisper => vec![format!("model.{path}"), path.into()],
            Family::T5(_) => vec![t5_name(path, self.config.gated)],
            Family::T5Gemma => gemma::names(path),
            Family::Vit(vit) => vit::names(vit, self.head(), path),
        }
    }
}

/// Example: `encoder.layers.0.self_attn.q_proj.weight` ->
/// `encoder.block.0.layer.0.SelfAttention.q.weight`.
fn t5_name(path: &str, gated: bool) -> String {
    let mut parts = path.splitn(5, '.');
    let (stack, layer_index, part, rest) =
        match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(stack), Some("layers"), Some(layer_index), Some(part), Some(rest)) => {
                (stack, layer_index, part, rest)
            }
            (Some(stack), Some("layer_norm"), Some("weight"), None, None) => {
                return format!("{stack}.final_layer_norm.weight");
            }
            _ => return path.into(),
        };
    let last = if stack == "encoder" { 1 } else { 2 };
    let (sublayer, name) = match (part, rest) {
        ("self_attn", rest) => (0, format!("SelfAttention.{}", t5_projection(rest))),
        ("encoder_attn", rest) => (1, format!("EncDecAttention.{}", t5_projection(rest))),
        ("self_attn_layer_norm", rest) => (0, format!("layer_norm.{rest}")),
        ("encoder_attn_layer_norm", rest) => (1, format!("layer_norm.{rest}")),
        ("final_layer_norm", rest) => (last, format!("layer_norm.{rest}")),
        ("fc1", rest) => {
            (last, format!("DenseReluDense.{}.{rest}", if gated { "wi_0" } else { "wi" }))
        }
        ("fc_gate", rest) => (last, format!("DenseReluDense.wi_1.{rest}")),
        (_, rest) => (last, format!("DenseReluDense.wo.{rest}")),
    };
    format!("{stack}.block.{layer_index}.layer.{sublayer}.{name}")
}

/// Example: `q_proj.weight` -> `q.weight`, `out_proj.weight` -> `o.weight`.
fn t5_projection(rest: &str) -> String {
    rest.replace("out_proj.", "o.").replace("_proj.", ".")
}

#[derive(Debug)]
struct Zeros;

impl Generator for Zeros {
    fn fill(&self, _first: usize, values: &mut [f32]) {
        values.fill(0.0);
    }
}
