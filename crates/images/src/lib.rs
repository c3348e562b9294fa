//! From picture files to the input of a vision Transformer.
//!
//! [`Image`] decodes PNG and JPEG to RGB as Pillow's `convert("RGB")` does; [`ImageProcessor`]
//! resizes, crops and normalises it as transformers' `ViTImageProcessor` and `DeiTImageProcessor`
//! do.
//!
//! This crate does not depend on models or engines.
//!
//! ```no_run
//! use cognate_images::{Image, ImageProcessor};
//!
//! let processor = ImageProcessor::from_json(r#"{"size": 224}"#, "preprocessor_config.json")?;
//! let pixels = processor.pixel_values(&Image::open("dog.jpg".as_ref())?);
//! assert_eq!(pixels.dim(), (3, 224, 224));
//! # Ok::<(), cognate_images::Error>(())
//! ```

mod decode;
mod error;
mod image;
mod processor;
mod resize;

pub use error::{Error, ErrorKind, Result};
pub use image::Image;
pub use processor::ImageProcessor;
