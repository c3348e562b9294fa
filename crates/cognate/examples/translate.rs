//! Translates sentences with a checkpoint or an export, two hypotheses each.
//!
//! `cargo run --release -p cognate --example translate -- testdata/multi30k-en-de "A man is riding a bicycle."`

#![allow(clippy::print_stdout)]

use cognate::{DecodingOptions, Result, Translator, TranslatorOptions};
use std::num::NonZeroUsize;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "testdata/multi30k-en-de".into());
    let sentences: Vec<String> = args.collect();
    let decoding = DecodingOptions {
        beams: NonZeroUsize::new(4),
        n_best: NonZeroUsize::new(2),
        ..DecodingOptions::default()
    };
    let translator = Translator::open_with(
        folder,
        &TranslatorOptions { decoding, ..TranslatorOptions::default() },
    )?;
    for (sentence, translation) in sentences.iter().zip(translator.translate(&sentences)?) {
        println!("{sentence}");
        for found in translation.hypotheses {
            println!("  {:.4}  {}", found.hypothesis.score, found.text);
        }
    }
    Ok(())
}
