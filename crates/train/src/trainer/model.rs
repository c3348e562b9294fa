//! The initial model of a run: new, or a checkpoint.

use std::path::Path;

use cognate_generate::Settings;
use cognate_model::{
    Activation, EmbeddingNorm, Embeddings, Front, Model, OutputBias, OutputProjection, Parts,
    PositionKind, Positions, RelativeLayers, Sinusoids, Stack,
};
use cognate_pipeline::{TargetNaming, decode_into, open_tokenizer};
use cognate_runtime::Engine;
use cognate_text::Tokenizer;

use super::Machine;
use crate::batches::{Framing, IGNORED};
use crate::config::{OptimiserAlgorithm, Precision, TrainingConfig};
use crate::corpus::Corpus;
use crate::error::{Cause, Result};
use crate::ranks::{Ranks, leads};
use crate::tokenizers::train_tokenizers;

/// Names and contents of the tokenizer's files.
pub(super) type TokenizerFiles = Vec<(String, Vec<u8>)>;

/// The initial model with its tokenizer and decoding settings.
pub(super) struct Start {
    pub(super) model: Model,
    pub(super) tokenizer: Tokenizer,
    pub(super) framing: Framing,
    /// The text of `generation_config.json`, if it exists.
    pub(super) generation: Option<String>,
    /// Decoding settings of the model's files.
    pub(super) settings: Settings,
    pub(super) warnings: Vec<String>,
    pub(super) files: TokenizerFiles,
}

impl Machine<'_> {
    /// Checks that this machine trains with the settings.
    ///
    /// # Errors
    /// If the device or the engine does not compute in `optimiser.precision`.
    pub fn check(&self, config: &TrainingConfig) -> Result<()> {
        let problem = match config.optimiser.precision {
            Precision::F32 => return Ok(()),
            Precision::F16 if fits_in_blocks(config, self) => return Ok(()),
            Precision::F16 if self.device.is_gpu() => {
                "expected f32, found f16, which requires adam, adamw or lion in one process".into()
            }
            Precision::F16 => "expected f32 or bf16 on a processor, found f16".into(),
            Precision::Bf16 if self.device.is_gpu() => {
                "expected f32 or f16 on a GPU, found bf16".into()
            }
            Precision::Bf16 if self.runtime.engine() == Engine::Ort => return Ok(()),
            Precision::Bf16 => {
                let engine = self.runtime.name();
                format!("expected f32 on {engine}, found bf16, which requires --engine ort")
            }
        };
        Err(Cause::Config(format!("optimiser.precision: {problem}")).into())
    }
}

/// Whether the state can be in blocks of the device's memory. Muon updates matrices, not elements,
/// and several processes sum their gradients on the host.
pub(super) fn fits_in_blocks(config: &TrainingConfig, machine: &Machine<'_>) -> bool {
    machine.device.is_gpu()
        && machine.ranks.size() == 1
        && config.optimiser.algorithm != OptimiserAlgorithm::Muon
}

impl Start {
    /// A new model for a tokenizer.
    pub(super) fn fresh(
        config: &TrainingConfig,
        tokenizer: Tokenizer,
        files: TokenizerFiles,
    ) -> Result<Self> {
        let id = |piece: &str| {
            let missing = || {
                Cause::Model(format!(
                    "the tokenizer has no {piece}; expected a tokenizer with </s> and <pad>"
                ))
            };
            tokenizer.id(piece).ok_or_else(missing)
        };
        let (eos, pad) = (id("</s>")?, id("<pad>")?);
        // As Marian: decoding starts from the padding token.
        let framing = Framing {
            start: pad,
            prefix: Vec::new(),
            suffix: vec![eos],
            pad,
            label_padding: IGNORED,
        };
        let model = Model::initial(
            model_config(config, &tokenizer, &framing)?,
            config.model.initialisation,
            config.seed,
        )?;
        let generation = format!(
            "{:#}\n",
            serde_json::json!({
                "decoder_start_token_id": pad,
                "eos_token_id": eos,
                "pad_token_id": pad,
                "max_length": config.model.max_positions,
                "num_beams": config.schedule.beams,
            })
        );
        let settings = Settings::from_json(model.config_json(), Some(&generation), model.config())?;
        Ok(Self {
            model,
            tokenizer,
            framing,
            generation: Some(generation),
            settings,
            warnings: Vec::new(),
            files,
        })
    }

