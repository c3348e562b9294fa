//! Grids: one run for each combination of settings, in a folder such as
//! `OUT/positions=rotary,norm_placement=pre/`.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::config::TrainingConfig;
use crate::error::{Cause, Result};

/// A setting and its values: `norm_placement=pre,post`. A field without a section belongs to
/// `model`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridAxis {
    /// The name of the setting.
    pub field: String,
    /// Its values, all different.
    pub values: Vec<String>,
}

impl FromStr for GridAxis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "expected a field and its values, such as norm_placement=pre,post".to_owned();
        let (field, values) = text.split_once('=').ok_or_else(wrong)?;
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if field.is_empty() || values.iter().any(String::is_empty) {
            return Err(wrong());
        }
        if let Some(twice) = duplicate(&values) {
            return Err(format!("{twice} occurs twice"));
        }
        Ok(Self { field: field.trim().to_owned(), values })
    }
}

/// A run of a grid.
#[derive(Clone, Debug)]
pub struct GridRun {
    /// The values of its settings, in the order of the axes.
    pub values: Vec<String>,
    /// All settings.
    pub config: TrainingConfig,
    /// Its folder in that of the grid.
    pub folder: PathBuf,
}

/// The runs of all combinations of values, in folders of `out`.
///
/// # Errors
/// If there is no validation text, an axis occurs twice, a field has no such value, a combination
/// is invalid, or two would have one folder.
pub fn grid(axes: &[GridAxis], config: &TrainingConfig, out: &Path) -> Result<Vec<GridRun>> {
    let refuse = |reason: String| Cause::Config(reason);
    if config.data.valid.is_empty() {
        Err(refuse("expected validation text; pass --valid SOURCE TARGET".to_owned()))?;
    }
    let full_name = |axis: &GridAxis| match axis.field.as_str() {
        field if field.contains('.') || field == "seed" => field.to_owned(),
        field => format!("model.{field}"),
    };
    let fields: Vec<String> = axes.iter().map(full_name).collect();
    if let Some(twice) = duplicate(&fields) {
        Err(refuse(format!("{twice} occurs twice; pass all its values in one option")))?;
    }
    let mut combinations = vec![Vec::new()];
    for axis in axes {
        let with = |former: &Vec<String>, value: &String| {
            former.iter().chain([value]).cloned().collect::<Vec<_>>()
        };
        combinations = combinations
            .iter()
            .flat_map(|former| axis.values.iter().map(move |value| with(former, value)))
            .collect();
    }
    let run = |values: Vec<String>| {
        let (mut config, mut name) = (config.clone(), Vec::new());
        for ((axis, field), value) in axes.iter().zip(&fields).zip(&values) {
            config.set(field, value)?;
            name.push(format!("{}={value}", axis.field).replace(['/', '\\'], "_"));
        }
        let name = name.join(",");
        config.check().map_err(|error| refuse(format!("{name}: {error}")))?;
        Ok(GridRun { values, config, folder: out.join(name) })
    };
    let runs = combinations.into_iter().map(run).collect::<Result<Vec<_>>>()?;
    let folders: Vec<String> = runs.iter().map(|run| run.folder.display().to_string()).collect();
    if let Some(twice) = duplicate(&folders) {
        Err(refuse(format!("{twice}: is the folder of two runs; name their values differently")))?;
    }
    Ok(runs)
}

fn duplicate(names: &[String]) -> Option<&String> {
    (1..names.len())
        .find(|&place| names[..place].contains(&names[place]))
        .map(|place| &names[place])
}
