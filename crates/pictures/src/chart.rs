//! Curves of training runs in several panels.
//!
//! Each run has a colour of the colour-blind safe palette of Okabe and Ito (2008) and a dash
//! pattern.

use crate::drawing::{Anchor, Drawing, Shape};
use crate::raster;

/// Panels of curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// The label of the horizontal axes.
    pub axis: String,
    /// The names of the runs.
    pub runs: Vec<String>,
    /// The panels, two per row.
    pub panels: Vec<Panel>,
}

/// Curves with one vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// The curves.
    pub curves: Vec<Curve>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The index of the run in [`Chart::runs`].
    pub run: usize,
    /// Whether each point is marked.
    pub is_marked: bool,
    /// Points from left to right; NaN and infinity are skipped.
    pub points: Vec<[f64; 2]>,
}

const COLOURS: [[u8; 3]; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [60, 60, 60],
];
/// Lengths of strokes and gaps; the first line has none.
const DASHES: [Option<[f32; 2]>; 4] = [None, Some([7.0, 3.5]), Some([2.0, 3.0]), Some([12.0, 4.0])];
/// Width and opacity of curves, and of unmarked curves beside marked ones.
const MARKED: [f32; 2] = [1.6, 1.0];
const UNMARKED: [f32; 2] = [1.1, 0.6];
const INK: [u8; 3] = [28, 29, 33];
const SOFT: [u8; 3] = [92, 95, 104];
const GRID: [u8; 3] = [226, 228, 233];
const PANEL: [f32; 2] = [470.0, 270.0];
const HEADING: f32 = 44.0;
/// The margins of a panel: left, top, right, bottom.
const AROUND: [f32; 4] = [64.0, 30.0, 20.0, 44.0];
const LEGEND_LINE: f32 = 20.0;
/// The maximum number of points of a curve; more are averaged.
const MOST_POINTS: usize = 800;

impl Chart {
    /// The drawing.
    pub fn draw(&self) -> Drawing {
        let columns = self.panels.len().clamp(1, 2);
        let rows = self.panels.len().div_ceil(columns);
        let legend_top = HEADING + rows as f32 * PANEL[1] + 6.0;
        let size =
            [columns as f32 * PANEL[0], legend_top + self.runs.len() as f32 * LEGEND_LINE + 12.0];
        let room = |left: f32| size[0] - left - AROUND[2];
        let title = raster::fitted(&self.title, room(AROUND[0]), 16.0);
        let mut shapes = vec![text([AROUND[0], 26.0], 16.0, Anchor::Start, INK, &title)];
        for (index, panel) in self.panels.iter().enumerate() {
            let corner = [
                (index % columns) as f32 * PANEL[0],
                HEADING + (index / columns) as f32 * PANEL[1],
            ];
            self.panel(panel, corner, &mut shapes);
        }
        for (run, name) in self.runs.iter().enumerate() {
            let y = legend_top + (run as f32 + 0.5) * LEGEND_LINE;
            let left = AROUND[0] + 54.0;
            shapes.push(stroke(vec![[AROUND[0], y], [AROUND[0] + 44.0, y]], run, MARKED));
            shapes.push(text(
                [left, y + 4.0],
                12.0,
                Anchor::Start,
                INK,
                &raster::fitted(name, room(left), 12.0),
            ));
        }
        Drawing { size, title: self.title.clone(), shapes }
    }

    fn panel(&self, panel: &Panel, [left, top]: [f32; 2], shapes: &mut Vec<Shape>) {
        let curves: Vec<(&Curve, Vec<[f64; 2]>)> =
            panel.curves.iter().map(|curve| (curve, thinned(&curve.points))).collect();
        let values = |axis: usize| {
            curves.iter().flat_map(|(_, points)| points).map(move |point| point[axis])
        };
        let [across, up] = [Axis::of(values(0)), Axis::of(values(1))];
        let [x0, y0, x1, y1] = [
            left + AROUND[0],
            top + AROUND[1],
            left + PANEL[0] - AROUND[2],
            top + PANEL[1] - AROUND[3],
        ];
        let place = |point: [f64; 2]| {
            [x0 + across.share(point[0]) * (x1 - x0), y1 - up.share(point[1]) * (y1 - y0)]
        };
        shapes.push(text([x0, y0 - 10.0], 13.0, Anchor::Start, INK, &panel.title));
        for tick in up.ticks() {
            let [_, y] = place([0.0, tick]);
            shapes.push(line([x0, y], [x1, y], GRID));
            shapes.push(text([x0 - 6.0, y + 4.0], 11.0, Anchor::End, SOFT, &number(tick)));
        }
        for tick in across.ticks() {
            let [x, _] = place([tick, 0.0]);
            shapes.push(line([x, y1], [x, y1 + 4.0], SOFT));
            shapes.push(text([x, y1 + 17.0], 11.0, Anchor::Middle, SOFT, &number(tick)));
        }
        shapes.push(line([x0, y1], [x1, y1], SOFT));
        shapes.push(text([(x0 + x1) / 2.0, y1 + 33.0], 11.0, Anchor::Middle, SOFT, &self.axis));
        if curves.iter().all(|(_, points)| points.is_empty()) {
            shapes.push(text(
                [(x0 + x1) / 2.0, (y0 + y1) / 2.0],
                12.0,
                Anchor::Middle,
                SOFT,
                "no data",
            ));
        }
        let has_marks = curves.iter().any(|(curve, _)| curve.is_marked);
        for (curve, points) in curves {
            let places: Vec<[f32; 2]> = points.into_iter().map(place).collect();
            // Unmarked curves beside marked ones are fainter.
            let weight = if curve.is_marked || !has_marks { MARKED } else { UNMARKED };
            shapes.push(stroke(places.clone(), curve.run, weight));
            if curve.is_marked {
                let mark = |[x, y]: [f32; 2]| Shape::Rectangle {
                    at: [x - 2.5, y - 2.5],
                    size: [5.0; 2],
                    colour: colour(curve.run),
                    label: None,
                };
                shapes.extend(places.into_iter().map(mark));
            }
        }
    }
}

