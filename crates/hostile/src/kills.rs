//! `cargo xtask hostile --kills N`: exports, translations and training runs that are killed at random moments.
//!
//! What is there afterwards is whole, or is what was there before, and the next command that writes there leaves nothing else beside
//! it. A training run goes on from its last state to the very losses, weights and state of a run that nothing has interrupted, bit
//! for bit.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::bytes::{copy_folder, read, write};
use super::good::{Good, Models};
use xtask::table::table;
use xtask::workspace::call;

/// Updates of a training run, and how many go by from one saved state to the next.
const UPDATES: u64 = 40;
const STATE_EVERY: u64 = 4;

/// Kills `count` commands in turn, and prints what they left.
pub(super) fn run(program: &Path, models: &Models, folder: &Path, count: u32) -> Result<()> {
    let mut kinds = vec![
        Export::prepare(program, models, folder, Before::Nothing)?,
        Export::prepare(program, models, folder, Before::Another)?,
        Translation::prepare(program, models, folder)?,
        Training::prepare(program, models, folder, "tract")?,
    ];
    if models.has_onnxruntime {
        kinds.push(Training::prepare(program, models, folder, "ort")?);
    }
    let mut moments = Moments(1);
    let mut rows = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let (mut n_whole, mut n_former, mut n_left) = (0, 0, 0);
        let n_kills = (index as u32..count).step_by(kinds.len()).count();
        for number in 0..n_kills {
            let place = folder.join(format!("kill-{index}-{number}"));
            fs::create_dir_all(&place).with_context(|| place.display().to_string())?;
            let moment = kind.time().mul_f64(moments.next());
            let kill = || {
                let left = kind.kill(&place, moment)?;
                let n_left = hidden(&place)?.len();
                kind.write_again(&place)?;
                let hidden = hidden(&place)?;
                ensure!(hidden.is_empty(), "the next command left {}", hidden.join(", "));
                Ok((left, n_left))
            };
            let (left, n) = kill().with_context(|| format!("{}, kill {number}", kind.name()))?;
            n_left += n;
            match left {
                Left::Whole => n_whole += 1,
                Left::Former => n_former += 1,
            }
            fs::remove_dir_all(&place).with_context(|| place.display().to_string())?;
        }
        rows.push([kind.name(), n_kills.to_string(), n_whole.to_string(), n_former.to_string(), n_left.to_string(), "0".into()].to_vec());
    }
    println!("{}", table(&["killed", "times", "whole", "as before", "left over", "after the next"], &rows));
    Ok(())
}

/// What a killed command left.
enum Left {
    Whole,
    Former,
}

/// A command that is killed, and what it leaves if it is not.
trait Kind {
    fn name(&self) -> String;
    /// The time that it takes.
    fn time(&self) -> Duration;
    /// Kills it after `moment` and judges what is in `place`.
    fn kill(&self, place: &Path, moment: Duration) -> Result<Left>;
    /// Lets a command write to its end where one was killed, and judges what is there.
    fn write_again(&self, place: &Path) -> Result<()>;
}

/// The hidden files and folders in `place` and in its folders.
fn hidden(place: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).with_context(|| place.display().to_string())? {
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

/// Random shares of a time (Lehmer's generator).
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        self.0 = self.0 * 48_271 % 2_147_483_647;
        self.0 as f64 / 2_147_483_647.0
    }
}

