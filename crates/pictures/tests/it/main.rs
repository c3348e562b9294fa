//! Pictures of made-up attention, and the page in a real browser.

#![allow(clippy::unwrap_used, missing_docs)]

mod browser;
mod chromium;
mod diagram;
mod figures;
mod pages;
mod weights;

use cognate_pictures::{
    Attention, Beams, Document, Embeddings, Example, Explained, Finished, Likely, Node, Norms,
    SourcePicture, SourceText, Step, Summary, TargetText, Token, Weights,
};

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
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if column < n_visible {
                (f64::from((state >> 40) as u32) / f64::from(1 << 24) * 9.0).exp()
            } else {
                0.0
            }
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

/// Audio of five cells after which there is padding; the encoder's attention is not known.
fn example_of_audio() -> Example {
    let mut example = example([2, 2, 6, 4]);
    example.source.picture =
        Some(SourcePicture::new(&[0; 3 * 100 * 10], [100, 10], [1, 5], [0, 1]).unwrap());
    example.encoder_attentions = Weights::new([0, 2, 6, 6], Vec::new()).unwrap();
    example.explained = Some(explained(&example));
    example
}

fn example([layers, heads, src, tgt]: Sizes) -> Example {
    let written = tokens("target", tgt);
    let start = Token { piece: "<s>".into(), id: 99 };
    let read = [start].into_iter().chain(written[..tgt - 1].iter().cloned()).collect();
    let mut example = Example {
        source: SourceText {
            text: format!("A text of {src} tokens"),
            tokens: tokens("source", src),
            picture: None,
        },
        target: TargetText { text: format!("A translation of {tgt} tokens"), read, written },
        encoder_attentions: weights([layers, heads, src, src], |_| src),
        decoder_attentions: weights([layers, heads, tgt, tgt], |row| row + 1),
        cross_attentions: weights([layers, heads, tgt, src], |_| src),
        explained: None,
    };
    example.explained = Some(explained(&example));
    example
}

/// Made-up numbers of each kind: the third likeliest word is what comes next, of the last step
/// none, and a search with two ends.
fn explained(example: &Example) -> Explained {
    let norms = |tokens: &[Token]| {
        let norm =
            |(index, _)| Norms { token: 10.0 + index as f32, position: Some(8.0), sum: 12.345 };
        tokens.iter().enumerate().map(norm).collect()
    };
    let TargetText { read, written, .. } = &example.target;
    let step = |(index, token): (usize, &Token)| {
        let is_last = index + 1 == written.len();
        let likely = |rank: usize| Likely {
            token: if rank == 2 && !is_last {
                token.clone()
            } else {
                Token { piece: format!("▁likely{rank}"), id: 1000 + rank as i64 }
            },
            probability: 0.5 / (1 << rank) as f32,
        };
        Step {
            likeliest: (0..5).map(likely).collect(),
            written: Some(if is_last { 1.25e-5 } else { 0.125 }),
            looks_at: (0..3).map(|column| (column, 0.25)).collect(),
        }
    };
    let mut nodes =
        vec![Node { token: read[0].clone(), parent: None, log_probability: 0.0, rank: None }];
    for (index, token) in written.iter().enumerate() {
        let rank = (index + 1 == written.len()).then_some(0);
        nodes.push(Node {
            token: token.clone(),
            parent: Some(index),
            log_probability: -0.5 * (index + 1) as f32,
            rank,
        });
    }
    let token = Token { piece: "▁other".into(), id: 1001 };
    let first = nodes.len();
    nodes.push(Node { token: token.clone(), parent: Some(1), log_probability: -1.5, rank: None });
    nodes.push(Node { token, parent: Some(first), log_probability: -2.0, rank: Some(1) });
    nodes.push(Node { token: read[0].clone(), parent: Some(0), log_probability: -4.0, rank: None });
    let finished = [("the best", -0.25), ("the other", -0.75)]
        .map(|(text, score)| Finished { text: text.into(), score });
    Explained {
        embeddings: Embeddings::Known {
            d_model: 16,
            is_scaled: true,
            source: norms(&example.source.tokens),
            target: norms(read),
        },
        layers: Attention::ALL.map(|of| Summary::of(example.weights(of), of != Attention::Cross)),
        alignment_layer: 0,
        steps: written.iter().enumerate().map(step).collect(),
        beams: Some(Beams { width: 2, nodes, finished: finished.into() }),
    }
}

fn document(examples: Vec<Example>) -> Document {
    Document { model: "a model".into(), engine: "an engine".into(), examples }
}

/// Text that would be markup, or end the script that it stands in.
const MARKUP: [&str; 6] = [
    "</script><b id=\"broken\">",
    "<!--",
    "<img src=x onerror=alert(1)>",
    "&amp;\"'",
    "{{script}}",
    "\u{2028}\\u003c/b>\u{1}",
];

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
    let mut found = explained(&example);
    for (step, text) in found.steps.iter_mut().zip(MARKUP) {
        step.likeliest[4].token.piece = text.into();
    }
    found
        .beams
        .iter_mut()
        .flat_map(|beams| &mut beams.finished)
        .for_each(|hypothesis| hypothesis.text = MARKUP.concat());
    found.embeddings = Embeddings::Unknown(MARKUP.concat());
    example.explained = Some(found);
    Document { model: MARKUP.concat(), engine: MARKUP.concat(), examples: vec![example] }
}
