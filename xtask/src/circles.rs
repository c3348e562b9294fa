//! Files of a crate that import each other in a circle.
//!
//! A file imports another if a path in it, outside of tests, leads to an item of the other. Modules
//! may use those that they are in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// What may be: the body of a loop is a graph, so the types of these files contain each other.
const ALLOWED: [&str; 2] = ["graph/src/graph.rs", "graph/src/op.rs"];

/// The circles of a crate, whose sources are in `folder`: a line for each, with the names that tie
/// it.
///
/// # Errors
/// If a file cannot be read.
pub fn circles(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for root in ["lib.rs", "main.rs"].map(|name| folder.join(name)) {
        if root.is_file() {
            let mut modules = Vec::new();
            read(&root, None, &mut modules)?;
            found.extend(
                ties(&modules)
                    .into_iter()
                    .filter(|line| !ALLOWED.iter().all(|file| line.contains(file))),
            );
        }
    }
    Ok(found)
}

/// A module that is a file.
struct Module {
    file: PathBuf,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// The paths of names that `use` brings.
    brought: BTreeMap<String, Vec<String>>,
    /// The names that it defines.
    items: BTreeSet<String>,
    /// The paths that it uses.
    paths: Vec<Vec<String>>,
}

/// Reads a module and those below it; returns its number.
fn read(file: &Path, parent: Option<usize>, modules: &mut Vec<Module>) -> Result<usize> {
    let text = fs_err::read_to_string(file)?;
    let tokens = without_tests(&tokens(&text));
    let number = modules.len();
    let mut module = Module {
        file: file.to_owned(),
        parent,
        children: BTreeMap::new(),
        brought: BTreeMap::new(),
        items: BTreeSet::new(),
        paths: Vec::new(),
    };
    let mut names = Vec::new();
    let mut place = 0;
    while let Some(&token) = tokens.get(place) {
        let next = |n: usize| tokens.get(place + n).copied().unwrap_or_default();
        match token {
            "mod" if next(2) == ";" => names.push(next(1).to_owned()),
            "use" => {
                let end = tokens[place..].iter().position(|token| *token == ";");
                let end = place + end.context("a `use` without end")?;
                let is_public = place > 0 && ["pub", ")"].contains(&tokens[place - 1]);
                let mut leaves = Vec::new();
                tree(&mut tokens[place + 1..end].iter().copied(), &[], &mut leaves);
                for (path, name) in leaves {
                    if !is_public {
                        module.paths.push(path.clone());
                    }
                    module.brought.insert(name, path);
                }
                place = end;
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" => {
                module.items.insert(next(1).to_owned());
            }
            _ if is_name(token) && next(1) == "::" => {
                let mut path = vec![token.to_owned()];
                while tokens.get(place + 1) == Some(&"::")
                    && tokens.get(place + 2).is_some_and(|token| is_name(token))
                {
                    path.push(tokens[place + 2].to_owned());
                    place += 2;
                }
                module.paths.push(path);
            }
            _ => {}
        }
        place += 1;
    }
    modules.push(module);
    let is_folder = ["lib.rs", "main.rs", "mod.rs"].iter().any(|name| file.ends_with(name));
    let folder =
        if is_folder { file.parent().unwrap_or(file).to_owned() } else { file.with_extension("") };
    for name in names {
        let files = [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")];
        if let Some(file) = files.iter().find(|file| file.is_file()) {
            let child = read(file, Some(number), modules)?;
            modules[number].children.insert(name, child);
        }
    }
    Ok(number)
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// The names and marks of a file, without comments, text and lifetimes; `::` is one mark.
fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let raw = rest.trim_start_matches('b').strip_prefix('r').map(|rest| {
            let hashes = rest.len() - rest.trim_start_matches('#').len();
            (&rest[hashes..], hashes)
        });
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((content, hashes)) = raw.filter(|(content, _)| content.starts_with('"'))
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let inside = content[1..].find(&end).unwrap_or(content.len() - 1);
            (rest.len() - content.len() + 1 + inside + end.len()).min(rest.len())
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' {
            let mut ahead = rest[1..].chars();
            let second = ahead.next();
            if second == Some('\\') || ahead.next() == Some('\'') { quoted(rest, '\'') } else { 1 }
        } else if first.is_alphanumeric() || first == '_' {
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let token = &rest[..length];
        if is_name(token) && raw.is_none_or(|(content, _)| !content.starts_with('"'))
            || token == "::"
            || length == first.len_utf8() && "#[](){};,*".contains(first)
        {
            found.push(token);
        }
        rest = &rest[length..];
    }
    found
}

