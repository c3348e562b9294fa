//! Texts and images to classes.

use crate::batches::BatchLimit;
use crate::encoder::{BATCH_TOKENS, LoadedEncoder, Part};
use crate::error::{Cause, Result};
use crate::options::LoadOptions;
use cognate_folder::ModelSource;
use cognate_images::Image;
use cognate_model::interface::LOGITS;
use cognate_model::{Head, Parts};
use cognate_runtime::Values;
use ndarray::ArrayView1;
use serde_json::Value;
use std::path::Path;

/// A class with its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// What `id2label` of `config.json` calls it, else `LABEL_N`.
    pub label: String,
    /// Its probability; of a regression the number itself.
    pub score: f32,
}

/// A model that tells the class of a text, or of an image.
pub struct Classifier {
    model: LoadedEncoder,
    labels: Vec<String>,
    scores: Scores,
}

debug_by_source!(Classifier, |it| it.model.source());

/// What is made of the logits, as transformers' `pipeline` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scores {
    /// A text has one class: `softmax`.
    One,
    /// A text may have several: the logistic function of each.
    Several,
    /// The number itself.
    Regression,
}

impl Classifier {
    /// Loads a checkpoint or an export.
    ///
    /// # Errors
    /// As [`Classifier::load`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self> {
        Self::load(ModelSource::find(folder.as_ref())?, &LoadOptions::default())
    }

    /// Loads a checkpoint or an export.
    ///
    /// # Errors
    /// If a file is missing or wrong, the model is no classifier of texts or images, or the engine
    /// cannot run it.
    pub fn load(source: ModelSource, options: &LoadOptions) -> Result<Self> {
        let model = LoadedEncoder::open(source, options, Part::Whole)?;
        let Parts::Encoder(
            Head::Text { labels: n_labels, .. } | Head::Image { labels: n_labels, .. },
        ) = model.config().parts
        else {
            let message = format!(
                "{}: does not classify texts or images; expected a model such as BertForSequenceClassification or \
                 ViTForImageClassification",
                model.source()
            );
            return Err(Cause::InFolder(message).into());
        };
        let config: Value = serde_json::from_str(model.config_json()).unwrap_or_default();
        let name = |index: usize| {
            config["id2label"][index.to_string()]
                .as_str()
                .map_or(format!("LABEL_{index}"), str::to_owned)
        };
        let scores = match config["problem_type"].as_str() {
            Some("regression") => Scores::Regression,
            Some("multi_label_classification") => Scores::Several,
            _ if n_labels == 1 => Scores::Several,
            _ => Scores::One,
        };
        Ok(Self { labels: (0..n_labels).map(name).collect(), scores, model })
    }

    /// The loaded model.
    pub fn model(&self) -> &LoadedEncoder {
        &self.model
    }

    /// All classes for each text, the likeliest first.
    ///
    /// # Errors
    /// If the model reads images, a text has a token that the model does not know, or the engine
    /// fails.
    pub fn classify(&self, texts: &[impl AsRef<str>]) -> Result<Vec<Vec<Class>>> {
        self.classify_while(texts, || true)
    }

    /// As [`Classifier::classify`]; ends after a batch when `is_wanted` returns false.
    ///
    /// # Errors
    /// As [`Classifier::classify`], or with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled).
    pub fn classify_while(
        &self,
        texts: &[impl AsRef<str>],
        is_wanted: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Vec<Class>>> {
        self.model.run(texts, BatchLimit::tokens(BATCH_TOKENS), is_wanted, |outputs, _| {
            self.classes(outputs)
        })
    }

    /// All classes for each PNG or JPEG file, the likeliest first.
    ///
    /// # Errors
    /// If the model reads texts, a file is no picture, or the engine fails.
    pub fn classify_files(&self, paths: &[impl AsRef<Path> + Sync]) -> Result<Vec<Vec<Class>>> {
        self.model.run_images(
            paths.len(),
            |index| Ok(Box::new(Image::open(paths[index].as_ref())?)),
            |outputs| self.classes(outputs),
        )
    }

    /// All classes for each image, the likeliest first.
    ///
    /// # Errors
    /// As [`Classifier::classify_files`].
    pub fn classify_images(&self, images: &[Image]) -> Result<Vec<Vec<Class>>> {
        self.model.run_images(
            images.len(),
            |index| Ok(&images[index]),
            |outputs| self.classes(outputs),
        )
    }

    fn classes(&self, outputs: &Values) -> Result<Vec<Vec<Class>>> {
        let logits = self.model.output(outputs, LOGITS)?;
        let row = |logits: ArrayView1<'_, f64>| {
            let mut classes: Vec<_> =
                self.labels.iter().cloned().zip(self.scores.of(logits)).collect();
            classes.sort_by(|(_, one), (_, other)| other.total_cmp(one));
            classes.into_iter().map(|(label, score)| Class { label, score }).collect()
        };
        Ok(logits.rows().into_iter().map(row).collect())
    }
}

impl Scores {
    fn of(self, logits: ArrayView1<'_, f64>) -> Vec<f32> {
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - largest).exp()).sum();
        let score = |&logit: &f64| match self {
            Self::One => (logit - largest).exp() / sum,
            Self::Several => 1.0 / (1.0 + (-logit).exp()),
            Self::Regression => logit,
        };
        logits.iter().map(|logit| score(logit) as f32).collect()
    }
}
