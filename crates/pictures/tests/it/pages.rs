//! What is in a page, and what is read back out of it.

use crate::{MARKUP, document, example, example_of_audio, markup};
use cognate_pictures::{Attention, Document, Embeddings, ErrorKind, Explained, html, read_html};

/// The largest distance between the weights of two documents.
fn distance(found: &Document, expected: &Document) -> f32 {
    let weights = |document: &Document| -> Vec<f32> {
        let of = |attention| {
            document
                .examples
                .iter()
                .flat_map(move |example| example.weights(attention).values().iter().copied())
        };
        Attention::ALL.into_iter().flat_map(of).collect()
    };
    let (found, expected) = (weights(found), weights(expected));
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn thirty_tokens_six_layers_eight_heads_are_below_a_megabyte_and_read_back() {
    let document = document(vec![example([6, 8, 30, 30])]);
    let page = html(&document);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    let found = read_html(&page).unwrap();
    assert!(distance(&found, &document) < 1e-7);
    let row: f32 =
        (0..30).map(|column| found.examples[0].cross_attentions.at([5, 7, 29, column])).sum();
    assert!((row - 1.0).abs() < 1e-5, "{row}");
    assert_eq!(found.examples[0].source, document.examples[0].source);
    assert_eq!(found.examples[0].target, document.examples[0].target);
    assert_eq!(found.examples[0].explained, document.examples[0].explained);
}

#[test]
fn an_attention_that_is_not_known_is_read_back_as_such() {
    let document = document(vec![example_of_audio()]);
    assert_eq!(
        read_html(&html(&document)).unwrap().examples[0].source,
        document.examples[0].source
    );
    let found: Document = serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
    assert!(distance(&found, &document) < 1e-7);
    found.check().unwrap();
    assert_eq!(found.examples[0].explained.as_ref().unwrap().layers[0], []);
}

#[test]
fn two_sentences_are_below_a_megabyte_too() {
    let document = document(vec![example([6, 8, 28, 30]), example([6, 8, 28, 25])]);
    let page = html(&document);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(distance(&read_html(&page).unwrap(), &document) < 1e-7);
}

#[test]
fn a_long_text_keeps_the_largest_weights_of_each_row() {
    let document = document(vec![example([6, 8, 500, 480])]);
    let page = html(&document);
    assert!(page.len() < 9_000_000, "{} bytes", page.len());
    let found = read_html(&page).unwrap();
    for attention in Attention::ALL {
        let (found, expected) =
            (found.examples[0].weights(attention), document.examples[0].weights(attention));
        let columns = expected.shape()[3];
        for (found, expected) in
            found.values().chunks(columns).zip(expected.values().chunks(columns)).step_by(97)
        {
            let least =
                found.iter().copied().filter(|&weight| weight > 0.0).fold(f32::INFINITY, f32::min);
            let n_kept = found.iter().filter(|&&weight| weight > 0.0).count();
            let n_larger = expected.iter().filter(|&&weight| weight > least + 1e-7).count();
            assert!(n_larger < n_kept, "{n_larger} are larger than the least of {n_kept}");
            let is_close =
                |(&found, &expected): (&f32, &f32)| found == 0.0 || (found - expected).abs() < 1e-7;
            assert!(found.iter().zip(expected).all(is_close));
        }
    }
}

#[test]
fn markup_is_text() {
    let document = markup();
    let page = html(&document);
    // Those of the page itself: its numbers and its script.
    assert_eq!(page.matches("</script").count(), 2);
    assert_eq!(page.matches("<!--").count(), 0);
    for text in ["<b id", "<img"] {
        assert!(!page.contains(text), "{text}");
    }
    let found = read_html(&page).unwrap();
    assert_eq!(found.examples[0].source, document.examples[0].source);
    assert_eq!(found.model, MARKUP.concat());
    assert!(distance(&found, &document) < 1e-7);
}

#[test]
fn a_page_asks_the_network_for_nothing() {
    let page = html(&document(vec![example([2, 2, 3, 3])]));
    for text in ["http://", "https://", "src=", "@import", "url("] {
        let known = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!known.contains(text), "{text}");
    }
}

#[test]
fn json_is_read_back_whole() {
    let document = document(vec![example([2, 3, 5, 4]), example([2, 3, 4, 6])]);
    let json = serde_json::to_string(&document).unwrap();
    assert_eq!(serde_json::from_str::<Document>(&json).unwrap(), document);
}

#[test]
fn what_is_no_page_or_fits_not_is_refused() {
    let whole = document(vec![example([2, 2, 3, 4])]);
    let page = html(&whole);
    let cases = [
        ("<p>Hello", "expected a page of attentions, found no numbers in it"),
        (
            &page.replace("\"kept\":null", "\"kept\":3"),
            "the page's weights are damaged; write it again",
        ),
        (
            &page.replace("▁target3", "\\"),
            "expected a page of attentions, whose numbers cannot be read",
        ),
    ];
    for (text, expected) in cases {
        let error = read_html(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Page);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let mut short = whole.clone();
    short.examples[0].source.tokens.pop();
    let error = short.check().unwrap_err();
    assert_eq!(
        error.to_string(),
        "example 1: encoder self-attention: expected weights [2, 2, 2, 2], found [2, 2, 3, 3]"
    );
    /// What is done to a document, and what is said of it.
    type Damage = (fn(&mut Explained), &'static str);
    let damages: [Damage; 4] = [
        (|explained| drop(explained.steps.pop()), "expected 4 steps, found 3"),
        (|explained| explained.steps[1].looks_at[0].0 = 9, "expected places below 3, found 9"),
        (|explained| explained.embeddings = Embeddings::Unknown(String::new()), ""),
        (
            |explained| {
                explained.beams.iter_mut().for_each(|beams| beams.nodes[2].parent = Some(2))
            },
            "token 2 of the tree: its parent or its hypothesis is missing",
        ),
    ];
    for (damage, expected) in damages {
        let mut wrong = whole.clone();
        wrong.examples[0].explained.iter_mut().for_each(damage);
        let found = wrong.check().err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(found.strip_prefix("example 1: step by step: ").unwrap_or(&found), expected);
    }
    assert_eq!(
        document(Vec::new()).check().unwrap_err().to_string(),
        "expected an example, found none"
    );
}
