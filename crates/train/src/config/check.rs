//! Consistency checks of the values of a training file.

use std::fmt::{self, Display};

use cognate_model::{Activation, DropoutRates, PositionKind};
use serde::Serialize;

use super::choices::{Decay, Metric, OptimiserAlgorithm, PieceAlgorithm, Vocabularies};
use super::sections::{Model, Text, Tokenizer, TrainingConfig, Tuning};

/// An invalid value, or one that contradicts another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// `model.heads`
    pub(super) field: String,
    found: String,
    expected: String,
}

impl Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} is {}, expected {}", self.field, self.found, self.expected)
    }
}

#[derive(Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: &str, found: impl Display, expected: impl Display) {
        self.0.push(Problem {
            field: field.to_owned(),
            found: found.to_string(),
            expected: expected.to_string(),
        });
    }

    fn within<T: PartialOrd + Display + Copy>(&mut self, field: &str, found: T, least: T, most: T) {
        if !(least..=most).contains(&found) {
            self.add(field, found, format_args!("{least} to {most}"));
        }
    }

    fn at_least<T: PartialOrd + Display + Copy>(
        &mut self,
        field: &str,
        found: Option<T>,
        least: T,
    ) {
        if let Some(found) =
            found.filter(|found| !matches!(found.partial_cmp(&least), Some(order) if order.is_ge()))
        {
            self.add(field, found, format_args!("at least {least}"));
        }
    }

    /// From 0 to less than 1, in single precision, too.
    fn share(&mut self, field: &str, found: f64) {
        if !((0.0..1.0).contains(&found) && (found as f32) < 1.0) {
            self.add(field, found, "a number from 0 to less than 1");
        }
    }

    /// Above 0, and a normal number in single precision.
    fn positive(&mut self, field: &str, found: Option<f64>) {
        let is_positive = |found: &f64| (*found as f32).is_normal() && *found > 0.0;
        match found.filter(|found| !is_positive(found)) {
            Some(found) if found > 0.0 => {
                self.add(field, format_args!("{found:?}"), "a number from 1.2e-38 to 3.4e38")
            }
            Some(found) => self.add(field, found, "a number above 0"),
            None => {}
        }
    }

    /// Fields of a section that have another value than their default, where another field excludes
    /// them.
    fn excluded<S: Serialize>(&mut self, name: &str, sections: [&S; 2], expected: &str) {
        let [found, default] =
            sections.map(|section| serde_json::to_value(section).unwrap_or_default());
        for (field, found) in found.as_object().into_iter().flatten() {
            if *found != default[field] {
                self.add(&format!("{name}.{field}"), found, expected);
            }
        }
    }
}

/// Larger sizes are typing errors.
const LARGEST_SIZE: usize = 1 << 20;
const MOST_LAYERS: usize = 1_024;
const MOST_THREADS: usize = 1_024;

/// All problems, in the order of the fields.
pub(super) fn problems(config: &TrainingConfig) -> Vec<Problem> {
    let mut problems = Problems::default();
    if let Some(threads) = config.threads {
        problems.within("threads", threads, 1, MOST_THREADS);
    }
    data(config, &mut problems);
    tokenizer(&config.tokenizer, &mut problems);
    model(config, &mut problems);
    tuning(config, &mut problems);
    let dropout = &config.dropout;
    for (field, share) in [
        ("dropout.embeddings", dropout.embeddings),
        ("dropout.sublayers", dropout.sublayers),
        ("dropout.attention", dropout.attention),
        ("dropout.activation", dropout.activation),
    ] {
        if !(0.0..=DropoutRates::LARGEST).contains(&(share as f32)) {
            problems.add(field, share, format!("a number from 0 to {}", DropoutRates::LARGEST));
        }
    }
    if !(0.0..f64::INFINITY).contains(&dropout.consistency) {
        problems.add("dropout.consistency", dropout.consistency, "0 or more");
    } else if dropout.consistency > 0.0
        && dropout.embeddings + dropout.sublayers + dropout.attention + dropout.activation == 0.0
    {
        problems.add(
            "dropout.consistency",
            dropout.consistency,
            "0, or another dropout rate above 0",
        );
    }
    optimiser(config, &mut problems);
    schedule(config, &mut problems);
    problems.0
}

