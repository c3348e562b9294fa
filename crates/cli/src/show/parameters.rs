//! The table of a model's parameters, one row for equal layers of a stack.

use crate::amounts::thousands;
use anyhow::Result;
use cognate_model::{Model, Positions, without_layer};
use std::io::Write;

/// A parameter, or the same parameter of every layer of a stack.
struct Row {
    path: String,
    shape: Vec<usize>,
    /// 1, or the number of layers.
    places: usize,
    /// The kind of a computed tensor.
    computed: Option<&'static str>,
}

/// Prints the table in the order in which the model uses its parameters; `{l}` is the layer.
pub(crate) fn table(model: &Model, out: &mut dyn Write) -> Result<()> {
    let mut rows: Vec<Row> = Vec::new();
    let formula = match model.config().positions {
        Positions::Sinusoidal(_) | Positions::Counted => Some(("embed_positions.", "sinusoids")),
        Positions::Rotary => Some(("rotary.", "angles")),
        Positions::Alibi => Some(("alibi.", "slopes")),
        Positions::Learned { .. }
        | Positions::LearnedCounted { .. }
        | Positions::Relative { .. } => None,
    };
    let program = model.teacher_forced()?;
    for (_, node) in program.graph().parameters() {
        let path = without_layer(&node.name);
        match rows.iter_mut().find(|row| row.path == path) {
            Some(row) => row.places += 1,
            None => {
                let shape = program
                    .weights()
                    .get(&node.name)
                    .map_or(Vec::new(), |recipe| recipe.shape().to_vec());
                let computed =
                    formula.filter(|(part, _)| path.contains(part)).map(|(_, what)| what);
                rows.push(Row { path, shape, places: 1, computed });
            }
        }
    }
    let width = rows.iter().map(|row| row.path.len()).max().unwrap_or(0);
    for Row { path, shape, places, computed } in &rows {
        let times = times(path, *places);
        let amount = computed
            .map_or_else(|| thousands(places * shape.iter().product::<usize>()), String::from);
        writeln!(out, "  {path:<width$}  {:<14} {times:>5} {amount:>12}", format!("{shape:?}"))?;
    }
    Ok(())
}

/// The number of layers that have something.
pub(crate) fn times(path: &str, places: usize) -> String {
    if path.contains("{l}") { format!("x {places}") } else { String::new() }
}
