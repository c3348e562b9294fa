//! A configuration and its weights.

use crate::checkpoint::{Checkpoint, Unused};
use crate::entry::{self, Attentions, Loss};
use crate::family::{self, Family, Naming};
use crate::initialise::{Initialisation, initial};
use crate::positions::computed;
use crate::reading::read_text;
use crate::{
    Activation, AttentionScore, Biases, Caps, Config, EmbeddingNorm, Embeddings, Error, ErrorKind,
    Front, Layout, Norm, NormPlacement, OutputBias, OutputProjection, Parts, Positions,
    RotaryScaling, Sinusoids, Stack, TokenTypes,
};
use cognate_graph::{Graph, Program, Recipe, Weights};
use std::path::Path;

/// A Transformer: its configuration and its mapped or generated weights. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Model {
    config: Config,
    config_json: String,
    weights: Weights,
}

/// A tensor of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// The name in the family's checkpoints.
    pub name: String,
    /// The path of its parameter.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// Published sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// 4 + 4 layers, d_model 128, 4 heads, d_ff 256, vocabulary 8,000; learns Multi30k on a laptop.
    Tiny,
    /// The base model of Vaswani et al. 2017, table 3: 6 + 6 layers, d_model 512, 8 heads, d_ff
    /// 2,048; vocabulary 37,000.
    Base,
    /// The big model of the same table: d_model 1,024, 16 heads, d_ff 4,096.
    Big,
}

impl Preset {
    /// All presets, by size.
    pub const ALL: [Preset; 3] = [Preset::Tiny, Preset::Base, Preset::Big];

    /// `tiny`, `base` or `big`.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Tiny => "tiny",
            Preset::Base => "base",
            Preset::Big => "big",
        }
    }

    /// The configuration, with the paper's sinusoidal positions. Token 0 is the end of a sentence,
    /// 1 is unknown, 2 is padding and starts decoding.
    pub fn config(self) -> Config {
        let (n_layers, d_model, heads, d_ff, vocab) = match self {
            Preset::Tiny => (4, 128, 4, 256, 8_000),
            Preset::Base => (6, 512, 8, 2_048, 37_000),
            Preset::Big => (6, 1_024, 16, 4_096, 37_000),
        };
        let stack = Stack { n_layers, heads, key_heads: heads, d_k: d_model / heads, d_ff };
        Config {
            front: Front::Tokens,
            encoder_model: None,
            vocab,
            source_vocab: vocab,
            d_model,
            max_positions: Some(512),
            parts: Parts::Both,
            encoder: stack,
            decoder: stack,
            activation: Activation::Relu,
            gated: false,
            biases: Biases::All,
            score: AttentionScore::ScaledDot,
            score_width: None,
            caps: Caps::default(),
            positions: Positions::Sinusoidal(Sinusoids::Interleaved),
            rotary_base: crate::config::ROTARY_BASE,
            rotary_scaling: RotaryScaling::None,
            table_width: None,
            windows: Vec::new(),
            norm: Norm::Layer,
            norm_from_one: false,
            placement: NormPlacement::Post,
            embedding_norm: EmbeddingNorm::None,
            epsilon: 1e-5,
            embeddings: Embeddings::Shared,
            token_types: TokenTypes::None,
            scale_embedding: true,
            output: OutputProjection::Tied,
            scale_output: false,
            output_transform: None,
            output_bias: OutputBias::None,
            start_token: 2,
            eos_token: 0,
            pad_token: 2,
        }
    }
}

/// The parameter that is absent in checkpoints without a pooler.
const POOLER: &str = "pooler.weight";

/// The tensor that is absent in checkpoints with a tied output projection.
const OUTPUT: &str = "lm_head.weight";

impl Model {
    /// A preset with initial weights that depend only on `seed`.
    ///
    /// # Errors
    /// None that a caller can cause.
    pub fn preset(preset: Preset, seed: u64) -> Result<Self, Error> {
        Self::initial(preset.config(), Initialisation::Glorot, seed)
    }