fn data(config: &TrainingConfig, problems: &mut Problems) {
    let data = &config.data;
    if data.train.is_empty() {
        problems.add(
            "data.train",
            "empty",
            "at least one corpus: { source = \"train.en\", target = \"train.de\" }",
        );
    }
    for (field, texts) in [("data.train", &data.train), ("data.valid", &data.valid)] {
        for (index, text) in texts.iter().enumerate().filter(|(_, text)| text.files().is_none()) {
            let found = format!("{} in corpus {}", fields_of(text), index + 1);
            problems.add(field, found, "source and target, or tsv with columns counted from 1");
        }
    }
    problems.at_least("data.max_words", data.max_words, 1);
    if data.max_tokens == 0 {
        problems.add("data.max_tokens", 0, "at least 1");
    }
    for (field, tokens) in [
        ("data.max_source_tokens", data.max_source_tokens),
        ("data.max_target_tokens", data.max_target_tokens),
    ] {
        let Some(tokens) = tokens else { continue };
        if !(1..=data.max_tokens).contains(&tokens) {
            problems.add(
                field,
                tokens,
                format_args!("1 to data.max_tokens, which is {}", data.max_tokens),
            );
        // A checkpoint to fine-tune has its own limit.
        } else if config.model.init.is_none() && tokens > config.model.max_positions {
            problems.add(
                field,
                tokens,
                format_args!(
                    "at most model.max_positions, which is {}",
                    config.model.max_positions
                ),
            );
        }
    }
    problems.at_least("data.max_ratio", data.max_ratio, 1.0);
    problems.positive("data.subword_sampling", data.subword_sampling);
    if let Some(alpha) =
        data.subword_sampling.filter(|_| config.tokenizer.algorithm == PieceAlgorithm::Bpe)
    {
        problems.add(
            "data.subword_sampling",
            alpha,
            "no value, or tokenizer.algorithm = \"unigram\"",
        );
    }
    problems.at_least("data.max_sentences", data.max_sentences, 1);
    problems.within("data.prefetch", data.prefetch, 1, 10_000);
}

/// The fields that a corpus has.
fn fields_of(text: &Text) -> String {
    let present = [
        ("source", text.source.is_some()),
        ("target", text.target.is_some()),
        ("tsv", text.tsv.is_some()),
        ("source_column", text.source_column.is_some()),
        ("target_column", text.target_column.is_some()),
    ];
    let present: Vec<&str> =
        present.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name).collect();
    if present.is_empty() { "nothing".to_owned() } else { present.join(" and ") }
}

fn tokenizer(tokenizer: &Tokenizer, problems: &mut Problems) {
    if tokenizer.from.is_some() {
        let others = Tokenizer { from: None, ..tokenizer.clone() };
        problems.excluded(
            "tokenizer",
            [&others, &Tokenizer::default()],
            "no value beside tokenizer.from: an existing tokenizer is not trained",
        );
    }
    problems.within("tokenizer.vocab_size", tokenizer.vocab_size, 4, 1_000_000);
    if !(tokenizer.coverage > 0.0 && tokenizer.coverage <= 1.0) {
        problems.add("tokenizer.coverage", tokenizer.coverage, "a share above 0 and at most 1");
    }
    problems.at_least("tokenizer.sample", Some(tokenizer.sample), 1);
}

