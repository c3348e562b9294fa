//! Drawings as pixels, with DejaVu Sans, which is built in: the same on every system.
//!
//! Glyphs stand one after the other, each with its own advance. Scripts whose letters join, and those that run from right to left,
//! want an SVG.

use crate::error::{Error, ErrorKind, Result};
use crate::{Anchor, Drawing, Shape};
use std::collections::BTreeSet;
use tiny_skia::{FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, Transform};
use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Pixels of a picture, at most.
const MOST: f32 = 24e6;

fn face() -> Face<'static> {
    Face::parse(dejavu::sans::regular(), 0).expect("the font is whole")
}

/// The width of a text in a font of this size.
pub(crate) fn width(text: &str, size: f32) -> f32 {
    let face = face();
    let advance = |character| face.glyph_hor_advance(face.glyph_index(character).unwrap_or(GlyphId(0))).unwrap_or(0);
    text.chars().map(|character| f32::from(advance(character))).sum::<f32>() * size / f32::from(face.units_per_em())
}

/// The text, or as much of its beginning as fits.
pub(crate) fn fitted(text: &str, room: f32, size: f32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let ends: Vec<usize> = text.char_indices().map(|(end, _)| end).collect();
    let fits = ends.partition_point(|&end| width(&text[..end], size) + width("…", size) <= room);
    format!("{}…", &text[..ends[fits.saturating_sub(1)]])
}

/// What the font has no glyph for.
pub(crate) fn lacking<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<char> {
    let face = face();
    let characters: BTreeSet<char> = texts.flat_map(str::chars).collect();
    characters.into_iter().filter(|&character| face.glyph_index(character).is_none()).collect()
}

pub(crate) fn png(drawing: &Drawing, scale: f32) -> Result<Vec<u8>> {
    let [width, height] = drawing.size;
    let scale = scale.min((MOST / (width * height)).sqrt());
    let pixels = |length: f32| (length * scale).round() as u32;
    let no_room = || Error::new(ErrorKind::Raster, format!("a picture of {width} by {height} points cannot be painted; write an SVG"));
    let mut pixmap = Pixmap::new(pixels(width), pixels(height)).ok_or_else(no_room)?;
    pixmap.fill(tiny_skia::Color::WHITE);
    let whole = Transform::from_scale(scale, scale);
    let face = face();
    for shape in &drawing.shapes {
        match shape {
            Shape::Rectangle { at: [x, y], size: [width, height], colour, .. } => {
                if let Some(place) = Rect::from_xywh(*x, *y, *width, *height) {
                    pixmap.fill_rect(place, &paint(*colour, 1.0), whole, None);
                }
            }
            Shape::Line { ends: [from, to], width, colour, opacity } => {
                let mut path = PathBuilder::new();
                path.move_to(from[0], from[1]);
                path.line_to(to[0], to[1]);
                if let Some(path) = path.finish() {
                    let stroke = Stroke { width: *width, ..Stroke::default() };
                    pixmap.stroke_path(&path, &paint(*colour, *opacity), &stroke, whole, None);
                }
            }
            Shape::Text { at: [x, y], size, anchor, turned, colour, text } => {
                let share = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => 0.5,
                    Anchor::End => 1.0,
                };
                let before = self::width(text, *size) * share;
                if let Some(path) = outline(&face, text, *size) {
                    let place = whole.pre_translate(*x, *y).pre_rotate(*turned).pre_translate(-before, 0.0);
                    pixmap.fill_path(&path, &paint(*colour, 1.0), FillRule::Winding, place, None);
                }
            }
        }
    }
    pixmap.encode_png().map_err(|error| Error::new(ErrorKind::Raster, error.to_string()))
}

fn paint([red, green, blue]: [u8; 3], opacity: f32) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8);
    paint
}

/// A text as one path, its base line at 0.
fn outline(face: &Face<'_>, text: &str, size: f32) -> Option<Path> {
    let mut pen = Pen { path: PathBuilder::new(), scale: size / f32::from(face.units_per_em()), x: 0.0 };
    for character in text.chars() {
        let glyph = face.glyph_index(character).unwrap_or(GlyphId(0));
        face.outline_glyph(glyph, &mut pen);
        pen.x += f32::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * pen.scale;
    }
    pen.path.finish()
}

/// Takes the font's outlines, whose `y` grows upwards.
struct Pen {
    path: PathBuilder,
    scale: f32,
    x: f32,
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> [f32; 2] {
        [self.x + x * self.scale, -y * self.scale]
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        let [x, y] = self.at(x, y);
        self.path.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let [x, y] = self.at(x, y);
        self.path.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ([x1, y1], [x, y]) = (self.at(x1, y1), self.at(x, y));
        self.path.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ([x1, y1], [x2, y2], [x, y]) = (self.at(x1, y1), self.at(x2, y2), self.at(x, y));
        self.path.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.path.close();
    }
}
