//! The names that code has: words outside of comments, modules, packages, members of types.

use super::prose::{RUST, Rust};
use crate::workspace::{FILES, crate_name, files_ending, folder, packages, read};
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use syn::visit::{self, Visit};

/// Roots of paths that lead out of the repository, besides the packages it depends on.
const ABROAD: [&str; 14] = [
    "std", "core", "alloc", "u8", "u16", "u32", "u64", "usize", "i32", "i64", "isize", "f64",
    "bool", "str",
];

/// What `#[derive]` brings.
const DERIVED: [&str; 8] = ["clone", "default", "eq", "ne", "cmp", "partial_cmp", "hash", "fmt"];

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// Each word of code, with the files that have it.
    words: BTreeMap<String, BTreeSet<&'static str>>,
    members: Members,
    dependencies: BTreeSet<String>,
}

impl Vocabulary {
    /// Returns that of the repository.
    pub(crate) fn ours() -> &'static Self {
        static OURS: LazyLock<Vocabulary> = LazyLock::new(|| {
            let mut ours = Vocabulary::default();
            RUST.iter().for_each(|(path, rust)| ours.add_rust(path, rust));
            let is_script = |path: &&String| path.ends_with(".toml") || path.starts_with(".ci/");
            FILES.iter().filter(is_script).for_each(|path| ours.add_script(path, &read(path)));
            let dependencies = packages().iter().flat_map(|package| &package.dependencies);
            let foreign = dependencies
                .filter(|one| packages().iter().all(|package| *package.name != one.name));
            ours.dependencies = foreign.map(|one| one.name.replace('-', "_")).collect();
            ours
        });
        &OURS
    }

    fn add_rust(&mut self, path: &'static str, rust: &Rust) {
        rust.words.iter().for_each(|word| self.add(path, word));
        // Variables of the environment, and what is a word alone: names of features and fields.
        for (_, string) in &rust.strings {
            let words: Vec<_> =
                words(string).filter(|word| !["r", "b", "c"].contains(word)).collect();
            let is_variable =
                |word: &&str| word.contains('_') && !word.contains(char::is_lowercase);
            let alone = words.len() == 1;
            words
                .into_iter()
                .filter(|word| alone || is_variable(word))
                .for_each(|word| self.add(path, word));
        }
        self.members.visit_file(
            &syn::parse_file(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}")),
        );
    }

    /// Adds the words of shell or TOML, without comments.
    fn add_script(&mut self, path: &'static str, text: &str) {
        for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
            words(line.split(" # ").next().unwrap_or(line)).for_each(|word| self.add(path, word));
        }
    }

    fn add(&mut self, path: &'static str, word: &str) {
        self.words.entry(word.to_owned()).or_default().insert(path);
    }

    /// Whether code has that word.
    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.contains_key(word)
    }

    /// Whether code has a word that begins like this.
    pub(crate) fn has_start(&self, start: &str) -> bool {
        self.words.range(start.to_owned()..).next().is_some_and(|(word, _)| word.starts_with(start))
    }

    /// Whether code has a word with this in it.
    pub(crate) fn has_part(&self, part: &str) -> bool {
        self.words.keys().any(|word| word.contains(part))
    }

    /// Returns what is wrong with a path, which is read from its end: `Type::member`,
    /// `module::item`.
    pub(crate) fn fault(&self, path: &[&str]) -> Option<String> {
        let path = match path {
            ["crate" | "self" | "super" | "Self", rest @ ..] if !rest.is_empty() => rest,
            path => path,
        };
        let root = path[0];
        if path.len() > 1 && (ABROAD.contains(&root) || self.dependencies.contains(root)) {
            return None;
        }
        if let [name] = path {
            return (!self.has(name)).then(|| "no code has that name".to_owned());
        }
        path.windows(2).find_map(|pair| self.fault_of_pair(pair[0], pair[1]))
    }

    fn fault_of_pair(&self, owner: &str, name: &str) -> Option<String> {
        let defined = self.members.types.contains(owner);
        if let Some(members) = self.members.of.get(owner).filter(|_| defined) {
            let is_member = members.contains(name)
                || DERIVED.contains(&name)
                || self.members.of_macros.contains(name);
            return (!is_member).then(|| format!("our `{owner}` has no `{name}`"));
        }
        let inside: Vec<_> = module(owner).collect();
        if inside.is_empty() {
            return (!self.has(owner) || !self.has(name))
                .then(|| format!("no code has `{owner}` and `{name}`"));
        }
        let found = self
            .words
            .get(name)
            .is_some_and(|files| inside.iter().any(|path| files.contains(path)));
        // A module inside of a module may be a file, or a package that is re-exported.
        let is_module = || module(name).next().is_some();
        (!found && !is_module()).then(|| format!("no code in the module `{owner}` has `{name}`"))
    }
}

