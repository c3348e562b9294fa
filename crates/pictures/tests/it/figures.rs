//! Drawings: what stands in the SVG, and what the pixels show.

use crate::{document, example, example_of_audio, markup};
use cognate_pictures::{
    Anchor, Attention, Chart, Curve, Document, Drawing, Figure, Head, Panel, Picture, Shape,
    SourcePicture, Weights,
};
use insta::assert_snapshot;
use tiny_skia::Pixmap;

const FIGURE: Figure =
    Figure { attention: Attention::Cross, layer: 1, head: Head::One(0), picture: Picture::HeatMap };

#[test]
fn an_svg_is_text() {
    let drawing = Drawing {
        size: [100.0, 40.0],
        title: "a & b".into(),
        shapes: vec![
            Shape::Rectangle {
                at: [1.0, 2.0],
                size: [30.0, 4.5],
                colour: [255, 0, 16],
                label: Some("<1>".into()),
            },
            Shape::Line {
                points: vec![[0.0, 0.0], [10.0, 20.0]],
                width: 1.5,
                colour: [0, 0, 0],
                opacity: 0.5,
                dashes: Some([2.0, 3.0]),
            },
            Shape::Text {
                at: [5.0, 6.0],
                size: 12.0,
                anchor: Anchor::End,
                turned: -60.0,
                colour: [1, 2, 3],
                text: "\"▁x\"".into(),
            },
        ],
    };
    assert_snapshot!(drawing.to_svg(), @r##"
    <svg xmlns="http://www.w3.org/2000/svg" width="100" height="40" viewBox="0 0 100 40" role="img" font-family="DejaVu Sans, Verdana, sans-serif">
    <title>a &amp; b</title>
    <rect width="100%" height="100%" fill="#ffffff"/>
    <rect x="1.0" y="2.0" width="30.0" height="4.5" fill="#ff0010"><title>&lt;1&gt;</title></rect>
    <polyline points="0.0,0.0 10.0,20.0" fill="none" stroke="#000000" stroke-width="1.50" stroke-opacity="0.50" stroke-dasharray="2 3"/>
    <text x="5.0" y="6.0" font-size="12" text-anchor="end" fill="#010203" transform="rotate(-60 5.0 6.0)">&quot;▁x&quot;</text>
    </svg>
    "##);
}

/// A picture of 2 x 3 cells of 10 pixels in one colour, after a token that is no cell.
fn of_a_picture() -> Document {
    let mut example = example([2, 2, 7, 4]);
    example.source.picture =
        Some(SourcePicture::new(&[0; 3 * 30 * 20], [30, 20], [2, 3], [1, 0]).unwrap());
    document(vec![example])
}

/// Of cells whose edges are between whole pixels, too.
#[test]
fn cells_meet_without_lines_between_them() {
    let mut example = example([2, 2, 62, 4]);
    example.source.picture =
        Some(SourcePicture::new(&[0; 3 * 80 * 10], [80, 10], [1, 61], [0, 1]).unwrap());
    let row = [0.2].into_iter().chain([0.1; 61]);
    example.cross_attentions =
        Weights::new([2, 2, 4, 62], row.cycle().take(992).collect()).unwrap();
    let drawing =
        Figure { picture: Picture::Lines, ..FIGURE }.draw(&document(vec![example])).unwrap();
    let pngs = drawing.shapes.iter().filter_map(|shape| match shape {
        Shape::Image { png, .. } => Some(Pixmap::decode_png(png).unwrap()),
        _ => None,
    });
    let mut shades: Vec<_> = pngs
        .flat_map(|tile| tile.pixels().iter().map(|pixel| pixel.red()).collect::<Vec<_>>())
        .collect();
    shades.sort_unstable();
    shades.dedup();
    assert!(matches!(shades[..], [0, _]), "{shades:?}");
}

/// A picture for each token: a cell is as dark as its weight.
#[test]
fn pictures_are_paler_where_weights_are_smaller() {
    let document = of_a_picture();
    let figure = Figure { picture: Picture::Lines, ..FIGURE };
    let drawing = figure.draw(&document).unwrap();
    let svg = drawing.to_svg();
    assert_eq!(svg.matches("<image ").count(), 4);
    let pixels = Pixmap::decode_png(&drawing.to_png(2.0).unwrap()).unwrap();
    let tiles: Vec<_> = drawing
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Image { at, size, .. } => Some((*at, *size)),
            _ => None,
        })
        .collect();
    let mut shades = Vec::new();
    for (([left, top], [width, height]), row) in
        tiles.into_iter().zip(document.examples[0].cross_attentions.head(1, 0).chunks(7))
    {
        for (cell, weight) in row[1..].iter().enumerate() {
            let middle = [
                left + width * ((cell % 3) as f32 + 0.5) / 3.0,
                top + height * ((cell / 3) as f32 + 0.5) / 2.0,
            ];
            let [x, y] = middle.map(|length| (2.0 * length) as u32);
            shades.push((*weight, pixels.pixel(x, y).unwrap().red()));
        }
    }
    shades.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(shades.len(), 24);
    assert!(shades.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{shades:?}");
    assert!(shades[0].1 > 200 && shades[23].1 == 0, "{shades:?}");

    let of_encoder =
        Figure { attention: Attention::Encoder, ..figure }.draw(&document).unwrap_err();
    assert_snapshot!(of_encoder, @"the encoder's attention over a picture: expected a heat map, or the page");
    let unknown = Figure { attention: Attention::Encoder, ..figure }
        .draw(&crate::document(vec![example_of_audio()]))
        .unwrap_err();
    assert_snapshot!(unknown, @"encoder self-attention: its weights are not known; choose another attention");
    let mut wrong = document.clone();
    wrong.examples[0].source.picture.as_mut().unwrap().cells = [2, 2];
    assert!(
        wrong
            .check()
            .unwrap_err()
            .to_string()
            .contains("expected source tokens for 2 x 2 cells, 1 before and 0 after them, found 7")
    );
    let mut wrong = document;
    wrong.examples[0].source.picture.as_mut().unwrap().image = "data:image/png;base64,AAAA".into();
    assert!(figure.draw(&wrong).unwrap_err().to_string().starts_with("the picture is no PNG: "));
}

