//! A line of text as glyphs of DejaVu Sans, which is built in.
//!
//! Latin, Greek and Cyrillic letters are placed by their advances. Other text is shaped: combining
//! accents, joined Arabic letters, and right-to-left runs (Unicode's bidirectional algorithm, UAX
//! 9).

use rustybuzz::{Direction, Face, UnicodeBuffer, shape};
use std::ops::Range;
use std::sync::LazyLock;
use tiny_skia::{Path, PathBuilder};
use ttf_parser::{GlyphId, OutlineBuilder};
use unicode_bidi::BidiInfo;

static FACE: LazyLock<Face<'static>> =
    LazyLock::new(|| Face::from_slice(dejavu::sans::regular(), 0).expect("the font is whole"));

/// The first combining accent: this and later characters need shaping.
const FIRST_SHAPED: char = '\u{300}';
/// Greek and Cyrillic letters, which need no shaping.
const UNSHAPED: Range<char> = '\u{370}'..'\u{483}';

/// A glyph and its position on a base line, in units of the font; `y` grows upwards.
struct Glyph {
    id: GlyphId,
    at: [i32; 2],
}

/// A text's glyphs and its width.
fn glyphs(text: &str) -> (Vec<Glyph>, i32) {
    let (mut found, mut x) = (Vec::new(), 0);
    if !text.chars().any(wants_shaping) {
        for character in text.chars() {
            let id = FACE.glyph_index(character).unwrap_or(GlyphId(0));
            found.push(Glyph { id, at: [x, 0] });
            x += i32::from(FACE.glyph_hor_advance(id).unwrap_or(0));
        }
        return (found, x);
    }
    let line = BidiInfo::new(text, None);
    for paragraph in &line.paragraphs {
        let (levels, runs) = line.visual_runs(paragraph, paragraph.range.clone());
        for run in runs {
            let mut buffer = UnicodeBuffer::new();
            buffer.push_str(&text[run.clone()]);
            buffer.guess_segment_properties();
            buffer.set_direction(if levels[run.start].is_rtl() {
                Direction::RightToLeft
            } else {
                Direction::LeftToRight
            });
            let shaped = shape(&FACE, &[], buffer);
            for (info, position) in shaped.glyph_infos().iter().zip(shaped.glyph_positions()) {
                // The font has fewer than 2^16 glyphs.
                let id = GlyphId(info.glyph_id as u16);
                found.push(Glyph { id, at: [x + position.x_offset, position.y_offset] });
                x += position.x_advance;
            }
        }
    }
    (found, x)
}

fn wants_shaping(character: char) -> bool {
    // Symbols such as ▁ and → need no shaping.
    character >= FIRST_SHAPED
        && !UNSHAPED.contains(&character)
        && !matches!(character, '\u{2010}'..='\u{27ff}')
}

/// The width of a text in a font of this size.
pub(crate) fn width(text: &str, size: f32) -> f32 {
    glyphs(text).1 as f32 * scale(size)
}

/// Whether the font has no glyph for a character.
pub(crate) fn lacks(character: char) -> bool {
    FACE.glyph_index(character).is_none()
}

/// A text as one path that starts at 0 on the base line.
pub(crate) fn outline(text: &str, size: f32) -> Option<Path> {
    let mut pen = Pen { path: PathBuilder::new(), scale: scale(size), from: [0.0; 2] };
    for Glyph { id, at } in glyphs(text).0 {
        pen.from = at.map(|length| length as f32);
        FACE.outline_glyph(id, &mut pen);
    }
    pen.path.finish()
}

/// Points per unit of the font.
fn scale(size: f32) -> f32 {
    size / FACE.units_per_em() as f32
}

/// Converts the font's outlines, whose `y` grows upwards.
struct Pen {
    path: PathBuilder,
    scale: f32,
    from: [f32; 2],
}

impl Pen {
    fn at(&self, x: f32, y: f32) -> [f32; 2] {
        [(self.from[0] + x) * self.scale, -(self.from[1] + y) * self.scale]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Glyphs and positions of HarfBuzz 15.0 (uharfbuzz 0.57) for the runs of each text, in visual
    /// order.
    #[test]
    fn accents_joins_and_directions() {
        /// A text, its glyphs with their places, and where it ends.
        type Case = (&'static str, &'static [(u16, i32)], i32);
        let cases: [Case; 4] = [
            ("▁e\u{301}a\u{323}\u{302}", &[(3673, 0), (171, 1575), (2475, 2835)], 4090),
            (
                "▁مرحبا",
                &[(5256, 0), (5260, 624), (5277, 1242), (5288, 2508), (5341, 3638), (3673, 4735)],
                6310,
            ),
            ("▁שלום", &[(1332, 0), (1324, 1359), (1331, 1917), (1344, 3081), (3673, 4532)], 6107),
            (
                "ab شمس cd",
                &[
                    (68, 0),
                    (69, 1255),
                    (3, 2555),
                    (5292, 3206),
                    (5342, 5817),
                    (5297, 7001),
                    (3, 8717),
                    (70, 9368),
                    (71, 10494),
                ],
                11_794,
            ),
        ];
        for (text, expected, reach) in cases {
            let (found, x) = glyphs(text);
            let found: Vec<_> = found.iter().map(|glyph| (glyph.id.0, glyph.at[0])).collect();
            assert_eq!((&found[..], x), (expected, reach), "{text}");
        }
    }

    #[test]
    fn usual_text_has_the_advances_of_its_letters() {
        let (found, x) = glyphs("▁Жλ→é");
        assert!(
            found.iter().all(|glyph| glyph.id.0 != 0)
                && x == found.last().map_or(0, |last| last.at[0]) + 1260,
            "{x}"
        );
    }
}