/// The length of a literal between marks.
fn quoted(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    let end = text[1..].find(|c| {
        let ends = c == mark && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |end| end + 2)
}

/// The tokens without what `#[cfg(test)]` marks.
fn without_tests<'t>(tokens: &[&'t str]) -> Vec<&'t str> {
    let mut kept = Vec::new();
    let mut place = 0;
    while place < tokens.len() {
        if tokens[place..].starts_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
            let mut depth = 0;
            while let Some(&token) = tokens.get(place) {
                place += 1;
                match token {
                    "{" => depth += 1,
                    "}" if depth == 1 => break,
                    "}" => depth -= 1,
                    ";" if depth == 0 => break,
                    _ => {}
                }
            }
        } else {
            kept.push(tokens[place]);
            place += 1;
        }
    }
    kept
}

/// The paths of a `use`, each with the name that it brings. Ends after the list in which it begins.
fn tree(
    tokens: &mut dyn Iterator<Item = &str>,
    before: &[String],
    leaves: &mut Vec<(Vec<String>, String)>,
) {
    let mut path = before.to_vec();
    let mut alias = None;
    let mut is_alias = false;
    let mut put = |path: &mut Vec<String>, alias: &mut Option<String>| {
        if path.len() > before.len() {
            if path.last().is_some_and(|last| last == "self") {
                path.pop();
            }
            let name = alias.take().or_else(|| path.last().cloned());
            leaves.extend(name.map(|name| (path.clone(), name)));
        }
        *path = before.to_vec();
    };
    while let Some(token) = tokens.next() {
        match token {
            "{" => {
                let mut inside = Vec::new();
                tree(tokens, &path, &mut inside);
                path = before.to_vec();
                inside.into_iter().for_each(|(mut path, name)| {
                    put(&mut path, &mut Some(name));
                });
            }
            "}" => break,
            "," => put(&mut path, &mut alias),
            "as" => is_alias = true,
            name if is_name(name) && is_alias => {
                (alias, is_alias) = (Some(name.to_owned()), false);
            }
            name if is_name(name) => path.push(name.to_owned()),
            _ => {}
        }
    }
    put(&mut path, &mut alias);
}

/// The module that defines what a path names.
fn target(modules: &[Module], from: usize, path: &[String], depth: usize) -> Option<(usize, bool)> {
    let (first, mut rest) = path.split_first()?;
    let module = &modules[from];
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => from,
        "super" => module.parent?,
        name => match module.children.get(name) {
            Some(child) => *child,
            None => {
                let brought = module.brought.get(name).filter(|_| depth < 20)?;
                let is_ours = ["crate", "self", "super"].contains(&brought[0].as_str())
                    || module.children.contains_key(&brought[0]);
                if !is_ours || depth == 0 && rest.is_empty() {
                    return None;
                }
                let (at, is_item) = target(modules, from, brought, depth + 1)?;
                if is_item {
                    return Some((at, true));
                }
                at
            }
        },
    };
    while let Some((name, after)) = rest.split_first() {
        let module = &modules[at];
        rest = after;
        if name == "super" {
            at = module.parent?;
        } else if let Some(child) = module.children.get(name) {
            at = *child;
        } else if let Some(path) =
            module.brought.get(name).filter(|_| !module.items.contains(name) && depth < 20)
        {
            let (found, is_item) = target(modules, at, path, depth + 1)?;
            if is_item {
                return Some((found, true));
            }
            at = found;
        } else {
            return Some((at, true));
        }
    }
    Some((at, false))
}

/// A line for each circle.
fn ties(modules: &[Module]) -> Vec<String> {
    let mut imports = vec![BTreeMap::<usize, BTreeSet<&str>>::new(); modules.len()];
    for (from, module) in modules.iter().enumerate() {
        let mut around = vec![from];
        while let Some(parent) = modules[around[around.len() - 1]].parent {
            around.push(parent);
        }
        for path in &module.paths {
            if let Some((at, true)) = target(modules, from, path, 0)
                && !around.contains(&at)
            {
                let name = path.last().map_or("", String::as_str);
                imports[from].entry(at).or_default().insert(name);
            }
        }
    }
    let reached = |from: usize| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(module) = next.pop() {
            next.extend(imports[module].keys().filter(|at| seen.insert(**at)));
        }
        seen
    };
    let reached: Vec<BTreeSet<usize>> = (0..modules.len()).map(reached).collect();
    let mut lines = Vec::new();
    for first in 0..modules.len() {
        let circle: Vec<usize> = (0..modules.len())
            .filter(|&at| reached[first].contains(&at) && reached[at].contains(&first))
            .collect();
        if circle.first() != Some(&first) || circle.len() < 2 {
            continue;
        }
        let tie = |from: &usize| {
            let names = imports[*from].iter().filter(|(at, _)| circle.contains(at));
            let shown = names.map(|(at, names)| {
                let [from, at] = [from, at].map(|module| modules[*module].file.display());
                format!(
                    "{from} uses {} of {at}",
                    names.iter().copied().collect::<Vec<_>>().join(", ")
                )
            });
            shown.collect::<Vec<_>>()
        };
        lines.push(format!(
            "files import each other: {}",
            circle.iter().flat_map(tie).collect::<Vec<_>>().join("; ")
        ));
    }
    lines
}
