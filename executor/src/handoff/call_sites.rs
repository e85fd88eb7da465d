//! How long something takes, by the place in the program that it comes from: blocking calls by the
//! place of the call, background polls by where their task was spawned.
//!
//! A call or a poll that takes a microsecond must not cost another, so no other thread can be told
//! of it. One that takes milliseconds should hold up no other work. Which of the two it will be
//! cannot be known, but what comes from one place is usually alike. So a small table, shared by all
//! threads, remembers each place, and what comes from there is treated by what came before:
//!
//! - **new**: the monitor is called to watch it, which costs the caller a microsecond or two.
//! - **short**, after [`TRUSTED`] that were: nothing is done for it. If it is long after all, the
//!   monitor finds it on its rounds, and the place is long from then on.
//! - **long**: a thread is sent for the core before such a call begins; such a poll is left to a
//!   lowered thread. After some short ones in a row the place is new again.
//!
//! A place has a choice of four entries. If all of them belong to other places it takes that of a
//! new one, then that of a short one. The other place is new again, which costs time and nothing
//! else.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

/// The longest that a blocking call may take and still count as short. A longer one loses its core.
pub(crate) const LONG_CALL: Duration = Duration::from_micros(20);

/// The number of short ones after which a place is trusted.
const TRUSTED: u8 = 16;

/// The lowest score of a long place. A short one takes one from the score of a long place; at this
/// score it makes the place new.
const IS_LONG: u8 = 128;

const ENTRIES: usize = 1_024;

/// The number of entries that a place has a choice of.
const WAYS: usize = 4;

/// What to expect of a call or a poll that comes from a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    Unknown,
    Short,
    Long,
}

/// A table of places.
pub(crate) struct CallSites {
    entries: [CallSite; ENTRIES],
    /// How many short ones it takes, but for the last, until a long one is forgiven.
    forgiven_after: u8,
}

/// The places that make blocking calls.
pub(crate) static CALLS: CallSites = CallSites::new(4);

/// The places that spawn background tasks.
pub(crate) static POLLS: CallSites = CallSites::new(64);

impl CallSites {
    const fn new(forgiven_after: u8) -> Self {
        assert!(forgiven_after <= u8::MAX - IS_LONG);
        Self { entries: [const { CallSite::new() }; ENTRIES], forgiven_after }
    }

    /// Returns the entry of this place. If it has none, it takes one.
    #[inline]
    pub(crate) fn at(&self, location: &'static Location<'static>) -> &CallSite {
        // The key is what the location says, and not its address: the compiler may make several
        // copies of one. The name of the file is compared only if the address differs.
        let key = u64::from(location.line()) << 32
            | u64::from(location.column()) << 16 ^ location.file().len() as u64;
        let spread = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (spread >> (u64::BITS - ENTRIES.ilog2())) as usize & !(WAYS - 1);
        let choice = &self.entries[first..first + WAYS];
        choice.iter().find(|site| site.is_of(location)).unwrap_or_else(|| take(choice, location))
    }

    /// Makes a place new again, because one that came from there may have been long.
    #[cold]
    pub(crate) fn doubt(&self, site: &CallSite) {
        site.score.store(0, Relaxed);
    }

    /// Notes that one that came from a place has ended, or is known to be long.
    #[cold]
    pub(crate) fn learn(&self, site: &CallSite, long: bool) {
        let score = match site.score.load(Relaxed) {
            _ if long => IS_LONG + self.forgiven_after,
            IS_LONG => 0,
            score @ IS_LONG.. => score - 1,
            score => (score + 1).min(TRUSTED),
        };
        site.score.store(score, Relaxed);
    }
}

/// Takes the entry that is missed least, for a place that has none.
#[cold]
fn take<'a>(choice: &'a [CallSite], location: &'static Location<'static>) -> &'a CallSite {
    let missed = |site: &&CallSite| match site.expect() {
        _ if site.location.load(Relaxed).is_null() => 0,
        Expect::Unknown => 1,
        Expect::Short => 2,
        Expect::Long => 3,
    };
    let site = choice.iter().min_by_key(missed).expect("there is a choice");
    site.begin(location);
    site
}

