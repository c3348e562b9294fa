//! Tests of `interop::programs`.

use clap::ValueEnum;
use xtask::interop::programs::*;
use xtask::interop::runtime::{Language, Runtime};
use xtask::workspace::Workspace;
#[test]
fn errors_fit_into_a_line() {
    assert_eq!(shortened("RuntimeError: no\n  such  op\n"), "RuntimeError: no such op");
    let long = shortened(&"é".repeat(1000));
    assert_eq!(long.chars().count(), 243);
}

#[test]
fn every_driver_is_there_and_every_package_is_pinned() {
    let source = Workspace::find().unwrap().root().join("xtask/interop");
    for runtime in Runtime::value_variants() {
        let driver = match runtime.language() {
            Language::Python | Language::Rust => {
                source.join("python").join(format!("{}.py", runtime.driver()))
            }
            Language::Node => source.join("node").join(format!("{}.mjs", runtime.driver())),
        };
        assert!(driver.is_file(), "{}", driver.display());
    }
    let loose: Vec<_> = REQUIREMENTS.lines().filter(|line| !line.contains("==")).collect();
    assert!(loose.is_empty(), "without a version: {loose:?}");
    let packages: serde_json::Value = serde_json::from_str(PACKAGES).unwrap();
    for (name, version) in packages["dependencies"].as_object().unwrap() {
        assert!(
            version.as_str().unwrap().starts_with(|first: char| first.is_ascii_digit()),
            "{name}: {version}"
        );
    }
}