fn command(program: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs a command to its end, and tells how long that took.
fn timed(program: &Path, arguments: &[&OsStr]) -> Result<Duration> {
    let start = Instant::now();
    call(&mut command(program, arguments))?;
    Ok(start.elapsed())
}

fn killed_after(program: &Path, arguments: &[&OsStr], moment: Duration) -> Result<()> {
    let mut child = command(program, arguments).spawn().context("cognate: cannot be started")?;
    std::thread::sleep(moment);
    // It may have come to its end.
    let _ = child.kill();
    child.wait().map(drop).context("cognate: cannot be waited for")
}

/// The files in a folder and below, with their contents.
fn contents(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in xtask::workspace::files(folder)? {
        found.insert(path.strip_prefix(folder)?.to_owned(), read(&path)?);
    }
    Ok(found)
}

/// What is at the place of an export before it begins.
enum Before {
    Nothing,
    /// Another export.
    Another,
}

struct Export {
    program: PathBuf,
    model: PathBuf,
    former: Option<PathBuf>,
    expected: BTreeMap<PathBuf, Vec<u8>>,
    time: Duration,
}

impl Export {
    fn prepare(program: &Path, models: &Models, folder: &Path, before: Before) -> Result<Box<dyn Kind>> {
        let (model, out) = (models.path(Good::Checkpoint).to_owned(), folder.join("whole-export"));
        let time = timed(program, &Self::arguments(&model, &out))?;
        let former = match before {
            Before::Nothing => None,
            Before::Another => {
                let former = folder.join("former-export");
                timed(program, &[&Self::arguments(&model, &former)[..], &["--attentions".as_ref()]].concat())?;
                Some(former)
            }
        };
        // The name of the folder is in no file.
        Ok(Box::new(Self { program: program.to_owned(), model, former, expected: contents(&out)?, time }))
    }

    fn arguments<'a>(model: &'a Path, out: &'a Path) -> Vec<&'a OsStr> {
        vec!["export".as_ref(), model.as_ref(), out.as_ref(), "--no-verify".as_ref(), "--force".as_ref()]
    }
}

impl Kind for Export {
    fn name(&self) -> String {
        if self.former.is_some() { "export over another".into() } else { "export".into() }
    }

    fn time(&self) -> Duration {
        self.time
    }

    fn kill(&self, place: &Path, moment: Duration) -> Result<Left> {
        let out = place.join("out");
        if let Some(former) = &self.former {
            copy_folder(former, &out)?;
        }
        killed_after(&self.program, &Self::arguments(&self.model, &out), moment)?;
        let is_former = match &self.former {
            Some(former) => contents(&out)? == contents(former)?,
            None => !out.exists(),
        };
        if is_former {
            return Ok(Left::Former);
        }
        ensure!(contents(&out)? == self.expected, "the export is not whole");
        Ok(Left::Whole)
    }

    fn write_again(&self, place: &Path) -> Result<()> {
        let out = place.join("out");
        call(&mut command(&self.program, &Self::arguments(&self.model, &out)))?;
        ensure!(contents(&out)? == self.expected, "the next export is not whole");
        Ok(())
    }
}

struct Translation {
    program: PathBuf,
    model: PathBuf,
    text: PathBuf,
    expected: Vec<u8>,
    time: Duration,
}

impl Translation {
    fn prepare(program: &Path, models: &Models, folder: &Path) -> Result<Box<dyn Kind>> {
        let (text, out) = (folder.join("long.txt"), folder.join("whole.txt"));
        write(&text, "A dog.\nThe cat sat.\n".repeat(100))?;
        let mut kind = Self {
            program: program.to_owned(),
            model: models.path(Good::Exported).to_owned(),
            text,
            expected: Vec::new(),
            time: Duration::ZERO,
        };
        kind.time = timed(program, &kind.arguments(&out))?;
        kind.expected = read(&out)?;
        Ok(Box::new(kind))
    }

    fn arguments<'a>(&'a self, out: &'a Path) -> Vec<&'a OsStr> {
        let fixed = ["translate", "--max-new-tokens", "8", "--window", "8", "--engine", "tract", "--model"].map(OsStr::new);
        [&fixed[..], &[self.model.as_ref(), "--input".as_ref(), self.text.as_ref(), "--output".as_ref(), out.as_ref()]].concat()
    }
}

impl Kind for Translation {
    fn name(&self) -> String {
        "translation".into()
    }

    fn time(&self) -> Duration {
        self.time
    }

    fn kill(&self, place: &Path, moment: Duration) -> Result<Left> {
        const FORMER: &[u8] = b"what was there before\n";
        let out = place.join("out.txt");
        write(&out, FORMER)?;
        killed_after(&self.program, &self.arguments(&out), moment)?;
        let found = read(&out)?;
        if found == FORMER {
            return Ok(Left::Former);
        }
        ensure!(found == self.expected, "the translation is not whole");
        Ok(Left::Whole)
    }

    fn write_again(&self, place: &Path) -> Result<()> {
        let out = place.join("out.txt");
        call(&mut command(&self.program, &self.arguments(&out)))?;
        ensure!(read(&out)? == self.expected, "the next translation is not whole");
        Ok(())
    }
}

struct Training {
    program: PathBuf,
    settings: PathBuf,
    engine: &'static str,
    expected: Trained,
    time: Duration,
}

/// What a run comes to.
#[derive(PartialEq)]
struct Trained {
    /// The files of the last state, but for that which tells the time.
    state: BTreeMap<PathBuf, Vec<u8>>,
    /// Of each update and each validation, as the log has it, digit by digit.
    losses: BTreeMap<(u64, &'static str), Value>,
}

impl Trained {
    fn read(out: &Path) -> Result<Self> {
        let mut state = contents(&out.join(format!("checkpoint-{UPDATES}")))?;
        ensure!(state.remove(Path::new("training.json")).is_some(), "the state has no training.json");
        let (log, mut losses) = (String::from_utf8(read(&out.join("log.jsonl"))?)?, BTreeMap::new());
        for line in log.lines() {
            let line: Value = serde_json::from_str(line).context("log.jsonl")?;
            let update = line["update"].as_u64().context("log.jsonl: a line without an update")?;
            for name in ["loss", "gradient_norm", "valid_loss"] {
                let Some(value) = line.get(name) else { continue };
                // What was done after the last state is done again, and must give the same again.
                if losses.insert((update, name), value.clone()).is_some_and(|before| before != *value) {
                    bail!("update {update} has another {name} the second time");
                }
            }
        }
        let n_losses = losses.keys().filter(|(_, name)| *name == "loss").count() as u64;
        ensure!(n_losses == UPDATES, "the log has {n_losses} losses, expected {UPDATES}");
        Ok(Self { state, losses })
    }
}

impl Training {
    fn prepare(program: &Path, models: &Models, folder: &Path, engine: &'static str) -> Result<Box<dyn Kind>> {
        let text = folder.join(format!("training-{engine}"));
        copy_folder(models.path(Good::Text), &text)?;
        let settings = text.join("run.toml");
        let lines = String::from_utf8(read(&settings)?)?;
        let others: Vec<&str> = lines.lines().filter(|line| !line.starts_with("schedule.")).collect();
        let schedule = format!("schedule.max_updates = {UPDATES}\nschedule.validate_every = {STATE_EVERY}\nschedule.log_every = 1\n");
        write(&settings, format!("{}\n{schedule}", others.join("\n")))?;
        let out = folder.join(format!("whole-run-{engine}"));
        let arguments = Self::arguments(engine, &settings, &out);
        let time = timed(program, &arguments)?;
        Ok(Box::new(Self { program: program.to_owned(), expected: Trained::read(&out)?, settings, engine, time }))
    }

    fn has_state(out: &Path) -> bool {
        let entries = fs::read_dir(out).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("checkpoint-"))
    }

    fn arguments<'a>(engine: &'a str, settings: &'a Path, out: &'a Path) -> Vec<&'a OsStr> {
        vec!["train".as_ref(), settings.as_ref(), "--engine".as_ref(), engine.as_ref(), "--out".as_ref(), out.as_ref()]
    }
}

impl Kind for Training {
    fn name(&self) -> String {
        format!("training, {}", self.engine)
    }

    fn time(&self) -> Duration {
        self.time
    }

    fn kill(&self, place: &Path, moment: Duration) -> Result<Left> {
        let out = place.join("out");
        killed_after(&self.program, &Self::arguments(self.engine, &self.settings, &out), moment)?;
        // Where nothing was saved yet, a run begins anew.
        Ok(if Self::has_state(&out) { Left::Whole } else { Left::Former })
    }

    fn write_again(&self, place: &Path) -> Result<()> {
        let out = place.join("out");
        if !Self::has_state(&out) {
            return fs::remove_dir_all(&out).or(Ok(()));
        }
        let resume = ["train", "--resume", "--engine", self.engine, "--out"].map(OsStr::new);
        call(&mut command(&self.program, &[&resume[..], &[out.as_ref()]].concat())).context("the run does not go on")?;
        let found = Trained::read(&out)?;
        ensure!(found.losses == self.expected.losses, "the run went on to other losses than a run without an interruption");
        ensure!(found.state == self.expected.state, "the run went on to another state than a run without an interruption");
        Ok(())
    }
}
