//! Packages each library crate, and builds a crate outside of the workspace that depends on the
//! unpacked packages and translates.

use fs_err as fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::workspace::{Workspace, call, capture};

/// Members that are not published.
const UNPUBLISHED: [&str; 5] =
    ["xtask", "cognate-bench", "cognate-hostile", "cognate-python", "cognate-testing"];

/// The program of the outside crate.
const MAIN: &str = r#"fn main() -> cognate::Result<()> {
    let t = cognate::Translator::open("testdata/multi30k-en-de")?;
    for line in t.translate(&["A man is riding a bicycle."])? {
        println!("{}", line.text);
    }
    Ok(())
}
"#;

/// Packages the workspace and builds a crate outside of it.
pub fn check(workspace: &Workspace) -> Result<()> {
    let mut package = workspace.cargo();
    // The outside crate verifies the packages.
    package.args(["package", "--workspace", "--no-verify", "--allow-dirty"]);
    for name in UNPUBLISHED {
        package.args(["--exclude", name]);
    }
    call(&mut package)?;
    let parent = workspace.target("xtask");
    fs::create_dir_all(&parent)?;
    let folder = tempfile::tempdir_in(&parent)?;
    let mut patches = String::new();
    for member in workspace.metadata().workspace_packages() {
        if UNPUBLISHED.contains(&member.name.as_str()) {
            continue;
        }
        let name = format!("{}-{}", member.name, member.version);
        let archive = workspace.target("package").join(format!("{name}.crate"));
        call(Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(folder.path()))?;
        patches += &format!("{} = {{ path = \"../{name}\" }}\n", member.name);
    }
    let outside = folder.path().join("outside");
    write_crate(workspace.root(), &outside, &patches)?;
    let mut run = workspace.cargo();
    run.args(["run", "--quiet", "--manifest-path"])
        .arg(outside.join("Cargo.toml"))
        .env("CARGO_TARGET_DIR", workspace.target(""));
    let text = capture(&mut run)?;
    ensure!(
        text == "Ein Mann fährt Fahrrad.\n",
        "expected the translation \"Ein Mann fährt Fahrrad.\\n\", found {text:?}"
    );
    println!("a crate outside of the workspace translates: {}", text.trim_end());
    Ok(())
}

/// Writes the outside crate, with the workspace's profiles and lock file so that dependencies
/// are not rebuilt.
fn write_crate(root: &Path, outside: &Path, patches: &str) -> Result<()> {
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let workspace = read("Cargo.toml")?;
    let profiles = workspace.find("[profile.dev]").map_or("", |start| &workspace[start..]);
    let manifest = format!(
        "[package]\nname = \"outside\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\ncognate = \"0.1.0\"\n\n\
         [workspace]\n\n[patch.crates-io]\n{patches}\n{profiles}"
    );
    fs::create_dir_all(outside.join("src"))?;
    for (name, text) in [
        ("Cargo.toml", manifest.as_str()),
        ("src/main.rs", MAIN),
        ("Cargo.lock", &read("Cargo.lock")?),
    ] {
        let path = outside.join(name);
        fs::write(&path, text)?;
    }
    Ok(())
}

/// Checks that each feature of a crate builds alone.
pub fn check_features(workspace: &Workspace) -> Result<()> {
    let mut n_built = 0;
    for member in workspace.metadata().workspace_packages() {
        for feature in
            member.features.keys().filter(|feature| !["default", "mpi"].contains(&feature.as_str()))
        {
            let mut cargo = workspace.cargo();
            cargo.args([
                "check",
                "--quiet",
                "--package",
                &member.name,
                "--no-default-features",
                "--features",
                feature,
            ]);
            call(&mut cargo)?;
            println!("{} with {feature} alone", member.name);
            n_built += 1;
        }
    }
    ensure!(n_built > 0, "no crate has features");
    Ok(())
}
