//! The commands of the top-level README, run as printed.

use crate::{cognate, ended};
use std::fs;
use std::path::Path;

/// The words of a command line: double quotes keep spaces together, `#` begins a comment.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut begun) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            '"' => (quoted, begun) = (!quoted, true),
            '#' if !quoted && !begun => break,
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            c => {
                word.push(c);
                begun = true;
            }
        }
    }
    words.extend(begun.then_some(word));
    words
}

#[test]
fn every_command_of_the_readme_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let text = fs::read_to_string(root.join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for name in ["testdata", "target"] {
        #[cfg(unix)]
        std::os::unix::fs::symlink(root.join(name), folder.path().join(name)).unwrap();
    }
    // Blocks that need somebody's own files are marked `sh,ignore`.
    let blocks = text.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands: Vec<_> = blocks
        .flat_map(str::lines)
        .filter_map(|line| line.strip_prefix("cargo run --release -- "))
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    let mut failures = Vec::new();
    for command in commands {
        let args = words(command);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let ended = ended(cognate(&args).current_dir(folder.path()));
        if ended.status != Some(0) {
            failures.push(format!("{command}\n{}", ended.err));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The README's library example is the one in the documentation of the library.
#[test]
fn the_example_of_the_library_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let [readme, library] = ["README.md", "crates/cognate/src/lib.rs"]
        .map(|file| fs::read_to_string(root.join(file)).unwrap());
    let example =
        readme.split("```rust\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let lines = library
        .lines()
        .filter_map(|line| line.strip_prefix("//! ").or_else(|| line.strip_prefix("//!")));
    assert!(lines.collect::<Vec<_>>().join("\n").contains(example.trim_end()), "{example}");
}