    /// The model and tokenizer of a checkpoint.
    pub(super) fn checkpoint(folder: &Path) -> Result<Self> {
        let model = Model::open(folder)?;
        if (model.config().parts, model.config().front) != (Parts::Both, Front::Tokens) {
            let problem = "expected a model that translates text, with an encoder and a decoder";
            Err(Cause::Folder { folder: folder.display().to_string(), problem: problem.into() })?;
        }
        // Before the training that writes them.
        model.tensors().map(drop).map_err(|error| Cause::Folder {
            folder: folder.display().to_string(),
            problem: error.to_string(),
        })?;
        let tokenizer = open_tokenizer(folder, model.config())?;
        let generation = match cognate_model::read_text(&folder.join("generation_config.json")) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Err(Cause::Folder {
                folder: folder.display().to_string(),
                problem: error.to_string(),
            })?,
        };
        let mut settings =
            Settings::from_json(model.config_json(), generation.as_deref(), model.config())?;
        let warnings =
            unnamed_language(folder, &model, &tokenizer, &settings)?.into_iter().collect();
        decode_into(&tokenizer, &mut settings);
        let framing = framing(&model, &settings);
        Ok(Self {
            model,
            tokenizer,
            framing,
            generation,
            settings,
            warnings,
            files: tokenizer_files(folder)?,
        })
    }
}

/// Trains the tokenizer in the first rank; returns it with its files.
pub(super) fn trained_tokenizer(
    config: &TrainingConfig,
    corpus: &Corpus,
    ranks: &dyn Ranks,
) -> Result<(Tokenizer, TokenizerFiles)> {
    let trained =
        leads(ranks).then(|| train_tokenizers(corpus, &config.tokenizer_choice())).transpose()?;
    let mut sent = Vec::new();
    if let Some(trained) = &trained {
        sent =
            serde_json::to_vec(&trained.files(config.model.max_positions)).expect("texts are JSON");
    }
    ranks.broadcast(0, &mut sent);
    let files: Vec<(String, String)> =
        serde_json::from_slice(&sent).expect("the first rank sent what it wrote");
    let tokenizer = match trained {
        Some(trained) => trained.tokenizer(),
        None => {
            let problem = |error: std::io::Error| Cause::Folder {
                folder: "the system's temporary folder".into(),
                problem: error.to_string(),
            };
            let folder = tempfile::tempdir().map_err(problem)?;
            files
                .iter()
                .try_for_each(|(name, text)| std::fs::write(folder.path().join(name), text))
                .map_err(problem)?;
            Tokenizer::from_folder(folder.path())?
        }
    };
    Ok((tokenizer, files.into_iter().map(|(name, text)| (name, text.into_bytes())).collect()))
}

/// Reads the tokenizer's files in a folder.
pub(super) fn tokenizer_files(folder: &Path) -> Result<TokenizerFiles> {
    let paths = Tokenizer::FILES
        .iter()
        .map(|name| (name, folder.join(name)))
        .filter(|(_, path)| path.is_file());
    let read = |(name, path): (&&str, std::path::PathBuf)| {
        let unreadable = |error: std::io::Error| Cause::Unreadable {
            file: path.display().to_string(),
            reason: error.to_string(),
        };
        Ok((name.to_string(), std::fs::read(&path).map_err(unreadable)?))
    };
    paths.map(read).collect()
}

/// The tokens around the targets of a checkpoint; targets end with the end token even if decoding
/// has none.
fn framing(model: &Model, settings: &Settings) -> Framing {
    let prefix = settings.forced_bos_token.into_iter().collect();
    let suffix =
        vec![settings.eos_tokens.first().copied().unwrap_or(model.config().eos_token as i64)];
    Framing {
        start: settings.start_token,
        prefix,
        suffix,
        // Labels mark the padding of targets.
        pad: model.config().source_pad(settings.pad_token),
        label_padding: IGNORED,
    }
}

