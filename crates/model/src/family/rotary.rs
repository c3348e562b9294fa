//! The rotary angles of a `config.json`: `rope_parameters` since transformers 5, before it
//! `rope_theta` and `rope_scaling`.

use super::fields::Fields;
use crate::RotaryScaling;
use crate::config::ROTARY_BASE;
use serde_json::Value;

/// An object that describes rotary angles.
struct Angles<'f> {
    fields: &'f Fields,
    /// Its name in `config.json`.
    field: &'static str,
    found: &'f Value,
}

/// The base of rotary angles, and their scaling for texts of up to `max_positions`.
pub(super) fn rotary(fields: &Fields, max_positions: usize) -> (f32, RotaryScaling) {
    let base = fields.positive("rope_theta", ROTARY_BASE);
    let fraction = fields.positive("partial_rotary_factor", 1.0);
    // In the order of transformers 5, for which an empty object is none.
    let Some((field, found)) = ["rope_scaling", "rope_parameters"]
        .into_iter()
        .filter_map(|field| Some((field, fields.present(field)?)))
        .find(|(_, found)| found.as_object().is_none_or(|object| !object.is_empty()))
    else {
        refuse_part(fields, f64::from(fraction));
        return (base, RotaryScaling::None);
    };
    let angles = Angles { fields, field, found };
    if let Some(kind) =
        found.as_object().and_then(|object| object.iter().find(|(_, value)| value.is_object()))
    {
        fields.refuse(format!(
            "{field}: {} has values of its own, which is not supported; expected the same for all layers",
            kind.0
        ));
        return (base, RotaryScaling::None);
    }
    refuse_part(fields, angles.number("partial_rotary_factor", Some(fraction.into())));
    let base = angles.number("rope_theta", Some(base.into())) as f32;
    let scaling = angles.scaling(max_positions);
    if matches!(scaling, RotaryScaling::Yarn { .. }) && base <= 1.0 {
        fields.contradict(format!("rope_theta: expected more than 1 for {field} yarn"));
    }
    (base, scaling)
}

fn refuse_part(fields: &Fields, fraction: f64) {
    if fraction != 1.0 {
        fields.refuse(format!("partial_rotary_factor {fraction} is not supported; expected 1"));
    }
}

impl Angles<'_> {
    /// A positive number that single precision holds, too.
    fn number(&self, name: &str, default: Option<f64>) -> f64 {
        let found = self.found.get(name).filter(|value| !value.is_null());
        let is_positive = |number: &f64| (*number as f32).is_finite() && (*number as f32) > 0.0;
        found.map_or(default, Value::as_f64).filter(is_positive).unwrap_or_else(|| {
            let value = found.unwrap_or(&Value::Null);
            self.fields.contradict(format!(
                "{}: {name}: expected a positive number, found {value}",
                self.field
            ));
            1.0
        })
    }

    fn scaling(&self, max_positions: usize) -> RotaryScaling {
        let Self { fields, field, found } = *self;
        let number = |name: &str, default| self.number(name, default);
        let factor = || number("factor", None);
        let kind = found.get("rope_type").or_else(|| found.get("type"));
        // An object with `rope_theta` alone has the default type.
        let kind = if kind.is_none() && found.get("rope_theta").is_some() {
            Some("default")
        } else {
            kind.and_then(Value::as_str)
        };
        match kind {
            // Dynamic scaling starts only after the model's maximum number of positions.
            Some("default" | "dynamic") => RotaryScaling::None,
            Some("linear") => RotaryScaling::Linear { factor: factor() },
            Some("llama3") => {
                let [low, high] =
                    ["low_freq_factor", "high_freq_factor"].map(|name| number(name, None));
                if low >= high {
                    fields.contradict(format!("{field}: expected low_freq_factor below high_freq_factor, found {low} and {high}"));
                }
                let positions = number("original_max_position_embeddings", None);
                RotaryScaling::Llama3 { factor: factor(), low, high, positions }
            }
            Some("yarn") => {
                let grown = |scale: f64| {
                    if factor() <= 1.0 { 1.0 } else { 0.1 * scale * factor().ln() + 1.0 }
                };
                let implied = match ["mscale", "mscale_all_dim"].map(|name| {
                    found.get(name).and_then(Value::as_f64).filter(|scale| *scale != 0.0)
                }) {
                    [Some(scale), Some(all)] => grown(scale) / grown(all),
                    _ => grown(1.0),
                };
                RotaryScaling::Yarn {
                    factor: factor(),
                    magnitude: number("attention_factor", Some(implied)),
                    fast: number("beta_fast", Some(32.0)),
                    slow: number("beta_slow", Some(1.0)),
                    positions: number(
                        "original_max_position_embeddings",
                        Some(max_positions as f64),
                    ),
                    rounded: found.get("truncate").is_none_or(|truncate| *truncate != false),
                }
            }
            _ => {
                fields.refuse(format!(
                    "{field} {found} is not supported; expected null, or a rope_type of default, linear, dynamic, llama3, yarn"
                ));
                RotaryScaling::None
            }
        }
    }
}
