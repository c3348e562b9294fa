//! Numbers for people.

/// Formats `1234567` as `1,234,567`.
pub fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let grouped = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    grouped.collect::<Vec<_>>().join(",")
}

/// Formats a size in bytes with three digits, in powers of 1000.
pub fn bytes(number: u64) -> String {
    let mut size = number as f64;
    for unit in ["B", "kB", "MB"] {
        if size < 999.5 {
            let digits = if unit == "B" || size >= 99.95 { 0 } else { 1 };
            return format!("{size:.digits$} {unit}");
        }
        size /= 1000.0;
    }
    format!("{size:.1} GB")
}
