//! Diagrams as one page of HTML in which boxes open, which asks the network for nothing.

use super::Diagram;
use crate::html::{escaped, filled};

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Diagram {
    /// The page.
    pub fn to_html(&self) -> String {
        // Within a script element `<` could end it, or begin a comment.
        let data = serde_json::to_string(self).expect("strings and numbers").replace('<', "\\u003c");
        let (title, note) = (escaped(&self.title), escaped(&self.note));
        let title = title.as_str();
        filled(
            PAGE,
            &[
                ("{{title}}", title),
                ("{{style}}", STYLE),
                ("{{heading}}", title),
                ("{{note}}", &note),
                ("{{data}}", &data),
                ("{{script}}", SCRIPT),
            ],
        )
    }
}
