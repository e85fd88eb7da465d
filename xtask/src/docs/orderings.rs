//! The map of orderings names each atomic field of the four crates once.

use crate::workspace::{files_ending, read};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

const CRATES: [&str; 4] = ["budget/src/", "yield/src/", "io/src/", "executor/src/"];

/// Files of tests and models, whose atomics are not shipped.
const NOT_SHIPPED: [&str; 4] = ["tests.rs", "models", "fake.rs", "stepper"];

/// Returns the fields that do not stand in exactly one row.
pub(crate) fn check() -> Vec<String> {
    let shipped = files_ending(".rs")
        .filter(|path| CRATES.iter().any(|folder| path.starts_with(folder)))
        .filter(|path| !NOT_SHIPPED.iter().any(|part| path.contains(part)));
    let fields: BTreeSet<_> = shipped.flat_map(|path| atomic_fields(&read(path))).collect();
    assert!(fields.len() > 50, "only {} atomics were found", fields.len());
    let rows = rows(&read("docs/orderings.md"));
    let times = |field: &String| rows.get(field).copied().unwrap_or_default();
    let missing = fields.iter().filter(|field| times(field) != 1);
    missing.map(|field| format!("`{field}` stands in {} rows", times(field))).collect()
}

/// Returns the atomic fields that a file defines, as `Type::field`, or as `Type` if the field has
/// no name. References to atomics belong to the field that they refer to.
fn atomic_fields(code: &str) -> BTreeSet<String> {
    #[derive(Default)]
    struct Fields(BTreeSet<String>);
    impl<'ast> Visit<'ast> for Fields {
        fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
            let is_test = |attribute: &syn::Attribute| {
                let list = attribute.meta.require_list().map(|list| list.tokens.to_string());
                attribute.path().is_ident("cfg") && list.is_ok_and(|cfg| cfg.contains("test"))
            };
            if !item.attrs.iter().any(is_test) {
                visit::visit_item_mod(self, item);
            }
        }
        fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
            for field in item.fields.iter().filter(|field| is_atomic(&field.ty)) {
                let name = field.ident.as_ref().map(|name| format!("::{name}")).unwrap_or_default();
                self.0.insert(format!("{}{name}", item.ident));
            }
        }
    }
    let mut fields = Fields::default();
    fields.visit_file(&syn::parse_file(code).expect("the repository compiles"));
    fields.0
}

/// Whether a type has an atomic in it, by value.
fn is_atomic(kind: &syn::Type) -> bool {
    #[derive(Default)]
    struct Find(bool);
    impl<'ast> Visit<'ast> for Find {
        fn visit_type_reference(&mut self, _: &'ast syn::TypeReference) {}
        fn visit_path_segment(&mut self, segment: &'ast syn::PathSegment) {
            self.0 |= segment.ident.to_string().starts_with("Atomic");
            visit::visit_path_segment(self, segment);
        }
    }
    let mut find = Find::default();
    find.visit_type(kind);
    find.0
}

/// Returns how often each name stands in the first column of the map.
fn rows(page: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cell = row.split('|').nth(1).unwrap_or_default();
        // A second row of what stands above: another protocol that it is part of.
        if cell.trim_start().starts_with("the same") {
            continue;
        }
        for name in cell.split('`').skip(1).step_by(2) {
            let (owner, members) = name.split_once("::{").unwrap_or((name, ""));
            let members =
                members.trim_end_matches('}').split(", ").filter(|member| !member.is_empty());
            let mut names: Vec<_> = members.map(|member| format!("{owner}::{member}")).collect();
            if names.is_empty() {
                names.push(name.to_owned());
            }
            names.into_iter().for_each(|name| *found.entry(name).or_default() += 1);
        }
    }
    found
}

#[test]
fn atomics_are_found_with_and_without_names() {
    let code = "struct A { x: u8, y: CachePadded<AtomicU8>, z: &'static AtomicU8 } struct \
                B(AtomicBool); struct C; struct D<T>(T); #[cfg(test)] mod tests { struct \
                E(AtomicU8); }";
    assert_eq!(atomic_fields(code), ["A::y", "B"].map(String::from).into());
    let page = "| `A::{y, z}` (two) | `no` |\n| `B` | |\n| `B` | |\n";
    assert_eq!(
        rows(page),
        [("A::y", 1), ("A::z", 1), ("B", 2)].map(|(name, n)| (name.to_owned(), n)).into()
    );
}
