//! PNG and JPEG files as RGB.

use crate::ErrorKind;
use std::io::Cursor;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Maximum number of pixels of a picture; decoding it takes less than 1 GB of memory.
const MOST_PIXELS: u64 = 1 << 26;

/// A kind of error and its message.
type Fault = (ErrorKind, String);

/// A decoded file.
pub(crate) struct Decoded {
    /// Width and height.
    pub(crate) size: [usize; 2],
    /// `[height, width, 3]`
    pub(crate) pixels: Vec<u8>,
    /// The orientation in Exif data; 1 is upright.
    pub(crate) orientation: u32,
}

/// Maximum number of bytes for chunks of a PNG that are not pixels.
const PNG_CHUNKS: usize = 1 << 24;

/// Decodes a PNG.
pub(crate) fn png(bytes: &[u8]) -> Result<Decoded, Fault> {
    let damaged = |error: png::DecodingError| (ErrorKind::Data, format!("PNG: {error}"));
    let mut decoder =
        png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: PNG_CHUNKS });
    decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    let header = decoder.read_header_info().map_err(damaged)?;
    check_size(header.width.into(), header.height.into())?;
    if (header.color_type, header.bit_depth) == (png::ColorType::Grayscale, png::BitDepth::Sixteen)
    {
        return Err((
            ErrorKind::Format,
            "PNG: 16-bit grey is not supported; expected 8 bits per channel, or RGB".into(),
        ));
    }
    let mut reader = decoder.read_info().map_err(damaged)?;
    let size = [reader.info().width as usize, reader.info().height as usize];
    let length = reader
        .output_buffer_size()
        .ok_or_else(|| (ErrorKind::Size, "PNG: too many pixels".to_owned()))?;
    let mut samples = vec![0; length];
    reader.next_frame(&mut samples).map_err(damaged)?;
    reader.finish().map_err(damaged)?;
    let orientation = reader.info().exif_metadata.as_ref().map_or(1, |exif| orientation(exif));
    Ok(Decoded { size, pixels: rgb(samples, reader.output_color_type().0.samples()), orientation })
}

/// Converts pixels with one to four channels to RGB: grey, grey with alpha, RGB, RGB with alpha.
fn rgb(mut samples: Vec<u8>, n_channels: usize) -> Vec<u8> {
    match n_channels {
        1 | 2 => samples.chunks_exact(n_channels).flat_map(|pixel| [pixel[0]; 3]).collect(),
        4 => {
            let n_pixels = samples.len() / 4;
            (0..n_pixels)
                .for_each(|pixel| samples.copy_within(4 * pixel..4 * pixel + 3, 3 * pixel));
            samples.truncate(3 * n_pixels);
            samples
        }
        _ => samples,
    }
}

const JPEG_SCAN: [u8; 2] = [0xff, 0xda];
const JPEG_END: [u8; 2] = [0xff, 0xd9];

/// Decodes a JPEG.
pub(crate) fn jpeg(bytes: &[u8]) -> Result<Decoded, Fault> {
    let damaged =
        |error: zune_jpeg::errors::DecodeErrors| (ErrorKind::Data, format!("JPEG: {error}"));
    let options = DecoderOptions::default()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .set_strict_mode(true)
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    // The decoder does not detect truncation in the last row of blocks.
    let last = |marker: [u8; 2]| bytes.windows(2).rposition(|pair| pair == marker);
    if last(JPEG_END) < last(JPEG_SCAN) {
        return Err((
            ErrorKind::Data,
            "JPEG: the file is truncated: its end marker is missing".into(),
        ));
    }
    decoder.decode_headers().map_err(damaged)?;
    let info = decoder.info().ok_or_else(|| (ErrorKind::Data, "JPEG: no header".to_owned()))?;
    check_size(info.width.into(), info.height.into())?;
    let orientation = decoder.exif().map_or(1, |exif| orientation(exif));
    let pixels = decoder.decode().map_err(damaged)?;
    Ok(Decoded { size: [info.width.into(), info.height.into()], pixels, orientation })
}

/// The orientation in Exif data; 1 if it is missing or damaged.
fn orientation(data: &[u8]) -> u32 {
    let exif = exif::Reader::new().read_raw(data.to_vec()).ok();
    exif.and_then(|exif| {
        exif.get_field(exif::Tag::Orientation, exif::In::PRIMARY)?.value.get_uint(0)
    })
    .unwrap_or(1)
}

/// Rejects pictures without pixels or with too many, before memory is allocated for them.
pub(crate) fn check_size(width: u64, height: u64) -> Result<(), Fault> {
    match width.checked_mul(height) {
        Some(1..=MOST_PIXELS) => Ok(()),
        _ => Err((
            ErrorKind::Size,
            format!(
                "the picture has {width} x {height} pixels; expected 1 to {MOST_PIXELS} in all"
            ),
        )),
    }
}
