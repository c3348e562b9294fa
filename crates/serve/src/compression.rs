//! Compressed requests: gzip and deflate, as `Content-Encoding` and as `grpc-encoding`.

use crate::error::Failure;
use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::Read;

/// The bytes before their compression by `coding`, of which there may be `limit`.
pub(crate) fn decompressed(
    bytes: Bytes,
    coding: Option<&HeaderValue>,
    limit: usize,
) -> Result<Bytes, Failure> {
    let coding = coding.map_or(&b"identity"[..], HeaderValue::as_bytes).to_ascii_lowercase();
    let reader: Box<dyn Read + '_> = match &coding[..] {
        b"identity" => return Ok(bytes),
        b"gzip" | b"x-gzip" => Box::new(MultiGzDecoder::new(&bytes[..])),
        b"deflate" => Box::new(ZlibDecoder::new(&bytes[..])),
        other => {
            let other = String::from_utf8_lossy(other);
            let message = format_args!("the coding: expected gzip or deflate, found {other}");
            return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
        }
    };
    let mut found = Vec::new();
    // A small body can expand to a thousand times its size.
    let read = reader.take((limit as u64).saturating_add(1)).read_to_end(&mut found);
    read.map_err(|error| Failure::bad(format_args!("the compressed body: {error}")))?;
    if found.len() > limit { Err(Failure::too_large(limit)) } else { Ok(found.into()) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::read::{GzEncoder, ZlibEncoder};

    #[test]
    fn bodies_are_decompressed_up_to_the_limit() {
        let (text, mut gzip, mut zlib) = ([b'a'; 1000], Vec::new(), Vec::new());
        GzEncoder::new(&text[..], Compression::fast()).read_to_end(&mut gzip).unwrap();
        ZlibEncoder::new(&text[..], Compression::fast()).read_to_end(&mut zlib).unwrap();
        let cut = gzip[..20].to_vec();
        let check = |bytes: &[u8], coding, limit| {
            let coding = HeaderValue::from_static(coding);
            decompressed(bytes.to_vec().into(), Some(&coding), limit)
                .map_err(|failure| failure.status.as_u16())
        };
        for (bytes, coding) in
            [(&text[..], "identity"), (&gzip, "gzip"), (&gzip, "X-GZIP"), (&zlib, "deflate")]
        {
            for limit in [1000, usize::MAX] {
                assert_eq!(check(bytes, coding, limit).unwrap(), &text[..], "{coding}");
            }
        }
        let refused = [
            check(&gzip, "gzip", 999),
            check(&zlib, "deflate", 999),
            check(&cut, "gzip", 1000),
            check(&gzip, "deflate", 1000),
            check(&gzip, "br", 1000),
        ];
        assert_eq!(refused.map(Result::unwrap_err), [413, 413, 400, 400, 415]);
    }
}
