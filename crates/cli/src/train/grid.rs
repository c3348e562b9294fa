//! `cognate train --grid`: one run for each combination of settings, and a table of the validation
//! results.
//!
//! Each run has a folder such as `OUT/positions=rotary,norm_placement=pre/`. The table is made from
//! the logs, so that it contains runs of earlier commands.

use super::Run;
use crate::messages;
use anyhow::{Context, Result, ensure};
use cognate::train::GridTable;
use cognate_train::config::{Metric, TrainingConfig};
use cognate_train::{Beginning, Ending, ErrorKind, GridAxis, GridRun, Machine, grid};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// All runs, in order.
pub(super) struct Grid {
    out: PathBuf,
    fields: Vec<String>,
    /// Each with its number of parameters, once it has started.
    runs: Vec<(GridRun, Option<usize>)>,
    metric: Metric,
}

impl Grid {
    /// Every combination of the values.
    ///
    /// # Errors
    /// If a field has no such value, a combination is invalid or not for this machine, or there is no
    /// validation text.
    pub(super) fn new(
        axes: &[GridAxis],
        config: &TrainingConfig,
        out: &Path,
        machine: &Machine<'_>,
    ) -> Result<Self> {
        let runs = grid(axes, config, out).context("--grid")?;
        runs.iter().try_for_each(|run| machine.check(&run.config)).context("--grid")?;
        let runs = runs.into_iter().map(|run| (run, None)).collect();
        let fields = axes.iter().map(|axis| axis.field.clone()).collect();
        Ok(Self { out: out.to_owned(), fields, runs, metric: config.schedule.metric })
    }

    /// Runs all that are not finished and writes the table.
    pub(super) fn run(
        mut self,
        run: &Run<'_>,
        resume: bool,
        out: &mut dyn Write,
    ) -> Result<Ending> {
        let is_there = fs::read_dir(&self.out).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(
            resume || !is_there,
            "{}: expected an empty or new folder; continue with --resume, or choose another",
            self.out.display()
        );
        let (mut ending, count) = (Ending::Updates, self.runs.len());
        let (mut diverged, mut failed) = (Vec::new(), None);
        for (index, (cell, parameters)) in self.runs.iter_mut().enumerate() {
            let name = cell.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !messages::is_quiet() {
                messages::note(format_args!("run {} of {count}: {name}", index + 1));
            }
            let trained = run.train(cell.config.clone(), &cell.folder, beginning(&cell.folder));
            let (outcome, n_parameters) = match trained {
                Err(error) if has_diverged(&error) => {
                    messages::error(&error.context(name.clone()));
                    diverged.push(name);
                    continue;
                }
                Err(error) => {
                    failed = Some(error.context(name));
                    break;
                }
                Ok(trained) => trained,
            };
            *parameters = Some(n_parameters);
            if outcome.ending == Ending::Stopped {
                ending = Ending::Stopped;
                break;
            }
        }
        self.write_table(out)?;
        if let Some(error) = failed {
            return Err(error);
        }
        ensure!(
            diverged.is_empty(),
            "--grid: {} of {count} runs diverged: {}",
            diverged.len(),
            diverged.join("; ")
        );
        Ok(ending)
    }

    /// Prints the table of all started runs, and writes it into two files.
    fn write_table(&self, out: &mut dyn Write) -> Result<()> {
        let started = self.runs.iter().filter_map(|(run, parameters)| Some((run, (*parameters)?)));
        let table = GridTable::read(&self.fields, started, self.metric)?;
        for (name, text) in
            [("grid.json", format!("{:#}\n", table.to_json())), ("grid.csv", table.to_csv())]
        {
            let path = self.out.join(name);
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
        write!(out, "{table}")?;
        Ok(out.flush()?)
    }
}

fn has_diverged(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<cognate_train::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::Diverged)
}

/// Resumes a run that was saved; another starts again.
fn beginning(folder: &Path) -> Beginning {
    let is_saved = fs::read_dir(folder).is_ok_and(|mut entries| {
        entries.any(|entry| {
            entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("checkpoint-"))
        })
    });
    if is_saved { Beginning::Resume } else { Beginning::Fresh }
}
