//! Diagrams as a self-contained page of HTML with boxes that open.

use super::Diagram;
use crate::html::filled;
use crate::markup::escaped;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Diagram {
    /// The page.
    pub fn to_html(&self) -> String {
        // Inside a script element `<` could end it, or begin a comment.
        let data =
            serde_json::to_string(self).expect("strings and numbers").replace('<', "\\u003c");
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
