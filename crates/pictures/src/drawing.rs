//! A drawing of rectangles, lines and text, written as SVG or PNG.
//!
//! Lengths are in points of SVG; `y` grows downwards.

use crate::markup::{data_url, escaped};
use std::borrow::Cow;
use std::fmt::Write;

/// A drawing.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawing {
    /// Width and height.
    pub size: [f32; 2],
    /// Its description for accessibility.
    pub title: String,
    /// Its shapes in the order of painting.
    pub shapes: Vec<Shape>,
}

/// A shape of a drawing; colours are red, green and blue.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// A filled rectangle.
    Rectangle {
        /// Its upper left corner.
        at: [f32; 2],
        /// Its width and height.
        size: [f32; 2],
        /// Its colour.
        colour: [u8; 3],
        /// The tooltip in an SVG.
        label: Option<String>,
    },
    /// A line through points.
    Line {
        /// Its points.
        points: Vec<[f32; 2]>,
        /// Its thickness.
        width: f32,
        /// Its colour.
        colour: [u8; 3],
        /// From 0 to 1.
        opacity: f32,
        /// The lengths of its dashes and gaps.
        dashes: Option<[f32; 2]>,
    },
    /// A picture.
    Image {
        /// Its upper left corner.
        at: [f32; 2],
        /// Its width and height.
        size: [f32; 2],
        /// A PNG.
        png: Vec<u8>,
    },
    /// A line of text.
    Text {
        /// The start, middle or end of its base line.
        at: [f32; 2],
        /// The size of its font.
        size: f32,
        /// The part at `at`.
        anchor: Anchor,
        /// The clockwise rotation around `at` in degrees.
        turned: f32,
        /// Its colour.
        colour: [u8; 3],
        /// The text.
        text: String,
    },
}

/// The part of a text at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The start.
    Start,
    /// The middle.
    Middle,
    /// The end.
    End,
}

impl Drawing {
    /// The drawing as SVG. Text is shown in the viewer's fonts.
    pub fn to_svg(&self) -> String {
        let ([width, height], title) = (self.size, escaped(&self.title));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
             role=\"img\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
        );
        for shape in &self.shapes {
            // Writing to a string cannot fail.
            let _ = match shape {
                Shape::Rectangle { at: [x, y], size: [width, height], colour, label } => {
                    let label = label.as_ref().map_or(String::new(), |label| {
                        format!("<title>{}</title>", escaped(label))
                    });
                    writeln!(
                        svg,
                        "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{}\">{label}</rect>",
                        hexadecimal(*colour)
                    )
                }
                Shape::Line { points, width, colour, opacity, dashes } => {
                    let points: Vec<_> =
                        points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
                    let dashes = dashes.map_or(String::new(), |[on, off]| {
                        format!(" stroke-dasharray=\"{on} {off}\"")
                    });
                    writeln!(
                        svg,
                        "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width:.2}\" stroke-opacity=\"{opacity:.2}\"{dashes}/>",
                        points.join(" "),
                        hexadecimal(*colour)
                    )
                }
                Shape::Image { at: [x, y], size: [width, height], png } => writeln!(
                    svg,
                    "<image x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" href=\"{}\"/>",
                    data_url(png)
                ),
                Shape::Text { at: [x, y], size, anchor, turned, colour, text } => {
                    let turned = if *turned == 0.0 {
                        String::new()
                    } else {
                        format!(" transform=\"rotate({turned} {x:.1} {y:.1})\"")
                    };
                    let anchor = match anchor {
                        Anchor::Start => "start",
                        Anchor::Middle => "middle",
                        Anchor::End => "end",
                    };
                    writeln!(
                        svg,
                        "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{}\"{turned}>{}</text>",
                        hexadecimal(*colour),
                        escaped(&isolated(text))
                    )
                }
            };
        }
        svg + "</svg>\n"
    }
}

/// Isolates a word of a right-to-left script from its surroundings, so that the mark of its space
/// is on its right.
pub(crate) fn isolated(text: &str) -> Cow<'_, str> {
    let runs_left = |character| matches!(character, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}');
    if text.contains(runs_left) { format!("\u{2068}{text}\u{2069}").into() } else { text.into() }
}

fn hexadecimal([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}
