//! Links of the pages: a file and its heading exist; what is elsewhere has a well-formed address.
//! Links in the docs of code are rustdoc's to check.

use super::prose::Markdown;
use crate::workspace::{FILES, files_ending, packages, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Returns the links that lead nowhere, and the pages that no link leads to.
pub(crate) fn check() -> Vec<String> {
    let mut complaints = Vec::new();
    let mut linked: BTreeSet<String> = ["README.md".to_owned()].into();
    for path in files_ending(".md") {
        for (line, target) in Markdown::parse(&read(path)).links {
            complaints.extend(
                fault(path, &target).map(|fault| format!("{path}:{line}: `{target}`: {fault}")),
            );
            linked.insert(join(path, target.split('#').next().unwrap_or_default()));
        }
    }
    let is_reached = |path: &&str| {
        path.starts_with("docs/") || path.contains("/src/") || path.starts_with("examples/")
    };
    let pages = files_ending(".md").filter(is_reached);
    let examples =
        packages().iter().flat_map(|package| &package.targets).filter(|target| target.is_example());
    let examples = examples
        .map(|example| example.src_path.strip_prefix(root()).expect("below the root").as_str());
    let lost = pages.chain(examples).filter(|path| !linked.contains(*path));
    complaints.extend(lost.map(|path| format!("{path}: no page links to it")));
    complaints
}

/// Returns what is wrong with a link in the page at `path`.
fn fault(path: &str, target: &str) -> Option<String> {
    if target.contains("://") {
        return fault_of_address(target);
    }
    let (file, anchor) =
        target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let linked = if file.is_empty() { path.to_owned() } else { join(path, file) };
    let folder = format!("{linked}/");
    if !FILES.contains(&linked) && !FILES.iter().any(|other| other.starts_with(&folder)) {
        return Some("there is no such file in the repository".to_owned());
    }
    let anchor = anchor?;
    if !linked.ends_with(".md") {
        return Some("a link to a line is stale soon: link to the file".to_owned());
    }
    let anchors = anchors(&read(&linked));
    (!anchors.iter().any(|other| other == anchor))
        .then(|| format!("`{linked}` has no such heading; it has: {}", anchors.join(", ")))
}

/// Returns the path of `link`, as seen from the page at `path`, relative to the root.
fn join(path: &str, link: &str) -> String {
    let mut parts: Vec<_> =
        Path::new(path).iter().map(|part| part.to_str().unwrap_or_default()).collect();
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
        return Some("an address begins with https://".to_owned());
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_name = |label: &str| {
        !label.is_empty() && label.chars().all(|char| char.is_ascii_alphanumeric() || char == '-')
    };
    let is_number = host.chars().all(|char| char.is_ascii_digit() || char == '.');
    let is_local =
        [".local", ".internal", ".localhost", ".lan"].iter().any(|end| host.ends_with(end));
    let is_public = host.contains('.') && host.split('.').all(is_name) && !is_number && !is_local;
    (!is_public).then(|| "that is not the name of a public host".to_owned())
}

/// Returns the anchors of a page's headings, as GitHub makes them: a repeated one gets a number.
fn anchors(page: &str) -> Vec<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let headings = Markdown::parse(page).headings;
    let anchor = |title: &String| {
        let kept = |char: &char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_');
        let slug =
            title.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-");
        let before = times.entry(slug.clone()).or_default();
        *before += 1;
        if *before == 1 { slug } else { format!("{slug}-{}", *before - 1) }
    };
    headings.iter().map(anchor).collect()
}

#[test]
fn headings_make_anchors() {
    let page = "# A `b_c`, d: e\n\n## B 2\n\n## B\n\n## B\n\n```\n# no\n```\n";
    assert_eq!(anchors(page), ["a-b_c-d-e", "b-2", "b", "b-1"]);
}

#[test]
fn links_that_lead_nowhere_are_noticed() {
    assert_eq!(fault("docs/README.md", "../README.md"), None);
    assert_eq!(fault("docs/README.md", "../xtask"), None);
    assert_eq!(fault("README.md", "https://docs.rs/giveway"), None);
    for target in [
        "no_such.md",
        "../README.md#no-such-heading",
        "http://docs.rs",
        "https://10.0.0.1",
        "https://a.internal/",
    ] {
        assert!(fault("docs/README.md", target).is_some(), "{target}");
    }
}
