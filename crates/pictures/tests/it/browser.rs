//! The page in a headless Chromium: what readers do with it, and what they see.

use crate::chromium::Chromium;
use crate::{MARKUP, document, example, example_of_audio, markup};
use cognate_pictures::{Document, SourcePicture, html};
use std::fs;
use tempfile::TempDir;
use tiny_skia::Pixmap;

/// A page in a browser, and the folder where it lies.
fn open(document: &Document) -> Option<(Chromium, TempDir)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, html(document)).unwrap();
    Some((Chromium::open(&file, [1300, 900])?, folder))
}

fn text(browser: &Chromium, selector: &str) -> String {
    browser
        .evaluate(&format!("document.querySelector({selector:?}).textContent"))
        .as_str()
        .unwrap()
        .to_owned()
}

/// The middle of a cell of the heat map.
fn cell(browser: &Chromium, example: usize, row: usize, column: usize) -> [f64; 2] {
    let place = browser.evaluate(&format!("cognate.cell({example}, {row}, {column})"));
    [0, 1].map(|index| place[index].as_f64().unwrap())
}

/// How bright the window is in a cell's corner, from 0 to 765.
fn brightness(browser: &Chromium, cells: &[[f64; 2]]) -> Vec<u32> {
    let pixels = Pixmap::decode_png(&browser.screenshot()).unwrap();
    let at = |[x, y]: &[f64; 2]| pixels.pixel((x - 11.0) as u32, (y - 11.0) as u32).unwrap();
    cells
        .iter()
        .map(at)
        .map(|pixel| u32::from(pixel.red()) + u32::from(pixel.green()) + u32::from(pixel.blue()))
        .collect()
}

#[test]
fn layers_heads_and_numbers() {
    let document = document(vec![example([3, 4, 7, 6])]);
    let Some((browser, _folder)) = open(&document) else { return };
    let expected = &document.examples[0];
    assert_eq!(text(&browser, "#title"), "Cross-attention, layer 2, mean of the heads");

    browser.click("#heads button[aria-label='layer 3, head 2']");
    assert_eq!(text(&browser, "#title"), "Cross-attention, layer 3, head 2");
    for (kind, weights) in
        [&expected.encoder_attentions, &expected.decoder_attentions, &expected.cross_attentions]
            .into_iter()
            .enumerate()
    {
        for head in 0..4 {
            let found = browser.evaluate(&format!("cognate.weights(0, {kind}, 2, {head})"));
            let found =
                found.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap() as f32);
            assert!(
                found
                    .zip(weights.head(2, head))
                    .all(|(found, expected)| (found - expected).abs() < 1e-5),
                "{kind} {head}"
            );
        }
        let mean = browser.evaluate(&format!("cognate.weights(0, {kind}, 1, 4)"));
        let mean = mean.as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap() as f32);
        assert!(
            mean.zip(weights.mean(1)).all(|(found, expected)| (found - expected).abs() < 1e-5),
            "{kind}"
        );
    }

    // Pointing at cells reads their numbers; larger ones are darker.
    let head = expected.cross_attentions.head(2, 1);
    let order = |a: &usize, b: &usize| head[*a].total_cmp(&head[*b]);
    let (least, most) = ((0..42).min_by(order).unwrap(), (0..42).max_by(order).unwrap());
    let cells = [least, most].map(|index| cell(&browser, 0, index / 7, index % 7));
    for (place, index) in cells.into_iter().zip([least, most]) {
        browser.point(place);
        let (row, column) = (index / 7, index % 7);
        let told = format!(
            "“▁target{row}” ({}) → “▁source{column}” ({}): {:.4}",
            row + 1,
            column + 1,
            head[index]
        );
        assert_eq!(text(&browser, "#readout-0"), told);
    }
    browser.point([5.0, 5.0]);
    let light = brightness(&browser, &cells);
    assert!(light[0] > light[1] + 300, "{light:?}");

    // In the dark they are brighter, as the system wishes or by the button.
    browser.prefer("dark");
    browser.wait_for("getComputedStyle(document.body).colorScheme !== '' && matchMedia('(prefers-color-scheme: dark)').matches");
    let cells = [least, most].map(|index| cell(&browser, 0, index / 7, index % 7));
    let dark = brightness(&browser, &cells);
    assert!(dark[0] + 300 < dark[1], "{dark:?}");
    browser.click("#theme");
    assert_eq!(text(&browser, "#theme"), "Theme: light");
    browser.point([5.0, 5.0]);
    assert_eq!(brightness(&browser, &cells), light);

    // Self-attention of the decoder: nobody looks ahead.
    browser.click("#kinds button:nth-child(2)");
    assert_eq!(text(&browser, "#title"), "Decoder self-attention, layer 3, head 2");
    let ahead = cell(&browser, 0, 1, 4);
    browser.point(ahead);
    assert_eq!(text(&browser, "#readout-0"), "“▁target1” (2) → “▁target3” (5): 0.0000");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// A picture in place of a sentence: a word shows the cells that it attends to, a cell the words.