    /// A model with initial weights that depend only on the arguments. Supports every [`Config`]
    /// that a `config.json` can represent:
    ///
    /// ```
    /// use cognate_model::{AttentionScore, Initialisation, Model};
    /// use cognate_model::{NormPlacement, Positions, Preset};
    ///
    /// let mut config = Preset::Tiny.config();
    /// config.positions = Positions::Rotary;
    /// config.placement = NormPlacement::Pre;
    /// config.score = AttentionScore::Additive;
    /// let model = Model::initial(config, Initialisation::Glorot, 1)?;
    /// assert!(model.config_json().contains("\"attention_score\": \"additive\""));
    /// # Ok::<(), cognate_model::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Config::to_json`].
    pub fn initial(
        config: Config,
        initialisation: Initialisation,
        seed: u64,
    ) -> Result<Self, Error> {
        let config_json = config.to_json()?;
        let computed = computed(&config);
        let weights = entry::teacher_forced(&config)?
            .parameters()
            .zip(0..)
            .map(|((_, node), stream)| {
                let shape = node.ty.shape.as_constant().expect("parameters have constant shapes");
                let recipe = computed
                    .get(&node.name)
                    .cloned()
                    .unwrap_or_else(|| initial(&node.name, &shape, initialisation, [seed, stream]));
                (node.name.clone(), recipe)
            })
            .collect();
        Ok(Self { config_json, config, weights })
    }

