//! Pictures of made-up attention, and the page in a real browser.

#![allow(clippy::unwrap_used, missing_docs)]

mod browser;
mod diagram;
mod figures;
mod pages;

use cognate_pictures::{Document, Example, Source, Target, Token, Weights};

/// Layers, heads, tokens of the source and of the target.
type Sizes = [usize; 4];

/// Rows of weights that sum to 1, of which row `r` may look at its first `visible(r)` columns.
fn weights(shape: [usize; 4], visible: impl Fn(usize) -> usize) -> Weights {
    let [layers, heads, rows, columns] = shape;
    let mut state = 1u64;
    let mut values = Vec::with_capacity(shape.iter().product());
    for index in 0..layers * heads * rows {
        let n_visible = visible(index % rows);
        let scores = (0..columns).map(|column| {
            // Knuth's generator of the second volume, table 1 of section 3.3.4.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if column < n_visible { (f64::from((state >> 40) as u32) / f64::from(1 << 24) * 9.0).exp() } else { 0.0 }
        });
        let scores: Vec<f64> = scores.collect();
        let sum: f64 = scores.iter().sum();
        values.extend(scores.iter().map(|score| (score / sum) as f32));
    }
    Weights::new(shape, values).unwrap()
}

fn tokens(name: &str, length: usize) -> Vec<Token> {
    (0..length).map(|index| Token { piece: format!("▁{name}{index}"), id: index as i64 }).collect()
}

fn example([layers, heads, src, tgt]: Sizes) -> Example {
    let written = tokens("target", tgt);
    let start = Token { piece: "<s>".into(), id: 99 };
    let read = [start].into_iter().chain(written[..tgt - 1].iter().cloned()).collect();
    Example {
        source: Source { text: format!("A text of {src} tokens"), tokens: tokens("source", src) },
        target: Target { text: format!("A translation of {tgt} tokens"), read, written },
        encoder_attentions: weights([layers, heads, src, src], |_| src),
        decoder_attentions: weights([layers, heads, tgt, tgt], |row| row + 1),
        cross_attentions: weights([layers, heads, tgt, src], |_| src),
    }
}

fn document(examples: Vec<Example>) -> Document {
    Document { model: "a model".into(), engine: "an engine".into(), examples }
}

/// Text that would be markup, or end the script that it stands in.
const MARKUP: [&str; 6] =
    ["</script><b id=\"broken\">", "<!--", "<img src=x onerror=alert(1)>", "&amp;\"'", "{{script}}", "\u{2028}\\u003c/b>\u{1}"];

/// A document whose every text is markup.
fn markup() -> Document {
    let mut example = example([2, 2, 6, 6]);
    for (index, text) in MARKUP.into_iter().enumerate() {
        example.source.tokens[index].piece = text.into();
        example.target.written[index].piece = text.into();
        example.target.read[index].piece = text.into();
    }
    example.source.text = MARKUP.concat();
    example.target.text = MARKUP.concat();
    Document { model: MARKUP.concat(), engine: MARKUP.concat(), examples: vec![example] }
}