/// The heat map's cells say their numbers, and the darkest pixel of a cell is where the largest is.
#[test]
fn cells_are_as_dark_as_their_weights() {
    let document = document(vec![example([2, 2, 5, 4])]);
    let weights = document.examples[0].cross_attentions.head(1, 0);
    let drawing = FIGURE.draw(&document).unwrap();
    let cells: Vec<_> = drawing
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Rectangle { at, label: Some(label), .. } => Some((*at, label.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(cells.len(), 20);
    let pixels = Pixmap::decode_png(&drawing.to_png(2.0).unwrap()).unwrap();
    assert_eq!([pixels.width(), pixels.height()], drawing.size.map(|length| (2.0 * length) as u32));
    let mut shades = Vec::new();
    for ((at, label), weight) in cells.iter().zip(weights) {
        assert!(label.ends_with(&format!(": {weight:.4}")), "{label} {weight}");
        // In the corner, where no number stands.
        let pixel = pixels.pixel(2 * at[0] as u32 + 6, 2 * at[1] as u32 + 6).unwrap();
        shades.push((*weight, u32::from(pixel.red()) + u32::from(pixel.green())));
    }
    shades.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(shades.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{shades:?}");
    assert!(shades[0].1 > 400 && shades[19].1 < 100, "{shades:?}");
}

/// A colour stands for one weight in both sentences, however large the largest of each is.
#[test]
fn sentences_side_by_side_share_a_scale() {
    let mut even = example([2, 2, 5, 4]);
    even.cross_attentions = Weights::new([2, 2, 4, 5], vec![0.2; 80]).unwrap();
    let drawing = FIGURE.draw(&document(vec![example([2, 2, 5, 4]), even])).unwrap();
    let mut cells: Vec<(f32, u32)> = drawing
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Rectangle { colour, label: Some(label), .. } => Some((
                label.rsplit(' ').next()?.parse().ok()?,
                colour.iter().map(|&channel| u32::from(channel)).sum(),
            )),
            _ => None,
        })
        .collect();
    assert_eq!(cells.len(), 40);
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert!(cells.windows(2).all(|pair| pair[0].1 >= pair[1].1), "{cells:?}");
}

/// Around every drawing there is paper: nothing is cut.
#[test]
fn nothing_is_cut_at_an_edge() {
    let mut short = example([2, 2, 3, 3]);
    for token in short.source.tokens.iter_mut().chain(&mut short.target.written) {
        token.piece = "a".into();
    }
    let mut long = example([2, 2, 3, 3]);
    for token in long.source.tokens.iter_mut().chain(&mut long.target.written) {
        token.piece = "Wort".repeat(30);
    }
    let curve = |run| Curve { run, is_marked: true, points: vec![[0.0, 1.0], [8_000_000.0, 1e-5]] };
    let panels = [0, 1, 2, 3]
        .map(|_| Panel { title: "Loss".into(), curves: vec![curve(0), curve(1)] })
        .into();
    let runs: Vec<String> = ["a run's name ".repeat(20), "other".into()].into();
    let chart = Chart { title: runs.join(", "), axis: "updates".into(), runs, panels };
    let of = |picture| {
        let figure = Figure { picture, ..FIGURE };
        [vec![short.clone()], vec![long.clone()], vec![short.clone(), long.clone()]]
            .map(|examples| figure.draw(&document(examples)).unwrap())
    };
    let drawings = [&of(Picture::Lines)[..], &of(Picture::HeatMap), &[chart.draw()]].concat();
    for (index, drawing) in drawings.iter().enumerate() {
        let pixels = Pixmap::decode_png(&drawing.to_png(1.0).unwrap()).unwrap();
        let (width, height) = (pixels.width(), pixels.height());
        let is_paper = |x, y| pixels.pixel(x, y).unwrap().demultiply().red() == 255;
        let is_edge = |&(x, y): &(u32, u32)| x.min(width - 1 - x).min(y).min(height - 1 - y) < 5;
        let edges = (0..width).flat_map(|x| (0..height).map(move |y| (x, y))).filter(is_edge);
        let cut: Vec<_> = edges.filter(|&(x, y)| !is_paper(x, y)).collect();
        assert!(cut.is_empty(), "{index}, {width} by {height}: {:?}", cut.first());
    }
}

#[test]
fn lines_are_as_thick_as_their_weights() {
    let document = document(vec![example([2, 2, 5, 4]), example([2, 2, 3, 3])]);
    let drawing =
        Figure { head: Head::Mean, picture: Picture::Lines, ..FIGURE }.draw(&document).unwrap();
    let mut widths: Vec<f32> = drawing
        .shapes
        .iter()
        .filter_map(|shape| match shape {
            Shape::Line { width, .. } => Some(*width),
            _ => None,
        })
        .collect();
    let means = document.examples.iter().flat_map(|example| example.cross_attentions.mean(1));
    let mut expected: Vec<f32> = means.filter(|&weight| weight >= 0.01).collect();
    widths.sort_by(f32::total_cmp);
    expected.sort_by(f32::total_cmp);
    assert_eq!(widths.len(), expected.len());
    let slope =
        (widths[widths.len() - 1] - widths[0]) / (expected[expected.len() - 1] - expected[0]);
    assert!(
        widths.iter().zip(&expected).all(|(width, weight)| (width
            - widths[0]
            - slope * (weight - expected[0]))
            .abs()
            < 1e-4)
    );
    drawing.to_png(1.0).unwrap();
}

#[test]
fn markup_is_text() {
    for picture in [Picture::Lines, Picture::HeatMap] {
        let svg = Figure { picture, ..FIGURE }.draw(&markup()).unwrap().to_svg();
        for text in ["<b", "<img", "<!--", "</script", "\u{1}"] {
            assert!(!svg.contains(text), "{text}");
        }
        assert!(svg.contains("&lt;!--"));
    }
}

#[test]
fn long_texts_are_drawn_within_bounds() {
    let document = document(vec![example([2, 1, 500, 500])]);
    let drawing = FIGURE.draw(&document).unwrap();
    let pixels = Pixmap::decode_png(&drawing.to_png(2.0).unwrap()).unwrap();
    assert!(
        pixels.width() * pixels.height() <= 24_100_000,
        "{} {}",
        pixels.width(),
        pixels.height()
    );
    let svg = Figure { picture: Picture::Lines, ..FIGURE }.draw(&document).unwrap().to_svg();
    assert_eq!(svg.matches("<polyline").count(), 4000);
}

#[test]
fn other_layers_and_heads_are_refused() {
    let document = document(vec![example([2, 2, 3, 3])]);
    let refused = |figure: Figure| figure.draw(&document).unwrap_err().to_string();
    assert_snapshot!(refused(Figure { layer: 2, ..FIGURE }), @"layer 3: expected 1 to 2, those of the model");
    assert_snapshot!(refused(Figure { head: Head::One(2), ..FIGURE }), @"head 3: expected 1 to 2, those of the model");
}

/// Readers' programs shape words; the mark of a space before a word that runs to the left is set on
/// its right.
#[test]
fn words_that_run_to_the_left_are_set_apart() {
    let mut example = example([2, 2, 3, 3]);
    example.source.tokens[0].piece = "▁שלום".into();
    let drawing = FIGURE.draw(&document(vec![example])).unwrap();
    let svg = drawing.to_svg();
    assert!(
        svg.contains(">\u{2068}▁שלום\u{2069}<")
            && svg.contains("<title>▁target0 → \u{2068}▁שלום\u{2069}: 0."),
        "{svg}"
    );
    assert_eq!((drawing.lacks(), svg.matches('\u{2068}').count()), (Vec::new(), 4));
}

#[test]
fn the_font_says_what_it_lacks() {
    let mut example = example([2, 2, 3, 3]);
    example.source.tokens[0].piece = "▁Üλж犬".into();
    assert_eq!(FIGURE.draw(&document(vec![example])).unwrap().lacks(), ['犬']);
}