fn model(config: &TrainingConfig, problems: &mut Problems) {
    let (model, sizes) = (&config.model, config.sizes());
    if model.init.is_some() {
        let mut others = Model { init: None, ..model.clone() };
        // Files of runs say what the preset brings, too.
        let mut default = Model { preset: model.preset, ..Model::default() };
        others.name_choices();
        default.name_choices();
        default.preset = Model::default().preset;
        problems.excluded(
            "model",
            [&others, &default],
            "no value beside model.init: the checkpoint defines the model",
        );
        problems.excluded(
            "tokenizer",
            [&config.tokenizer, &Tokenizer::default()],
            "no value beside model.init: the checkpoint has a tokenizer",
        );
        return;
    }
    for (field, size) in [
        ("model.d_model", sizes.d_model),
        ("model.heads", sizes.heads),
        ("model.d_ff", sizes.d_ff),
        ("model.max_positions", sizes.max_positions),
    ] {
        problems.within(field, size, 1, LARGEST_SIZE);
    }
    problems.within("model.encoder_layers", sizes.encoder_layers, 1, MOST_LAYERS);
    problems.within("model.decoder_layers", sizes.decoder_layers, 1, MOST_LAYERS);
    // The error names the field that the file sets.
    let named = if model.d_model.is_none() && model.heads.is_some() {
        "model.heads"
    } else {
        "model.d_model"
    };
    if sizes.heads > 0 && !sizes.d_model.is_multiple_of(sizes.heads) {
        let (d_model, heads) = (sizes.d_model, sizes.heads);
        if named == "model.heads" {
            problems.add(named, heads, format_args!("a divisor of d_model, {d_model}"));
        } else {
            problems.add(named, d_model, format_args!("a multiple of heads, {heads}"));
        }
    } else if model.positions() == PositionKind::Rotary
        && sizes.heads > 0
        && !(sizes.d_model / sizes.heads).is_multiple_of(2)
    {
        let width = sizes.d_model / sizes.heads;
        problems.add(
            "model.positions",
            "rotary",
            format_args!("an even d_model / heads, found {width}"),
        );
    }
    if model.positions() == PositionKind::Sinusoidal && !sizes.d_model.is_multiple_of(2) {
        problems.add(
            "model.positions",
            "sinusoidal",
            format_args!("an even d_model, found {}", sizes.d_model),
        );
    }
    if model.positions() == PositionKind::Relative {
        problems.within("model.relative_buckets", model.relative_buckets, 4, 1 << 16);
        problems.within(
            "model.relative_max_distance",
            model.relative_max_distance,
            model.relative_buckets / 2 + 1,
            1 << 16,
        );
    } else {
        for (field, found, default) in [
            ("model.relative_buckets", model.relative_buckets, Model::default().relative_buckets),
            (
                "model.relative_max_distance",
                model.relative_max_distance,
                Model::default().relative_max_distance,
            ),
        ] {
            if found != default {
                problems.add(field, found, "no value, or model.positions = \"relative\"");
            }
        }
    }
    if Activation::named(&model.activation).is_none() {
        let names: Vec<&str> = Activation::names().collect();
        problems.add(
            "model.activation",
            format_args!("{:?}", model.activation),
            format_args!("one of {}", names.join(", ")),
        );
    }
    if model.tie_embeddings && config.tokenizer.vocabularies == Vocabularies::Separate {
        problems.add(
            "model.tie_embeddings",
            "true",
            "false, because tokenizer.vocabularies is \"separate\"",
        );
    }
}

fn tuning(config: &TrainingConfig, problems: &mut Problems) {
    let Tuning { freeze, lora_rank, lora_alpha, lora_targets } = &config.tuning;
    problems.at_least("tuning.lora_rank", *lora_rank, 1);
    problems.positive("tuning.lora_alpha", Some(*lora_alpha));
    let Some(rank) = lora_rank else {
        let none = "no value, or tuning.lora_rank to be set";
        if *lora_alpha != Tuning::default().lora_alpha {
            problems.add("tuning.lora_alpha", lora_alpha, none);
        }
        if *lora_targets != Tuning::default().lora_targets {
            problems.add("tuning.lora_targets", format_args!("{lora_targets:?}"), none);
        }
        return;
    };
    if config.model.init.is_none() {
        problems.add(
            "tuning.lora_rank",
            rank,
            "model.init to be set: adapters are for a trained model",
        );
    }
    if !freeze.is_empty() {
        problems.add(
            "tuning.freeze",
            "beside tuning.lora_rank",
            "only one of them: with adapters no other weights are learned",
        );
    }
    if lora_targets.is_empty() {
        problems.add("tuning.lora_targets", "empty", "at least one layer's name: [\"q_proj\"]");
    }
}

