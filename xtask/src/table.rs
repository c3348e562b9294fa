//! Tables that are readable in a terminal and as Markdown.

use std::time::Duration;

/// A Markdown table with aligned columns: the first to the left, the others to the right.
///
/// Every row has as many cells as the header.
pub fn table<S: AsRef<str>>(header: &[S], rows: &[Vec<String>]) -> String {
    let header: Vec<String> = header.iter().map(|name| name.as_ref().to_owned()).collect();
    let length = |row: &Vec<String>, column: usize| row[column].chars().count();
    let width = |column| {
        rows.iter().map(|row| length(row, column)).fold(length(&header, column).max(3), usize::max)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(column, text): (usize, &String)| match column {
            0 => format!("{text:<0$}", widths[column]),
            _ => format!("{text:>0$}", widths[column]),
        };
        format!("| {} |\n", row.iter().enumerate().map(cell).collect::<Vec<_>>().join(" | "))
    };
    let rule = widths.iter().enumerate().map(|(column, width)| match column {
        0 => "-".repeat(*width),
        _ => format!("{}:", "-".repeat(width - 1)),
    });
    let mut text = line(&header) + &line(&rule.collect());
    rows.iter().for_each(|row| text += &line(row));
    text
}

/// Formats `1234567` as `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes in decimal units: `242.2 MB`.
pub fn bytes(count: u64) -> String {
    match count {
        0..1_000 => format!("{count} B"),
        1_000..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        _ => format!("{:.1} MB", count as f64 / 1e6),
    }
}

/// Formats a time: `0.312 s`, `1 min 5 s`.
pub fn duration(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.3} s", time.as_secs_f64()),
        10..60 => format!("{:.1} s", time.as_secs_f64()),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}
