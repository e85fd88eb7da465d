//! The names that code has: words outside of comments, modules, packages, members of types.

use crate::members::Members;
use crate::source::{Kind, is_identifier, pieces, tokens};
use crate::workspace::{self, files_ending};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// Roots of paths that lead out of the repository, besides the packages we depend on.
const ABROAD: [&str; 14] =
    ["std", "core", "alloc", "u8", "u16", "u32", "u64", "usize", "i32", "i64", "isize", "f64", "bool", "str"];

/// Everything that has a name.
#[derive(Debug, Default)]
pub(crate) struct Vocabulary {
    /// Each word of code, with the files that have it.
    words: BTreeMap<String, BTreeSet<&'static str>>,
    members: Members,
    dependencies: BTreeSet<String>,
}

impl Vocabulary {
    /// That of the repository.
    pub(crate) fn ours() -> &'static Self {
        static OURS: OnceLock<Vocabulary> = OnceLock::new();
        OURS.get_or_init(|| {
            let mut ours = Self::default();
            files_ending(".rs").for_each(|path| ours.add_rust(path, &workspace::read(path)));
            // Scripts have no ending in their names. (Nor have licences, whose words do no harm.)
            let is_script = |path: &&String| path.ends_with(".toml") || path.starts_with(".ci/") || !path.contains('.');
            let scripts = workspace::files().iter().filter(is_script);
            scripts.for_each(|path| ours.add_script(path, &workspace::read(path)));
            ours.dependencies = dependencies();
            ours
        })
    }

    fn add_rust(&mut self, path: &'static str, source: &str) {
        let pieces = pieces(source);
        let mut code = String::new();
        for piece in &pieces {
            match piece.kind {
                // What was taken out separates words.
                Kind::Code => code.extend([&*piece.text, " "]),
                // Variables of the environment, names of features, fields and targets.
                Kind::String => {
                    let is_variable = |word: &&str| word.contains('_') && !word.contains(char::is_lowercase);
                    let words = tokens(&piece.text);
                    let named = if words.len() == 1 { words } else { words.into_iter().filter(is_variable).collect() };
                    named.into_iter().for_each(|word| self.add(path, word));
                }
                Kind::Comment => {}
            }
        }
        let tokens = tokens(&code);
        tokens.iter().for_each(|word| self.add(path, word));
        self.members.add(&tokens);
    }

    /// Shell and TOML: the words of each line, up to its comment.
    fn add_script(&mut self, path: &'static str, text: &str) {
        for line in text.lines() {
            let code = if line.trim_start().starts_with('#') { "" } else { line.split(" # ").next().unwrap_or(line) };
            tokens(code).into_iter().for_each(|word| self.add(path, word));
        }
    }

    fn add(&mut self, path: &'static str, word: &str) {
        if is_identifier(word) {
            self.words.entry(word.to_owned()).or_default().insert(path);
        }
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

    /// What is wrong with a path, if anything is. It is read from its end: `Type::member`, `module::item`.
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
            return (!self.has(name)).then(|| "no code has that name".into());
        }
        path.windows(2).find_map(|pair| self.fault_of_pair(pair[0], pair[1]))
    }

    fn fault_of_pair(&self, owner: &str, name: &str) -> Option<String> {
        if self.members.has_type(owner) {
            return (!self.members.has(owner, name)).then(|| format!("our `{owner}` has no `{name}`"));
        }
        let inside: Vec<_> = module(owner).collect();
        if inside.is_empty() {
            return (!self.has(owner) || !self.has(name)).then(|| format!("no code has `{owner}` and `{name}`"));
        }
        let found = self.words.get(name).is_some_and(|files| inside.iter().any(|path| files.contains(path)));
        // A module inside of a module may be a file, or a package that is re-exported.
        let is_module = || module(name).next().is_some();
        (!found && !is_module()).then(|| format!("no code in the module `{owner}` has `{name}`"))
    }
}

/// The Rust files of a module or a crate, wherever modules have that name.
fn module(name: &str) -> impl Iterator<Item = &'static str> {
    let package = workspace::packages().iter().find(|package| package.crate_name() == name);
    let (folder, file) = (format!("/{name}/"), format!("/{name}.rs"));
    files_ending(".rs").filter(move |path| {
        let rooted = format!("/{path}");
        package.is_some_and(|package| path.starts_with(&package.folder))
            || rooted.contains(&folder)
            || rooted.ends_with(&file)
    })
}

/// The packages that ours depend on, as they are written in paths.
fn dependencies() -> BTreeSet<String> {
    let names = workspace::packages().iter().flat_map(|package| &package.dependencies);
    let ours = |name: &&String| workspace::packages().iter().any(|package| package.name == **name);
    names.filter(|name| !ours(name)).map(|name| name.replace('-', "_")).collect()
}
