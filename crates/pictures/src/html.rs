//! A self-contained page of HTML with numbers, style and script, which loads nothing from the
//! network.

use crate::error::{Error, ErrorKind, Result};
use crate::markup::escaped;
use crate::pack::{self, Packed};
use crate::{Attention, Document, ramp};
use serde::{Deserialize, Serialize};

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(include_str!("page/steps.js"), include_str!("page/page.js"));

/// The delimiters of the numbers.
const DATA: [&str; 2] = ["<script type=\"application/json\" id=\"data\">", "</script>"];

/// The maximum number of characters of a page's weights; for longer texts only the largest weights
/// of each row are kept.
const MOST: usize = 8_000_000;

/// The data of a page.
#[derive(Serialize, Deserialize)]
struct Data {
    #[serde(flatten)]
    document: Document<Packed>,
    /// Colours of weights from 0 to the largest.
    ramps: Option<ramp::Ramps>,
}

/// The page of a document.
///
/// If the weights would take more than 8 MB, only the largest of each row are kept, and the page
/// says so.
pub fn html(document: &Document) -> String {
    let shapes = || {
        document
            .examples
            .iter()
            .flat_map(|example| Attention::ALL.map(|attention| example.weights(attention).shape()))
    };
    let whole: usize = shapes().map(pack::whole).sum();
    let kept = (whole > MOST).then(|| pack::room(MOST, shapes().map(pack::rows).sum()));
    let packed = document.examples.iter().filter_map(|example| {
        let packed = example.map(|weights| {
            Ok(kept.map_or_else(|| Packed::whole(weights), |kept| Packed::largest(weights, kept)))
        });
        packed.ok()
    });
    let examples = packed.collect();
    let data = Data {
        document: Document {
            model: document.model.clone(),
            engine: document.engine.clone(),
            examples,
        },
        ramps: Some(ramp::Ramps::new()),
    };
    // Inside a script element `<` could end it, or begin a comment.
    let data = serde_json::to_string(&data).expect("strings and numbers").replace('<', "\\u003c");
    let first = document.examples.first().map_or("", |example| example.source.text.as_str());
    let title = escaped(&format!("Attention: {}", shortened(first)));
    let fill = [
        ("{{title}}", title.as_str()),
        ("{{style}}", STYLE),
        ("{{data}}", &data),
        ("{{script}}", SCRIPT),
    ];
    filled(PAGE, &fill)
}

/// Replaces the placeholders of a page, in their order.
pub(crate) fn filled(page: &str, fill: &[(&str, &str)]) -> String {
    let (mut filled, mut rest) = (String::new(), page);
    for (place, text) in fill {
        // Inserted text is not searched for placeholders.
        let (before, after) = rest.split_once(place).expect("the page has every placeholder");
        filled.push_str(before);
        filled.push_str(text);
        rest = after;
    }
    filled + rest
}

/// The document of a page written by [`html`]; weights that were not kept are 0.
///
/// # Errors
/// If the text is not such a page.
pub fn read_html(page: &str) -> Result<Document> {
    let wrong =
        |why: &str| Error::new(ErrorKind::Page, format!("expected a page of attentions, {why}"));
    let data = page
        .split_once(DATA[0])
        .and_then(|(_, rest)| rest.split_once(DATA[1]))
        .ok_or_else(|| wrong("found no numbers in it"))?
        .0;
    let data: Data = serde_json::from_str(data)
        .map_err(|error| wrong(&format!("whose numbers cannot be read: {error}")))?;
    let Document { model, engine, examples } = data.document;
    let examples =
        examples.iter().map(|example| example.map(Packed::weights)).collect::<Result<_>>()?;
    let document = Document { model, engine, examples };
    document.check()?;
    Ok(document)
}

/// The beginning of a long text.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
