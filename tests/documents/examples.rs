//! Every public item has docs, and what can be called or made has an example: in its own docs, or where a sentence with
//! "see" or "example" in it links to, and then that example names it.

use crate::markdown::{self, Line};
use crate::rustdoc::{self, Described};
use rustdoc_types::{Id, Item, ItemEnum, StructKind, VariantKind, Visibility};
use std::collections::HashSet;

/// What an item must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Docs,
    Example,
}

/// The public items of one crate, each once, under the first path by which it is found.
struct Walk<'a> {
    described: &'a Described,
    seen: HashSet<Id>,
    found: Vec<(String, &'a Item, Needs)>,
}

impl<'a> Walk<'a> {
    fn of(described: &'a Described) -> Vec<(String, &'a Item, Needs)> {
        let mut walk = Self { described, seen: HashSet::new(), found: Vec::new() };
        walk.visit(described.docs.root, "");
        walk.found.sort_by(|a, b| a.0.cmp(&b.0));
        walk.found
    }

    fn visit_all(&mut self, ids: &[Id], path: &str) {
        ids.iter().for_each(|id| self.visit(*id, path));
    }

    fn visit(&mut self, id: Id, parent: &str) {
        // Items of other crates are checked with those.
        let Some(item) = self.described.docs.index.get(&id).filter(|item| item.crate_id == 0) else { return };
        if let ItemEnum::Use(import) = &item.inner {
            match (import.id, import.is_glob) {
                (Some(target), false) => self.visit(target, parent),
                (Some(target), true) => self.visit_inside(target, parent),
                (None, _) => {}
            }
            return;
        }
        if !self.seen.insert(id) {
            return;
        }
        let name = item.name.as_deref().unwrap_or_default();
        let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}::{name}") };
        let needs = match &item.inner {
            ItemEnum::Function(_)
            | ItemEnum::Struct(_)
            | ItemEnum::Union(_)
            | ItemEnum::Enum(_)
            | ItemEnum::Trait(_)
            | ItemEnum::Macro(_)
            | ItemEnum::ProcMacro(_) => Needs::Example,
            // Fields without a name have no place for docs of their own.
            ItemEnum::StructField(_) if name.starts_with(|first: char| first.is_ascii_digit()) => return,
            _ => Needs::Docs,
        };
        self.found.push((path.clone(), item, needs));
        self.visit_inside(id, &path);
    }

    /// The items inside of an item.
    fn visit_inside(&mut self, id: Id, path: &str) {
        let Some(item) = self.described.docs.index.get(&id) else { return };
        match &item.inner {
            ItemEnum::Module(module) => self.visit_all(&module.items, path),
            ItemEnum::Trait(item) => self.visit_all(&item.items, path),
            ItemEnum::Struct(item) => {
                if let StructKind::Plain { fields, .. } = &item.kind {
                    self.visit_all(fields, path);
                }
                self.visit_impls(&item.impls, path);
            }
            ItemEnum::Union(item) => {
                self.visit_all(&item.fields, path);
                self.visit_impls(&item.impls, path);
            }
            ItemEnum::Enum(item) => {
                self.visit_all(&item.variants, path);
                self.visit_impls(&item.impls, path);
            }
            ItemEnum::Variant(variant) => {
                if let VariantKind::Struct { fields, .. } = &variant.kind {
                    self.visit_all(fields, path);
                }
            }
            _ => {}
        }
    }

    /// The methods of a type itself. Those of traits have the trait's docs.
    fn visit_impls(&mut self, impls: &[Id], path: &str) {
        for id in impls {
            let Some(Item { inner: ItemEnum::Impl(block), .. }) = self.described.docs.index.get(id) else { continue };
            if block.trait_.is_none() {
                for id in &block.items {
                    let visible = |item: &Item| item.visibility == Visibility::Public;
                    if self.described.docs.index.get(id).is_some_and(visible) {
                        self.visit(*id, path);
                    }
                }
            }
        }
    }
}

