//! What is stopped before it does harm: weights that are no numbers, and files that are no files.

use crate::{checkpoint, cognate, ended, run, with_dir};
use cognate_testing::{bundled_checkpoint, golden, testdata};
use insta::assert_snapshot;
use safetensors::SafeTensors;
use std::fs;
use std::io::Write;
use std::path::Path;

/// A golden model, of which one value of a tensor is changed.
fn with_value(tensor: &str, place: usize, value: f32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(golden("marian").join("config.json"), folder.path().join("config.json")).unwrap();
    let mut bytes = fs::read(golden("marian").join("model.safetensors")).unwrap();
    let start = SafeTensors::deserialize(&bytes).unwrap().tensor(tensor).unwrap().data().as_ptr()
        as usize
        - bytes.as_ptr() as usize;
    bytes[start + 4 * place..start + 4 * place + 4].copy_from_slice(&value.to_le_bytes());
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    folder
}

fn export(folder: &Path, more: &[&str]) -> crate::Ended {
    let out = folder.join("out");
    run(&[&["export", folder.to_str().unwrap(), out.to_str().unwrap(), "--no-verify"], more]
        .concat())
}

#[test]
fn weights_that_are_not_finite_are_exported_only_if_that_is_wanted() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let folder = with_value("model.encoder.layers.1.fc1.weight", 1030, value);
        let said = with_dir(&export(folder.path(), &[]).failed(1), folder.path());
        // The warning before it tells that there is no tokenizer.
        let error = said.lines().last().unwrap();
        let expected = format!(
            "cognate: error: DIR: weights in its safetensors are not finite: encoder.layers.1.fc1.weight [64, 32]: {value} at element 1030; \
             take an earlier checkpoint, or pass --allow-non-finite"
        );
        assert_eq!(error, expected);
        assert!(!folder.path().join("out").exists());
        export(folder.path(), &["--allow-non-finite"]).ok();
        assert!(folder.path().join("out/encoder.onnx").exists());
    }
    // The largest number that there is is one.
    export(with_value("model.encoder.layers.1.fc1.weight", 0, f32::MAX).path(), &[]).ok();
}

/// What is read is not overwritten.
#[test]
fn outputs_are_no_inputs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (text, other) = (file("a.en", "A dog.\n"), file("a.de", "Ein Hund.\n"));
    let (log, picture) = (file("log.jsonl", ""), file("picture.png", ""));
    let image = golden("images/trocr");
    let cases = [
        (
            &["embed", "--input", &text, "--output", &text][..],
            "--output: DIR/a.en: is the file of --input",
        ),
        (
            &["shortlist", "--data", &text, &other, "--out", &other],
            "--out: DIR/a.de: is the file of --data",
        ),
        (
            &["translate", "--shortlist", &text, "--output", &text, "A."],
            "--output: DIR/a.en: is the file of --shortlist",
        ),
        (
            &["attend", "--model", image.to_str().unwrap(), "--image", &picture, "--out", &picture],
            "--out: DIR/picture.png: is the file of --image",
        ),
        (
            &["plot", &log, "--format", "svg", "--out", &log],
            "--out: DIR/log.jsonl: is the file of a log",
        ),
    ];
    for (args, expected) in cases {
        let said = with_dir(&run(args).failed(1), folder.path());
        assert_eq!(said, format!("cognate: error: {expected}; choose another file"), "{args:?}");
    }
    assert_eq!(fs::read_to_string(&text).unwrap(), "A dog.\n");
}

/// A full disk is an error of a help text, too.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_printed_is_an_error() {
    for args in
        [&["--help"][..], &["translate", "--help"], &["--version"], &["completions", "bash"]]
    {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let ended = ended(cognate(args).stdout(full));
        assert_eq!(
            ended.failed(1),
            "cognate: error: standard output: cannot be written: No space left on device (os error 28)",
            "{args:?}"
        );
    }
}

