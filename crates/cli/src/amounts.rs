//! Formatting and parsing of numbers.

use std::num::NonZeroUsize;
use std::time::Duration;

/// Parses a number from 1 to `largest`.
pub(crate) fn at_most(largest: usize) -> impl Fn(&str) -> Result<NonZeroUsize, String> + Clone {
    move |text| {
        let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= largest);
        number.ok_or_else(|| format!("expected a number from 1 to {largest}"))
    }
}

/// Formats `1234567` as `1,234,567`.
pub(crate) fn thousands(number: usize) -> String {
    indicatif::HumanCount(number as u64).to_string()
}

/// Formats a size in bytes with three digits, in powers of 1000.
pub(crate) fn bytes(number: u64) -> String {
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

/// Formats a duration: `0.34 s`, `12.3 s`, `3 min 20 s`.
pub(crate) fn duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        ..9.995 => format!("{seconds:.2} s"),
        ..119.95 => format!("{seconds:.1} s"),
        _ => format!("{} min {} s", time.as_secs() / 60, time.as_secs() % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        let thousands = [0, 999, 1000, 2_349_056].map(thousands);
        assert_eq!(thousands, ["0", "999", "1,000", "2,349,056"]);
        let bytes = [0, 999, 1000, 12_345, 242_000_000, 999_600_000, 2_500_000_000].map(bytes);
        assert_eq!(bytes, ["0 B", "999 B", "1.0 kB", "12.3 kB", "242 MB", "1.0 GB", "2.5 GB"]);
        let times = [0.344, 12.34, 200.9].map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(times, ["0.34 s", "12.3 s", "3 min 20 s"]);
    }
}
