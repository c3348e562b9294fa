//! One head of one layer as a figure: lines between tokens, or a heat map; several sentences side
//! by side.

use crate::drawing::{Anchor, Drawing, Shape, isolated};
use crate::error::{Error, ErrorKind, Result};
use crate::{Attention, Document, Example, SourcePicture, Token, Weights, glyphs, ramp, raster};

/// A figure of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The attention.
    pub attention: Attention,
    /// The layer, from 0.
    pub layer: usize,
    /// The head.
    pub head: Head,
    /// The kind of picture.
    pub picture: Picture,
}

/// A head of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A head, from 0.
    One(usize),
    /// The mean of all heads.
    Mean,
}

/// A kind of picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Picture {
    /// Tokens on two sides, with lines between them whose width is the weight. If the source is a
    /// picture, it is drawn for each token of the target, paler where its weights are smaller.
    Lines,
    /// A cell for each pair of tokens.
    HeatMap,
}

const INK: [u8; 3] = [28, 29, 33];
const SOFT: [u8; 3] = [92, 95, 104];
const LINE: [u8; 3] = [29, 79, 163];
const FONT: f32 = 13.0;
const MARGIN: f32 = 14.0;
/// Height of the heading.
const HEADING: f32 = 52.0;
/// The maximum width of a token.
const WIDEST: f32 = 180.0;
/// The maximum number of lines; the thickest are drawn.
const MOST_LINES: usize = 4000;
/// Smaller weights have no line.
const LEAST: f32 = 0.01;

impl Figure {
    /// The drawing.
    ///
    /// # Errors
    /// If the document is not consistent, or has no such layer or head.
    pub fn draw(&self, document: &Document) -> Result<Drawing> {
        document.check()?;
        let (mut shapes, mut left, mut bottom) = (Vec::new(), 0.0f32, 0.0f32);
        let mut titles = Vec::new();
        let frame = self.frame(document)?;
        for example in &document.examples {
            let part = self.part(example, frame)?;
            shapes.extend(part.shapes.into_iter().map(|shape| moved(shape, left)));
            left += part.size[0];
            bottom = bottom.max(part.size[1]);
            titles.push(part.title);
        }
        Ok(Drawing { size: [left.ceil(), bottom.ceil()], title: titles.join("; "), shapes })
    }

    /// The scale that all sentences share.
    fn frame(&self, document: &Document) -> Result<Frame> {
        let mut frame = Frame { largest: f32::MIN_POSITIVE, widths: [0.0; 2] };
        for example in &document.examples {
            frame.largest = self
                .map(example.weights(self.attention))?
                .into_iter()
                .fold(frame.largest, f32::max);
            for (width, words) in frame.widths.iter_mut().zip(example.words(self.attention)) {
                *width = width.max(widest(words));
            }
        }
        Ok(frame)
    }

    fn part(&self, example: &Example, frame: Frame) -> Result<Drawing> {
        let weights = example.weights(self.attention);
        let map = self.map(weights)?;
        let words = example.words(self.attention);
        let mut drawing = match (self.picture, self.attention, &example.source.picture) {
            (Picture::Lines, Attention::Cross, Some(picture)) => tiles(&map, words, picture)?,
            (Picture::Lines, Attention::Encoder, Some(_)) => {
                let message =
                    "the encoder's attention over a picture: expected a heat map, or the page";
                return Err(Error::new(ErrorKind::Choice, message));
            }
            (Picture::Lines, ..) => lines(&map, words, frame),
            (Picture::HeatMap, ..) => heat_map(&map, words, frame),
        };
        let head = match self.head {
            Head::One(head) => format!("head {}", head + 1),
            Head::Mean => "mean of the heads".into(),
        };
        let title = format!("{}, layer {}, {head}", self.attention.title(), self.layer + 1);
        let sentence =
            raster::fitted(&example.source.text, (drawing.size[0] - 2.0 * MARGIN).max(200.0), FONT);
        for (y, size, colour, text) in [(20.0, FONT, INK, &sentence), (37.0, 11.0, SOFT, &title)] {
            drawing.size[0] = drawing.size[0].max(glyphs::width(text, size) + 2.0 * MARGIN);
            let anchor = Anchor::Start;
            drawing.shapes.push(Shape::Text {
                at: [MARGIN, y],
                size,
                anchor,
                turned: 0.0,
                colour,
                text: text.clone(),
            });
        }
        drawing.title = format!("{title}: {}", example.source.text);
        Ok(drawing)
    }

