//! `cargo xtask fixtures`: where the files under `testdata/` come from, and whether they still come out the same.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use xtask::workspace::{Workspace, call, files, size};
use xtask::{python, table};

/// Packages of the scripts that ask PyTorch.
const PYTORCH: &[&str] = &["torch==2.15.0", "transformers==4.57.6", "safetensors", "numpy", "sacrebleu==2.6.0"];

/// List the test data, check it against the programs it came from, or make it again
///
/// Without options: the folders under testdata/, their size and their scripts. The scripts ask PyTorch, transformers and
/// sacreBLEU, which --check and --write install into target/python-pytorch (3 GB). Neither building nor testing needs this command.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Recompute PyTorch's answers and compare; changes nothing
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Recompute all answers and replace the files; weights stay
    #[arg(long)]
    write: bool,
    /// Folder with test_2016_flickr.en and .de of Multi30k, for the translations of the bundled checkpoint; without it they
    /// are left out
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let testdata = workspace.root().join("testdata");
    list(workspace, &testdata)?;
    if !options.check && !options.write {
        return Ok(());
    }
    let python = python::environment(&workspace.target("python-pytorch"), PYTORCH)?;
    let script = |path: &str| {
        let mut command = Command::new(&python);
        command.arg(testdata.join(path)).env("HF_HUB_OFFLINE", "1");
        command
    };
    if options.check {
        call(script("golden/generate.py").arg("--check"))?;
        call(script("training/generate.py").arg("--check"))?;
        call(script("research/generate.py").arg("--check"))?;
        call(script("encoders/generate.py").arg("--check"))?;
        call(script("generation-config/generate.py").arg("--check"))?;
    } else {
        for family in families(&testdata)? {
            call(script("golden/generate.py").arg(family))?;
        }
        call(&mut script("training/generate.py"))?;
        call(&mut script("research/generate.py"))?;
        call(&mut script("encoders/generate.py"))?;
        call(&mut script("generation-config/generate.py"))?;
        call(&mut script("bleu/generate.py"))?;
    }
    let Some(data) = &options.data else {
        println!("multi30k-en-de: left out; --data FOLDER names the Multi30k text");
        return Ok(());
    };
    let mut translate = script("multi30k-en-de/reference/generate.py");
    translate.arg("--data").arg(data);
    if options.write {
        translate.arg("--write");
    }
    call(&mut translate)
}

/// Prints a line for every folder; fails when one lacks its README.
fn list(workspace: &Workspace, testdata: &Path) -> Result<()> {
    let mut rows = Vec::new();
    let mut silent = Vec::new();
    for entry in std::fs::read_dir(testdata)? {
        let folder = entry?.path();
        if !folder.is_dir() {
            continue;
        }
        if !folder.join("README.md").is_file() {
            silent.push(workspace.readable(&folder).to_string());
        }
        let scripts = files(&folder)?.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "py"));
        let scripts: Vec<_> = scripts.map(|path| workspace.readable(&path).to_string()).collect();
        let bytes = size(&folder, &|_| true)?;
        rows.push(vec![workspace.readable(&folder).to_string(), table::bytes(bytes), scripts.join(", ")]);
    }
    rows.sort();
    println!("{}", table::table(&["folder", "size", "made again by"], &rows));
    ensure!(silent.is_empty(), "README.md is missing in {}: source, licence, how to make it again", silent.join(", "));
    Ok(())
}

/// The golden models that are there.
fn families(testdata: &Path) -> Result<Vec<String>> {
    let golden = testdata.join("golden");
    let paths = files(&golden)?;
    let answers = paths.iter().filter(|path| path.ends_with("golden.safetensors")).filter_map(|path| path.parent()?.file_name());
    Ok(answers.map(|name| name.to_string_lossy().into_owned()).collect())
}