/// The lines of the blocks that the compiler sees; `None` if there are none.
fn example(docs: &str) -> Option<String> {
    let is_compiled = |language: &str| {
        language.split([',', ' ']).all(|word| {
            matches!(word, "" | "rust" | "no_run" | "should_panic" | "compile_fail") || word.starts_with("edition")
        })
    };
    let mut lines = markdown::lines(docs).filter_map(|(_, line)| match line {
        Line::Code { language, line } if is_compiled(language) => Some(line),
        _ => None,
    });
    let first = lines.next()?.to_owned();
    Some(lines.fold(first, |text, line| text + "\n" + line))
}

/// The targets of the links that a sentence points to for more, as they are written.
fn see_also(docs: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for link in markdown::links(docs) {
        let sentence = docs[..link.start].rsplit(['.', ';', ':', '(']).next().unwrap_or_default();
        let points = |word: &str| word.eq_ignore_ascii_case("see") || word.eq_ignore_ascii_case("example");
        if sentence.split_whitespace().any(points) {
            targets.push(link.target);
        }
    }
    targets
}

/// Whether an item has an example, or points to one. A function has to be named there; a type need not, for nobody
/// writes the name of a future or a guard.
fn is_shown(crates: &[Described], described: &Described, item: &Item) -> bool {
    let Some(docs) = &item.docs else { return false };
    let name = item.name.as_deref().unwrap_or_default();
    // What is awaited and what is polled show each other.
    let name = name.strip_prefix("poll_").unwrap_or(name);
    let shows = |example: String| !matches!(item.inner, ItemEnum::Function(_)) || example.contains(name);
    example(docs).is_some()
        || see_also(docs).iter().any(|target| {
            let id = item.links.get(target).or_else(|| item.links.get(target.trim_matches('`')));
            let there = id.and_then(|id| resolve(crates, described, *id)).and_then(|item| item.docs.as_deref());
            there.and_then(example).is_some_and(shows)
        })
}

/// The item of an id, in this crate or in another of ours.
fn resolve<'a>(crates: &'a [Described], described: &'a Described, id: Id) -> Option<&'a Item> {
    if let Some(item) = described.docs.index.get(&id) {
        return Some(item);
    }
    let path = &described.docs.paths.get(&id)?.path;
    crates.iter().find_map(|other| {
        let (id, _) = other.docs.paths.iter().find(|(_, summary)| summary.crate_id == 0 && summary.path == *path)?;
        other.docs.index.get(id)
    })
}

fn place(item: &Item) -> String {
    item.span.as_ref().map(|span| format!("{}:{}", span.filename.display(), span.begin.0)).unwrap_or_default()
}

#[test]
fn every_public_item_has_docs() {
    let Some(crates) = rustdoc::crates() else { return };
    let mut complaints = Vec::new();
    for (path, item, _) in crates.iter().flat_map(Walk::of) {
        if item.docs.as_deref().is_none_or(|docs| docs.trim().is_empty()) {
            complaints.push(format!("{}: `{path}` has no docs", place(item)));
        }
    }
    crate::expect_none(&complaints, "Say what each guarantees, and what it does not.");
}

#[test]
fn every_public_function_and_type_has_an_example() {
    let Some(crates) = rustdoc::crates() else { return };
    let mut complaints = Vec::new();
    for described in crates {
        for (path, item, needs) in Walk::of(described) {
            if needs == Needs::Example && !is_shown(crates, described, item) {
                complaints.push(format!("{}: `{path}` has no example", place(item)));
            }
        }
    }
    crate::expect_none(
        &complaints,
        "Write one into its docs, that runs and asserts something; or, where another item's example has this one in it too, \
         point there: \"See [`Other`].\"",
    );
}

#[test]
fn an_example_is_what_the_compiler_sees() {
    assert!(example("One.\n\n```\nlet n = 1;\n```\n").is_some());
    assert!(example("```rust,no_run\nloop {}\n```").is_some());
    assert!(example("```text\na drawing\n```").is_none());
    assert!(example("```ignore\nlet n = 1;\n```").is_none());
    assert!(example("`inline`").is_none());
}

#[test]
fn only_a_see_points_to_an_example() {
    assert_eq!(see_also("Does it; see [`giveway::spawn`](crate::spawn)."), ["crate::spawn"]);
    assert_eq!(see_also("Leaves on drop. See [`Handle::enter`]."), ["`Handle::enter`"]);
    assert_eq!(see_also("An example is at [`Handle`]."), ["`Handle`"]);
    assert!(see_also("We see. Is a [`Future`].").is_empty());
}