#[test]
fn a_picture_shows_where_words_look() {
    let mut shown = example([2, 2, 7, 4]);
    shown.source.picture =
        Some(SourcePicture::new(&[0; 3 * 300 * 200], [300, 200], [2, 3], [1, 0]).unwrap());
    let weights = shown.cross_attentions.mean(0);
    let Some((browser, _folder)) = open(&document(vec![shown])) else { return };
    browser.click("#pictures button");
    assert_eq!(text(&browser, "#pictures button"), "Picture");
    // The second word.
    let row = &weights[7..14];
    let shades = browser.evaluate(
        "document.querySelectorAll('.words button')[1].dispatchEvent(new PointerEvent('pointerenter'));
         const canvas = document.querySelector('.words + div canvas'), [width, height] = [canvas.width, canvas.height];
         [0, 1, 2, 3, 4, 5].map((cell) => canvas.getContext('2d').getImageData(width * ((cell % 3) + 0.5) / 3, height * (Math.floor(cell / 3) + 0.5) / 2, 1, 1).data[0])",
    );
    let mut shades: Vec<_> = row[1..]
        .iter()
        .zip(shades.as_array().unwrap().iter().map(|shade| shade.as_u64().unwrap()))
        .collect();
    shades.sort_by(|a, b| a.0.total_cmp(b.0));
    assert!(
        shades.windows(2).all(|pair| pair[0].1 >= pair[1].1)
            && shades[5].1 == 0
            && shades[0].1 > 100,
        "{shades:?}"
    );
    assert!(text(&browser, ".readout").starts_with("“▁target1” attends to "));
    // The last cell.
    browser.evaluate(
        "(() => { const canvas = document.querySelector('.words + div canvas'), box = canvas.getBoundingClientRect();
         canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 4, clientY: box.bottom - 4 })); })()",
    );
    assert!(text(&browser, ".readout").starts_with("“▁source6” is attended to by "));
}

