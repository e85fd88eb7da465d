//! Which cores run something that can give way, and how to ask one of them to.
//!
//! Each core has a bit, in a word for every 64 cores, and a flag of its own: its interrupt. The bit
//! says that the core runs a task which can give way, and that it has not been asked to. A thread
//! that makes foreground work runnable while no worker is idle clears two bits, and sets the flags
//! of those two cores. If no core runs anything that can give way, a push costs one load for every
//! 64 cores.
//!
//! Why two? The core that is asked may not be running: the OS may have given its CPU to another
//! thread, for milliseconds. Or it may be far from its next yield point. Two of them rarely are.
//! The core that comes second looks, finds nothing, and goes on; if its task has no yield points,
//! by way of the yield queue.
//!
//! The protocol is in `yielding.md`; A1 to P4 in the comments here are its steps. Every access here
//! is relaxed. What orders them is a SeqCst fence between a push and a look at the bits, one
//! between a bit and a look at the queues, and one where a request is passed on.

use crate::sync::{AtomicBool, AtomicUsize, fence};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const BITS: usize = usize::BITS as usize;

/// How many cores a push asks.
const ASKED: u32 = 2;

/// The polite cores of one runtime, and their interrupts.
pub(crate) struct Interrupts {
    /// The bits, one a core. Set by the core's holder; cleared by it, or by the thread that
    /// interrupts the core.
    armed: Box<[CachePadded<AtomicUsize>]>,
    /// By core, each on a line of its own: read at every yield point.
    interrupts: Box<[CachePadded<Interrupt>]>,
    /// The clock by which requests are timed, in nanoseconds.
    clock: fn() -> u64,
}

struct Interrupt {
    /// Whether the core is to give way. Set by the thread that interrupts it, cleared by its
    /// holder.
    flag: AtomicBool,
    /// How often other threads interrupted the core. Part of no protocol, and so not modelled.
    sent: std::sync::atomic::AtomicU64,
    /// When `flag` was last set. Part of no protocol, and so not modelled.
    at: std::sync::atomic::AtomicU64,
}

impl Interrupts {
    pub(crate) fn new(cores: usize, clock: fn() -> u64) -> Self {
        Self {
            armed: (0..cores.div_ceil(BITS))
                .map(|_| CachePadded::new(AtomicUsize::new(0)))
                .collect(),
            interrupts: (0..cores).map(|_| CachePadded::new(Interrupt::new())).collect(),
            clock,
        }
    }

    /// Arms a core: it runs something that can give way, and wants to be told of work. The caller
    /// looks for waiting work *afterwards*, and then sees what was pushed before other threads
    /// could see the bit.
    pub(crate) fn arm(&self, core: usize) {
        // 1. (A1) Flag and bit, both before the fence.
        self.clear(core);
        let (word, bit) = self.place(core);
        word.fetch_or(bit, Relaxed);
        // 2. (A2) Ordering: SeqCst fence, partner of those in `IdleSet::announce`,
        //    `Scheduler::push_pinned` and `Scheduler::close`. The bit is set before this fence and
        //    the caller looks after it. A push comes before the pushing thread's fence, and its
        //    look at the bits after. So one of them sees the other. The fence also acquires from
        //    the thread that cleared the bit, so that a request which `clear` wiped out is not
        //    lost: the caller's look sees the work that it was about.
        fence(SeqCst);
    }

    /// Ends the politeness of a core that is about to run something that cannot give way. Returns
    /// true if the core had been asked to and has not answered: then the caller passes the request
    /// on, with [`Self::raise_some`].
    #[must_use = "a request that was not answered has to be passed on"]
    pub(crate) fn disarm(&self, core: usize) -> bool {
        // 1. (D1) Bit and flag are read before the flag is cleared: either tells that the core was
        //    asked.
        let (word, bit) = self.place(core);
        // By another thread, which cleared the bit; or by itself, by the flag alone: see
        // `Scheduler::begin_polite`.
        let asked = word.fetch_and(!bit, Relaxed) & bit == 0 || self.is_raised(core);
        self.clear(core);
        // 2. Ordering: SeqCst fence. It comes after the fence of the thread that asked this core,
        //    because the `fetch_and` read what that thread wrote; and before the fence of a thread
        //    that sees what this core does next. So the core that is asked in this one's place sees
        //    the work that this one was asked for. (Loom does not notice if this fence is missing:
        //    its fences are stronger than the standard's.)
        fence(SeqCst);
        asked
    }

    /// Asks a core or two to give way, if any can (P4). Called after a fence.
    #[inline]
    pub(crate) fn raise_some(&self) {
        for (index, word) in self.armed.iter().enumerate() {
            if word.load(Relaxed) != 0 && self.raise_some_of(index) {
                return;
            }
        }
    }

