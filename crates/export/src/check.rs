//! Validates ONNX files before an engine reads them.
//!
//! Engines trust their input. Untrusted files may contain paths outside of the model's folder,
//! sizes that overflow or exceed the memory, graphs nested until the stack overflows, or duplicate
//! names. [`check_model`] reads the mapped file without unpacking it and rejects such files. A
//! file that passes
//!
//! - is valid protobuf, with ONNX's type for each field and names in UTF-8;
//! - has constants with as many values as their shapes require, in the file or in regular files of
//!   its folder, not behind links;
//! - defines every name once and before use, so that there are no cycles;
//! - respects [`Limits`], and contains nothing that Cognate's engines cannot bound: functions,
//!   sparse constants, loops without a constant number of iterations.
//!
//! Source: `onnx.proto` and ONNX's IR specification. The memory of a run depends on the graph, and
//! is only checked where constants determine it.

mod files;
mod sizes;
mod tensor;
mod wire;

use crate::Error;
use crate::error::{Context, Problem};
use crate::model::FILE_LIMIT;
use files::Files;
pub(crate) use files::names;
use memmap2::Mmap;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use wire::{Fields, Kind, Value};

/// Environment variable with [`Limits`] for engines and commands, such as
/// `parts=2000000,elements=268435456`.
pub const LIMITS: &str = "COGNATE_LIMITS";

/// Maximum of `depth`: deeper graphs could overflow this module's stack.
const DEEPEST: usize = 64;

/// Limits of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes, attributes, names, constants, types and other parts that need more memory than bytes
    /// in the file; the largest exports have some 100,000.
    pub parts: usize,
    /// Nesting of graphs, such as the branches of `If`.
    pub depth: usize,
    /// Elements of a tensor whose size is constant.
    pub elements: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { parts: 1 << 19, depth: 16, elements: 1 << 26 }
    }
}

impl Limits {
    /// The default limits, changed by the variable [`LIMITS`].
    ///
    /// # Errors
    /// If the variable cannot be parsed.
    pub fn from_environment() -> Result<Self, Error> {
        match std::env::var_os(LIMITS) {
            None => Ok(Self::default()),
            Some(text) => Self::from_text(&text.to_string_lossy()),
        }
    }

    /// The default limits, changed by `text`: names and numbers, such as
    /// `depth=32,elements=268435456`.
    ///
    /// # Errors
    /// If a name is unknown, or a number is invalid, 0, or above 64 for the depth.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        let mut limits = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let number = |part: &str| part.parse::<usize>().ok().filter(|number| *number > 0);
            match part.split_once('=').map(|(name, value)| (name.trim(), number(value.trim()))) {
                Some(("parts", Some(number))) => limits.parts = number,
                Some(("depth", Some(number @ ..=DEEPEST))) => limits.depth = number,
                Some(("elements", Some(number))) => limits.elements = number as u64,
                _ => return Err(Problem::Limits { found: part.into() }.into()),
            }
        }
        Ok(limits)
    }
}

/// How to raise a limit that a valid file exceeds.
fn to_allow(name: &str) -> String {
    format!("; to allow more, set {LIMITS}={name}=N")
}

/// A validated file and the files that it refers to.
#[derive(Debug)]
pub struct Checked {
    files: Files,
}

impl Checked {
    /// Checks that the files have not changed since their validation; to be called after the engine
    /// has read them.
    ///
    /// # Errors
    /// If one was written, removed or replaced.
    pub fn unchanged(&self) -> Result<(), Error> {
        match self.files.changed() {
            None => Ok(()),
            Some(path) => Err(Problem::Changed { path: path.into() }.into()),
        }
    }
}

