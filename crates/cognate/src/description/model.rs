//! The description of a model: configuration, parameters and graphs.

use super::facts::facts;
use super::{languages, ports};
use crate::Export;
use crate::amounts::thousands;
use cognate_folder::ModelSource;
use cognate_graph::{Class, Graph, Program};
use cognate_model::{Attentions, Layout, Model, Parts, Positions, without_layer};
use cognate_pipeline::{Error, ErrorKind, Result};
use serde_json::{Map, Value, json};
use std::fmt;

/// A model in words and numbers. It is displayed as text.
#[derive(Clone, Debug)]
pub struct ModelDescription {
    /// The model's folder or preset.
    pub source: ModelSource,
    /// `config.json`.
    pub config: Value,
    /// Properties of the configuration, such as `("d_model", "512")`.
    pub facts: Vec<(&'static str, String)>,
    /// The languages of the tokenizer.
    pub languages: Vec<String>,
    /// Number of learned values.
    pub n_parameters: usize,
    /// Names and shapes of the stored tensors.
    pub tensors: Vec<(String, Vec<usize>)>,
    /// The graphs that the model is exported as.
    pub graphs: Vec<GraphDescription>,
    rows: Vec<Row>,
}

/// A graph in numbers.
#[derive(Clone, Debug)]
pub struct GraphDescription {
    /// The graph's name.
    pub name: String,
    /// Number of operations.
    pub n_nodes: usize,
    /// Names and types.
    pub inputs: Vec<(String, String)>,
    /// Names and types.
    pub outputs: Vec<(String, String)>,
}

/// A parameter, or the same parameter of every layer of a stack.
#[derive(Clone, Debug)]
struct Row {
    path: String,
    shape: Vec<usize>,
    /// 1, or the number of layers.
    places: usize,
    /// The kind of a computed tensor.
    computed: Option<&'static str>,
}

impl Export {
    /// Describes the model.
    ///
    /// # Errors
    /// If its graphs cannot be built.
    pub fn describe(&self) -> Result<ModelDescription> {
        let (source, model) = (self.source(), self.model());
        let config: Value = serde_json::from_str(model.config_json())
            .map_err(|error| Error::new(ErrorKind::Folder, format_args!("{source}: {error}")))?;
        let family = family(&config);
        let tensor =
            |(name, recipe): (&str, &cognate_graph::Recipe)| (name.into(), recipe.shape().to_vec());
        let programs = match model.config().parts {
            Parts::Both => vec![model.encode()?, model.step(Attentions::Omit)?],
            Parts::Encoder(_) => model.programs(Layout::Cognate, Attentions::Omit)?,
            Parts::Decoder => vec![model.step(Attentions::Omit)?],
        };
        let rows = match model.config().parts {
            Parts::Encoder(_) => rows(model, &programs[0]),
            Parts::Both | Parts::Decoder => rows(model, &model.teacher_forced()?),
        };
        Ok(ModelDescription {
            source: source.clone(),
            facts: facts(model, &family),
            languages: languages(source),
            n_parameters: model.parameters(),
            tensors: model.weights().iter().map(tensor).collect(),
            graphs: programs.iter().map(|program| GraphDescription::of(program.graph())).collect(),
            rows,
            config,
        })
    }
}

impl GraphDescription {
    fn of(graph: &Graph) -> Self {
        let operations = graph.nodes().iter().filter(|node| node.op.class() != Class::Declared);
        let outputs = graph.outputs().iter().map(|output| (&output.name, graph.node(output.node)));
        Self {
            name: graph.name().to_owned(),
            n_nodes: operations.count(),
            inputs: graph
                .inputs()
                .map(|(_, node)| (node.name.clone(), node.ty.to_string()))
                .collect(),
            outputs: outputs.map(|(name, node)| (name.clone(), node.ty.to_string())).collect(),
        }
    }
}

/// The `model_type`, with those of both halves of a pair of models.
fn family(config: &Value) -> String {
    let name = config["model_type"].as_str().unwrap_or("unknown");
    match ["encoder", "decoder"].map(|half| config[half]["model_type"].as_str()) {
        [Some(encoder), Some(decoder)] if name.ends_with("encoder-decoder") => {
            format!("{name}, {encoder} and {decoder}")
        }
        _ => name.into(),
    }
}

/// The parameters in the order in which the model uses them, one row for equal layers of a stack;
/// `{l}` is the layer.
fn rows(model: &Model, program: &Program) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let formula = match model.config().positions {
        Positions::Sinusoidal(_) | Positions::Counted => Some(("embed_positions.", "sinusoids")),
        Positions::Rotary => Some(("rotary.", "angles")),
        Positions::Alibi => Some(("alibi.", "slopes")),
        Positions::Learned { .. }
        | Positions::LearnedCounted { .. }
        | Positions::Relative { .. } => None,
    };
    for (_, node) in program.graph().parameters() {
        let path = without_layer(&node.name);
        match rows.iter_mut().find(|row| row.path == path) {
            Some(row) => row.places += 1,
            None => {
                let recipe = program.weights().get(&node.name);
                let shape = recipe.map_or(Vec::new(), |recipe| recipe.shape().to_vec());
                let computed =
                    formula.filter(|(part, _)| path.contains(part)).map(|(_, what)| what);
                rows.push(Row { path, shape, places: 1, computed });
            }
        }
    }
    rows
}

