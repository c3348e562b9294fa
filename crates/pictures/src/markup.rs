//! Text and pictures in HTML and SVG.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The beginning of a PNG in text.
pub(crate) const URL: &str = "data:image/png;base64,";

/// Escapes text for HTML and SVG.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML has no other controls.
            '\t' | '\n' | '\r' => out.push(' '),
            control if control.is_control() || matches!(control, '\u{fffe}' | '\u{ffff}') => {
                out.push('\u{fffd}')
            }
            other => out.push(other),
        }
    }
    out
}

/// A PNG as text that pages and SVG show.
pub(crate) fn data_url(png: &[u8]) -> String {
    format!("{URL}{}", STANDARD.encode(png))
}
