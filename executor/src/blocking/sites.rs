//! How long blocking calls take, by the place in the program that they come from.
//!
//! A call that takes a microsecond must not cost one, so nobody can be told of it; a call that takes milliseconds should
//! lose its core at once. Which it will be nobody knows; but calls from one place are usually alike. So each place is
//! remembered in a small table, shared by all threads, and whoever comes from there is treated by what came before:
//!
//! - **new**: the monitor is called to watch it, which costs the caller a microsecond or two; the calls are timed.
//! - **short**, after some that were: a store before it and a compare-and-swap after it, nothing else. If it is long after
//!   all, the monitor finds it on its rounds, and then the place is
//! - **long**: a thread is sent for the core before the call begins. The calls are timed; after some short ones the place
//!   is new again.
//!
//! Two places that fall on one entry of the table make each other new; that costs time and nothing else.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// A call that takes longer than this loses its core.
pub(crate) const LONG: Duration = Duration::from_micros(20);

/// After so many short calls a place is trusted.
const TRUSTED: u8 = 16;

/// From here on a place is long, by so many short calls more.
const IS_LONG: u8 = 128;

/// How many short calls it takes for a place to be forgiven a long one.
const FORGIVEN_AFTER: u8 = 4;

const ENTRIES: usize = 64;

/// What to expect of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Unknown,
    Short,
    Long,
}

/// A place in the program that makes blocking calls.
pub(crate) struct Site {
    location: AtomicPtr<Location<'static>>,
    // Below `TRUSTED`: how many short calls there were. Every access is relaxed: an estimate, and a lost update is one
    // call more to learn from.
    score: AtomicU8,
}

static SITES: [Site; ENTRIES] =
    [const { Site { location: AtomicPtr::new(ptr::null_mut()), score: AtomicU8::new(0) } }; ENTRIES];

impl Site {
    /// The entry of this place.
    #[inline]
    pub(crate) fn of(location: &'static Location<'static>) -> &'static Self {
        let key = ptr::from_ref(location).cast_mut();
        let spread = (key.addr() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as usize);
        let site = &SITES[spread >> (usize::BITS - ENTRIES.ilog2())];
        // Ordering: acquire, partner of the release in `begin`: whoever sees the place sees a score that is its own.
        if site.location.load(Acquire) != key {
            site.begin(key);
        }
        site
    }

    #[cold]
    fn begin(&self, key: *mut Location<'static>) {
        self.score.store(0, Relaxed);
        self.location.store(key, Release);
    }

    #[inline]
    pub(crate) fn expect(&self) -> Expect {
        match self.score.load(Relaxed) {
            ..TRUSTED => Expect::Unknown,
            TRUSTED..IS_LONG => Expect::Short,
            IS_LONG.. => Expect::Long,
        }
    }

    /// A call has ended that was timed, or has lost its core.
    #[cold]
    pub(crate) fn learn(&self, long: bool) {
        let score = match self.score.load(Relaxed) {
            _ if long => IS_LONG + FORGIVEN_AFTER,
            IS_LONG => 0,
            score @ IS_LONG.. => score - 1,
            score => (score + 1).min(TRUSTED),
        };
        self.score.store(score, Relaxed);
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    fn site() -> Site {
        Site { location: AtomicPtr::new(ptr::null_mut()), score: AtomicU8::new(0) }
    }

    #[test]
    fn a_place_is_trusted_after_some_short_calls() {
        let site = site();
        for _ in 0..TRUSTED {
            assert_eq!(site.expect(), Expect::Unknown);
            site.learn(false);
        }
        assert_eq!(site.expect(), Expect::Short);
    }

    #[test]
    fn one_long_call_makes_a_place_long_and_some_short_ones_make_it_new() {
        let site = site();
        (0..TRUSTED).for_each(|_| site.learn(false));
        site.learn(true);
        for _ in 0..=FORGIVEN_AFTER {
            assert_eq!(site.expect(), Expect::Long);
            site.learn(false);
        }
        assert_eq!(site.expect(), Expect::Unknown);
    }

    #[test]
    fn each_place_has_an_entry_and_keeps_it() {
        let here = Location::caller();
        let site = Site::of(here);
        site.learn(true);
        assert!(ptr::eq(site, Site::of(here)));
        assert_eq!(Site::of(here).expect(), Expect::Long);
    }
}
