//! The roll call: now and then all episodes pause, and the threads, descriptors and memory of the
//! process are counted.

use crate::failure::ensure;
use crate::outsiders::Outsiders;
use crate::world::{self, lock};
use std::fs;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// The time between two roll calls.
const EVERY: Duration = Duration::from_secs(10);

/// The time before the first roll call, with which all others are compared.
const FIRST: Duration = Duration::from_secs(3);

/// By how many bytes memory may grow from the first roll call to any other: the allocator does not
/// return fragmented memory.
const MOST_MEMORY: usize = 96 << 20;

/// Held while a child process exists: a child needs descriptors, which a roll call would count.
pub(crate) static CHILDREN: Mutex<()> = Mutex::new(());

/// The numbers of threads and descriptors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Belongings {
    pub(crate) threads: usize,
    pub(crate) descriptors: usize,
}

impl Belongings {
    pub(crate) fn now() -> Self {
        let entries = |directory| fs::read_dir(directory).map_or(0, Iterator::count);
        Self { threads: entries("/proc/self/task"), descriptors: entries("/proc/self/fd") }
    }
}

/// Returns how many threads the runtime with this number has.
pub(crate) fn threads_of(number: u64) -> usize {
    let prefix = format!("w{number}-");
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads
        .filter(|thread| {
            fs::read_to_string(thread.path().join("comm"))
                .is_ok_and(|name| name.starts_with(&prefix))
        })
        .count()
}

/// Returns the resident memory in bytes.
pub(crate) fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

/// Where the threads of episodes wait for each other.
#[derive(Debug)]
pub(crate) struct RollCall {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug)]
struct State {
    /// How many threads run episodes.
    threads: usize,
    /// How many of them wait in [`RollCall::answer`].
    here: usize,
    /// How many roll calls there have been.
    calls: u64,
    next: Instant,
    first: Option<(Belongings, usize)>,
}

impl RollCall {
    pub(crate) fn new(threads: usize) -> Self {
        let next = Instant::now() + FIRST;
        Self {
            state: Mutex::new(State { threads, here: 0, calls: 0, next, first: None }),
            over: Condvar::new(),
        }
    }

    /// Waits for the other threads if a roll call is due. The last thread to arrive does the count.
    pub(crate) fn answer(&self, outsiders: &Outsiders) {
        let mut state = lock(&self.state);
        if Instant::now() < state.next {
            return;
        }
        state.here += 1;
        let call = state.calls;
        loop {
            if state.calls != call {
                return;
            }
            if state.here == state.threads {
                break;
            }
            state = self.over.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        state.count(outsiders);
        (state.here, state.calls, state.next) = (0, call + 1, Instant::now() + EVERY);
        self.over.notify_all();
    }

    /// Leaves: the calling thread runs no more episodes.
    pub(crate) fn leave(&self) {
        lock(&self.state).threads -= 1;
        self.over.notify_all();
    }
}

impl State {
    fn count(&mut self, outsiders: &Outsiders) {
        // Each outsider runs its errands in order, so those of ended runtimes have been run too.
        outsiders.forget();
        let _none = lock(&CHILDREN);
        // The watch may still hold a world for a moment.
        let gone = comes_true(|| world::alive().is_empty());
        ensure!(gone, "gone, and somebody still knows them: {:?}", world::alive());
        #[cfg(target_env = "gnu")]
        // SAFETY: `malloc_trim` may be called at any time; it returns only unused memory to the
        // system.
        unsafe {
            libc::malloc_trim(0)
        };
        let (mut now, memory) = (Belongings::now(), resident());
        let (first, at_first) = *self.first.get_or_insert((now, memory));
        // A thread that has been joined stays in the kernel's list until it gets a CPU for its last
        // steps.
        let given_back = comes_true(|| {
            now = Belongings::now();
            // There may be fewer than at first: a thread that has run its last episode ends.
            now.threads <= first.threads && now.descriptors <= first.descriptors
        });
        ensure!(given_back, "not everything is given back: there were {first:?}, and are {now:?}");
        // A sanitizer keeps freed memory, and reports leaks itself.
        let sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
        ensure!(
            sanitized || memory < at_first + MOST_MEMORY,
            "memory grows: {at_first} bytes at first, now {memory}"
        );
    }
}

/// Returns whether `condition` becomes true: checks it up to 5,000 times, two milliseconds apart.
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    (0..5_000).any(|_| {
        let holds = condition();
        if !holds {
            std::thread::sleep(Duration::from_millis(2));
        }
        holds
    })
}
