//! `cargo xtask hostile --kills N`: exports, translations and training runs that are killed at
//! random moments.
//!
//! Afterwards the output is complete or unchanged, and the next command with the same output leaves
//! no other files. A training run is resumed from its last state, and has the losses, weights and
//! state of an uninterrupted run, bit for bit.

use fs_err as fs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::bytes::{copy_folder, read, write};
use super::good::{Good, Models};
use super::words;
use xtask::table::table;
use xtask::workspace::call;

/// Updates of a training run, and between two saved states.
const UPDATES: u64 = 40;
const STATE_EVERY: u64 = 4;

/// Kills `count` commands in turn, and prints the results.
pub(super) fn run(program: &Path, models: &Models, folder: &Path, count: u32) -> Result<()> {
    let mut kinds = kinds(program, models, folder)?;
    kinds.iter_mut().try_for_each(|kind| kind.prepare(program))?;
    let mut moments = Moments(1);
    let mut rows = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let (mut n_whole, mut n_left) = (0, 0);
        let n_kills = (index as u32..count).step_by(kinds.len()).count();
        for number in 0..n_kills {
            let place = folder.join(format!("kill-{index}-{number}"));
            fs::create_dir_all(&place)?;
            let (is_whole, n) = kind
                .kill(program, &place, moments.next())
                .with_context(|| format!("{}, kill {number}", kind.name))?;
            n_whole += usize::from(is_whole);
            n_left += n;
            fs::remove_dir_all(&place)?;
        }
        let numbers =
            [n_kills, n_whole, n_kills - n_whole, n_left, 0].map(|number| number.to_string());
        rows.push(std::iter::once(kind.name.clone()).chain(numbers).collect::<Vec<_>>());
    }
    println!(
        "{}",
        table(&["killed", "times", "whole", "as before", "left over", "after the next"], &rows)
    );
    Ok(())
}

/// A command that is killed, and its output if it is not killed.
struct Kind {
    name: String,
    /// The command line; `{out}` is the output.
    line: String,
    /// The command line that completes the output after a kill.
    again: String,
    /// Paths that replace the names in the command lines.
    places: Vec<(&'static str, PathBuf)>,
    /// The file or folder that exists at the output before, if any.
    former: Option<PathBuf>,
    /// The complete output.
    whole: PathBuf,
    is_training: bool,
    time: Duration,
}

fn kinds(program: &Path, models: &Models, folder: &Path) -> Result<Vec<Kind>> {
    let kind = |name: &str, line: &str, places: Vec<(&'static str, PathBuf)>| Kind {
        name: name.into(),
        line: line.into(),
        again: line.into(),
        places,
        former: None,
        whole: folder.join(format!("whole {name}")),
        is_training: false,
        time: Duration::ZERO,
    };
    let former_text = folder.join("former.txt");
    write(&former_text, "the content before\n")?;
    let (former_export, model) = (folder.join("former-export"), models.path(Good::Checkpoint));
    call(
        Command::new(program)
            .arg("export")
            .arg(model)
            .arg(&former_export)
            .args(["--no-verify", "--attentions"])
            .stdout(Stdio::null()),
    )?;
    let text = folder.join("long.txt");
    write(&text, "A dog.\nThe cat sat.\n".repeat(100))?;
    let export = "export {model} {out} --no-verify --force";
    let translate = "translate --max-new-tokens 8 --window 8 --engine tract --model {model} --input {text} --output {out}";
    let checkpoint = || vec![("{model}", model.to_owned())];
    let mut kinds = vec![
        kind("export", export, checkpoint()),
        Kind { former: Some(former_export), ..kind("export over another", export, checkpoint()) },
        Kind {
            former: Some(former_text),
            ..kind(
                "translation",
                translate,
                vec![("{model}", models.path(Good::Exported).to_owned()), ("{text}", text)],
            )
        },
    ];
    for engine in
        ["tract", "ort"].into_iter().filter(|engine| *engine == "tract" || models.has_onnxruntime)
    {
        let data = folder.join(format!("training-{engine}"));
        copy_folder(models.path(Good::Text), &data)?;
        let settings = data.join("run.toml");
        let lines = String::from_utf8(read(&settings)?)?;
        let others: Vec<&str> =
            lines.lines().filter(|line| !line.starts_with("schedule.")).collect();
        let schedule = format!(
            "schedule.max_updates = {UPDATES}\nschedule.validate_every = {STATE_EVERY}\nschedule.log_every = 1\n"
        );
        write(&settings, format!("{}\n{schedule}", others.join("\n")))?;
        let line = format!("train {{settings}} --engine {engine} --out {{out}}");
        kinds.push(Kind {
            again: format!("train --resume --engine {engine} --out {{out}}"),
            is_training: true,
            ..kind(&format!("training, {engine}"), &line, vec![("{settings}", settings)])
        });
    }
    Ok(kinds)
}

impl Kind {
    fn command(&self, program: &Path, line: &str, out: &Path) -> Command {
        let places: Vec<_> = self
            .places
            .iter()
            .map(|(name, path)| (*name, path.as_path()))
            .chain([("{out}", out)])
            .collect();
        let mut command = Command::new(program);
        command
            .args(words(line, &places))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Runs the command to its end and measures its time.
    fn prepare(&mut self, program: &Path) -> Result<()> {
        let start = Instant::now();
        call(&mut self.command(program, &self.line, &self.whole))?;
        self.time = start.elapsed();
        Ok(())
    }

    /// Kills the command after a share of its time, and completes its output in `place`. Returns
    /// whether the output was complete after the kill, or a training run had a saved state, and the
    /// number of hidden files that were left.
    fn kill(&self, program: &Path, place: &Path, share: f64) -> Result<(bool, usize)> {
        let out = place.join("out");
        match &self.former {
            Some(former) if former.is_dir() => copy_folder(former, &out)?,
            Some(former) => drop(fs::copy(former, &out)?),
            None => {}
        }
        let mut child =
            self.command(program, &self.line, &out).spawn().context("cognate: cannot start")?;
        std::thread::sleep(self.time.mul_f64(share));
        // It may have ended already.
        let _ = child.kill();
        child.wait().context("cognate: cannot be waited for")?;
        let found = contents(&out)?;
        let is_former = match &self.former {
            // A training run starts again if no state was saved.
            _ if self.is_training => {
                !found.keys().any(|path| path.to_string_lossy().starts_with("checkpoint-"))
            }
            Some(former) => found == contents(former)?,
            None => found.is_empty(),
        };
        ensure!(
            is_former || self.is_training || found == contents(&self.whole)?,
            "the output is not complete"
        );
        let n_left = hidden(place)?.len();
        if self.is_training && is_former {
            let _ = fs::remove_dir_all(&out);
        } else {
            call(&mut self.command(program, &self.again, &out)).context("the next command")?;
            match self.is_training {
                true => Trained::read(&out)?.check(&Trained::read(&self.whole)?)?,
                false => ensure!(
                    contents(&out)? == contents(&self.whole)?,
                    "the next output is not complete"
                ),
            }
        }
        let hidden = hidden(place)?;
        ensure!(hidden.is_empty(), "the next command left {}", hidden.join(", "));
        Ok((!is_former, n_left))
    }
}

/// The hidden files and folders in `place` and its folders.
fn hidden(place: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            found.push(name);
        } else if entry.file_type()?.is_dir() {
            found.extend(hidden(&entry.path())?);
        }
    }
    Ok(found)
}

