//! Weakens one ordering, one second look or one step of a protocol at a time, in a copy of the
//! tree, and expects the loom models that guard it to fail. A model that passes with its mutation
//! proves nothing.

use crate::workspace::{FILES, root};
use anyhow::{Context, Result, ensure};
use proc_macro2::Span;
use serde::Deserialize;
use std::ops::Range;
use std::path::Path;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use xshell::{Shell, cmd};

#[derive(Deserialize)]
struct Mutations {
    mutation: Vec<Mutation>,
}

/// An entry of `mutations.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutation {
    name: String,
    file: String,
    /// The function that the edits are confined to. All functions of that name in the file count.
    function: String,
    /// What to find, and what to write instead.
    edits: Vec<(String, String)>,
    models: Vec<String>,
}

/// Runs the mutations that `only` names, or whose model it names, or all.
pub(crate) fn run(sh: &Shell, only: Option<&str>) -> Result<()> {
    let text = crate::workspace::read("xtask/mutations.toml");
    let mut mutations =
        toml::from_str::<Mutations>(&text).context("xtask/mutations.toml")?.mutation;
    if let Some(only) = only {
        mutations
            .iter_mut()
            .filter(|one| one.name != only)
            .for_each(|one| one.models.retain(|model| model == only));
        mutations.retain(|one| !one.models.is_empty());
        ensure!(!mutations.is_empty(), "no mutation and no model is named `{only}`");
    }
    let folder = sh.create_temp_dir()?;
    for file in FILES.iter() {
        let copy = folder.path().join(file);
        sh.create_dir(copy.parent().expect("it is in the folder"))?;
        sh.copy_file(root().join(file), copy)?;
    }
    let _dir = sh.push_dir(folder.path());
    let _flags = sh.push_env("RUSTFLAGS", "--cfg giveway_loom -A warnings");
    let _target = sh.push_env("CARGO_TARGET_DIR", crate::soak::target_folder().join("mutations"));
    let _backtrace = sh.push_env("RUST_BACKTRACE", "0");
    // Only what a mutation touches is compiled again.
    let _incremental = sh.push_env("CARGO_INCREMENTAL", "1");
    let mut complaints = Vec::new();
    for mutation in &mutations {
        let path = folder.path().join(&mutation.file);
        let original = sh.read_file(&path).with_context(|| mutation.name.clone())?;
        complaints.extend(mutation.faults(sh, &original, &path)?);
        sh.write_file(&path, original)?;
    }
    let models: usize = mutations.iter().map(|mutation| mutation.models.len()).sum();
    println!("{} mutations, {models} models that must fail", mutations.len());
    crate::expect_none(&complaints, "Mend the mutation, or the model.")
}

impl Mutation {
    /// Applies the mutation to `path`, and returns what did not go as it must.
    fn faults(&self, sh: &Shell, original: &str, path: &Path) -> Result<Vec<String>> {
        let mutated = match self.apply(original) {
            Ok(mutated) => mutated,
            Err(error) => return Ok(vec![format!("{}: {error}", self.name)]),
        };
        sh.write_file(path, mutated)?;
        let package = if self.file.starts_with("io/") { "giveway-io" } else { "giveway" };
        let build = cmd!(sh, "cargo test -q --release -p {package} --lib --no-run")
            .quiet()
            .ignore_status()
            .output()?;
        if !build.status.success() {
            let errors = String::from_utf8_lossy(&build.stderr);
            return Ok(vec![format!("{}: does not compile: {errors}", self.name)]);
        }
        let mut faults = Vec::new();
        for model in &self.models {
            let test =
                cmd!(sh, "timeout 120 cargo test -q --release -p {package} --lib -- ::{model}");
            if test.quiet().ignore_status().output()?.status.success() {
                faults.push(format!("{}: the model {model} passes", self.name));
            } else {
                println!("{model} fails, as it must: {}", self.name);
            }
        }
        Ok(faults)
    }

    fn apply(&self, original: &str) -> Result<String> {
        let mut text = original.to_owned();
        for (find, replace) in &self.edits {
            let functions = functions(&text, &self.function)?;
            ensure!(!functions.is_empty(), "{} has no function `{}`", self.file, self.function);
            let found: Vec<_> =
                functions.into_iter().flat_map(|range| matches(&text, range, find)).collect();
            ensure!(!found.is_empty(), "`{}` has no `{find}`", self.function);
            for range in found.into_iter().rev() {
                text.replace_range(range, replace);
            }
        }
        Ok(text)
    }
}

/// Returns where the functions with a name are, in bytes.
fn functions(source: &str, name: &str) -> Result<Vec<Range<usize>>> {
    struct Find<'a> {
        name: &'a str,
        found: Vec<Span>,
    }
    impl<'ast> Visit<'ast> for Find<'_> {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            self.found.extend((item.sig.ident == self.name).then(|| item.span()));
            visit::visit_item_fn(self, item);
        }
        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.found.extend((item.sig.ident == self.name).then(|| item.span()));
            visit::visit_impl_item_fn(self, item);
        }
    }
    let mut find = Find { name, found: Vec::new() };
    find.visit_file(&syn::parse_file(source)?);
    Ok(find.found.into_iter().map(|span| span.byte_range()).collect())
}

/// Returns where `pattern` stands within `range`, whatever the white space.
fn matches(text: &str, range: Range<usize>, pattern: &str) -> Vec<Range<usize>> {
    let wanted: Vec<char> = pattern.chars().filter(|char| !char.is_whitespace()).collect();
    let mut found: Vec<Range<usize>> = Vec::new();
    for (offset, first) in text[range.clone()].char_indices() {
        let start = range.start + offset;
        if first.is_whitespace() || found.last().is_some_and(|last| start < last.end) {
            continue;
        }
        let rest = text[start..range.end].char_indices().filter(|(_, char)| !char.is_whitespace());
        let ends = rest.zip(&wanted).take_while(|((_, char), wanted)| char == *wanted);
        let ends: Vec<usize> = ends.map(|((at, char), _)| start + at + char.len_utf8()).collect();
        if ends.len() == wanted.len() {
            found.extend(ends.last().map(|end| start..*end));
        }
    }
    found
}

#[test]
fn a_mutation_is_found_whatever_the_layout_and_only_in_its_function() {
    let source = "fn a() { f(x,\n  y); }\nimpl T { fn b(&self) { f(x, y); } }\n";
    let mutation = |function: &str| Mutation {
        name: String::new(),
        file: String::new(),
        function: function.to_owned(),
        edits: vec![("f(x, y)".to_owned(), "g()".to_owned())],
        models: Vec::new(),
    };
    assert_eq!(mutation("a").apply(source).unwrap(), source.replacen("f(x,\n  y)", "g()", 1));
    assert_eq!(mutation("b").apply(source).unwrap(), source.replacen("f(x, y)", "g()", 1));
    assert!(mutation("c").apply(source).is_err());
}
