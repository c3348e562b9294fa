//! A cell of the interoperability matrix on rten, a runtime in pure Rust. `../python/cell.py`
//! documents question and answer, `../python/layouts.py` has the same steps in Python.

mod cell;
mod layouts;

use anyhow::{Context, Result};
use serde_json::{Value, json};

fn main() {
    let found = answer().unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
    let mut all = json!({ "version": "rten 0.27.0" });
    if let (Value::Object(all), Value::Object(found)) = (&mut all, found) {
        all.extend(found);
    }
    println!("\n{all}");
}

fn answer() -> Result<Value> {
    let path = std::env::args().nth(1).context("usage: interop-rten QUESTION.json")?;
    layouts::measure(&cell::Cell::read(path.as_ref())?)
}