/// An entry of the table: a place in the program.
pub(crate) struct CallSite {
    /// The place, or null. Written by the thread that takes the entry, read by every thread that
    /// looks a place up.
    location: AtomicPtr<Location<'static>>,
    /// Below `TRUSTED`: how many short ones there were. From `IS_LONG` on: how long the place stays
    /// long. Every access is relaxed: the score is an estimate, and a lost update is one more to
    /// learn from.
    score: AtomicU8,
}

impl CallSite {
    const fn new() -> Self {
        Self { location: AtomicPtr::new(ptr::null_mut()), score: AtomicU8::new(0) }
    }

    /// Gives the entry to a place of which nothing is known.
    fn begin(&self, location: &'static Location<'static>) {
        self.score.store(0, Relaxed);
        // Ordering: release, partner of the acquire in `is_of`: a thread that sees the place sees
        // the new score too.
        self.location.store(ptr::from_ref(location).cast_mut(), Release);
    }

    /// Returns whether the entry is of this place.
    #[inline]
    fn is_of(&self, location: &'static Location<'static>) -> bool {
        // Ordering: acquire, partner of the release in `begin`: a thread that sees the place sees a
        // score of this place, and not of the one that had the entry before.
        let own = self.location.load(Acquire);
        // SAFETY: null, or from the `&'static Location` that `begin` has stored, which is never
        // written to and lives for ever.
        ptr::eq(own, location) || unsafe { own.as_ref() }.is_some_and(|own| own == location)
    }

    #[inline]
    pub(crate) fn expect(&self) -> Expect {
        match self.score.load(Relaxed) {
            ..TRUSTED => Expect::Unknown,
            TRUSTED..IS_LONG => Expect::Short,
            IS_LONG.. => Expect::Long,
        }
    }
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;
    use std::sync::LazyLock;

    fn trust(sites: &CallSites, site: &CallSite) {
        (0..TRUSTED).for_each(|_| sites.learn(site, false));
    }

    #[test]
    fn a_place_is_trusted_after_some_short_ones() {
        let sites = CallSites::new(4);
        let site = sites.at(Location::caller());
        for _ in 0..TRUSTED {
            assert_eq!(site.expect(), Expect::Unknown);
            sites.learn(site, false);
        }
        assert_eq!(site.expect(), Expect::Short);
    }

    #[test]
    fn one_long_one_makes_a_place_long_and_some_short_ones_make_it_new() {
        for forgiven_after in [4, 64] {
            let sites = CallSites::new(forgiven_after);
            let site = sites.at(Location::caller());
            trust(&sites, site);
            sites.learn(site, true);
            for _ in 0..=forgiven_after {
                assert_eq!(site.expect(), Expect::Long);
                sites.learn(site, false);
            }
            assert_eq!(site.expect(), Expect::Unknown);
        }
    }

    #[test]
    fn each_place_has_an_entry_and_keeps_it() {
        let (sites, here) = (CallSites::new(4), Location::caller());
        sites.learn(sites.at(here), true);
        assert!(ptr::eq(sites.at(here), sites.at(here)));
        assert_eq!(sites.at(here).expect(), Expect::Long);
    }

    #[test]
    fn copies_of_a_place_have_one_entry() {
        static PLACE: LazyLock<&Location<'static>> = LazyLock::new(|| Location::caller());
        static COPY: LazyLock<Location<'static>> = LazyLock::new(|| **PLACE);
        let sites = CallSites::new(4);
        assert!(!ptr::eq(*PLACE, &*COPY));
        sites.learn(sites.at(*PLACE), true);
        assert_eq!(sites.at(&COPY).expect(), Expect::Long);
    }

    #[test]
    fn a_place_without_an_entry_takes_one_that_is_free_or_new_or_short_in_this_order() {
        let (sites, here) = (CallSites::new(4), Location::caller());
        let choice = &sites.entries[..WAYS];
        let [long, short, new, free] = choice else { panic!("four ways") };
        for site in [long, short, new] {
            site.begin(here);
        }
        sites.learn(long, true);
        trust(&sites, short);
        assert!(ptr::eq(take(choice, here), free));
        trust(&sites, free);
        assert!(ptr::eq(take(choice, here), new));
        sites.learn(new, true);
        assert!(ptr::eq(take(choice, here), short));
        assert_eq!(
            (short.expect(), long.expect()),
            (Expect::Unknown, Expect::Long),
            "it begins anew, and the long one stays"
        );
    }
}
