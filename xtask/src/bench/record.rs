//! The page of measurements that is committed: a section for each bench, which writes its own and leaves the others.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};

/// Puts a section, which begins with its heading `# ...`, in the place of the one of this heading, or at the page's end.
pub(crate) fn put(page: &Path, section: &str) -> Result<()> {
    let before = match fs::read_to_string(page) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| page.display().to_string()),
    };
    fs::write(page, with(&before, section)).with_context(|| page.display().to_string())
}

fn with(page: &str, section: &str) -> String {
    let mut sections: Vec<String> = Vec::new();
    for line in page.split_inclusive('\n') {
        match sections.last_mut() {
            Some(last) if !line.starts_with("# ") => last.push_str(line),
            _ => sections.push(line.to_owned()),
        }
    }
    let heading = section.lines().next();
    match sections.iter_mut().find(|old| old.lines().next() == heading) {
        Some(old) => *old = section.to_owned(),
        None => sections.push(section.to_owned()),
    }
    let sections: Vec<&str> = sections.iter().map(|section| section.trim_end()).collect();
    sections.join("\n\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn sections_take_the_places_of_those_with_their_heading() {
        let page = with("", "# One\n\ntext\n\n## below\n");
        assert_eq!(page, "# One\n\ntext\n\n## below\n");
        let page = with(&page, "# Two\n\nmore\n");
        assert_eq!(page, "# One\n\ntext\n\n## below\n\n# Two\n\nmore\n");
        assert_eq!(with(&page, "# One\n\nnew\n"), "# One\n\nnew\n\n# Two\n\nmore\n");
    }
}
