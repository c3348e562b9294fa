//! Formatting and parsing of numbers.

pub(crate) use cognate::amounts::{bytes, thousands};

use std::num::NonZeroUsize;
use std::time::Duration;

/// Parses a number from 1 to `largest`.
pub(crate) fn at_most(largest: usize) -> impl Fn(&str) -> Result<NonZeroUsize, String> + Clone {
    move |text| {
        let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= largest);
        number.ok_or_else(|| format!("expected a number from 1 to {largest}"))
    }
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
    fn durations_are_readable() {
        let times = [0.344, 12.34, 200.9].map(|seconds| duration(Duration::from_secs_f64(seconds)));
        assert_eq!(times, ["0.34 s", "12.3 s", "3 min 20 s"]);
    }
}
