//! What comments and pages say is checked against the code: names in backticks, links, commands,
//! the map of orderings, which pages are compiled, what servers do when `accept` fails, and which
//! folder uses which.

mod accepts;
mod commands;
mod links;
mod names;
mod orderings;
mod pages;
mod prose;
mod rooms;
mod vocabulary;

use anyhow::Result;

/// Returns complaints, and says what to do about them.
type Check = (fn() -> Vec<String>, &'static str);

/// Runs all checks, and fails with all that they complain of.
pub(crate) fn run() -> Result<()> {
    let checks: [Check; 7] = [
        (names::check, names::REMEDY),
        (links::check, "Mend the links."),
        (commands::check, "Write the command that works."),
        (orderings::check, "Give each atomic field one row in `docs/orderings.md`."),
        (rooms::check, "Move the code, or take what it needs as an argument."),
        (accepts::check, "Treat errors as the tested loop does."),
        (pages::check, "Rust on a page compiles, and runs unless it says `no_run`."),
    ];
    let failed: Vec<_> = checks
        .into_iter()
        .filter_map(|(check, remedy)| crate::expect_none(&check(), remedy).err())
        .map(|error| error.to_string())
        .collect();
    crate::expect_none(&failed, "Each paragraph above is a check that failed.")
}
