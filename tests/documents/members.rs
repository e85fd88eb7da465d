//! Which names belong to which type: methods, constants, fields, variants. Read from the words of the code alone, which
//! is enough to tell a method from one that has been renamed.

use crate::source::is_identifier;
use std::collections::{BTreeMap, BTreeSet};

/// The types that code defines, and their members.
#[derive(Debug, Default)]
pub(crate) struct Members {
    of: BTreeMap<String, BTreeSet<String>>,
    /// Members of types that a macro names.
    of_macros: BTreeSet<String>,
}

/// What `#[derive]` brings.
const DERIVED: [&str; 8] = ["clone", "default", "eq", "ne", "cmp", "partial_cmp", "hash", "fmt"];

impl Members {
    /// Adds what a file defines.
    pub(crate) fn add(&mut self, tokens: &[&str]) {
        for (at, token) in tokens.iter().enumerate() {
            let name = tokens.get(at + 1).copied().unwrap_or_default();
            match *token {
                "struct" | "union" if is_identifier(name) => self.define(name, fields(body(&tokens[at + 1..]))),
                "enum" if is_identifier(name) => self.define(name, variants(body(&tokens[at + 1..]))),
                "trait" if is_identifier(name) => self.define(name, items(body(&tokens[at + 1..]))),
                // Elsewhere it stands for a type: `fn f() -> impl Future`.
                "impl" if at == 0 || ["}", ";", "]", "{", ")", "unsafe"].contains(&tokens[at - 1]) => {
                    self.add_impl(&tokens[at + 1..]);
                }
                _ => {}
            }
        }
    }

    fn define(&mut self, name: &str, members: BTreeSet<String>) {
        self.of.entry(name.to_owned()).or_default().extend(members);
    }

    fn add_impl(&mut self, tokens: &[&str]) {
        let Some(end) = tokens.iter().position(|token| *token == "{") else { return };
        let (head, members) = (&tokens[..end], items(body(tokens)));
        let whole = head.iter().position(|token| *token == "where").map_or(head, |at| &head[..at]);
        match subject(whole) {
            Some(name) => self.define(name, members),
            None => self.of_macros.extend(members),
        }
    }

    /// Whether code defines a type of that name.
    pub(crate) fn has_type(&self, name: &str) -> bool {
        self.of.contains_key(name)
    }

    /// Whether a type may have such a member.
    pub(crate) fn has(&self, name: &str, member: &str) -> bool {
        self.of_macros.contains(member)
            || DERIVED.contains(&member)
            || self.of.get(name).is_some_and(|members| members.contains(member))
    }
}

/// The type that an `impl` is for; `None` if a macro's variable names it.
fn subject<'a>(head: &[&'a str]) -> Option<&'a str> {
    let mut depth = 0_i32;
    let mut name = None;
    for (at, token) in head.iter().enumerate() {
        match *token {
            // Not the arrow of a function type.
            ">" if at > 0 && head[at - 1] == "-" => {}
            "<" | "(" | "[" => depth += 1,
            ">" | ")" | "]" => depth -= 1,
            "for" if depth == 0 => name = None,
            "$" if depth == 0 => return None,
            token if depth == 0 && is_identifier(token) && token != "mut" && token != "dyn" => name = Some(token),
            _ => {}
        }
    }
    name
}

/// What is between the first brace and its partner; nothing if a semicolon comes first.
pub(crate) fn body<'a, 'b>(tokens: &'b [&'a str]) -> &'b [&'a str] {
    let Some(start) = tokens.iter().position(|token| ["{", ";"].contains(token)) else { return &[] };
    if tokens[start] == ";" {
        return &[];
    }
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match *token {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &tokens[start + 1..at];
        }
    }
    &[]
}

/// The tokens of a body that are in no bracket inside of it, each with the one before and the one after.
fn outermost<'a>(body: &[&'a str]) -> Vec<(&'a str, &'a str, &'a str)> {
    let mut depth = 0;
    let mut found = Vec::new();
    let get = |at: Option<usize>| at.and_then(|at| body.get(at)).copied().unwrap_or_default();
    for (at, token) in body.iter().enumerate() {
        match *token {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            token if depth == 0 => found.push((get(at.checked_sub(1)), token, get(Some(at + 1)))),
            _ => {}
        }
    }
    found
}

/// The names behind `fn`, `const` and `type`.
fn items(body: &[&str]) -> BTreeSet<String> {
    let is_item = |(before, token, _): &(&str, &str, &str)| {
        ["fn", "const", "type"].contains(before) && is_identifier(token) && *token != "fn"
    };
    outermost(body).into_iter().filter(is_item).map(|(_, name, _)| name.to_owned()).collect()
}

/// The names before a colon.
fn fields(body: &[&str]) -> BTreeSet<String> {
    let is_field =
        |(before, token, after): &(&str, &str, &str)| *after == ":" && *before != ":" && is_identifier(token);
    outermost(body).into_iter().filter(is_field).map(|(_, name, _)| name.to_owned()).collect()
}

/// The names at the start, behind a comma, or behind an attribute.
fn variants(body: &[&str]) -> BTreeSet<String> {
    let is_variant = |(before, token, _): &(&str, &str, &str)| ["", ",", "]"].contains(before) && is_identifier(token);
    outermost(body).into_iter().filter(is_variant).map(|(_, name, _)| name.to_owned()).collect()
}

#[test]
fn members_are_found_in_every_kind_of_definition() {
    let code = "struct A<T> where T: B { c: T, d: Vec<(u8, E)> } impl<T: F<G>> A<T> { pub const H: u8 = 1; fn i(self) { fn j() {} } }
        impl<T> fmt::K for l::A<T> where T: M { type N = u8; } enum O { #[p] Q { r: u8 }, S(T) } trait U { fn v(); fn w() {} }
        fn x() -> impl Y { z() } macro_rules! aa { ($b:ident) => { impl $b { fn cc() {} } } } struct Unit;";
    let mut members = Members::default();
    members.add(&crate::source::tokens(code));
    for (name, member) in [
        ("A", "c"),
        ("A", "d"),
        ("A", "H"),
        ("A", "i"),
        ("A", "N"),
        ("O", "Q"),
        ("O", "S"),
        ("U", "v"),
        ("U", "w"),
        ("A", "cc"),
    ] {
        assert!(members.has(name, member), "{name}::{member}");
    }
    for (name, member) in [("A", "j"), ("A", "E"), ("O", "r"), ("O", "T"), ("Unit", "c")] {
        assert!(!members.has(name, member), "{name}::{member}");
    }
    assert!(members.has_type("Unit") && !members.has_type("Y"));
}
