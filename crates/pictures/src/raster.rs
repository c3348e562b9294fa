//! Drawings as pixels, with a built-in font.

use crate::error::{Error, ErrorKind, Result};
use crate::glyphs::{lacks, outline, width};
use crate::{Anchor, Drawing, Shape};
use std::collections::BTreeSet;
use tiny_skia::{
    BlendMode, FillRule, FilterQuality, Paint, PathBuilder, Pixmap, PixmapPaint, Rect, Stroke,
    StrokeDash, Transform,
};

/// The maximum number of pixels of a picture.
const MOST: f32 = 24e6;

impl Drawing {
    /// The drawing as PNG with `scale` pixels per point, and at most 24 million pixels.
    ///
    /// The font is DejaVu Sans; characters that it lacks become boxes, see [`Drawing::lacks`].
    ///
    /// # Errors
    /// If the drawing is empty.
    pub fn to_png(&self, scale: f32) -> Result<Vec<u8>> {
        png(self, scale)
    }

    /// The characters that a PNG shows as boxes.
    pub fn lacks(&self) -> Vec<char> {
        let words = self.shapes.iter().filter_map(|shape| match shape {
            Shape::Text { text, .. } => Some(text.as_str()),
            Shape::Rectangle { .. } | Shape::Line { .. } | Shape::Image { .. } => None,
        });
        lacking(words)
    }
}

/// The characters without a glyph.
fn lacking<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<char> {
    let characters: BTreeSet<char> = texts.flat_map(str::chars).collect();
    characters.into_iter().filter(|&character| lacks(character)).collect()
}

fn png(drawing: &Drawing, scale: f32) -> Result<Vec<u8>> {
    let [width, height] = drawing.size;
    let scale = scale.min((MOST / (width * height)).sqrt());
    let pixels = |length: f32| (length * scale).round() as u32;
    let no_room = || {
        Error::new(
            ErrorKind::Raster,
            format!("a picture of {width} by {height} points cannot be painted; write an SVG"),
        )
    };
    let mut pixmap = Pixmap::new(pixels(width), pixels(height)).ok_or_else(no_room)?;
    pixmap.fill(tiny_skia::Color::WHITE);
    let whole = Transform::from_scale(scale, scale);
    for shape in &drawing.shapes {
        match shape {
            Shape::Rectangle { at: [x, y], size: [width, height], colour, .. } => {
                if let Some(place) = Rect::from_xywh(*x, *y, *width, *height) {
                    pixmap.fill_rect(place, &paint(*colour, 1.0), whole, None);
                }
            }
            Shape::Line { points, width, colour, opacity, dashes } => {
                let mut path = PathBuilder::new();
                for (index, [x, y]) in points.iter().enumerate() {
                    if index == 0 { path.move_to(*x, *y) } else { path.line_to(*x, *y) }
                }
                if let Some(path) = path.finish() {
                    let dash = dashes.and_then(|dashes| StrokeDash::new(dashes.to_vec(), 0.0));
                    let stroke = Stroke { width: *width, dash, ..Stroke::default() };
                    pixmap.stroke_path(&path, &paint(*colour, *opacity), &stroke, whole, None);
                }
            }
            Shape::Image { at: [x, y], size: [width, height], png } => {
                let image = decoded(png)?;
                let scales = [width / image.width() as f32, height / image.height() as f32];
                let place = whole.pre_translate(*x, *y).pre_scale(scales[0], scales[1]);
                pixmap.draw_pixmap(0, 0, image.as_ref(), &SMOOTH, place, None);
            }
            Shape::Text { at: [x, y], size, anchor, turned, colour, text } => {
                let share = match anchor {
                    Anchor::Start => 0.0,
                    Anchor::Middle => 0.5,
                    Anchor::End => 1.0,
                };
                let before = crate::glyphs::width(text, *size) * share;
                if let Some(path) = outline(text, *size) {
                    let place =
                        whole.pre_translate(*x, *y).pre_rotate(*turned).pre_translate(-before, 0.0);
                    pixmap.fill_path(&path, &paint(*colour, 1.0), FillRule::Winding, place, None);
                }
            }
        }
    }
    encoded(&pixmap)
}

pub(crate) fn encoded(pixmap: &Pixmap) -> Result<Vec<u8>> {
    pixmap.encode_png().map_err(|error| Error::new(ErrorKind::Raster, error.to_string()))
}

pub(crate) fn decoded(png: &[u8]) -> Result<Pixmap> {
    Pixmap::decode_png(png)
        .map_err(|error| Error::new(ErrorKind::Raster, format!("the picture is no PNG: {error}")))
}

/// Scales pictures without visible steps.
pub(crate) const SMOOTH: PixmapPaint = PixmapPaint {
    opacity: 1.0,
    blend_mode: BlendMode::SourceOver,
    quality: FilterQuality::Bilinear,
};

pub(crate) fn paint([red, green, blue]: [u8; 3], opacity: f32) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, (opacity.clamp(0.0, 1.0) * 255.0).round() as u8);
    paint
}

/// The text, shortened to fit.
pub(crate) fn fitted(text: &str, room: f32, size: f32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let ends: Vec<usize> = text.char_indices().map(|(end, _)| end).collect();
    let fits = ends.partition_point(|&end| width(&text[..end], size) + width("…", size) <= room);
    format!("{}…", &text[..ends[fits.saturating_sub(1)]])
}
