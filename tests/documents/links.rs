//! Links of the pages: a file and its heading exist; what is elsewhere has a well-formed address.
//! Links in the docs of code are rustdoc's to check.

use crate::{markdown, workspace};
use std::path::Path;

/// What is wrong with a link in the page at `path`, if anything is.
fn fault(path: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return fault_of_address(target);
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let linked = if file.is_empty() { path.to_owned() } else { join(path, file) };
    let linked = linked.trim_end_matches('/');
    let folder = format!("{linked}/");
    let exists = workspace::files().contains(linked)
        || workspace::files().range(folder.clone()..).next().is_some_and(|other| other.starts_with(&folder));
    if !exists {
        return Some("there is no such file in the repository".into());
    }
    let anchor = anchor?;
    if !linked.ends_with(".md") {
        // GitHub's lines of a file. They move with every change above them.
        return Some("a link to a line is stale soon: link to the file".into());
    }
    let anchors = markdown::anchors(&workspace::read(linked));
    (!anchors.iter().any(|other| other == anchor))
        .then(|| format!("`{linked}` has no such heading; it has: {}", anchors.join(", ")))
}

/// The path of `link`, as seen from the page at `path`, relative to the root.
fn join(path: &str, link: &str) -> String {
    let mut parts: Vec<_> = Path::new(path).iter().map(|part| part.to_str().unwrap_or_default()).collect();
    parts.pop(); // the page itself
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => parts.push(".."),
            ".." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn fault_of_address(target: &str) -> Option<String> {
    let Some(rest) = target.strip_prefix("https://") else {
        return Some("an address begins with https://".into());
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain =
        |label: &str| !label.is_empty() && label.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    if !host.contains('.') || !host.split('.').all(plain) {
        return Some("that is not the name of a public host".into());
    }
    let number = host.chars().all(|char| char.is_ascii_digit() || char == '.');
    let here = [".local", ".internal", ".localhost", ".lan"].iter().any(|end| host.ends_with(end));
    (number || here).then(|| "that is an address of this machine or its network".into())
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let mut complaints = Vec::new();
    for path in workspace::files_ending(".md") {
        let page = workspace::read(path);
        for link in markdown::links(&page).into_iter().filter(|link| link.explicit) {
            if let Some(fault) = fault(path, &link.target) {
                complaints.push(format!("{path}:{}: `{}`: {fault}", link.line, link.target));
            }
        }
    }
    crate::expect_none(&complaints, "Mend the links.");
}

/// The files that a page links to.
fn linked_from(page: &str) -> Vec<String> {
    let links = markdown::links(&workspace::read(page));
    links.iter().map(|link| join(page, link.target.split('#').next().unwrap_or_default())).collect()
}

#[test]
fn the_book_and_the_examples_have_whole_tables_of_contents() {
    let book = linked_from("docs/README.md");
    let pages = workspace::files_ending(".md").filter(|path| path.starts_with("docs/") && *path != "docs/README.md");
    let mut missing: Vec<_> = pages
        .filter(|page| !book.iter().any(|linked| linked == page))
        .map(|page| format!("docs/README.md: `{page}` is not linked"))
        .collect();
    let listed = linked_from("examples/README.md");
    let examples =
        workspace::packages().iter().flat_map(|package| &package.targets).filter(|(kind, _)| kind == "example");
    for (_, name) in examples {
        let files = [format!("examples/{name}.rs"), format!("examples/{name}/main.rs")];
        if !listed.iter().any(|linked| files.contains(linked)) {
            missing.push(format!("examples/README.md: the example `{name}` is not linked"));
        }
    }
    crate::expect_none(&missing, "Add a line for each.");
}

#[test]
fn dead_links_are_noticed() {
    assert_eq!(fault("docs/io.md", "../README.md#status"), None);
    assert_eq!(fault("docs/io.md", "architecture.md"), None);
    assert_eq!(fault("README.md", "docs/"), None);
    assert!(fault("docs/io.md", "CHANGELOG.md").is_some());
    assert!(fault("README.md", "#no-such-heading").is_some());
    assert!(fault("README.md", "http://example.org").is_some());
    assert!(fault("README.md", "https://localhost/x").is_some());
    assert!(fault("README.md", "https://127.0.0.1/x").is_some());
    assert_eq!(fault("README.md", "https://example.org/x"), None);
}
