//! The JavaScript examples of `onnx/README.md`, run with the bundled model: in Node, and as a page
//! in headless Chromium.

use fs_err as fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::interop::programs::bring_node;
use crate::workspace::{Workspace, capture, succeeds};

const BROWSERS: [&str; 4] = ["chromium", "chromium-headless-shell", "google-chrome", "chrome"];

/// The fence of an example, the name of its file, and the text that it shows.
const NODE: [&str; 3] =
    ["js", "example.mjs", "Ein Mann fährt Fahrrad.\nZwei Hunde spielen im Schnee."];
const PAGE: [&str; 3] = ["html", "page.html", "Ein Mann fährt Fahrrad."];

/// Runs the examples. Returns why some were skipped.
pub fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let has = |program: &str| succeeds(Command::new(program).arg("--version"));
    if !has("node") || !has("npm") {
        return Ok(vec!["no node or no npm".to_owned()]);
    }
    let home = bring_node(
        &workspace.root().join("xtask/interop/node"),
        &workspace.target("interop/node"),
    )?;
    let folder = home.join("examples");
    fs::create_dir_all(&folder)?;
    // The command that the wheel's tests call, too.
    let cognate = workspace.build_served()?;
    let arguments =
        ["export", "testdata/multi30k-en-de", "--layout", "generate", "--no-verify", "--force"];
    capture(
        Command::new(cognate).current_dir(workspace.root()).args(arguments).arg(folder.join("out")),
    )?;
    let readme = fs::read_to_string(workspace.root().join("onnx/README.md"))?;
    for [fence, file, _] in [NODE, PAGE] {
        let example = readme
            .split_once(&format!("```{fence}\n"))
            .and_then(|(_, rest)| rest.split_once("```"));
        let (example, _) =
            example.with_context(|| format!("onnx/README.md: no example in {fence}"))?;
        fs::write(folder.join(file), example)?;
    }
    compare(NODE, Command::new("node").current_dir(&folder).arg(NODE[1]))?;
    let Some(browser) = BROWSERS.into_iter().find(|browser| has(browser)) else {
        return Ok(vec![format!("the page: none of {}", BROWSERS.join(", "))]);
    };
    compare(
        PAGE,
        Command::new("node").current_dir(&home).args([
            "browser.mjs",
            browser,
            ".",
            "examples/page.html",
        ]),
    )?;
    Ok(Vec::new())
}

fn compare([_, file, expected]: [&str; 3], command: &mut Command) -> Result<()> {
    let found = capture(command)?;
    ensure!(found.trim() == expected, "{file}: expected {expected:?}, found {:?}", found.trim());
    println!("{file}: {}", expected.replace('\n', " "));
    Ok(())
}
