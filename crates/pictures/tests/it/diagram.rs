//! Diagrams: the page in a headless Chromium, and text for other programs.

use crate::chromium::Chromium;
use cognate_pictures::{Arrow, Block, Diagram, Kind};
use insta::assert_snapshot;

const MARKUP: &str = "</script><b id=\"broken\">\\ \"quoted\"";

/// ids → encoder (two layers, each a product and a sum around it) → states
fn diagram() -> Diagram {
    let block = |name: &str, parent, kind, operations| Block {
        name: name.into(),
        parent,
        kind,
        equation: if kind == Kind::Module { "x ← x + f(x)".into() } else { String::new() },
        parameters: if kind == Kind::Module { 1_234_000 } else { 0 },
        operations,
    };
    let mut boxes =
        vec![block(MARKUP, None, Kind::Input, 0), block("encoder", None, Kind::Module, 4_000)];
    let (mut arrows, mut last) = (Vec::new(), 0);
    for layer in 0..2 {
        let parent = boxes.len();
        boxes.push(block(&layer.to_string(), Some(1), Kind::Module, 2_000));
        boxes.push(block("MatMul", Some(parent), Kind::Operation, 1_990));
        boxes.push(block("Add", Some(parent), Kind::Operation, 10));
        for (from, to) in [(last, parent + 1), (parent + 1, parent + 2), (last, parent + 2)] {
            arrows.push(Arrow { from, to, label: "f32 [src, 8]".into() });
        }
        last = parent + 2;
    }
    boxes.push(block("states", None, Kind::Output, 0));
    arrows.push(Arrow { from: last, to: boxes.len() - 1, label: "f32 [src, 8]".into() });
    Diagram { title: MARKUP.into(), note: "src 32".into(), boxes, arrows }
}

#[test]
fn boxes_open_by_mouse_and_keyboard() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    std::fs::write(&file, diagram().to_html()).unwrap();
    let Some(browser) = Chromium::open(&file, [1000, 900]) else { return };
    let seen = "[...document.querySelectorAll('.box')].filter((b) => b.checkVisibility()).map((b) => b.querySelector('.name').textContent).join()";
    let arrows = "document.querySelectorAll('#arrows > path').length";
    assert_eq!(browser.evaluate(seen), format!("{MARKUP},encoder,0,1,states"));
    // In, between the layers, and out; what a layer reads twice is one arrow.
    assert_eq!(browser.evaluate(arrows), 3);
    assert_eq!(browser.evaluate("document.querySelector('#broken')"), serde_json::Value::Null);
    let row =
        browser.evaluate("document.querySelectorAll('.row')[1].innerText.replace(/\\s+/g, ' ')");
    assert_eq!(row, "encoder x ← x + f(x) 1.23 M parameters 4 k FLOPs (100%)");

    browser.click("[data-depth='99']");
    assert_eq!(
        browser.evaluate(seen),
        format!("{MARKUP},encoder,0,MatMul,Add,1,MatMul,Add,states")
    );
    assert_eq!(browser.evaluate(arrows), 7);
    let place = browser.middle(".box.operation .name");
    browser.point(place);
    assert_eq!(browser.evaluate("document.querySelectorAll('path.near-hover').length"), 2);

    browser.click("[data-depth='0']");
    assert_eq!(browser.evaluate(seen), format!("{MARKUP},encoder,states"));
    for key in ["Tab", "Tab", "Tab", "Tab"] {
        browser.press(key);
    }
    assert_eq!(
        browser
            .evaluate("document.activeElement.innerText.split('\\n')[0].trim()")
            .as_str()
            .map(|name| name.starts_with("encoder")),
        Some(true)
    );
    browser.press("Enter");
    assert_eq!(browser.evaluate("document.activeElement.getAttribute('aria-expanded')"), "true");
    assert_eq!(browser.evaluate(seen), format!("{MARKUP},encoder,0,1,states"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn text_for_other_programs() {
    assert_snapshot!(diagram().to_mermaid(0), @r##"
    ---
    title: "</script><b id=\"broken\">\\ \"quoted\" (src 32)"
    ---
    flowchart TB
      b0(["#lt;/script>#lt;b id=#quot;broken#quot;>\ #quot;quoted#quot;"])
      b1["encoder"]
      b8(["states"])
      b0 -->|"f32 [src, 8]"| b1
      b1 -->|"f32 [src, 8]"| b8
    "##);
    let dot = diagram().to_dot(1);
    assert!(
        dot.contains(r#"subgraph cluster_1 {"#)
            && dot.contains(r#"b2 -> b5 [label="f32 [src, 8]"]"#),
        "{dot}"
    );
    assert!(
        dot.contains(
            r#"b0 [label="</script><b id=\"broken\">\\ \"quoted\"", fillcolor=lightgrey]"#
        ),
        "{dot}"
    );
}