fn optimiser(config: &TrainingConfig, problems: &mut Problems) {
    let optimiser = &config.optimiser;
    problems.share("optimiser.beta1", optimiser.beta1);
    problems.share("optimiser.beta2", optimiser.beta2);
    problems.positive("optimiser.epsilon", Some(optimiser.epsilon));
    let epsilon = optimiser.epsilon;
    if optimiser.algorithm == OptimiserAlgorithm::Lion
        && epsilon != super::Optimiser::default().epsilon
    {
        let expected = "no value, or an optimiser.algorithm with epsilon: adam, adamw, muon";
        problems.add("optimiser.epsilon", epsilon, expected);
    }
    let decay = optimiser.weight_decay;
    if !((decay as f32).is_finite() && decay >= 0.0) {
        problems.add("optimiser.weight_decay", decay, "a number of at least 0");
    }
    if optimiser.weight_decay > 0.0 && optimiser.algorithm == OptimiserAlgorithm::Adam {
        problems.add(
            "optimiser.weight_decay",
            optimiser.weight_decay,
            "0, or an optimiser.algorithm with weight decay: adamw, lion, muon",
        );
    }
    problems.positive("optimiser.learning_rate", optimiser.learning_rate);
    problems.positive("optimiser.factor", optimiser.factor);
    if let (Some(_), Some(factor)) = (optimiser.learning_rate, optimiser.factor) {
        problems.add(
            "optimiser.factor",
            factor,
            "no value if optimiser.learning_rate is set: both define the peak rate",
        );
    }
    problems.at_least("optimiser.warmup_updates", Some(optimiser.warmup_updates), 1);
    let ending = match optimiser.decay {
        Decay::Linear => Some("linear"),
        Decay::Cosine => Some("cosine"),
        Decay::InverseSqrt | Decay::Constant => None,
    };
    if let Some(name) = ending {
        match config.schedule.max_updates {
            None => problems.add(
                "optimiser.decay",
                name,
                "schedule.max_updates to be set: the rate is zero there",
            ),
            Some(updates) if updates <= optimiser.warmup_updates => {
                let warmup = optimiser.warmup_updates;
                problems.add(
                    "schedule.max_updates",
                    updates,
                    format_args!("more than optimiser.warmup_updates, which is {warmup}"),
                );
            }
            Some(_) => {}
        }
    }
    problems.positive("optimiser.clip_norm", optimiser.clip_norm);
    problems.share("optimiser.label_smoothing", optimiser.label_smoothing);
    problems.at_least("optimiser.accumulation", Some(optimiser.accumulation), 1);
    if let Some(decay) = optimiser.ema_decay {
        problems.share("optimiser.ema_decay", decay);
    }
}

fn schedule(config: &TrainingConfig, problems: &mut Problems) {
    let schedule = &config.schedule;
    problems.at_least("schedule.max_updates", schedule.max_updates, 1);
    problems.at_least("schedule.max_epochs", schedule.max_epochs, 1);
    problems.positive("schedule.max_minutes", schedule.max_minutes);
    problems.at_least("schedule.log_every", Some(schedule.log_every), 1);
    problems.at_least("schedule.validate_every", Some(schedule.validate_every), 1);
    problems.at_least("schedule.patience", schedule.patience, 1);
    problems.within("schedule.beams", schedule.beams, 1, 64);
    problems.within("schedule.keep_checkpoints", schedule.keep_checkpoints, 1, 10_000);
    problems.within(
        "schedule.average_checkpoints",
        schedule.average_checkpoints,
        1,
        schedule.keep_checkpoints,
    );
    let is_limited = schedule.max_updates.is_some()
        || schedule.max_epochs.is_some()
        || schedule.max_minutes.is_some();
    if !is_limited && schedule.patience.is_none() {
        problems.add("schedule", "without end", "max_updates, max_epochs, max_minutes or patience");
    }
    if config.data.valid.is_empty() {
        if let Some(patience) = schedule.patience {
            problems.add("schedule.patience", patience, "no value, or data.valid to be set");
        }
        if schedule.metric == Metric::Bleu {
            problems.add("schedule.metric", "bleu", "data.valid to be set");
        }
    }
}
