//! What the documents say of the tests is so.

use std::path::{Path, PathBuf};

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The texts in backticks that look like a test's name: many words with underscores, nothing else.
fn names_of_tests(page: &str) -> Vec<&str> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted
        .filter(|text| text.matches('_').count() >= 4)
        .filter(|text| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
        .collect()
}

#[test]
fn every_test_that_the_threat_model_names_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("docs/threat-model.md")).expect("the page");
    let mut files = Vec::new();
    rust_files(root, &mut files);
    let sources: Vec<String> = files.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    let names = names_of_tests(&page);
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<&&str> = names
        .iter()
        .filter(|name| {
            let declared = format!("fn {name}(");
            !sources.iter().any(|source| source.contains(&declared))
        })
        .collect();
    assert!(missing.is_empty(), "docs/threat-model.md names tests that do not exist: {missing:?}");
}

/// Links of a page that lead to a file: `](target)` without a scheme, the anchor cut off.
fn links(page: &str) -> Vec<&str> {
    let targets = page.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .filter_map(|target| target.split('#').next())
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .collect()
}

#[test]
fn every_link_between_our_pages_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![
        root.join("README.md"),
        root.join("ARCHITECTURE.md"),
        root.join("CONTRIBUTING.md"),
        root.join("CHANGELOG.md"),
    ];
    for folder in ["docs", "docs/formats", "docs/certification"] {
        let entries = std::fs::read_dir(root.join(folder)).expect("a directory").flatten().map(|entry| entry.path());
        pages.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    }
    let mut broken = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let folder = page.parent().expect("a folder");
        broken.extend(
            links(&text)
                .into_iter()
                .filter(|link| !folder.join(link).exists())
                .map(|link| format!("{}: {link}", page.display())),
        );
    }
    assert!(broken.is_empty(), "{broken:#?}");
}