/// A range of numbers with room for ticks.
struct Axis {
    least: f64,
    most: f64,
    step: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| {
                (least.min(value), most.max(value))
            });
        let (least, most) = if least > most { (0.0, 1.0) } else { (least, most) };
        // A single value has room around it.
        let span = if most > least { most - least } else { least.abs().max(1.0) * 0.2 };
        // About five steps of 1, 2 or 5 times a power of ten.
        let power = 10f64.powf((span / 5.0).log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .into_iter()
            .map(|factor| factor * power)
            .find(|step| span / step <= 6.0)
            .unwrap_or(10.0 * power);
        Self {
            least: (least / step).floor() * step,
            most: ((most / step).ceil() * step).max((least / step).floor() * step + step),
            step,
        }
    }

    fn share(&self, value: f64) -> f32 {
        ((value - self.least) / (self.most - self.least)) as f32
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = ((self.most - self.least) / self.step).round() as u32;
        (0..=count.min(20)).map(|index| self.least + f64::from(index) * self.step)
    }
}

/// The label of a tick.
fn number(value: f64) -> String {
    let magnitude = value.abs();
    let plain = |value: f64, unit: &str| {
        let text = format!("{value:.6}");
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    match magnitude {
        _ if magnitude < 1e-12 => "0".to_owned(),
        _ if magnitude >= 1e6 => plain(value / 1e6, "M"),
        _ if magnitude >= 1e4 => plain(value / 1e3, "k"),
        _ if magnitude >= 1e-3 => plain(value, ""),
        _ => {
            let power = magnitude.log10().floor();
            plain(value / 10f64.powf(power), &format!("e{power}"))
        }
    }
}

/// Finite points; neighbours are averaged if there are too many.
fn thinned(points: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let finite: Vec<[f64; 2]> = points
        .iter()
        .copied()
        .filter(|point| point.iter().all(|value| value.is_finite()))
        .collect();
    let group = finite.len().div_ceil(MOST_POINTS).max(1);
    let mean = |points: &[[f64; 2]]| {
        [0, 1].map(|axis| points.iter().map(|point| point[axis]).sum::<f64>() / points.len() as f64)
    };
    finite.chunks(group).map(mean).collect()
}

fn colour(run: usize) -> [u8; 3] {
    COLOURS[run % COLOURS.len()]
}

/// A line through places, in the colour and dashes of a run.
fn stroke(places: Vec<[f32; 2]>, run: usize, [width, opacity]: [f32; 2]) -> Shape {
    Shape::Line {
        points: places,
        width,
        colour: colour(run),
        opacity,
        dashes: DASHES[run % DASHES.len()],
    }
}

fn line(from: [f32; 2], to: [f32; 2], colour: [u8; 3]) -> Shape {
    Shape::Line { points: vec![from, to], width: 1.0, colour, opacity: 1.0, dashes: None }
}

fn text(at: [f32; 2], size: f32, anchor: Anchor, colour: [u8; 3], text: &str) -> Shape {
    Shape::Text { at, size, anchor, turned: 0.0, colour, text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks() {
        let ticks =
            |values: [f64; 2]| Axis::of(values.into_iter()).ticks().map(number).collect::<Vec<_>>();
        assert_eq!(ticks([0.0, 8_000.0]), ["0", "2000", "4000", "6000", "8000"]);
        assert_eq!(
            ticks([2.91, 8.76]),
            ["2", "3", "4", "5", "6", "7", "8", "9"].map(String::from)[..].to_vec()
        );
        assert_eq!(ticks([0.0, 4e-3]), ["0", "0.001", "0.002", "0.003", "0.004"]);
        assert_eq!(ticks([0.0, 2.5e-4]), ["0", "5e-5", "1e-4", "1.5e-4", "2e-4", "2.5e-4"]);
        assert_eq!(ticks([5.0, 5.0]).first().map(String::as_str), Some("5"));
    }

    #[test]
    fn long_curves_keep_their_means_and_skip_nan() {
        let points: Vec<[f64; 2]> =
            (0..2_000).map(|x| [f64::from(x), if x == 7 { f64::NAN } else { 3.0 }]).collect();
        let thin = thinned(&points);
        assert!(
            thin.len() <= MOST_POINTS && thin.iter().all(|point| point[1] == 3.0),
            "{}",
            thin.len()
        );
    }
}
