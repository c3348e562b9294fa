//! The table of a model's parameters: modules with their sizes, equal layers of a stack together.

use crate::amounts::thousands;
use cognate_model::{Model, Positions};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// The parameters of one place in a model, or of that place in every layer of a stack.
#[derive(Debug, Default)]
struct Row {
    shape: Vec<usize>,
    /// 1, or the number of layers.
    places: usize,
    is_computed: bool,
}

/// Prints the table; `{l}` stands for each layer.
pub(crate) fn table(model: &Model, out: &mut dyn Write) -> io::Result<()> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let has_sinusoids = matches!(model.config().positions, Positions::Sinusoidal(_));
    for (path, recipe) in model.weights().iter() {
        let row = rows.entry(without_layer(path)).or_default();
        row.shape = recipe.shape().to_vec();
        row.places += 1;
        row.is_computed = has_sinusoids && path.contains("embed_positions.");
    }
    let width = rows.keys().map(String::len).max().unwrap_or(0);
    for (path, Row { shape, places, is_computed }) in &rows {
        let times = if path.contains("{l}") { format!("x {places}") } else { String::new() };
        let amount = if *is_computed { "sinusoids".into() } else { thousands(places * shape.iter().product::<usize>()) };
        writeln!(out, "  {path:<width$}  {:<14} {times:>5} {amount:>12}", format!("{shape:?}"))?;
    }
    Ok(())
}

/// `encoder.layers.3.fc1.weight` is `encoder.layers.{l}.fc1.weight`.
fn without_layer(path: &str) -> String {
    let part = |part| if str::parse::<usize>(part).is_ok() { "{l}" } else { part };
    path.split('.').map(part).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_fold() {
        assert_eq!(without_layer("decoder.layers.11.self_attn.q_proj.bias"), "decoder.layers.{l}.self_attn.q_proj.bias");
        assert_eq!(without_layer("shared.weight"), "shared.weight");
    }
}