/// Validates the ONNX file at `path` and the files that it refers to.
///
/// # Errors
/// If the file cannot be read, or is rejected; the message says why and where.
pub fn check_model(path: &Path, limits: &Limits) -> Result<Checked, Error> {
    let (file, metadata) = open(path)?;
    // SAFETY: the mapping is read-only and private. A program that truncates the file makes later
    // reads fail with a signal, the documented exception of mapped files.
    let bytes = unsafe { Mmap::map(&file) }.context("map", path)?;
    let folder = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut walk = Walk {
        limits,
        folder,
        files: Files::default(),
        parts: 0,
        depth: 0,
        domains: HashSet::new(),
        scopes: Vec::new(),
        constants: HashMap::new(),
    };
    walk.files.remember(path, &metadata);
    walk.model(&bytes).map_err(|message| Problem::Unsound { path: path.into(), message })?;
    Ok(Checked { files: walk.files })
}

/// Checks that the message at `path` unpacks to a bounded amount of memory.
pub(crate) fn check_amount(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    sizes::amount(bytes, &Limits::from_environment()?)
        .map_err(|message| Problem::Unsound { path: path.into(), message }.into())
}

/// Opens the file at `path` if it is regular and not larger than an ONNX file may be.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), Error> {
    // The type is checked before opening: opening a pipe would block.
    let metadata = fs::metadata(path).context("open", path)?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a folder" } else { "a pipe or device" };
        return Err(Problem::NoModel {
            path: path.into(),
            message: format!("expected a file, found {found}"),
        }
        .into());
    }
    let file = File::open(path).context("open", path)?;
    let metadata = file.metadata().context("read", path)?;
    if metadata.len() > FILE_LIMIT {
        return Err(Problem::TooLong { path: path.into(), limit: FILE_LIMIT }.into());
    }
    Ok((file, metadata))
}

const MODEL: Kind = Kind { name: "model", once: &[1, 2, 3, 4, 5, 6, 7] };
const OPSET: Kind = Kind { name: "opset", once: &[1, 2] };
const GRAPH: Kind = Kind { name: "graph", once: &[2, 10] };
const NODE: Kind = Kind { name: "node", once: &[3, 4, 6, 7, 8] };
const ATTRIBUTE: Kind = Kind { name: "attribute", once: &[1, 2, 3, 4, 5, 6, 13, 14, 20, 21, 22] };
const VALUE_INFO: Kind = Kind { name: "value", once: &[1, 2, 3] };
const TYPE: Kind = Kind { name: "type", once: &[1, 4, 5, 6, 8, 9] };
const TENSOR_TYPE: Kind = Kind { name: "tensor type", once: &[1, 2] };
const SHAPE: Kind = Kind { name: "shape", once: &[] };
const DIMENSION: Kind = Kind { name: "dimension", once: &[1, 2, 3] };

/// The last supported version of ONNX's operator set.
const LATEST_OPSET: i64 = 28;

/// Maximum number of axes; no operator needs more.
const MOST_AXES: usize = 64;

/// The state of a validation.
struct Walk<'a> {
    limits: &'a Limits,
    folder: PathBuf,
    files: Files,
    parts: usize,
    depth: usize,
    /// Domains of the imported operator sets.
    domains: HashSet<&'a str>,
    /// The names defined so far; the innermost graph's are last.
    scopes: Vec<HashSet<&'a str>>,
    /// Known small tensors of integers, which may be sizes of others.
    constants: HashMap<&'a str, Vec<i64>>,
}

impl<'a> Walk<'a> {
    fn model(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let mut graph = None;
        for field in Fields::of(&MODEL, bytes) {
            let (field, value) = field.map_err(|reason| format!("not an ONNX model: {reason}"))?;
            self.spend(1)?;
            match field {
                7 => graph = Some(value.bytes()?),
                8 => self.opset(value.bytes()?)?,
                25 => {
                    return Err(
                        "functions are not supported; export the model with functions inlined"
                            .into(),
                    );
                }
                _ => {}
            }
        }
        let graph = graph.ok_or("not an ONNX model: missing graph")?;
        if self.domains.is_empty() {
            return Err("no operator set".into());
        }
        self.graph(graph)
    }

