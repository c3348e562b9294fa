//! The chart of `onnx/BENCHMARKS.md`: for each shape and number of threads a row of bars, all
//! relative to CTranslate2 int8.

use std::fmt::Write;

use super::report::{Block, Row};

/// The bar that is 1.
pub const UNIT: &str = "ct2-int8";

pub const WIDTH: f64 = 1000.0;
pub const LEFT: f64 = 50.0;
pub const TOP: f64 = 90.0;
pub const PANEL: f64 = 210.0;
/// The height of the bars in a panel, without its title and the names of the groups.
pub const BARS: f64 = 150.0;
/// The empty share of a group's width.
pub const GAP: f64 = 0.12;

pub const THEIRS: [&str; 5] = ["#c9c9c9", "#a8a8a8", "#878787", "#e8b06a", "#d98a1f"];
pub const OURS: [&str; 5] = ["#b5d3ee", "#8cbbe3", "#4f93cc", "#1f6fb2", "#0b3f73"];

/// The chart as SVG; blocks without CTranslate2 int8 have no panel.
pub fn svg(blocks: &[Block]) -> String {
    let panels: Vec<&Block> =
        blocks.iter().filter(|block| block.rows.iter().any(|row| row.way.name == UNIT)).collect();
    let height = TOP + PANEL * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">Tokens per second, relative to CTranslate2 int8 in the same run</text>\n"
    );
    if let Some(first) = panels.first() {
        legend(&mut svg, &first.rows);
    }
    for (index, block) in panels.iter().enumerate() {
        panel(&mut svg, block, TOP + PANEL * index as f64);
    }
    svg + "</svg>\n"
}

/// The colours of rows, equal in all panels: by their number among those of Cognate or of the
/// others.
pub fn colours(rows: &[Row]) -> Vec<&'static str> {
    let (mut theirs, mut ours) = (THEIRS.iter().cycle(), OURS.iter().cycle());
    rows.iter()
        .filter_map(|row| if row.is_ours() { ours.next() } else { theirs.next() }.copied())
        .collect()
}

pub fn legend(svg: &mut String, rows: &[Row]) {
    const IN_A_LINE: usize = 5;
    for (index, (row, colour)) in rows.iter().zip(colours(rows)).enumerate() {
        let x = LEFT + (index % IN_A_LINE) as f64 * (WIDTH - LEFT) / IN_A_LINE as f64;
        let y = 40.0 + (index / IN_A_LINE) as f64 * 18.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"
        );
        let _ =
            writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 17.0, y + 10.5, row.way.title);
    }
}

pub fn panel(svg: &mut String, block: &Block, top: f64) {
    let ratios = |column: usize| {
        block.rows.iter().map(move |row| block.ratio(row, UNIT, column).unwrap_or_default())
    };
    let columns = block.columns.len();
    let highest = (0..columns).flat_map(ratios).fold(1.0, f64::max);
    // A line at each half, up to the highest bar.
    let scale = (highest * 2.0).ceil() / 2.0;
    let base = top + 20.0 + BARS;
    let y = |ratio: f64| base - ratio / scale * BARS;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        top + 8.0,
        block.title()
    );
    for line in 0..=(scale * 2.0).round() as u32 {
        let ratio = f64::from(line) / 2.0;
        let colour = if ratio == 1.0 { "#666666" } else { "#dddddd" };
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"{colour}\"/>",
            y(ratio),
            WIDTH - 10.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>",
            LEFT - 6.0,
            y(ratio) + 4.0
        );
    }
    let group = (WIDTH - 10.0 - LEFT) / columns as f64;
    let bar = group * (1.0 - GAP) / block.rows.len() as f64;
    let colours = colours(&block.rows);
    for (index, column) in block.columns.iter().enumerate() {
        let left = LEFT + group * (index as f64 + GAP / 2.0);
        for (number, (ratio, colour)) in ratios(index).zip(&colours).enumerate() {
            let (x, y) = (left + bar * number as f64, y(ratio));
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                bar * 0.92,
                base - y
            );
        }
        let middle = left + group * (1.0 - GAP) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            base + 16.0,
            column.title()
        );
    }
}
