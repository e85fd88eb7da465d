//! What the repository says about itself is checked here: the lists of the public API, that every public item has docs
//! and an example, links, names in comments and pages, commands, and which pages are compiled.
//!
//! Nothing here runs the runtime. Each failure says what is wrong, where, and what to do.

mod api;
mod commands;
mod examples;
mod guarantees;
mod links;
mod markdown;
mod members;
mod names;
mod orderings;
mod pages;
mod rustdoc;
mod source;
mod vocabulary;
mod workspace;

/// Fails with all complaints at once, and what to do about them.
#[track_caller]
fn expect_none(complaints: &[String], remedy: &str) {
    assert!(complaints.is_empty(), "\n{}\n\n{} found. {remedy}\n", complaints.join("\n"), complaints.len());
}
