//! Is an ONNX file what it says, before an engine sees it?
//!
//! Engines are made for well-meant files. From others come paths that leave the model's folder, sizes that overflow or ask for
//! more memory than there is, graphs nested until the stack ends, names that two things have. [`check_model`] walks the file
//! where it lies, mapped and without unpacking it, and stops such a file; what it lets pass
//!
//! - is protobuf through and through, each field of the kind that ONNX gives it, names in UTF-8;
//! - has constants with as many values as their shapes say, in the file or in regular files of its folder, behind no link;
//! - gives every name once and reads none that is not given before, so that there is no cycle;
//! - keeps to [`Limits`], and has none of what Cognate's engines could not bound: functions of its own, sparse constants,
//!   loops without a fixed number of rounds.
//!
//! Source: `onnx.proto` and ONNX's IR specification. How much memory a run takes is decided by the graph, and not checked but
//! where constants alone decide it.

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

/// The environment variable that gives engines and commands other [`Limits`], as `parts=2000000,elements=268435456`.
pub const LIMITS: &str = "COGNATE_LIMITS";

/// Deeper graphs would end the walk's own stack.
const DEEPEST: usize = 64;

/// What a graph may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes, attributes, names, constants, types and what else unpacks to more memory than it has bytes; the largest exports
    /// have some 100,000.
    pub parts: usize,
    /// Graphs inside of graphs, as the branches of `If`.
    pub depth: usize,
    /// Elements of a tensor whose size is given by constants alone.
    pub elements: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { parts: 1 << 19, depth: 16, elements: 1 << 26 }
    }
}

impl Limits {
    /// The default, but for what the variable [`LIMITS`] says.
    ///
    /// # Errors
    /// If it says what cannot be understood.
    pub fn from_environment() -> Result<Self, Error> {
        match std::env::var_os(LIMITS) {
            None => Ok(Self::default()),
            Some(text) => Self::from_text(&text.to_string_lossy()),
        }
    }