    #[cold]
    fn raise_some_of(&self, index: usize) -> bool {
        let word = &self.armed[index];
        loop {
            let armed = word.load(Relaxed);
            if armed == 0 {
                return false;
            }
            let mut asked = word.fetch_and(!lowest(armed, ASKED), Relaxed) & lowest(armed, ASKED);
            if asked == 0 {
                continue;
            }
            while asked != 0 {
                self.raise(index * BITS + asked.trailing_zeros() as usize);
                asked &= asked - 1;
            }
            return true;
        }
    }

    /// Asks this core to give way.
    pub(crate) fn raise(&self, core: usize) {
        self.interrupts[core].sent.fetch_add(1, Relaxed);
        self.raise_own(core);
    }

    /// Sets a core's flag without counting a request. Called by the core's holder, which asks
    /// itself, and by [`Self::raise`].
    pub(crate) fn raise_own(&self, core: usize) {
        let interrupt = &self.interrupts[core];
        if !interrupt.flag.load(Relaxed) {
            interrupt.at.store((self.clock)(), Relaxed);
        }
        interrupt.flag.store(true, Relaxed);
    }

    /// Returns for how long a core has not answered a request, in nanoseconds. Zero if there is
    /// none.
    pub(crate) fn unanswered_for(&self, core: usize) -> u64 {
        let interrupt = &self.interrupts[core];
        if interrupt.flag.load(Relaxed) {
            (self.clock)().saturating_sub(interrupt.at.load(Relaxed))
        } else {
            0
        }
    }

    /// Returns how often cores were asked by others to give way.
    pub(crate) fn sent(&self) -> u64 {
        self.interrupts.iter().map(|interrupt| interrupt.sent.load(Relaxed)).sum()
    }

    /// Asks this core to give way, if it runs something that can and has not been asked. Called
    /// after a fence.
    pub(crate) fn raise_if_armed(&self, core: usize) {
        let (word, bit) = self.place(core);
        if word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0 {
            self.raise(core);
        }
    }

    /// Returns whether a core runs something that can give way, asked to or not. Of a moment ago,
    /// and not exact: a request that comes late holds for what runs next.
    pub(crate) fn is_polite(&self, core: usize) -> bool {
        let (word, bit) = self.place(core);
        word.load(Relaxed) & bit != 0 || self.is_raised(core)
    }

    #[inline]
    pub(crate) fn is_raised(&self, core: usize) -> bool {
        self.interrupts[core].flag.load(Relaxed)
    }

    /// Forgets a request. Called by the core's holder.
    #[inline]
    pub(crate) fn clear(&self, core: usize) {
        let interrupt = &self.interrupts[core].flag;
        // A request that comes just now may be wiped out too; `arm` says why it is not lost.
        if interrupt.load(Relaxed) {
            interrupt.store(false, Relaxed);
        }
    }

    /// Returns the flag by which the core is asked.
    #[cfg(not(all(test, giveway_loom)))]
    pub(crate) fn flag(&self, core: usize) -> &AtomicBool {
        &self.interrupts[core].flag
    }

    fn place(&self, core: usize) -> (&AtomicUsize, usize) {
        (&self.armed[core / BITS], 1 << (core % BITS))
    }

    #[cfg(all(test, not(giveway_loom)))]
    pub(crate) fn is_armed(&self, core: usize) -> bool {
        let (word, bit) = self.place(core);
        word.load(Relaxed) & bit != 0
    }
}

impl Interrupt {
    fn new() -> Self {
        Self { flag: AtomicBool::new(false), sent: Default::default(), at: Default::default() }
    }
}

/// Returns the `n` lowest bits that are set.
fn lowest(bits: usize, n: u32) -> usize {
    let rest = (0..n).fold(bits, |rest, _| rest & rest.wrapping_sub(1));
    bits & !rest
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_request_goes_to_others() {
        let set = Interrupts::new(130, || 0);
        for core in [3, 5, 7, 64, 129] {
            set.arm(core);
        }
        let mut asked = Vec::new();
        for _ in 0..5 {
            set.raise_some();
            asked.push((0..130).filter(|&core| set.is_raised(core)).collect::<Vec<_>>());
        }
        assert_eq!(asked[..2], [vec![3, 5], vec![3, 5, 7]]);
        assert_eq!(asked[4], [3, 5, 7, 64, 129]);
        assert!((0..130).all(|core| !set.is_armed(core)));
    }

    #[test]
    fn who_stops_being_polite_learns_whether_it_was_asked() {
        let set = Interrupts::new(2, || 0);
        set.arm(0);
        assert!(!set.disarm(0));
        set.arm(0);
        set.raise_some();
        assert!(set.disarm(0));
        assert!(!set.is_raised(0));
        set.raise_some();
        assert!(!set.is_raised(0), "it is not armed any more");
    }
}