/// Returns the words of a text that could be names.
fn words(text: &str) -> impl Iterator<Item = &str> {
    static WORD: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\b[\p{Alphabetic}_]\w*").expect("a regular expression"));
    WORD.find_iter(text).map(|word| word.as_str())
}

/// Returns the Rust files of a module or a crate, wherever a module has that name.
fn module(name: &str) -> impl Iterator<Item = &'static str> {
    let package = packages().iter().find(|package| crate_name(package) == name).map(folder);
    let (inside, file) = (format!("/{name}/"), format!("/{name}.rs"));
    files_ending(".rs").filter(move |path| {
        let rooted = format!("/{path}");
        package.as_ref().is_some_and(|package| path.starts_with(package))
            || rooted.contains(&inside)
            || rooted.ends_with(&file)
    })
}

/// Which names belong to which type: methods, constants, fields, variants.
#[derive(Debug, Default)]
struct Members {
    types: BTreeSet<String>,
    of: BTreeMap<String, BTreeSet<String>>,
    /// The functions, constants and types in macros, which may be members of any type.
    of_macros: BTreeSet<String>,
}

impl Members {
    fn define(&mut self, owner: &syn::Ident, members: impl IntoIterator<Item = String>) {
        self.types.insert(owner.to_string());
        self.add(owner, members);
    }

    fn add(&mut self, owner: &syn::Ident, members: impl IntoIterator<Item = String>) {
        self.of.entry(owner.to_string()).or_default().extend(members);
    }
}

fn fields(fields: &syn::Fields) -> Vec<String> {
    fields.iter().filter_map(|field| field.ident.as_ref()).map(ToString::to_string).collect()
}

impl<'ast> Visit<'ast> for Members {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.define(&item.ident, fields(&item.fields));
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        let variants = item.variants.iter();
        let members = variants.flat_map(|variant| {
            [variant.ident.to_string()].into_iter().chain(fields(&variant.fields))
        });
        self.define(&item.ident, members);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let name = |item: &syn::TraitItem| match item {
            syn::TraitItem::Fn(item) => Some(item.sig.ident.to_string()),
            syn::TraitItem::Const(item) => Some(item.ident.to_string()),
            syn::TraitItem::Type(item) => Some(item.ident.to_string()),
            _ => None,
        };
        self.define(&item.ident, item.items.iter().filter_map(name));
        visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = |item: &syn::ImplItem| match item {
            syn::ImplItem::Fn(item) => Some(item.sig.ident.to_string()),
            syn::ImplItem::Const(item) => Some(item.ident.to_string()),
            syn::ImplItem::Type(item) => Some(item.ident.to_string()),
            _ => None,
        };
        if let syn::Type::Path(path) = &*item.self_ty
            && let Some(last) = path.path.segments.last()
        {
            self.add(&last.ident, item.items.iter().filter_map(name));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        static ITEM: LazyLock<Regex> = LazyLock::new(|| {
            Regex::new(r"\b(?:fn|const|type) (\w+)").expect("a regular expression")
        });
        let tokens = item.mac.tokens.to_string();
        self.of_macros.extend(ITEM.captures_iter(&tokens).map(|item| item[1].to_owned()));
    }
}

#[test]
fn members_are_found_in_every_kind_of_definition() {
    let code = "struct A<T> where T: B { c: T, d: Vec<(u8, E)> } impl<T: F<G>> A<T> { pub const \
                H: u8 = 1; fn i(self) { fn j() {} } } impl<T> fmt::K for l::A<T> where T: M { \
                type N = u8; } enum O { #[p] Q { r: u8 }, S(T) } trait U { fn v(); fn w() {} } \
                struct Unit;";
    let mut members = Members::default();
    members.visit_file(&syn::parse_file(code).unwrap());
    let of = |name: &str| members.of[name].iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(of("A"), "H N c d i");
    assert_eq!(of("O"), "Q S r");
    assert_eq!(of("U"), "v w");
    assert_eq!(of("Unit"), "");
}
