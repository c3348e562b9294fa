//! Checks of resumed settings, and the average of checkpoints.

use std::path::Path;
use std::sync::Arc;

use cognate_graph::{Generator, Recipe, Weights};
use cognate_model::Model;
use serde_json::Value;

use super::checkpoint::Run;
use crate::error::{Cause, Result};

/// Settings that can change in a resumed run, because updates do not depend on them.
/// `schedule.max_updates` is fixed if the rate decays to 0 there.
const FREE: [&str; 10] = [
    "threads",
    "data.prefetch",
    "schedule.max_updates",
    "schedule.max_epochs",
    "schedule.max_minutes",
    "schedule.log_every",
    "schedule.validate_every",
    "schedule.patience",
    "schedule.keep_checkpoints",
    "schedule.average_checkpoints",
];

/// Returns an error that lists the settings that differ from those of the run and must not.
pub(super) fn check(folder: &Path, former: &Value, now: &Value) -> Result<()> {
    let mut lines = Vec::new();
    compare("", former, now, &mut lines);
    let has_end = ["linear", "cosine"].iter().any(|decay| now["optimiser"]["decay"] == *decay);
    lines.retain(|(field, ..)| {
        !FREE.contains(&field.as_str()) || (has_end && field == "schedule.max_updates")
    });
    if lines.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = lines
        .iter()
        .map(|(field, former, now)| format!("\n  {field} is {now}, expected {former}"))
        .collect();
    let message = format!(
        "{}: a run resumes only with its original settings, which are in its training.json{}",
        folder.display(),
        told.concat()
    );
    Err(Cause::Config(message).into())
}

/// Returns an error if what a run is about has changed.
pub(super) fn check_unchanged(folder: &Path, former: &Run, now: &Run) -> Result<()> {
    let differ = |former: &Option<String>, now: &Option<String>| matches!((former, now), (Some(former), Some(now)) if former != now);
    let changed = if former.corpus != now.corpus {
        "data.train: the text has changed"
    } else if differ(&former.valid, &now.valid) {
        "data.valid: the text has changed"
    } else if differ(&former.base, &now.base) {
        "model.init: the weights have changed"
    } else {
        return Ok(());
    };
    let message = format!(
        "{}: {changed} since the run began, according to training.json; start a new run",
        folder.display()
    );
    Err(Cause::Config(message).into())
}

fn compare(place: &str, former: &Value, now: &Value, lines: &mut Vec<(String, String, String)>) {
    match (former, now) {
        (Value::Object(former), Value::Object(now)) => {
            let names = former.keys().chain(now.keys().filter(|name| !former.contains_key(*name)));
            for name in names {
                let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
                let value = |object: &serde_json::Map<String, Value>| {
                    object.get(name).cloned().unwrap_or(Value::Null)
                };
                compare(&place, &value(former), &value(now), lines);
            }
        }
        _ if former == now => {}
        _ => lines.push((place.to_owned(), told(former), told(now))),
    }
}

fn told(value: &Value) -> String {
    if value.is_null() { "absent".to_owned() } else { value.to_string() }
}

/// The model with the averaged weights of `models`; `None` if there are none.
pub(super) fn mean(models: &[Model]) -> Result<Option<Model>> {
    let Some(first) = models.first() else { return Ok(None) };
    let recipe = |(path, recipe): (&str, &Recipe)| {
        let of: Vec<Recipe> =
            models.iter().filter_map(|model| model.weights().get(path)).cloned().collect();
        (path.to_owned(), Recipe::generated(Arc::new(Mean(of)), recipe.shape()))
    };
    let weights: Weights = first.weights().iter().map(recipe).collect();
    Ok(Some(Model::with_weights(first.config_json().to_owned(), weights)?))
}

/// The element-wise mean of weights.
#[derive(Debug)]
struct Mean(Vec<Recipe>);

impl Generator for Mean {
    fn fill(&self, first: usize, values: &mut [f32]) {
        let mut sums = vec![0f64; values.len()];
        for recipe in &self.0 {
            recipe.read(first, values);
            sums.iter_mut().zip(values.iter()).for_each(|(sum, value)| *sum += f64::from(*value));
        }
        let n = self.0.len() as f64;
        values.iter_mut().zip(sums).for_each(|(value, sum)| *value = (sum / n) as f32);
    }
}
