//! Which rooms (folders of a crate) a room may use.

use super::prose::RUST;
use crate::workspace::read;
use regex::Regex;

/// A room, and the modules of its crate that it may name. Tests and models may name all.
const ALLOWED: [(&str, &[&str]); 4] = [
    ("executor/src/sched/", &["sched", "sync"]),
    ("io/src/sys/", &["reactor"]),
    ("io/src/timer/", &["driver", "fork", "proxy", "reactor", "scope", "sys", "timer"]),
    ("io/src/reactor/", &["driver", "fork", "proxy", "reactor", "scope", "sys", "timer"]),
];

/// Returns the lines by which a room uses one that it must not know.
pub(crate) fn check() -> Vec<String> {
    let tests = r"(?m)^#\[cfg\(.*test.*\)\]\nmod \w+ \{";
    let tests = Regex::new(tests).expect("this is a regular expression");
    let mut complaints = Vec::new();
    for path in RUST.keys() {
        let allowed = ALLOWED.iter().find(|(room, _)| path.starts_with(room));
        let Some((room, allowed)) = allowed else { continue };
        let text = read(path);
        let shipped = tests.split(&text).next().unwrap_or_default();
        let found = foreign(shipped, allowed).into_iter();
        complaints.extend(
            found.map(|(line, name)| format!("{path}:{line}: `{room}` is not to know `{name}`")),
        );
    }
    complaints
}

/// Returns the modules in a source that are not allowed, with their lines.
fn foreign(source: &str, allowed: &[&str]) -> Vec<(usize, String)> {
    let path = Regex::new(r"\bcrate::(\w+)").expect("this is a regular expression");
    let code = (1..).zip(source.lines()).filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.flat_map(|(number, line)| {
        path.captures_iter(line).map(move |found| (number, found[1].to_owned())).collect::<Vec<_>>()
    })
    .filter(|(_, name)| !allowed.contains(&&**name))
    .collect()
}

#[test]
fn a_room_that_names_another_is_noticed() {
    let source = "use crate::sync::fence;\n// crate::worker\nuse crate::runtime::Shared;\n";
    assert_eq!(foreign(source, &["sync"]), [(3, "runtime".to_owned())]);
}
