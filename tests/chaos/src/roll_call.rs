//! Now and then all episodes pause, and what the process has is counted: threads, descriptors, memory.

use crate::failure::ensure;
use crate::outsiders::Outsiders;
use crate::world::{self, lock};
use std::fs;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// How often.
const EVERY: Duration = Duration::from_secs(10);

/// The first one comes sooner: what it finds is what all others are compared with.
const FIRST: Duration = Duration::from_secs(3);

/// Memory may grow by so much from the first to any other: the allocator keeps what it had in pieces.
const MOST_MEMORY: usize = 96 << 20;

/// Held by whoever has children, which are descriptors too.
pub(crate) static CHILDREN: Mutex<()> = Mutex::new(());

/// What a process has.
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

/// How many threads the runtime with this number has.
pub(crate) fn threads_of(number: u64) -> usize {
    let prefix = format!("w{number}-");
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    threads
        .filter(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|name| name.starts_with(&prefix)))
        .count()
}

/// Resident memory in bytes.
pub(crate) fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

/// Where the threads of episodes meet.
#[derive(Debug)]
pub(crate) struct RollCall {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug)]
struct State {
    // Threads that run episodes, and those of them that wait here.
    threads: usize,
    here: usize,
    // How many there have been.
    calls: u64,
    next: Instant,
    first: Option<(Belongings, usize)>,
}

impl RollCall {
    pub(crate) fn new(threads: usize) -> Self {
        let next = Instant::now() + FIRST;
        Self { state: Mutex::new(State { threads, here: 0, calls: 0, next, first: None }), over: Condvar::new() }
    }

    /// Waits for the others if it is time. The last one counts.
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

    /// The thread runs no more episodes.
    pub(crate) fn leave(&self) {
        lock(&self.state).threads -= 1;
        self.over.notify_all();
    }
}

impl State {
    fn count(&mut self, outsiders: &Outsiders) {
        // Errands are run in their order, so the last one of each runtime has been run, too.
        outsiders.forget();
        let _none = lock(&CHILDREN);
        // The watch may have one in its hands just now.
        let gone = comes_true(|| world::alive().is_empty());
        ensure!(gone, "gone, and somebody still knows them: {:?}", world::alive());
        #[cfg(target_env = "gnu")]
        // SAFETY: gives back what nobody uses.
        unsafe {
            libc::malloc_trim(0)
        };
        let (mut now, memory) = (Belongings::now(), resident());
        let (first, at_first) = *self.first.get_or_insert((now, memory));
        // A thread that was joined is in the kernel's list until it has had a CPU for its last steps.
        let given_back = comes_true(|| {
            now = Belongings::now();
            // Fewer at the end: a thread of episodes that was done first is gone by then.
            now.threads <= first.threads && now.descriptors <= first.descriptors
        });
        ensure!(given_back, "not everything is given back: there were {first:?}, and are {now:?}");
        // A sanitizer keeps what was freed, and says itself what was not.
        let sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
        ensure!(sanitized || memory < at_first + MOST_MEMORY, "memory grows: {at_first} bytes at first, now {memory}");
    }
}

/// Whether `condition` holds by and by: looks 5,000 times, two milliseconds apart.
fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    (0..5_000).any(|_| {
        let holds = condition();
        if !holds {
            std::thread::sleep(Duration::from_millis(2));
        }
        holds
    })
}
