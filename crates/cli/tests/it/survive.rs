//! Exports and translations that are killed, or find no room: what is there afterwards is whole, or
//! is what was there before.

use crate::{SENTENCES, cognate, run, with_dir};
use cognate_runtime::{Device, Engine};
use cognate_testing::golden;
use std::collections::BTreeMap;
use std::fs;
#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The files below a folder, with their contents.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

fn visible(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// Moments between the start of a run and its end, and one after that.
fn moments(whole: Duration, count: u32) -> impl Iterator<Item = Duration> {
    (0..=count).map(move |index| whole * index / count)
}

fn killed_after(command: &mut Command, moment: Duration) {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(moment);
    // It may have ended.
    let _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn an_export_that_is_killed_is_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = golden("marian");
    let args = |out: &Path| {
        ["export", checkpoint.to_str().unwrap(), out.to_str().unwrap(), "--no-verify"]
            .map(str::to_owned)
    };
    let good = folder.path().join("good");
    let start = Instant::now();
    run(&args(&good).each_ref().map(String::as_str)).ok();
    let whole = start.elapsed();
    let expected = files(&good);
    for moment in moments(whole, 8) {
        let place = tempfile::tempdir_in(folder.path()).unwrap();
        let out = place.path().join("out");
        killed_after(&mut cognate(&args(&out).each_ref().map(String::as_str)), moment);
        assert!(
            visible(place.path()).is_empty() || files(&out) == expected,
            "killed after {moment:?}: {:?}",
            files(&out).keys()
        );
        // The next one goes as if nothing had been, and leaves nothing beside it.
        run(&[&args(&out).each_ref().map(String::as_str)[..], &["--force"]].concat()).ok();
        assert_eq!((files(&out), all(place.path())), (expected.clone(), vec!["out".to_owned()]));
    }
}

fn all(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// In the place of another export at every moment one of the two is there.
#[test]
fn an_export_over_another_that_is_killed_is_the_one_or_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = |more: &[&'static str]| {
        let fixed = [
            "export",
            golden("marian").to_str().unwrap(),
            out.to_str().unwrap(),
            "--no-verify",
            "--force",
        ]
        .map(str::to_owned);
        fixed.into_iter().chain(more.iter().map(|&more| more.to_owned())).collect::<Vec<_>>()
    };
    let export = |more: &[&'static str]| {
        run(&args(more).iter().map(String::as_str).collect::<Vec<_>>()).ok()
    };
    let start = Instant::now();
    export(&[]);
    let (whole, new) = (start.elapsed(), files(&out));
    export(&["--attentions"]);
    let old = files(&out);
    assert!(old != new);
    for moment in moments(whole, 8) {
        export(&["--attentions"]);
        killed_after(
            &mut cognate(&args(&[]).iter().map(String::as_str).collect::<Vec<_>>()),
            moment,
        );
        let found = files(&out);
        assert!(found == old || found == new, "killed after {moment:?}: {:?}", found.keys());
    }
    export(&[]);
    assert_eq!((files(&out), all(folder.path())), (new, vec!["out".to_owned()]));
}

/// What Ctrl-C ends leaves nothing: no translation that is half done, and no hidden file.
#[cfg(unix)]
#[test]
fn an_interrupted_translation_removes_its_partial_file() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("text.de");
    fs::write(&output, "old\n").unwrap();
    // Standard input stays open: the run waits for a line that never comes.
    let mut command =
        cognate(&["translate", "--engine", "tract", "--output", output.to_str().unwrap()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // Tests in the background of a shell or under nohup ignore signals, and what they start would
    // inherit that. SAFETY: between fork and exec two calls that are allowed there.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = command.spawn().unwrap();
    // `wait` would close it.
    let _open = child.stdin.take();
    let partial = folder.path().join(".text.de.cognate-partial");
    while !partial.exists() {
        assert!(child.try_wait().unwrap().is_none(), "the run ended");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(
        Command::new("kill")
            .args(["-s", "INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(
        (all(folder.path()), fs::read(&output).unwrap()),
        (vec!["text.de".to_owned()], b"old\n".to_vec())
    );
}

/// The lines of a file are not replaced by their translations, whatever the file is called.
#[cfg(unix)]
#[test]
fn a_file_that_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("text"), format!("{}\n", SENTENCES[0])).unwrap();
    fs::write(path("beginnings"), "\n").unwrap();
    fs::hard_link(path("text"), path("hard")).unwrap();
    std::os::unix::fs::symlink(path("text"), path("symbolic")).unwrap();
    let before = all(folder.path());
    let (text, beginnings) = (path("text"), path("beginnings"));
    for output in ["text", "./text", "hard", "symbolic", "beginnings"] {
        let args = [
            "translate",
            "--engine",
            "tract",
            "--input",
            text.as_str(),
            "--target-prefixes",
            beginnings.as_str(),
        ];
        let error = run(&[&args[..], &["--output", &path(output)]].concat()).failed(1);
        let option = if output == "beginnings" { "--target-prefixes" } else { "--input" };
        let expected = format!(
            "cognate: error: --output: DIR/{output}: is the file of {option}; choose another file"
        );
        assert_eq!(with_dir(&error, folder.path()).trim_end(), expected);
    }
    let input = fs::File::open(path("text")).unwrap();
    let mut command = cognate(&["translate", "--engine", "tract", "--output", &path("hard")]);
    let error = crate::ended(command.stdin(input)).failed(1);
    assert!(error.contains("is the file of standard input"), "{error}");
    assert_eq!(
        (all(folder.path()), fs::read_to_string(path("text")).unwrap()),
        (before, format!("{}\n", SENTENCES[0]))
    );
}

#[test]
fn a_translation_that_is_killed_leaves_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("text.en"), folder.path().join("text.de"));
    fs::write(&input, format!("{}\n", SENTENCES.join("\n")).repeat(10)).unwrap();
    let args = [
        "translate",
        "--engine",
        "tract",
        "--window",
        "2",
        "--input",
        input.to_str().unwrap(),
        "--output",
        output.to_str().unwrap(),
    ];
    let start = Instant::now();
    assert_eq!(run(&args).ok(), "");
    let whole = start.elapsed();
    let expected = fs::read(&output).unwrap();
    for moment in moments(whole, 5) {
        fs::write(&output, "old\n").unwrap();
        killed_after(&mut cognate(&args), moment);
        let found = fs::read(&output).unwrap();
        assert!(
            found == b"old\n" || found == expected,
            "killed after {moment:?}: {:?}",
            String::from_utf8_lossy(&found)
        );
    }
}

/// A run whose files may have `blocks` of 512 bytes at most, and which is told so by an error and
/// no signal: a full disk.
#[cfg(unix)]
fn run_in_little_room(blocks: u32, args: &[&str]) -> crate::Ended {
    let limited = format!("ulimit -f {blocks}; trap '' XFSZ; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command
        .args(["-c", &limited, env!("CARGO_BIN_EXE_cognate")])
        .args(args)
        .current_dir(cognate(&[]).get_current_dir().unwrap());
    crate::ended(command.env_remove("RUST_BACKTRACE").stdin(Stdio::null()))
}

#[cfg(unix)]
#[test]
fn without_room_nothing_is_written_and_the_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let (checkpoint, out) = (golden("marian"), folder.path().join("out"));
    let error = run_in_little_room(
        50,
        &["export", checkpoint.to_str().unwrap(), out.to_str().unwrap(), "--no-verify"],
    )
    .failed(1);
    let said = with_dir(&error, folder.path());
    let error = said.lines().last().unwrap();
    assert!(
        error.starts_with("cognate: error: DIR/out/")
            && error.contains("cannot write: File too large"),
        "{error}"
    );
    assert_eq!(files(folder.path()).len(), 0, "left over");

    // Of a translation the lines do not fit.
    let (input, output) = (folder.path().join("text.en"), folder.path().join("text.de"));
    fs::write(&input, format!("{}\n", SENTENCES[0]).repeat(30)).unwrap();
    fs::write(&output, "old\n").unwrap();
    let model = folder.path().join("model");
    run(&[
        "export",
        cognate_testing::bundled_checkpoint().to_str().unwrap(),
        model.to_str().unwrap(),
        "--no-verify",
    ])
    .ok();
    let args = [
        "translate",
        "--engine",
        "tract",
        "--model",
        model.to_str().unwrap(),
        "--input",
        input.to_str().unwrap(),
    ];
    let error =
        run_in_little_room(1, &[&args[..], &["--output", output.to_str().unwrap()]].concat())
            .failed(1);
    let error = with_dir(&error, folder.path());
    assert!(error.contains("--output: DIR/text.de: cannot be written: File too large"), "{error}");
    assert_eq!(fs::read(&output).unwrap(), b"old\n");
    let mut names = visible(folder.path());
    names.sort();
    assert_eq!(
        (names, fs::read_dir(folder.path()).unwrap().count()),
        (["model", "text.de", "text.en"].map(str::to_owned).to_vec(), 3)
    );
}

/// A checkpoint that finds no room leaves the one before, from which the run goes on.
#[cfg(unix)]
#[test]
fn a_training_without_room_keeps_its_last_state() {
    if let Err(error) = Engine::Ort.open(Device::Cpu) {
        return cognate_testing::skip(&error.to_string());
    }
    let folder = crate::train::folder();
    let (settings, out) = (folder.path().join("small.toml"), folder.path().join("out"));
    let to = |updates| {
        [
            "train",
            settings.to_str().unwrap(),
            "--engine",
            "ort",
            "--max-updates",
            updates,
            "--out",
            out.to_str().unwrap(),
        ]
    };
    run(&to("3")).ok();
    let (last, expected) = (out.join("checkpoint-3"), visible(&out));
    let state = files(&last);
    // Room for the graphs and the model, and none for the state: moments of the weights, too.
    let blocks = state["training_state.safetensors"].len() as u32 / 512 - 1;
    let error = run_in_little_room(blocks, &[&to("6")[..], &["--resume"]].concat()).failed(1);
    let error = with_dir(&error, folder.path());
    let error = error.lines().last().unwrap();
    assert!(
        error.starts_with("cognate: error: DIR/out/")
            && error.contains("cannot write: File too large"),
        "{error}"
    );
    assert_eq!(files(&last), state);
    assert_eq!(visible(&out), expected);
    let further = run(&[&to("6")[..], &["--resume"]].concat());
    assert!(further.err.contains("resuming after update 3"), "{}", further.err);
    further.ok();
}

/// `command` as one that permissions bind: of root it is run without the capability to pass over
/// them, where Linux's `setpriv` is there.
#[cfg(unix)]
fn bound(command: &Command) -> Command {
    let setpriv = [
        "--bounding-set=-dac_override,-dac_read_search",
        "--inh-caps=-dac_override,-dac_read_search",
    ];
    let has_setpriv = Command::new("setpriv")
        .args(setpriv)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let mut bound = if has_setpriv { Command::new("setpriv") } else { Command::new("env") };
    bound
        .args(has_setpriv.then_some(setpriv).into_iter().flatten())
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bound.env(name, value),
            None => bound.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        bound.current_dir(folder);
    }
    bound
}

#[cfg(unix)]
#[test]
fn a_folder_that_may_not_be_written_is_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut probe = Command::new("touch");
    if bound(probe.arg(folder.path().join("probe")))
        .stderr(Stdio::null())
        .status()
        .unwrap()
        .success()
    {
        return cognate_testing::skip(
            "permissions do not bind this user, and no setpriv takes that capability away",
        );
    }
    let run = |args: &[&str]| crate::ended(bound(&cognate(args)).stdin(Stdio::null()));
    let (checkpoint, out) = (golden("marian"), folder.path().join("out"));
    let error =
        run(&["export", checkpoint.to_str().unwrap(), out.to_str().unwrap(), "--no-verify"])
            .failed(1);
    assert!(
        with_dir(&error, folder.path())
            .contains("DIR: cannot write into the folder: Permission denied"),
        "{error}"
    );
    let output = folder.path().join("text.de");
    let error = run(&[
        "translate",
        "--engine",
        "tract",
        "--output",
        output.to_str().unwrap(),
        SENTENCES[0],
    ])
    .failed(1);
    assert!(
        with_dir(&error, folder.path()).contains(
            "--output: DIR/text.de: cannot be written: new file in DIR: Permission denied"
        ),
        "{error}"
    );
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
}
