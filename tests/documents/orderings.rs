//! The map of orderings names each atomic field of the four crates once, and no other.

use crate::members::body;
use crate::source::{self, Kind};
use crate::{expect_none, workspace};
use std::collections::{BTreeMap, BTreeSet};

const CRATES: [&str; 4] = ["budget/src/", "yield/src/", "io/src/", "executor/src/"];

/// Files of tests and models, whose atomics are theirs.
const NOT_SHIPPED: [&str; 4] = ["tests.rs", "models.rs", "fake.rs", "stepper"];

/// The atomic fields that a file defines, as `Type::field`, or as `Type` if the field has no name. References to atomics are of those
/// that own them.
fn atomic_fields(code: &str) -> BTreeSet<String> {
    let tokens = source::tokens(code);
    let mut found = BTreeSet::new();
    for (at, token) in tokens.iter().enumerate() {
        let Some(name) = tokens.get(at + 1).filter(|_| *token == "struct") else { continue };
        let named = tokens[at..].iter().find(|token| ["{", "(", ";"].contains(token)) == Some(&"{");
        if !named {
            let end = tokens[at..].iter().position(|token| *token == ";").unwrap_or_default();
            found.extend(is_atomic(&tokens[at..at + end]).then(|| (*name).to_owned()));
            continue;
        }
        for field in fields(body(&tokens[at + 1..])) {
            let colon = field.iter().position(|token| *token == ":").unwrap_or_default();
            if is_atomic(&field[colon..]) {
                found.insert(format!("{name}::{}", field[colon.saturating_sub(1)]));
            }
        }
    }
    found
}

/// Whether a type has an atomic in it, by value.
fn is_atomic(kind: &[&str]) -> bool {
    kind.iter().any(|token| token.starts_with("Atomic")) && !kind.contains(&"&")
}

/// The fields of a struct, each with its attributes and its type.
fn fields<'a, 'b>(tokens: &'b [&'a str]) -> Vec<&'b [&'a str]> {
    let (mut depth, mut begin, mut found) = (0_i32, 0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match *token {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[begin..]);
    found
}

/// What ships of a file: not its modules of tests and models, which are at its end.
fn shipped(text: &str) -> String {
    let pieces = source::pieces(text).into_iter();
    let code: String = pieces.filter(|piece| piece.kind == Kind::Code).map(|piece| piece.text).collect();
    let lines: Vec<_> = code.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let begins_tests = |pair: &[&str]| {
        pair[0].starts_with("#[cfg(") && pair[0].contains("test") && pair[1].contains("mod ") && pair[1].ends_with('{')
    };
    let end = lines.windows(2).position(begins_tests).unwrap_or(lines.len());
    lines[..end].join("\n")
}

/// How often each name stands in the first column of the map.
fn rows(page: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        // A second row of what stands above: another protocol that it is part of.
        if cell.trim_start().starts_with("the same") {
            continue;
        }
        for name in cell.split('`').skip(1).step_by(2) {
            let (kind, members) = name.split_once("::{").unwrap_or((name, ""));
            let members = members.trim_end_matches('}').split(", ").filter(|member| !member.is_empty());
            let mut names: Vec<_> = members.map(|member| format!("{kind}::{member}")).collect();
            if names.is_empty() {
                names.push(name.to_owned());
            }
            names.into_iter().for_each(|name| *found.entry(name).or_default() += 1);
        }
    }
    found
}

#[test]
fn each_atomic_field_has_one_row_in_the_map_of_orderings() {
    let shipped_files = workspace::files_ending(".rs")
        .filter(|path| CRATES.iter().any(|folder| path.starts_with(folder)))
        .filter(|path| !NOT_SHIPPED.iter().any(|part| path.contains(part)));
    let fields: BTreeSet<_> = shipped_files.flat_map(|path| atomic_fields(&shipped(&workspace::read(path)))).collect();
    assert!(fields.len() > 50, "only {} atomics were found", fields.len());
    let rows = rows(&workspace::read("docs/orderings.md"));
    let times = |field: &String| rows.get(field).copied().unwrap_or_default();
    let missing = fields.iter().filter(|field| times(field) != 1);
    let complaints: Vec<_> = missing.map(|field| format!("`{field}` stands in {} rows", times(field))).collect();
    expect_none(&complaints, "Give each one row in `docs/orderings.md`.");
}

#[test]
fn atomics_are_found_with_and_without_names() {
    let code =
        "struct A { x: u8, y: CachePadded<AtomicU8>, z: &'a AtomicU8 } struct B(AtomicBool); struct C; struct D<T>(T);";
    assert_eq!(atomic_fields(code), ["A::y", "B"].map(String::from).into());
    let page = "| `A::{y, z}` (two) | `no` |\n| `B` | |\n| `B` | |\n";
    assert_eq!(rows(page), [("A::y", 1), ("A::z", 1), ("B", 2)].map(|(name, n)| (name.to_owned(), n)).into());
}
