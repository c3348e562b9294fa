//! A picture that the encoder reads in place of text.

use crate::error::{Error, ErrorKind, Result};
use crate::markup::{URL, data_url};
use crate::raster::{SMOOTH, decoded, encoded, paint};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tiny_skia::{IntSize, Pixmap, Rect, Transform};

/// A picture whose cells are source tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourcePicture {
    /// A PNG as a `data:` URL.
    pub image: String,
    /// The numbers of rows and columns of cells. Each cell is one source token, row by row.
    pub cells: [usize; 2],
    /// The number of source tokens before the first cell, such as a class token.
    pub leading: usize,
    /// The number of source tokens after the last cell.
    #[serde(default)]
    pub trailing: usize,
}

/// The opacity of white over a cell without weight.
const PALEST: f32 = 0.85;

impl SourcePicture {
    /// The picture of pixels in red, green and blue, row by row.
    ///
    /// # Errors
    /// If there are not three bytes for each pixel, or no pixels.
    pub fn new(
        pixels: &[u8],
        [width, height]: [usize; 2],
        cells: [usize; 2],
        [leading, trailing]: [usize; 2],
    ) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::Raster,
                format!(
                    "expected {width} x {height} pixels of 3 bytes, found {} bytes",
                    pixels.len()
                ),
            )
        };
        let opaque =
            pixels.chunks(3).flat_map(|pixel| pixel.iter().copied().chain([u8::MAX])).collect();
        let [width, height] = [width, height].map(|side| u32::try_from(side).unwrap_or(0));
        let size = IntSize::from_wh(width, height).ok_or_else(wrong)?;
        let pixmap = Pixmap::from_vec(opaque, size).ok_or_else(wrong)?;
        Ok(Self { image: data_url(&encoded(&pixmap)?), cells, leading, trailing })
    }

    fn n_cells(&self) -> Option<usize> {
        let [rows, columns] = self.cells;
        rows.checked_mul(columns)
    }

    /// The weights of the cells of a row.
    pub(crate) fn cells_of<'r>(&self, row: &'r [f32]) -> &'r [f32] {
        &row[self.leading..row.len() - self.trailing]
    }

    /// The number of source tokens.
    pub(crate) fn n_tokens(&self) -> Option<usize> {
        self.n_cells()?.checked_add(self.leading)?.checked_add(self.trailing)
    }

    pub(crate) fn pixels(&self) -> Result<Pixmap> {
        let wrong = || {
            Error::new(ErrorKind::Page, format!("picture: expected a URL that begins with {URL}"))
        };
        let png = STANDARD
            .decode(self.image.strip_prefix(URL).ok_or_else(wrong)?)
            .map_err(|_| wrong())?;
        decoded(&png)
    }

    /// A PNG of the picture in `width` pixels, paler where the shares of cells are smaller.
    pub(crate) fn paler(&self, image: &Pixmap, shares: &[f32], width: u32) -> Result<Vec<u8>> {
        let scale = width as f32 / image.width() as f32;
        let height = ((image.height() as f32 * scale).round() as u32).max(1);
        let mut tile = Pixmap::new(width, height).expect("a picture has pixels");
        tile.draw_pixmap(
            0,
            0,
            image.as_ref(),
            &SMOOTH,
            Transform::from_scale(scale, height as f32 / image.height() as f32),
            None,
        );
        let [rows, columns] = self.cells;
        // Cells end between pixels, or else lines would show where they meet.
        let edge =
            |index: usize, n: usize, length: u32| (index as f32 * length as f32 / n as f32).round();
        for (index, share) in shares.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            let [left, right] = [column, column + 1].map(|column| edge(column, columns, width));
            let [top, bottom] = [row, row + 1].map(|row| edge(row, rows, height));
            if let Some(place) = Rect::from_ltrb(left, top, right, bottom) {
                tile.fill_rect(
                    place,
                    &paint([255; 3], PALEST * (1.0 - share)),
                    Transform::identity(),
                    None,
                );
            }
        }
        encoded(&tile)
    }
}
