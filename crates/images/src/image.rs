//! Pictures: RGB, 8 bits per channel.

use crate::decode::{Decoded, check_size, jpeg, png};
use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum number of bytes of a file.
const LARGEST_FILE: u64 = 1 << 28;

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";
const JPEG: &[u8] = b"\xff\xd8\xff";

/// A picture: RGB, 8 bits per channel, row by row.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    /// Decodes a PNG or JPEG file, and rotates it according to its Exif data. Grey becomes RGB;
    /// alpha is dropped; of 16 bits the upper 8 are used.
    ///
    /// # Errors
    /// If the file cannot be read, is not a PNG or JPEG, is damaged or truncated, or has more than
    /// 2²⁶ pixels or channels that have no RGB form: 16-bit grey, and JPEG of 12 bits.
    pub fn open(path: &Path) -> Result<Self> {
        let place = path.display().to_string();
        let unreadable = |error: std::io::Error| Error::new(ErrorKind::Io, &place, error);
        // Opening a pipe would wait for its writer.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if metadata.len() > LARGEST_FILE {
            return Err(Error::new(
                ErrorKind::Size,
                &place,
                format_args!("the file is larger than {LARGEST_FILE} bytes"),
            ));
        }
        if !metadata.is_file() {
            return Err(Error::new(
                ErrorKind::Format,
                &place,
                "expected a PNG or JPEG file, found a folder or a device",
            ));
        }
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes))
            .map_err(unreadable)?;
        Self::decode(&bytes, &place)
    }

    /// Decodes the bytes of a PNG or JPEG file, whose name in errors is `place`.
    ///
    /// # Errors
    /// As [`Image::open`].
    pub fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        let wrong = |(kind, message): (ErrorKind, String)| Error::new(kind, place, message);
        if bytes.len() as u64 > LARGEST_FILE {
            return Err(wrong((
                ErrorKind::Size,
                format!("the file is larger than {LARGEST_FILE} bytes"),
            )));
        }
        let decoded = match bytes {
            _ if bytes.starts_with(PNG) => png(bytes),
            _ if bytes.starts_with(JPEG) => jpeg(bytes),
            [] => {
                Err((ErrorKind::Format, "expected a PNG or JPEG file, found an empty file".into()))
            }
            _ => {
                Err((ErrorKind::Format, "expected a PNG or JPEG file, found another format".into()))
            }
        };
        let Decoded { size: [width, height], pixels, orientation } = decoded.map_err(wrong)?;
        debug_assert_eq!(pixels.len(), 3 * width * height);
        Ok(Self { width, height, pixels }.turned(orientation))
    }

    /// A picture of `pixels`, `[height, width, 3]`.
    ///
    /// # Errors
    /// If there is no pixel, or the number of pixels does not match the size.
    pub fn from_rgb(width: usize, height: usize, pixels: Vec<u8>) -> Result<Self> {
        check_size(width as u64, height as u64)
            .map_err(|(kind, message)| Error::new(kind, "image", message))?;
        if pixels.len() != 3 * width * height {
            let message = format!(
                "expected {} bytes for {width} x {height} pixels, found {}",
                3 * width * height,
                pixels.len()
            );
            return Err(Error::new(ErrorKind::Data, "image", message));
        }
        Ok(Self { width, height, pixels })
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of rows.
    pub fn height(&self) -> usize {
        self.height
    }

    /// `[height, width, 3]` in row-major order.
    pub fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The upright picture, given the Exif orientation of the stored one: 1 is upright, 2 to 8 are
    /// its reflections and rotations.
    fn turned(self, orientation: u32) -> Self {
        let (is_transposed, flips_x, flips_y) = match orientation {
            2 => (false, true, false),
            3 => (false, true, true),
            4 => (false, false, true),
            5 => (true, false, false),
            6 => (true, true, false),
            7 => (true, true, true),
            8 => (true, false, true),
            _ => return self,
        };
        let [width, height] =
            if is_transposed { [self.height, self.width] } else { [self.width, self.height] };
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for y in 0..height {
            for x in 0..width {
                let (x, y) = (
                    if flips_x { width - 1 - x } else { x },
                    if flips_y { height - 1 - y } else { y },
                );
                let (x, y) = if is_transposed { (y, x) } else { (x, y) };
                pixels.extend_from_slice(&self.pixels[3 * (y * self.width + x)..][..3]);
            }
        }
        Self { width, height, pixels }
    }
}

impl AsRef<Image> for Image {
    fn as_ref(&self) -> &Image {
        self
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Image")
            .field("width", &self.width)
            .field("height", &self.height)
            .finish_non_exhaustive()
    }
}