#[test]
fn audio_has_no_attention_of_the_encoder() {
    let Some((browser, _folder)) = open(&document(vec![example_of_audio()])) else { return };
    let names = browser.evaluate(
        "[...document.querySelectorAll('#kinds button')].map((button) => button.textContent)",
    );
    assert_eq!(names, serde_json::json!(["Decoder self", "Cross"]));
    browser.click("#kinds button");
    assert!(text(&browser, "#title").starts_with("Decoder self-attention, layer "));
    browser.click("#kinds button:nth-child(2)");
    browser.click("#pictures button");
    browser.evaluate(
        "(() => { const canvas = document.querySelector('.words + div canvas'), box = canvas.getBoundingClientRect();
         canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.right - 4, clientY: box.bottom - 4 })); })()",
    );
    assert!(text(&browser, ".readout").starts_with("“▁source4” is attended to by "));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn the_keyboard_suffices() {
    let document = document(vec![example([3, 4, 7, 6])]);
    let Some((browser, _folder)) = open(&document) else { return };
    let mut reached = Vec::new();
    for _ in 0..6 {
        browser.press("Tab");
        let found = browser.evaluate(
            "(() => { const e = document.activeElement; const o = getComputedStyle(e).outlineStyle; \
             return (e.id || e.parentElement.id || e.tagName.toLowerCase()) + (o === 'none' ? ' without a ring' : ''); })()",
        );
        reached.push(found.as_str().unwrap().to_owned());
    }
    assert_eq!(reached, ["theme", "kinds", "pictures", "heads", "svg", "canvas"]);
    // The heat map has the focus: its cells are told.
    browser.press("ArrowDown");
    browser.press("ArrowRight");
    let mean = document.examples[0].cross_attentions.mean(1);
    assert_eq!(
        text(&browser, "#readout-0"),
        format!("“▁target1” (2) → “▁source1” (2): {:.4}", mean[8])
    );
    browser.evaluate("document.querySelector('#heads [aria-checked=true]').focus()");
    browser.press("ArrowUp");
    browser.press("ArrowLeft");
    assert_eq!(text(&browser, "#title"), "Cross-attention, layer 1, head 4");
    assert_eq!(
        browser.evaluate("document.activeElement.getAttribute('aria-label')"),
        "layer 1, head 4"
    );
    browser.evaluate("document.querySelector('svg.lines').focus()");
    browser.press("ArrowDown");
    let told = text(&browser, "#readout-0");
    assert!(told.starts_with("“▁target1” attends to “▁source"), "{told}");
    let on =
        browser.evaluate("document.querySelectorAll('svg.lines line.on').length").as_u64().unwrap();
    let row = &document.examples[0].cross_attentions.head(0, 3)[7..14];
    assert_eq!(on as usize, row.iter().filter(|&&weight| weight >= 0.01).count());
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The texts of all elements that a selector finds.
fn texts(browser: &Chromium, selector: &str) -> Vec<String> {
    let found = browser.evaluate(&format!(
        "[...document.querySelectorAll({selector:?})].map((e) => e.textContent)"
    ));
    found.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_it_does_step_by_step_opens() {
    let document = document(vec![example([3, 4, 7, 6])]);
    let Some((browser, _folder)) = open(&document) else { return };
    let explained = document.examples[0].explained.as_ref().unwrap();
    let headings = [
        "1. Input of the encoder and the decoder",
        "2. Attention of the layers",
        "3. Decoding step by step",
        "4. Beam search with 2 beams",
    ];
    assert_eq!(texts(&browser, "#steps summary"), headings);
    assert_eq!(texts(&browser, "#steps table"), [""; 0], "nothing is made before it is opened");

    // By the keyboard: on from the last picture.
    browser.evaluate("document.querySelector('.space canvas').focus()");
    for part in 1..=4 {
        browser.press("Tab");
        let focused = browser.evaluate("document.activeElement.parentElement.id");
        assert_eq!(focused, format!("part-{part}"));
        browser.press("Enter");
        browser.wait_for(&format!("document.querySelectorAll('#part-{part} .table').length > 0"));
        // Its tables, which arrow keys scroll.
        let tables = texts(&browser, &format!("#part-{part} .table")).len();
        assert_eq!(tables, [2, 3, 1, 1][part - 1]);
        for _ in 0..tables {
            browser.press("Tab");
            assert_eq!(browser.evaluate("document.activeElement.className"), "table");
        }
    }
    assert_eq!(
        texts(&browser, "#part-1 .table:first-child tbody tr:nth-child(2) td"),
        ["2", "▁source1", "1", "11.000", "8.000", "12.345"]
    );
    let summary = explained.layers[1][2];
    let share = |share: f32| format!("{:.1}%", 100.0 * share);
    let [itself, before, after] = summary.own.unwrap().map(share);
    let expected = [
        "3".into(),
        itself,
        before,
        after,
        share(summary.first),
        share(summary.last),
        format!("{:.1}", summary.words),
        format!("{} ({:.1})", summary.sharpest + 1, summary.sharpest_words),
    ];
    assert_eq!(texts(&browser, "#part-2 .table:nth-child(2) tbody tr:nth-child(3) td"), expected);
    assert_eq!(
        texts(&browser, "#part-3 tbody tr:nth-child(2) td"),
        [
            "2",
            "▁target0",
            "▁likely00.500",
            "▁likely10.250",
            "▁target10.125 is chosen",
            "▁likely30.063",
            "▁likely40.031",
            "",
            "▁source0 0.25▁source1 0.25▁source2 0.25"
        ]
    );
    assert_eq!(
        texts(&browser, "#part-3 tbody tr:nth-child(6) .chosen"),
        ["▁target51.3e-5 is chosen"]
    );
    // The tree: each word, below it its log-probability, and how it ends.
    let words = texts(&browser, "svg.tree g text:not(.number):not(.end)");
    assert_eq!(words.len(), explained.beams.as_ref().unwrap().nodes.len());
    assert_eq!(texts(&browser, "svg.tree text.end"), ["#1 -0.2500", "#2 -0.7500", "×"]);
    assert_eq!(
        texts(&browser, "svg.tree g.best text.number"),
        ["-0.50", "-1.00", "-1.50", "-2.00", "-2.50", "-3.00"]
    );
    assert_eq!(texts(&browser, ".finished li"), ["the best -0.2500", "the other -0.7500"]);
    // Later words stand to the right of earlier ones, and no two on each other.
    let places = browser.evaluate("[...document.querySelectorAll('svg.tree g text:first-of-type')].map((t) => { const b = t.getBBox(); return [b.x, b.y, b.x + b.width, b.y + b.height]; })");
    let places: Vec<[f64; 4]> = serde_json::from_value(places).unwrap();
    let nodes = &explained.beams.as_ref().unwrap().nodes;
    for (index, place) in places.iter().enumerate() {
        assert!(
            nodes[index].parent.is_none_or(|parent| places[parent][2] < place[0]),
            "{index}: {place:?}"
        );
        let is_apart = |other: &[f64; 4]| {
            other[0] >= place[2]
                || other[2] <= place[0]
                || other[1] >= place[3]
                || other[3] <= place[1]
        };
        assert!(places[..index].iter().all(is_apart), "{index}: {place:?}");
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_word_that_two_sentences_share_is_marked_in_both() {
    let mut document = document(vec![example([2, 2, 7, 6]), example([2, 2, 5, 4])]);
    document.examples[1].target.text = "A translation that takes more than one line ".repeat(3);
    let Some((browser, _folder)) = open(&document) else { return };
    let place = browser.middle("article:first-child svg.lines text:not(.heading)");
    browser.point(place);
    for index in 0..2 {
        let told = text(&browser, &format!("#readout-{index}"));
        assert!(told.starts_with("“▁target0” attends to"), "{told}");
    }
    // Side by side, however long the sentences are.
    browser.click("#pictures button:nth-child(2)");
    let places = browser.evaluate(
        "[...document.querySelectorAll('.space canvas')].map((e) => e.getBoundingClientRect().top)",
    );
    assert_eq!(places[0], places[1], "side by side");
    let rows = [0, 1].map(|index| cell(&browser, index, 3, 0)[1]);
    assert_eq!(rows[0], rows[1], "rows of one height");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn a_narrow_window_cuts_nothing() {
    let mut long = document(vec![example([6, 8, 9, 9])]);
    (long.model, long.engine) =
        ("a/folder/of/some/length".into(), "an engine of version 1.31.1, on some processor".into());
    let Some((browser, _folder)) = open(&long) else { return };
    for width in [1300, 900, 520, 380] {
        browser.resize([width, 900]);
        browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
        browser.wait_for("document.querySelectorAll('svg.tree').length === 1");
        let [page, header] = [
            "document.documentElement.scrollWidth",
            "document.querySelector('header').offsetHeight",
        ]
        .map(|of| browser.evaluate(of).as_u64().unwrap());
        let wide = browser.evaluate(&format!(
            "[...document.querySelectorAll('body *')].filter((e) => e.getBoundingClientRect().right > {width} && !e.closest('.scroll, .table'))
                .map((e) => `${{e.tagName}} ${{e.id}} ${{e.className}}`)"
        ));
        assert!(
            page <= width.into() && header < 200,
            "{width}: the page is {page} wide, its header {header} high; {wide}"
        );
    }
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn markup_is_text() {
    let Some((browser, _folder)) = open(&markup()) else { return };
    assert_eq!(browser.evaluate("document.querySelectorAll('b, img, #broken').length"), 0);
    let shown =
        browser.evaluate("[...document.querySelectorAll('svg.lines text:not(.number):not(.heading) title')].map((t) => t.textContent)");
    for piece in MARKUP {
        assert!(shown.as_array().unwrap().iter().any(|text| text == piece), "{piece}: {shown}");
    }
    assert_eq!(text(&browser, "article h3"), MARKUP.concat());
    browser.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })");
    browser.wait_for("document.querySelectorAll('svg.tree').length === 1");
    assert_eq!(browser.evaluate("document.querySelectorAll('b, img, #broken').length"), 0);
    let likely = texts(&browser, "#part-3 td.likely:nth-child(7) bdi");
    assert_eq!(likely, MARKUP);
    let hypotheses = texts(&browser, ".finished bdi");
    assert_eq!(hypotheses, [MARKUP.concat(), MARKUP.concat()]);
    let note = text(&browser, "#part-1 .note");
    assert!(note.ends_with(&MARKUP.concat()), "{note}");
    assert_eq!(browser.complaints(), [""; 0]);
}

/// The mark of the space before a word stands where the word begins: on its right, if it runs to
/// the left.
#[test]
fn words_run_as_their_script_does() {
    let mut example = example([2, 2, 3, 3]);
    let words = ["▁word", "▁שלום", "▁مرحبا"];
    for (token, word) in example.source.tokens.iter_mut().zip(words) {
        token.piece = word.into();
    }
    let Some((browser, _folder)) = open(&document(vec![example])) else { return };
    // Where the first character of each word lies: in its left half, or in its right.
    let left = browser.evaluate(
        "[...document.querySelectorAll('svg.lines text')].filter((t) => t.getAttribute('text-anchor') === 'start' && t.querySelector('title'))
            .map((t) => { const at = t.textContent.indexOf('▁'), c = t.getExtentOfChar(at), b = t.getBBox(); return c.x + c.width / 2 < b.x + b.width / 2; })",
    );
    assert_eq!(
        left.as_array().unwrap().iter().map(|left| left.as_bool().unwrap()).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(texts(&browser, "svg.lines title")[3..], words, "titles are the words themselves");
    browser.evaluate("document.querySelector('svg.lines').focus()");
    browser.press("ArrowRight");
    browser.press("ArrowDown");
    let told = text(&browser, "#readout-0");
    assert!(told.starts_with("“\u{2068}▁שלום\u{2069}” is attended to by"), "{told}");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn five_hundred_tokens_are_usable() {
    let document = document(vec![example([6, 8, 500, 480])]);
    let Some((browser, _folder)) = open(&document) else { return };
    let weights = &document.examples[0].cross_attentions;
    browser.click("#heads button[aria-label='layer 2, head 5']");
    // What is drawn stays in bounds, however long the text.
    let [lines, elements] = ["svg.lines line", "*"].map(|selector| {
        browser
            .evaluate(&format!("document.querySelectorAll({selector:?}).length"))
            .as_u64()
            .unwrap()
    });
    assert!(lines <= 4000 && elements < 12_000, "{lines} lines, {elements} elements");
    let canvas = browser.evaluate("(() => { const c = document.querySelector('.space canvas'); return c.width * c.height; })()");
    assert!(canvas.as_u64().unwrap() < 1_500_000, "{canvas}");
    // The far corner comes into sight.
    browser.evaluate("document.querySelector('.space canvas').focus()");
    browser.press("End");
    for _ in 0..48 {
        browser.press("PageDown");
    }
    let told = text(&browser, "#readout-0");
    assert!(told.starts_with("“▁target479” (480) → “▁source499” (500): "), "{told}");
    // The largest weight of a row is kept, and told.
    let row = &weights.head(1, 4)[479 * 500..];
    let most = (0..500).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    browser.evaluate(&format!(
        "document.querySelector('.space').parentElement.scrollLeft = {most} * 16 - 60"
    ));
    let place = cell(&browser, 0, 479, most);
    browser.point(place);
    let expected = format!("“▁target479” (480) → “▁source{most}” ({}): {:.4}", most + 1, row[most]);
    assert_eq!(text(&browser, "#readout-0"), expected);
    for part in 1..=4 {
        browser.evaluate(&format!("document.querySelector('#part-{part} summary').click()"));
        browser.wait_for(&format!("document.querySelectorAll('#part-{part} .table').length > 0"));
    }
    assert_eq!(texts(&browser, "#part-3 tbody tr").len(), 480);
    let meaning = text(&browser, "#meaning");
    assert!(meaning.contains("The text is long: this page has the "), "{meaning}");
    assert_eq!(browser.complaints(), [""; 0]);
}
