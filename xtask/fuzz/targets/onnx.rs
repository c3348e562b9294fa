//! ONNX graphs: validation and listing.
#![no_main]

use cognate_export::{Limits, Listing, check_model};
use cognate_fuzz::{folder, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let folder = folder(&[]);
    write(folder, "a.onnx", bytes);
    let path = folder.join("a.onnx");
    if let Ok(listing) = Listing::read(&path) {
        let _ = listing.to_string();
    }
    let _ = check_model(&path, &Limits::default());
});