/// Random shares of the time (Lehmer's generator).
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        self.0 as f64 / 2_147_483_647.0
    }
}

type Contents = BTreeMap<PathBuf, Vec<u8>>;

/// The content of a file, or of the files in a folder and below; empty if it does not exist.
fn contents(path: &Path) -> Result<Contents> {
    if path.is_dir() {
        let file = |file: PathBuf| Ok((file.strip_prefix(path)?.to_owned(), read(&file)?));
        return xtask::workspace::files(path)?.into_iter().map(file).collect();
    }
    Ok(if path.exists() {
        Contents::from([(PathBuf::new(), read(path)?)])
    } else {
        Contents::new()
    })
}

/// The result of a training run.
struct Trained {
    /// The files of the last state, except the one with times.
    state: Contents,
    /// Losses and norms of each update and validation, with the digits of the log.
    losses: BTreeMap<(u64, &'static str), Value>,
}

impl Trained {
    fn read(out: &Path) -> Result<Self> {
        let mut state = contents(&out.join(format!("checkpoint-{UPDATES}")))?;
        ensure!(
            state.remove(Path::new("training.json")).is_some(),
            "the state has no training.json"
        );
        let (log, mut losses) =
            (String::from_utf8(read(&out.join("log.jsonl"))?)?, BTreeMap::new());
        for line in log.lines() {
            let line: Value = serde_json::from_str(line).context("log.jsonl")?;
            let update = line["update"].as_u64().context("log.jsonl: a line without an update")?;
            for name in ["loss", "gradient_norm", "valid_loss"] {
                let Some(value) = line.get(name) else { continue };
                // Updates after the last state are repeated, with equal results.
                if losses
                    .insert((update, name), value.clone())
                    .is_some_and(|before| before != *value)
                {
                    bail!("update {update} has another {name} the second time");
                }
            }
        }
        let n_losses = losses.keys().filter(|(_, name)| *name == "loss").count() as u64;
        ensure!(n_losses == UPDATES, "the log has {n_losses} losses, expected {UPDATES}");
        Ok(Self { state, losses })
    }

    fn check(&self, whole: &Self) -> Result<()> {
        ensure!(
            self.losses == whole.losses,
            "the resumed run has other losses than a run without interruption"
        );
        ensure!(
            self.state == whole.state,
            "the resumed run has another state than a run without interruption"
        );
        Ok(())
    }
}