    /// The weights `[rows, columns]`.
    fn map(&self, weights: &Weights) -> Result<Vec<f32>> {
        let [layers, heads, ..] = weights.shape();
        let refuse = |what: &str, number: usize, n: usize| {
            Err(Error::new(
                ErrorKind::Choice,
                format!("{what} {number}: expected 1 to {n}, those of the model"),
            ))
        };
        match self.head {
            _ if layers == 0 => {
                let message = format!(
                    "{}: its weights are not known; choose another attention",
                    self.attention.title().to_lowercase()
                );
                Err(Error::new(ErrorKind::Choice, message))
            }
            _ if self.layer >= layers => refuse("layer", self.layer + 1, layers),
            Head::One(head) if head >= heads => refuse("head", head + 1, heads),
            Head::One(head) => Ok(weights.head(self.layer, head).to_vec()),
            Head::Mean => Ok(weights.mean(self.layer)),
        }
    }
}

/// The scale that the drawings of several sentences share.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// The weight of the darkest colour.
    largest: f32,
    /// The widths of the widest tokens of rows and columns.
    widths: [f32; 2],
}

/// The headings of a drawing of lines.
const HEADINGS: [&str; 2] = ["token", "attends to"];

fn lines(map: &[f32], [rows, columns]: [&[Token]; 2], frame: Frame) -> Drawing {
    const STEP: f32 = 21.0;
    const GAP: f32 = 170.0;
    let headings = HEADINGS.map(|heading| glyphs::width(heading, 11.0));
    let [row_width, column_width] = [0, 1].map(|side| frame.widths[side].max(headings[side]));
    let (left, right) = (MARGIN + row_width + 7.0, MARGIN + row_width + 7.0 + GAP);
    let y = |index: usize| HEADING + 24.0 + STEP * index as f32;
    let mut drawn: Vec<usize> = (0..map.len()).filter(|&index| map[index] >= LEAST).collect();
    drawn.sort_by(|&a, &b| map[a].total_cmp(&map[b]));
    drawn.drain(..drawn.len().saturating_sub(MOST_LINES));
    let mut shapes: Vec<Shape> = drawn
        .into_iter()
        .map(|index| {
            let ends =
                [[left, y(index / columns.len()) - 4.5], [right, y(index % columns.len()) - 4.5]];
            Shape::Line {
                points: ends.into(),
                width: 0.3 + 9.7 * map[index],
                colour: LINE,
                opacity: 0.22 + 0.6 * map[index],
                dashes: None,
            }
        })
        .collect();
    let mut word = |at, anchor, size, colour, text: String| {
        shapes.push(Shape::Text { at, size, anchor, turned: 0.0, colour, text })
    };
    word([left - 7.0, HEADING + 2.0], Anchor::End, 11.0, SOFT, HEADINGS[0].into());
    word([right + 7.0, HEADING + 2.0], Anchor::Start, 11.0, SOFT, HEADINGS[1].into());
    for (index, token) in rows.iter().enumerate() {
        word(
            [left - 7.0, y(index)],
            Anchor::End,
            FONT,
            INK,
            raster::fitted(&token.piece, WIDEST, FONT),
        );
    }
    for (index, token) in columns.iter().enumerate() {
        word(
            [right + 7.0, y(index)],
            Anchor::Start,
            FONT,
            INK,
            raster::fitted(&token.piece, WIDEST, FONT),
        );
    }
    let size =
        [right + 7.0 + column_width + MARGIN, y(rows.len().max(columns.len())) - STEP + 16.0];
    Drawing { size, title: String::new(), shapes }
}

/// The picture for each row of the map.
fn tiles(map: &[f32], [rows, columns]: [&[Token]; 2], picture: &SourcePicture) -> Result<Drawing> {
    const GAP: f32 = 10.0;
    let image = picture.pixels()?;
    // A strip, as the spectrogram of audio, has a row for itself.
    let (side, most_across) =
        if image.width() > 4 * image.height() { (630.0, 1) } else { (150.0, 6) };
    let size = [side, side * image.height() as f32 / image.width() as f32];
    let step = [size[0] + GAP, size[1] + 24.0];
    let largest = map
        .chunks(columns.len())
        .flat_map(|row| picture.cells_of(row))
        .copied()
        .fold(f32::MIN_POSITIVE, f32::max);
    let mut shapes = Vec::new();
    for (index, (token, row)) in rows.iter().zip(map.chunks(columns.len())).enumerate() {
        let at = [
            MARGIN + step[0] * (index % most_across) as f32,
            HEADING + step[1] * (index / most_across) as f32,
        ];
        let shares: Vec<_> = picture.cells_of(row).iter().map(|weight| weight / largest).collect();
        shapes.push(Shape::Image {
            at,
            size,
            png: picture.paler(&image, &shares, 2 * side as u32)?,
        });
        let (at, text) = (
            [at[0] + size[0] / 2.0, at[1] + size[1] + 14.0],
            raster::fitted(&token.piece, side, FONT),
        );
        shapes.push(Shape::Text {
            at,
            size: FONT,
            anchor: Anchor::Middle,
            turned: 0.0,
            colour: INK,
            text,
        });
    }
    let across = rows.len().clamp(1, most_across) as f32;
    let down = rows.len().div_ceil(most_across) as f32;
    let size = [2.0 * MARGIN + step[0] * across - GAP, HEADING + step[1] * down + MARGIN];
    Ok(Drawing { size, title: String::new(), shapes })
}