/// A warning if the optional target language of the model in `folder` is not set, an error if it is
/// required.
fn unnamed_language(
    folder: &Path,
    model: &Model,
    tokenizer: &Tokenizer,
    settings: &Settings,
) -> Result<Option<String>> {
    let TargetNaming::Missing { field, codes, is_optional } =
        TargetNaming::of(model.config_json(), tokenizer, settings)?
    else {
        return Ok(None);
    };
    let problem = format!(
        "the model knows {} languages; to choose the target language, set {field} in generation_config.json to its token",
        codes.len()
    );
    let folder = folder.display().to_string();
    if is_optional {
        Ok(Some(format!("{folder}: {problem}")))
    } else {
        Err(Cause::Folder { folder, problem })?
    }
}

/// The configuration, of a family of transformers if one supports it.
fn model_config(
    config: &TrainingConfig,
    tokenizer: &Tokenizer,
    framing: &Framing,
) -> Result<cognate_model::Config> {
    let (model, sizes) = (&config.model, config.sizes());
    let token = |id: i64| usize::try_from(id).expect("a tokenizer's ids are not negative");
    let mut wanted = cognate_model::Preset::from(model.preset).config();
    let stack = |n_layers| Stack {
        n_layers,
        heads: sizes.heads,
        key_heads: sizes.heads,
        d_k: sizes.d_model / sizes.heads.max(1),
        d_ff: sizes.d_ff,
    };
    wanted.vocab = tokenizer.target_vocab();
    wanted.source_vocab = tokenizer.source_vocab();
    if model.tie_embeddings {
        (wanted.vocab, wanted.source_vocab) =
            (tokenizer.required_vocab(), tokenizer.required_vocab());
    }
    wanted.d_model = sizes.d_model;
    wanted.max_positions = Some(sizes.max_positions);
    (wanted.encoder, wanted.decoder) = (stack(sizes.encoder_layers), stack(sizes.decoder_layers));
    wanted.activation = Activation::named(&model.activation).unwrap_or(wanted.activation);
    wanted.gated = model.gated;
    wanted.biases = model.biases.into();
    wanted.score = model.attention_score();
    wanted.positions = match model.positions() {
        PositionKind::Learned => Positions::Learned { offset: 0 },
        PositionKind::Relative => Positions::Relative {
            buckets: model.relative_buckets,
            max_distance: model.relative_max_distance,
            of: RelativeLayers::First,
        },
        PositionKind::Rotary => Positions::Rotary,
        PositionKind::Alibi => Positions::Alibi,
        PositionKind::Sinusoidal => Positions::Sinusoidal(Sinusoids::Halves),
    };
    (wanted.norm, wanted.placement) = (model.norm, model.norm_placement);
    wanted.embedding_norm = EmbeddingNorm::None;
    wanted.embeddings =
        if model.tie_embeddings { Embeddings::Shared } else { Embeddings::Separate };
    wanted.output = if model.tie_output { OutputProjection::Tied } else { OutputProjection::Own };
    wanted.scale_embedding = model.scale_embedding;
    wanted.output_bias = OutputBias::Fixed;
    (wanted.start_token, wanted.eos_token, wanted.pad_token) =
        (token(framing.start), token(framing.suffix[0]), token(framing.pad));
    if wanted.to_json().is_ok() {
        return Ok(wanted);
    }
    // Cognate's own family has no bias of the logits and the paper's order of sinusoids.
    wanted.output_bias = OutputBias::None;
    if let Positions::Sinusoidal(_) = wanted.positions {
        wanted.positions = Positions::Sinusoidal(Sinusoids::Interleaved);
    }
    wanted.to_json()?;
    Ok(wanted)
}

/// The fingerprint of a model's weights.
pub(super) fn fingerprint(model: &Model) -> String {
    let (mut hasher, mut values) = (blake3::Hasher::new(), vec![0.0_f32; 1 << 16]);
    for (path, recipe) in model.weights().iter() {
        hasher.update(path.as_bytes());
        let n = recipe.shape().iter().product::<usize>();
        for first in (0..n).step_by(values.len()) {
            let part = &mut values[..(n - first).min(1 << 16)];
            recipe.read(first, part);
            part.iter().for_each(|value| {
                hasher.update(&value.to_le_bytes());
            });
        }
    }
    hasher.finalize().to_hex().to_string()
}