    /// The default, but for what `text` says: names and numbers, as `depth=32,elements=268435456`.
    ///
    /// # Errors
    /// If a name is unknown, or a number is none, 0, or for the depth above 64.
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

/// What to do about a limit that a good file passes.
fn to_allow(name: &str) -> String {
    format!("; to allow more, set {LIMITS}={name}=N")
}

/// A file that was checked, and those to which it points.
#[derive(Debug)]
pub struct Checked {
    files: Files,
}

impl Checked {
    /// Whether the files are still those that were checked: to be asked once the engine has read them.
    ///
    /// # Errors
    /// If one was written, removed or exchanged since.
    pub fn unchanged(&self) -> Result<(), Error> {
        match self.files.changed() {
            None => Ok(()),
            Some(path) => Err(Problem::Changed { path: path.into() }.into()),
        }
    }
}

/// Checks the ONNX file at `path` and the files to which it points.
///
/// # Errors
/// If the file cannot be read, or is not what an engine may see; the message says what is wrong, and where.
pub fn check_model(path: &Path, limits: &Limits) -> Result<Checked, Error> {
    let (file, metadata) = open(path)?;
    // SAFETY: the mapping is read-only and private. A program that truncates the file meanwhile makes later reads
    // fail with a signal; that is the stated exception of mapped files.
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

/// Whether the message at `path` unpacks to a bounded amount of memory.
pub(crate) fn check_amount(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    sizes::amount(bytes, &Limits::from_environment()?).map_err(|message| Problem::Unsound { path: path.into(), message }.into())
}

/// Opens the file at `path`, if it is a regular one and no larger than an ONNX file may be.
pub(crate) fn open(path: &Path) -> Result<(File, Metadata), Error> {
    // A pipe would be waited for: what is there is looked at before it is opened.
    let metadata = fs::metadata(path).context("open", path)?;
    if !metadata.is_file() {
        let found = if metadata.is_dir() { "a folder" } else { "no regular file" };
        return Err(Problem::NoModel { path: path.into(), message: format!("it is {found}") }.into());
    }
    let file = File::open(path).context("open", path)?;
    let metadata = file.metadata().context("look at", path)?;
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

/// The last version of ONNX's own operators that this program knows of.
const LATEST_OPSET: i64 = 28;

/// More axes than any operator has a use for.
const MOST_AXES: usize = 64;

/// A walk through a file, and what is known so far.
struct Walk<'a> {
    limits: &'a Limits,
    folder: PathBuf,
    files: Files,
    parts: usize,
    depth: usize,
    /// Domains of the operators that the model imports.
    domains: HashSet<&'a str>,
    /// Names that are given so far, those of the innermost graph last.
    scopes: Vec<HashSet<&'a str>>,
    /// Small tensors of whole numbers that are known now: sizes of others.
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
                25 => return Err("has functions of its own, which are not supported; export it with them written out".into()),
                _ => {}
            }
        }
        let graph = graph.ok_or("not an ONNX model: it has no graph")?;
        if self.domains.is_empty() {
            return Err("names no operator set".into());
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
            return Err(format!("names the operator set {domain:?} twice"));
        }
        if version < 1 || (domain.is_empty() && version > LATEST_OPSET) {
            return Err(format!("wants version {version} of the operator set {domain:?}; expected 1 to {LATEST_OPSET}"));
        }
        Ok(())
    }

    fn graph(&mut self, bytes: &'a [u8]) -> Result<(), String> {
        if self.depth == self.limits.depth {
            return Err(format!("graphs are nested deeper than {}{}", self.limits.depth, to_allow("depth")));
        }
        self.depth += 1;
        let (mut names, mut initializers, mut inputs) = (HashSet::new(), HashSet::new(), HashSet::new());
        let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
        // Fields may come in any order.
        for field in Fields::of(&GRAPH, bytes) {
            let (field, value) = field?;
            self.spend(1)?;
            match field {
                1 => nodes.push(value.bytes()?),
                5 => {
                    let tensor = self.tensor(value.bytes()?)?;
                    if tensor.name.is_empty() || !initializers.insert(tensor.name) {
                        return Err(format!("the name {:?} is given to two initializers, or to none", tensor.name));
                    }
                    self.know(tensor.name, tensor.values);
                }
                11 => {
                    let name = self.value_info(value.bytes()?)?;
                    if name.is_empty() || !inputs.insert(name) {
                        return Err(format!("the name {name:?} is given to two inputs, or to none"));
                    }
                }
                12 => outputs.push(self.value_info(value.bytes()?)?),
                13 => drop(self.value_info(value.bytes()?)?),
                15 => return Err("has sparse initializers, which are not supported; export it with dense ones".into()),
                _ => {}
            }
        }
        names.extend(initializers);
        // An input may have an initializer for its default.
        names.extend(inputs);
        self.scopes.push(names);
        nodes.into_iter().try_for_each(|node| self.node(node))?;
        if let Some(missing) = outputs.iter().find(|name| !self.is_given(name)) {
            return Err(format!("output {missing}: no node gives it"));
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
            format!("node {:?} ({operator}): {reason}", if name.is_empty() { outputs.first().unwrap_or(&"") } else { &name })
        };
        if operator.is_empty() {
            return Err(named("has no operator".into()));
        }
        if !self.domains.contains(domain) {
            return Err(named(format!("is of the operator set {domain:?}, which the model does not name")));
        }
        if let Some(missing) = inputs.iter().find(|input| !input.is_empty() && !self.is_given(input)) {
            return Err(named(format!("reads {missing:?}, which nothing before it gives: it is missing, given later, or part of a cycle")));
        }
        let mut node = sizes::Node::new(if domain.is_empty() { operator } else { "" }, inputs);
        let mut known = HashSet::new();
        for attribute in attributes {
            let name = self.attribute(attribute, &mut node).map_err(&named)?;
            if name.is_empty() || !known.insert(name) {
                return Err(named(format!("the name {name:?} is given to two attributes, or to none")));
            }
        }
        let value = sizes::value(&node, &self.constants, self.limits).map_err(&named)?;
        for output in outputs.iter().filter(|output| !output.is_empty()) {
            self.constants.remove(output);
            let scope = self.scopes.last_mut().ok_or("a node stands outside of every graph")?;
            if !scope.insert(output) {
                return Err(named(format!("gives {output:?}, which is given already")));
            }
        }
        if let Some(output) = outputs.first() {
            self.know(output, value);
        }
        Ok(())
    }

    /// Checks an attribute and gives its name; what sizes depend on is told to `node`.
    fn attribute(&mut self, bytes: &'a [u8], node: &mut sizes::Node<'a>) -> Result<&'a str, String> {
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
                    // One at a time, or all together.
                    (Value::Varint(number), Some(values)) => values.push(number as i64),
                    (value, _) => values = Some(value.numbers()?),
                },
                10 => drop(self.tensor(value.bytes()?)?),
                14 | 15 => return Err("an attribute is a type, which is not supported".into()),
                21 => return Err("an attribute refers to that of a function, and the model has none".into()),
                22 | 23 => return Err("an attribute is a sparse tensor, which is not supported".into()),
                _ => {}
            }
        }
        node.attribute(name, values);
        Ok(name)
    }

    /// Checks the type of a value and gives its name.
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
                (4 | 5 | 8 | 9, _) => return Err(named("is no dense tensor".into())),
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
            return Err(format!("has {} axes, more than {MOST_AXES}", dims.len()));
        }
        tensor::elements(&dims).map(drop)
    }

    /// Takes `parts` off what the file may have.
    fn spend(&mut self, parts: usize) -> Result<(), String> {
        self.parts += parts;
        if self.parts > self.limits.parts { Err(sizes::too_many_parts(self.limits)) } else { Ok(()) }
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

/// ONNX's own operators go by two names.
fn standard(domain: &str) -> &str {
    if domain == "ai.onnx" { "" } else { domain }
}