    fn opset(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let (mut domain, mut version) = ("", 0);
        for field in Fields::of(&OPSET, bytes) {
            match field? {
                (1, value) => domain = value.text()?,
                (2, value) => version = value.number()?,
                _ => {}
            }
        }
        let domain = standard(domain);
        if !self.domains.insert(domain) {
            return Err(format!("duplicate operator set {domain:?}"));
        }
        if version < 1 || (domain.is_empty() && version > LATEST_OPSET) {
            return Err(format!(
                "operator set {domain:?}: expected version 1 to {LATEST_OPSET}, found {version}"
            ));
        }
        Ok(())
    }

    fn graph(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        if self.depth == self.limits.depth {
            return Err(format!(
                "expected at most {} nested graphs{}",
                self.limits.depth,
                to_allow("depth")
            ));
        }
        self.depth += 1;
        let (mut names, mut initializers, mut inputs) =
            (HashSet::new(), HashSet::new(), HashSet::new());
        let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
        // Fields may be in any order.
        for field in Fields::of(&GRAPH, bytes) {
            let (field, value) = field?;
            self.spend(1)?;
            match field {
                1 => nodes.push(value.bytes()?),
                5 => {
                    let tensor = self.tensor(value.bytes()?)?;
                    if tensor.name.is_empty() || !initializers.insert(tensor.name) {
                        return Err(format!(
                            "duplicate or empty name {:?} of an initializer",
                            tensor.name
                        ));
                    }
                    self.know(tensor.name, tensor.values);
                }
                11 => {
                    let name = self.value_info(value.bytes()?)?;
                    if name.is_empty() || !inputs.insert(name) {
                        return Err(format!("duplicate or empty name {name:?} of an input"));
                    }
                }
                12 => outputs.push(self.value_info(value.bytes()?)?),
                13 => drop(self.value_info(value.bytes()?)?),
                15 => {
                    return Err(
                        "sparse initializers are not supported; export the model with dense ones"
                            .into(),
                    );
                }
                _ => {}
            }
        }
        names.extend(initializers);
        // An input may have an initializer as its default.
        names.extend(inputs);
        self.scopes.push(names);
        nodes.into_iter().try_for_each(|node| self.node(node))?;
        if let Some(missing) = outputs.iter().find(|name| !self.is_given(name)) {
            return Err(format!("output {missing}: no node computes it"));
        }
        self.scopes.pop();
        self.depth -= 1;
        Ok(())
    }

