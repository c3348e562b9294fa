//! Tests of `circles`.

use xtask::circles::circles;
use xtask::workspace::Workspace;

#[test]
fn no_files_of_the_workspace_import_each_other() {
    let workspace = Workspace::find().unwrap();
    let mut found = Vec::new();
    for package in workspace.metadata().workspace_packages() {
        let folder = package.manifest_path.parent().unwrap().join("src");
        found.extend(circles(folder.as_std_path()).unwrap());
    }
    assert_eq!(found, [""; 0]);
}

/// Of `a` and `b`, with these texts.
fn of(a: &str, b: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
    write("a.rs", a);
    write("b.rs", b);
    let here = format!("{}/", folder.path().display());
    circles(folder.path()).unwrap().into_iter().map(|line| line.replace(&here, "")).collect()
}

#[test]
fn circles_are_found() {
    let expected = "files import each other: a.rs uses B of b.rs; b.rs uses A of a.rs";
    // By name, through the root, in a list, and by a path in the code.
    for (a, b) in [
        ("use crate::b::B; pub struct A;", "use crate::a::A; pub struct B;"),
        ("use super::b::{self, B}; pub struct A;", "use crate::A; pub struct B;"),
        ("pub struct A(crate::b::B);", "use crate::{a::{A}}; pub struct B;"),
        ("use crate::b; pub struct A(b::B);", "fn f() -> super::A { A } pub struct B;"),
    ] {
        assert_eq!(of(a, b), [expected], "{a} {b}");
    }
}

#[test]
fn what_is_no_circle_is_passed() {
    for b in [
        "pub struct B;",
        "// use crate::a::A;\n/* use crate::a::A; */ pub struct B;",
        "const TEXT: &str = \"use crate::a::A; \\\" crate::a::A\"; const RAW: &str = r#\"crate::a::A\"#; pub struct B<'a>(&'a u8, [char; '\\''  as usize]);",
        "pub struct B; #[cfg(test)] mod tests { use crate::a::A; fn f() { {} } }",
        "use std::a::A; pub struct B;",
    ] {
        assert_eq!(of("use crate::b::B; pub struct A;", b), [""; 0], "{b}");
    }
}