/// What a file may ask for is the user's to say.
#[test]
fn limits_are_taken_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    run(&["export", golden("marian").to_str().unwrap(), out.to_str().unwrap(), "--no-verify"]).ok();
    let graph = out.join("encoder.onnx");
    let show = |limits: &str| {
        ended(cognate(&["show", graph.to_str().unwrap()]).env("COGNATE_LIMITS", limits))
    };
    let said = |limits: &str| with_dir(&show(limits).failed(1), folder.path());
    assert_snapshot!(said("parts=5"), @"cognate: error: DIR/out/encoder.onnx: expected at most 5 parts; to allow more, set COGNATE_LIMITS=parts=N");
    assert_snapshot!(said("size=5"), @r#"cognate: error: COGNATE_LIMITS: expected parts=N, depth=N (at most 64) or elements=N, separated by commas, found "size=5""#);
    show("parts=100000").ok();
}

#[cfg(target_os = "linux")]
#[test]
fn pipes_and_devices_are_not_waited_for() {
    let error_with = |file: &str, change: fn(&Path)| {
        let folder = checkpoint(true);
        let path = folder.path().join(file);
        fs::remove_file(&path).unwrap();
        change(&path);
        with_dir(
            &run(&[
                "translate",
                "--engine",
                "tract",
                "--model",
                folder.path().to_str().unwrap(),
                "Hello.",
            ])
            .failed(1),
            folder.path(),
        )
    };
    let pipe = |path: &Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success())
    };
    let device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
    assert_snapshot!(error_with("config.json", pipe), @"cognate: error: DIR/config.json: cannot be read: expected a regular file, found a pipe or device");
    assert_snapshot!(error_with("tokenizer.json", device), @"cognate: error: DIR/tokenizer.json: cannot read: expected a regular file, found a pipe or device");
    assert_snapshot!(error_with("model.safetensors", pipe), @"cognate: error: DIR/model.safetensors: expected a regular file, found a pipe or device");
}

/// A file that is replaced is the same to others; links and standard output are followed.
#[cfg(unix)]
#[test]
fn outputs_keep_their_places_and_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let [secret, link, target, all] = ["secret", "link", "target", "all"].map(path);
    let model = bundled_checkpoint();
    let translate = |out: &Path| {
        let [model, out] = [&model, out].map(|path| path.to_str().unwrap());
        cognate(&["translate", "--model", model, "--engine", "tract", "--output", out, "A dog."])
    };
    fs::write(&secret, "").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    symlink("target", &link).unwrap();
    for (out, written) in [(&secret, &secret), (&link, &target)] {
        ended(&mut translate(out)).ok();
        assert_eq!(fs::read_to_string(written).unwrap(), "Ein Hund.\n");
    }
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    if Path::new("/dev/stdout").exists() {
        let mut file = fs::File::create(&all).unwrap();
        writeln!(file, "before").unwrap();
        let standard = file.try_clone().unwrap();
        assert!(translate(Path::new("/dev/stdout")).stdout(standard).status().unwrap().success());
        writeln!(file, "after").unwrap();
        assert_eq!(fs::read_to_string(&all).unwrap(), "before\nEin Hund.\nafter\n");
    }
}

#[test]
fn truncated_sentences_are_reported() {
    let (model, long) = (testdata("encoders/sentence"), "a dog. ".repeat(20));
    let model = model.to_str().unwrap();
    for (texts, expected) in [
        (&["a"][..], ""),
        (&["a", &long], "cognate: warning: 1 sentence was truncated to 8 tokens\n"),
        (&[&long, "a", &long], "cognate: warning: 2 sentences were truncated to 8 tokens\n"),
    ] {
        let ended = run(&[&["embed", "--model", model, "--max-tokens", "8"], texts].concat());
        assert_eq!(ended.err, expected);
        assert_eq!(ended.ok().lines().count(), texts.len());
    }
}
