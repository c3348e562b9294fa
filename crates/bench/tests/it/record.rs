//! Unit tests of `record`.

use cognate_bench::record::*;

fn section(title: &'static str, processor: &str, text: &str) -> Section {
    Section {
        title,
        introduction: format!("how {text}\n"),
        processor: processor.into(),
        text: text.into(),
    }
}

#[test]
fn each_processor_keeps_its_part() {
    let page = with("", &section("One", "Intel", "1\n\n### below\n\n"));
    assert_eq!(page, "# One\n\nhow 1\n\n### below\n\n## Intel\n\n1\n\n### below\n");
    let page = with("", &section("One", "Intel", "1"));
    let page = with(&page, &section("Two", "Intel", "2"));
    let page = with(&page, &section("One", "AMD", "3"));
    assert_eq!(
        page,
        "# One\n\nhow 3\n\n## Intel\n\n1\n\n## AMD\n\n3\n\n# Two\n\nhow 2\n\n## Intel\n\n2\n"
    );
    let page = with(&page, &section("One", "Intel", "4"));
    assert_eq!(
        page,
        "# One\n\nhow 4\n\n## Intel\n\n4\n\n## AMD\n\n3\n\n# Two\n\nhow 2\n\n## Intel\n\n2\n"
    );
}
