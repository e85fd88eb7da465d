//! The integration tests: one binary, modules by behaviour.

mod background;
mod budget;
mod cancel;
mod fork;
mod give_way;
mod give_way_alone;
mod give_way_elsewhere;
mod give_way_end;
mod give_way_stress;
mod io;
mod join_set;
mod lifetime;
mod memory;
mod misuse;
mod panics;
mod patience;
mod shutdown;
mod shutdown_timeout;
mod spawn;
mod spec;
mod teardown;
mod wake;