    /// Maps a checkpoint as written by `save_pretrained` of transformers 4 or 5: a folder with
    /// `config.json` and `model.safetensors`, or several files with `model.safetensors.index.json`.
    ///
    /// # Errors
    /// If a file is missing or malformed, a setting is not supported, or the weights do not
    /// match the configuration. The message names file and field, and lists all tensors
    /// that do not match.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self::bound(folder, Unused::Refuse, Ok)?.0)
    }

    /// Opens only the encoder of a checkpoint, without decoder and head.
    ///
    /// # Errors
    /// As [`Model::open`], except for tensors that the encoder does not use.
    pub fn open_encoder(folder: &Path) -> Result<Self, Error> {
        Ok(Self::bound(folder, Unused::Ignore, |text| family::encoder_alone(&text))?.0)
    }

    /// As [`Model::open`], but returns the names of unused tensors instead of failing.
    ///
    /// # Errors
    /// As [`Model::open`], except for unused tensors.
    pub fn open_ignoring_unused(folder: &Path) -> Result<(Self, Vec<String>), Error> {
        Self::bound(folder, Unused::Ignore, Ok)
    }

    /// Opens a checkpoint after `adjust` has changed its `config.json`.
    fn bound(
        folder: &Path,
        unused: Unused,
        adjust: fn(String) -> Result<String, Error>,
    ) -> Result<(Self, Vec<String>), Error> {
        let path = folder.join("config.json");
        let text = read_text(&path).map_err(|error| Error::file(&path, &error))?;
        let within = |error: Error| error.within(folder);
        let mut config_json = adjust(text).map_err(within)?;
        let (mut family, mut config) = family::parse(&config_json).map_err(within)?;
        // Reports missing or malformed files before any graph is built.
        let checkpoint = Checkpoint::open(folder)?;
        if config.output == OutputProjection::Tied
            && config.require_decoder().is_ok()
            && checkpoint.stores(OUTPUT)
            && let Some(untied) = family::untied(&config_json).map_err(within)?
        {
            (family, config) = family::parse(&untied).map_err(within)?;
            config_json = untied;
        }
        if !checkpoint.holds(&Naming { family, config: &config }, POOLER) {
            config.forget_pooler();
        }
        let graph = entry::whole(&config)?;
        let (weights, unused) = checkpoint.bind(
            &Naming { family, config: &config },
            &graph,
            &computed(&config),
            unused,
        )?;
        Ok((Self { config, config_json, weights }, unused))
    }

    /// A model with given weights, for instance of an exported folder, by parameter path.
    ///
    /// # Errors
    /// If the text is not a supported `config.json`, or weights are missing or have the wrong
    /// shape; all are listed together.
    pub fn with_weights(config_json: String, weights: Weights) -> Result<Self, Error> {
        let mut config = Config::from_json(&config_json)?;
        if weights.get(POOLER).is_none() {
            config.forget_pooler();
        }
        Program::new(entry::whole(&config)?, weights.clone())?;
        Ok(Self { config, config_json, weights })
    }

    /// The same model with [`Weights::evaluated`], for many runs of one whose weights are initial.
    #[must_use]
    pub fn evaluated(&self, stored: &Weights) -> Self {
        Self { weights: self.weights.evaluated(stored), ..self.clone() }
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The text of `config.json`: the checkpoint's, or an equivalent one.
    pub fn config_json(&self) -> &str {
        &self.config_json
    }

    /// The weights by path.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The number of trained values, as PyTorch counts them: tied weights are counted once,
    /// sinusoids and the bias of the logits (which training does not change) are not counted.
    pub fn parameters(&self) -> usize {
        self.learned().filter_map(|path| self.weights.get(path)).map(Recipe::elements).sum()
    }

    /// The encoder: `input_ids, attention_mask: i64 [batch, src]`, or for audio
    /// `input_features: f32 [batch, n_mels, frames]` ->
    /// `encoder_hidden_states: [batch, src, d_model]` and, for each decoder layer, `cross.{l}.key`
    /// and `cross.{l}.value: [batch, heads, src, d_k]`. An encoder-only model can also have the
    /// input `token_type_ids`; it returns `last_hidden_state` and `pooler_output`, or `logits`.
    ///
    /// # Errors
    /// If the model is decoder-only.
    pub fn encode(&self) -> Result<Program, Error> {
        self.program(match self.config.parts {
            Parts::Both => entry::encode(&self.config, Attentions::Omit)?,
            Parts::Encoder(head) => {
                entry::alone(&self.config, head, Layout::Cognate, Attentions::Omit)?
            }
            Parts::Decoder => return Err(Error::decoder_alone()),
        })
    }

    /// One decoding step: `input_ids: i64 [batch, beams, tgt]`, for text
    /// `attention_mask: i64 [batch, src]`, `cross.{l}.*` and
    /// `past.{l}.*: [batch, beams, heads, past, d_k]` -> `logits: [batch, beams, tgt, vocab]` and
    /// `present.{l}.*`. The past may have length 0.
    ///
    /// A decoder-only model has no axis `beams`, no `cross.{l}.*`, and
    /// `attention_mask: i64 [batch, past + tgt]` of its own tokens.
    ///
    /// # Errors
    /// If the model is encoder-only.
    pub fn step(&self, attentions: Attentions) -> Result<Program, Error> {
        match self.config.parts {
            Parts::Decoder => {
                self.program(entry::causal_step(&self.config, Layout::Cognate, attentions)?)
            }
            Parts::Both | Parts::Encoder(_) => {
                self.program(entry::step(self.pair()?, attentions, "tgt".into())?)
            }
        }
    }

    /// The encoder and decoder graphs of a layout.
    ///
    /// # Errors
    /// If the model is encoder-only or decoder-only, or the layout does not support it: an additive
    /// score with shared caches.
    pub fn graphs(&self, layout: Layout, attentions: Attentions) -> Result<[Program; 2], Error> {
        self.pair()?;
        if layout == Layout::SharedCache {
            self.config.require_shared_caches()?;
        }
        let [encoder, decoder] = entry::graphs(&self.config, layout, attentions)?;
        Ok([self.program(encoder)?, self.program(decoder)?])
    }

    /// The graphs of a layout in the order of [`Layout::files_of`]: [`Model::graphs`], or the graph
    /// of an encoder-only or decoder-only model.
    ///
    /// # Errors
    /// As [`Model::graphs`], except for encoder-only models. Decoder-only models have no graph that
    /// decodes.
    pub fn programs(&self, layout: Layout, attentions: Attentions) -> Result<Vec<Program>, Error> {
        match self.config.parts {
            Parts::Both => Ok(self.graphs(layout, attentions)?.into()),
            Parts::Encoder(head) => {
                Ok(vec![self.program(entry::alone(&self.config, head, layout, attentions)?)?])
            }
            Parts::Decoder => {
                let graph = match layout {
                    Layout::Cognate | Layout::HuggingFace | Layout::Triton => {
                        entry::causal_step(&self.config, layout, attentions)?
                    }
                    Layout::SharedCache => {
                        self.config.require_shared_caches()?;
                        entry::shared_cache_step(&self.config, attentions)?
                    }
                    Layout::Generate => {
                        let message = "a decoder-only model has no graph that decodes (layout generate); use the layout cognate or hf";
                        return Err(Error::new(ErrorKind::Config, "config.json", message));
                    }
                };
                Ok(vec![self.program(graph)?])
            }
        }
    }

    /// Encoder and decoder on given targets: `input_ids, attention_mask: i64 [batch, src]`,
    /// `decoder_input_ids: i64 [batch, tgt]` -> `encoder_hidden_states`,
    /// `logits: [batch, tgt, vocab]`, `cross_attentions.{l}: [batch, heads, tgt, src]`.
    ///
    /// A decoder-only model: `input_ids, attention_mask: i64 [batch, tgt]` -> `logits`,
    /// `decoder_attentions.{l}`.
    ///
    /// # Errors
    /// If the model is encoder-only.
    pub fn teacher_forced(&self) -> Result<Program, Error> {
        self.config.require_decoder()?;
        self.program(entry::teacher_forced(&self.config)?)
    }

    /// The inputs of both stacks and their summands; see [`EmbeddingNames`](crate::EmbeddingNames).
    ///
    /// # Errors
    /// If the model is encoder-only or decoder-only.
    pub fn embeddings(&self) -> Result<Program, Error> {
        self.program(entry::embeddings(self.pair()?)?)
    }

    /// The loss of given targets; see [`Loss`] for its inputs and outputs.
    ///
    /// # Errors
    /// If the model is encoder-only or decoder-only, does not support the dropout, or a rate of
    /// `loss` is out of range.
    pub fn loss(&self, loss: &Loss) -> Result<Program, Error> {
        self.program(entry::loss(self.pair()?, loss)?)
    }

    /// The paths of the weights that training changes: all except those computed by formulas
    /// (sinusoids, angles, slopes) and the bias of the logits.
    pub fn learned(&self) -> impl Iterator<Item = &str> {
        let computed = computed(&self.config);
        let is_learned =
            move |path: &&str| !computed.contains_key(*path) && *path != "final_logits_bias";
        self.weights.iter().map(|(path, _)| path).filter(is_learned)
    }

    /// The tensors of this model's checkpoint, with the family's names: all weights except those
    /// computed by formulas.
    ///
    /// # Errors
    /// If a tensor of a model of two models is not one parameter: several are joined, or both halves
    /// share it.
    pub fn tensors(&self) -> Result<impl Iterator<Item = StoredTensor> + '_, Error> {
        let (family, _) = family::parse(&self.config_json).expect("it was read before");
        let naming = Naming { family, config: &self.config };
        let problem = match family {
            Family::Pair { decoder: Family::Gpt(_), .. } => Some(
                "a model with GPT-2 as its decoder cannot be trained: its checkpoints join weights",
            ),
            Family::Pair { tied: true, .. } => {
                Some("a model with tie_encoder_decoder true cannot be trained")
            }
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(Error::new(ErrorKind::Config, "config.json", problem));
        }
        let computed = computed(&self.config);
        let stored = self.weights.iter().filter(move |(path, _)| !computed.contains_key(*path));
        Ok(stored.map(move |(path, recipe)| {
            let name = naming.stored_names(path).swap_remove(0);
            // transformers stores it as a row.
            let row = (path == "final_logits_bias").then_some(1);
            StoredTensor {
                name,
                path: path.to_owned(),
                shape: row.into_iter().chain(recipe.shape().iter().copied()).collect(),
            }
        }))
    }

    /// The configuration, if the model has an encoder and a decoder.
    fn pair(&self) -> Result<&Config, Error> {
        self.config.require_both().map(|()| &self.config)
    }

    fn program(&self, graph: Graph) -> Result<Program, Error> {
        Ok(Program::new(graph, self.weights.clone())?)
    }
}