    fn node(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let (mut name, mut operator, mut domain) = ("", "", "");
        let (mut inputs, mut outputs, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
        for field in Fields::of(&NODE, bytes) {
            let (field, value) = field?;
            self.spend(1)?;
            match field {
                1 => inputs.push(value.text()?),
                2 => outputs.push(value.text()?),
                3 => name = value.text()?,
                4 => operator = value.text()?,
                5 => attributes.push(value.bytes()?),
                7 => domain = standard(value.text()?),
                _ => {}
            }
        }
        let named = |reason: String| {
            format!(
                "node {:?} ({operator}): {reason}",
                if name.is_empty() { outputs.first().unwrap_or(&"") } else { &name }
            )
        };
        if operator.is_empty() {
            return Err(named("missing operator".into()));
        }
        if !self.domains.contains(domain) {
            return Err(named(format!("operator set {domain:?} is not imported by the model")));
        }
        if let Some(missing) =
            inputs.iter().find(|input| !input.is_empty() && !self.is_given(input))
        {
            return Err(named(format!(
                "input {missing:?} is not computed before the node: it is missing, computed later, or part of a cycle"
            )));
        }
        let mut node = sizes::Node::new(if domain.is_empty() { operator } else { "" }, inputs);
        let mut known = HashSet::new();
        for attribute in attributes {
            let name = self.attribute(attribute, &mut node).map_err(&named)?;
            if name.is_empty() || !known.insert(name) {
                return Err(named(format!("duplicate or empty name {name:?} of an attribute")));
            }
        }
        let value = sizes::value(&node, &self.constants, self.limits).map_err(&named)?;
        for output in outputs.iter().filter(|output| !output.is_empty()) {
            self.constants.remove(output);
            let scope = self.scopes.last_mut().ok_or("a node is outside of every graph")?;
            if !scope.insert(output) {
                return Err(named(format!("duplicate output {output:?}")));
            }
        }
        if let Some(output) = outputs.first() {
            self.know(output, value);
        }
        Ok(())
    }

    /// Checks an attribute and returns its name; stores what sizes depend on in `node`.
    fn attribute(
        &mut self,
        bytes: &'a [u8],
        node: &mut sizes::Node<'a>,
    ) -> Result<&'a str, String> {
        let (mut name, mut values) = ("", None);
        for field in Fields::of(&ATTRIBUTE, bytes) {
            let (field, value) = field?;
            self.spend(if field == 7 || field == 8 { 0 } else { 1 })?;
            match field {
                1 => name = value.text()?,
                3 => values = Some(vec![value.number()?]),
                5 => values = self.tensor(value.bytes()?)?.values,
                6 | 11 => self.graph(value.bytes()?)?,
                7 => drop(value.count(Some(4))?),
                8 => match (value, &mut values) {
                    // Packed or one at a time.
                    (Value::Varint(number), Some(values)) => values.push(number as i64),
                    (value, _) => values = Some(value.numbers()?),
                },
                10 => drop(self.tensor(value.bytes()?)?),
                14 | 15 => return Err("attributes of types are not supported".into()),
                21 => return Err("references to attributes of functions are not supported".into()),
                22 | 23 => return Err("attributes of sparse tensors are not supported".into()),
                _ => {}
            }
        }
        node.attribute(name, values);
        Ok(name)
    }

    /// Checks the type of a value and returns its name.
    fn value_info(&mut self, bytes: &'a [u8]) -> Result<&'a str, String> {
        let (mut name, mut found) = ("", None);
        for field in Fields::of(&VALUE_INFO, bytes) {
            let (field, value) = field?;
            self.spend(1)?;
            match field {
                1 => name = value.text()?,
                2 => found = Some(value.bytes()?),
                _ => {}
            }
        }
        let named = |reason: String| format!("{name:?}: {reason}");
        for field in found.into_iter().flat_map(|bytes| Fields::of(&TYPE, bytes)) {
            match field.map_err(named)? {
                (1, value) => self.tensor_type(value.bytes()?).map_err(named)?,
                (4 | 5 | 8 | 9, _) => return Err(named("expected a dense tensor".into())),
                _ => {}
            }
        }
        Ok(name)
    }

    fn tensor_type(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        let mut dims = Vec::new();
        for field in Fields::of(&TENSOR_TYPE, bytes) {
            let (2, shape) = field? else { continue };
            for dim in Fields::of(&SHAPE, shape.bytes()?) {
                let (1, dim) = dim? else { continue };
                self.spend(1)?;
                let mut size = 1;
                for field in Fields::of(&DIMENSION, dim.bytes()?) {
                    match field? {
                        (1, value) => size = value.number()?,
                        (2, value) => drop(value.text()?),
                        _ => {}
                    }
                }
                dims.push(size);
            }
        }
        if dims.len() > MOST_AXES {
            return Err(format!("expected at most {MOST_AXES} axes, found {}", dims.len()));
        }
        tensor::elements(&dims).map(drop)
    }

    /// Subtracts `parts` from the remaining limit.
    fn spend(&mut self, parts: usize) -> Result<(), String> {
        self.parts += parts;
        if self.parts > self.limits.parts {
            Err(sizes::too_many_parts(self.limits))
        } else {
            Ok(())
        }
    }

    fn is_given(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| scope.contains(name))
    }

    fn know(&mut self, name: &'a str, values: Option<Vec<i64>>) {
        match values {
            Some(values) => drop(self.constants.insert(name, values)),
            None => drop(self.constants.remove(name)),
        }
    }
}

/// ONNX's standard operator set has two names.
fn standard(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}
