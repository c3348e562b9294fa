//! Exports a checkpoint in 8-bit integers, verifies the export and translates with it.
//!
//! `cargo run --release -p cognate --example export -- testdata/multi30k-en-de out8`

#![allow(clippy::print_stdout)]

use cognate::{Export, Precision, Result, Translator, VerifyOptions, verify};
use std::path::Path;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let checkpoint = args.next().unwrap_or_else(|| "testdata/multi30k-en-de".into());
    let out = args.next().unwrap_or_else(|| "out8".into());
    let export = Export::open(checkpoint)?.precision(Precision::Int8).force(true);
    export.write(&out)?;
    let options = VerifyOptions { model: Some(export.model()), ..VerifyOptions::default() };
    let verified = verify(Path::new(&out), &options, |_| {})?;
    print!("{}", verified.report);
    for translation in Translator::open(&out)?.translate(&["A man is riding a bicycle."])? {
        println!("{}", translation.text);
    }
    Ok(())
}