impl ModelDescription {
    /// The description for programs.
    pub fn to_json(&self) -> Value {
        let facts =
            self.facts.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into()));
        let graph = |graph: &GraphDescription| {
            json!({
                "name": graph.name, "nodes": graph.n_nodes,
                "inputs": ports(&graph.inputs), "outputs": ports(&graph.outputs),
            })
        };
        let tensor = |(name, shape): &(String, Vec<usize>)| json!({ "name": name, "shape": shape });
        json!({
            "source": self.source.to_string(),
            "config": self.config,
            "description": facts.collect::<Map<_, _>>(),
            "languages": self.languages,
            "n_parameters": self.n_parameters,
            "parameters": self.tensors.iter().map(tensor).collect::<Vec<_>>(),
            "graphs": self.graphs.iter().map(graph).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for ModelDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.source)?;
        for (name, value) in &self.facts {
            writeln!(f, "  {name:<12} {value}")?;
        }
        if !self.languages.is_empty() {
            let languages = &self.languages;
            writeln!(f, "  {:<12} {}: {}", "languages", languages.len(), languages.join(", "))?;
        }
        writeln!(f, "\nparameters")?;
        let width = self.rows.iter().map(|row| row.path.len()).max().unwrap_or(0);
        for Row { path, shape, places, computed } in &self.rows {
            let times = times(path, *places);
            let amount = computed
                .map_or_else(|| thousands(places * shape.iter().product::<usize>()), String::from);
            let shape = format!("{shape:?}");
            writeln!(f, "  {path:<width$}  {shape:<14} {times:>5} {amount:>12}")?;
        }
        for graph in &self.graphs {
            writeln!(f, "\ngraph {}: {} nodes", graph.name, graph.n_nodes)?;
            write_ports(f, "input", &graph.inputs)?;
            write_ports(f, "output", &graph.outputs)?;
        }
        Ok(())
    }
}

/// Writes inputs or outputs, one line for all layers.
fn write_ports(f: &mut fmt::Formatter<'_>, kind: &str, ports: &[(String, String)]) -> fmt::Result {
    let mut folded: Vec<(String, &str, usize)> = Vec::new();
    for (name, ty) in ports {
        let name = without_layer(name);
        match folded.iter_mut().find(|(known, ..)| *known == name) {
            Some((.., places)) => *places += 1,
            None => folded.push((name, ty, 1)),
        }
    }
    for (name, ty, places) in folded {
        let line = format!("  {kind:<6} {name}: {ty}  {}", times(&name, places));
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The number of layers that have a parameter, an input or an output.
fn times(path: &str, places: usize) -> String {
    if path.contains("{l}") { format!("x {places}") } else { String::new() }
}