fn heat_map(map: &[f32], [rows, columns]: [&[Token]; 2], frame: Frame) -> Drawing {
    let cell = if rows.len().max(columns.len()) > 60 { 18.0 } else { 30.0 };
    let Frame { largest, widths: [row_width, column_width] } = frame;
    // Tokens above columns are rotated by 60 degrees.
    let (x0, y0) = (MARGIN + row_width + 7.0, HEADING + column_width * 0.87 + 10.0);
    let mut shapes = Vec::new();
    for (index, &weight) in map.iter().enumerate() {
        let (row, column) = (index / columns.len(), index % columns.len());
        let at = [x0 + cell * column as f32, y0 + cell * row as f32];
        let share = weight / largest;
        let colour = ramp::light(share);
        let [from, to] = [&rows[row], &columns[column]].map(|token| isolated(&token.piece));
        let label = Some(format!("{from} → {to}: {weight:.4}"));
        shapes.push(Shape::Rectangle { at, size: [cell - 1.0; 2], colour, label });
        if cell >= 26.0 && weight >= 0.005 {
            let text =
                if weight >= 0.995 { "1.0".into() } else { format!("{weight:.2}")[1..].to_owned() };
            let colour = if ramp::is_dark(colour) { [255; 3] } else { [0; 3] };
            let at = [at[0] + (cell - 1.0) / 2.0, at[1] + cell / 2.0 + 3.5];
            shapes.push(Shape::Text {
                at,
                size: 10.0,
                anchor: Anchor::Middle,
                turned: 0.0,
                colour,
                text,
            });
        }
    }
    for (index, token) in rows.iter().enumerate() {
        let (at, text) = (
            [x0 - 7.0, y0 + cell * (index as f32 + 0.5) + 4.5],
            raster::fitted(&token.piece, WIDEST, FONT),
        );
        shapes.push(Shape::Text {
            at,
            size: FONT,
            anchor: Anchor::End,
            turned: 0.0,
            colour: INK,
            text,
        });
    }
    for (index, token) in columns.iter().enumerate() {
        let (at, text) = (
            [x0 + cell * (index as f32 + 0.5) + 4.0, y0 - 6.0],
            raster::fitted(&token.piece, WIDEST, FONT),
        );
        shapes.push(Shape::Text {
            at,
            size: FONT,
            anchor: Anchor::Start,
            turned: -60.0,
            colour: INK,
            text,
        });
    }
    // The legend.
    let y = y0 + cell * rows.len() as f32 + 10.0;
    const STEPS: usize = 60;
    for step in 0..STEPS {
        let colour = ramp::light(step as f32 / (STEPS - 1) as f32);
        // They overlap, so that there are no gaps.
        let size = [2.0 * (STEPS - step) as f32, 9.0];
        shapes.push(Shape::Rectangle {
            at: [x0 + 2.0 * step as f32, y],
            size,
            colour,
            label: None,
        });
    }
    let ends = [
        (x0 - 5.0, Anchor::End, "0".to_owned()),
        (x0 + 2.0 * STEPS as f32 + 5.0, Anchor::Start, format!("{largest:.3}")),
    ];
    for (x, anchor, text) in ends {
        shapes.push(Shape::Text {
            at: [x, y + 8.5],
            size: 11.0,
            anchor,
            turned: 0.0,
            colour: SOFT,
            text,
        });
    }
    let width = (cell * columns.len() as f32 + column_width * 0.5).max(2.0 * STEPS as f32 + 50.0);
    Drawing { size: [x0 + width + MARGIN, y + 9.0 + MARGIN], title: String::new(), shapes }
}

fn widest(tokens: &[Token]) -> f32 {
    tokens.iter().map(|token| glyphs::width(&token.piece, FONT)).fold(0.0, f32::max).min(WIDEST)
}

fn moved(mut shape: Shape, by: f32) -> Shape {
    match &mut shape {
        Shape::Rectangle { at, .. } | Shape::Image { at, .. } | Shape::Text { at, .. } => {
            at[0] += by
        }
        Shape::Line { points, .. } => points.iter_mut().for_each(|point| point[0] += by),
    }
    shape
}
