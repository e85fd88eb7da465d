//! Which cores run something that can give way, and how to ask one of them to.
//!
//! A bit a core in a word (a word for every 64 cores), and a flag a core. The bit says that the core runs a task which
//! can give way, and that nobody has asked it to. Whoever makes foreground work runnable while no worker is idle clears
//! two bits and sets the flags of those cores: their interrupts. A push beside nothing that could give way costs one load
//! for every 64 cores.
//!
//! Why two? The one that is asked may not be running: the OS may have given its CPU to another thread, for milliseconds,
//! or it may be far from its next yield point. Two of them rarely are. The one that comes second looks, finds nothing,
//! and goes on; if it has no yield points, by way of the yield queue.
//!
//! The protocol is in `yielding.md`. Every access here is relaxed: what orders them is a SeqCst fence between a push and a
//! look at the bits, one between a bit and a look at the queues, and one where a request is passed on.

use crate::sync::{AtomicBool, AtomicUsize, fence};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const BITS: usize = usize::BITS as usize;

/// How many cores a push asks.
const ASKED: u32 = 2;

/// The polite cores of one runtime, and their interrupts.
pub(crate) struct PoliteSet {
    // Set by the core's holder, cleared by it or by whoever interrupts it.
    armed: Box<[CachePadded<AtomicUsize>]>,
    // On a line of its own: read at every yield point.
    interrupts: Box<[CachePadded<Interrupt>]>,
    // Tells when a core is interrupted, in nanoseconds.
    clock: fn() -> u64,
}

struct Interrupt {
    // Set by whoever interrupts the core, cleared by its holder.
    flag: AtomicBool,
    // How often others did, and when the flag was last set. Not part of any protocol, and so not modelled.
    sent: std::sync::atomic::AtomicU64,
    at: std::sync::atomic::AtomicU64,
}

impl PoliteSet {
    pub(crate) fn new(cores: usize, clock: fn() -> u64) -> Self {
        Self {
            armed: (0..cores.div_ceil(BITS)).map(|_| CachePadded::new(AtomicUsize::new(0))).collect(),
            interrupts: (0..cores).map(|_| CachePadded::new(Interrupt::new())).collect(),
            clock,
        }
    }

    /// The core runs something that can give way, and wants to be told. The caller looks for waiting work *afterwards*:
    /// whatever was pushed before somebody could see the bit, it sees then.
    pub(crate) fn arm(&self, core: usize) {
        self.clear(core);
        let (word, bit) = self.place(core);
        word.fetch_or(bit, Relaxed);
        // Ordering: SeqCst fence, partner of the one in `IdleSet::announce`. Our bit is set before it and our look comes
        // after it; a pusher's push comes before its fence and its look at the bits after. One sees the other. It also
        // acquires from whoever cleared the bit, so that a request which the store above wiped out is not lost: the
        // look sees the work it was about.
        fence(SeqCst);
    }

    /// The core is about to run something that cannot give way. True if it had been asked to, and has not answered:
    /// then the caller passes the request on, with [`Self::interrupt_some`].
    #[must_use = "a request that was not answered has to be passed on"]
    pub(crate) fn disarm(&self, core: usize) -> bool {
        let (word, bit) = self.place(core);
        // By another, or by itself: see `Scheduler::begin_polite`.
        let asked = word.fetch_and(!bit, Relaxed) & bit == 0 || self.is_interrupted(core);
        self.clear(core);
        // Ordering: SeqCst fence: after that of whoever asked us, because we saw its change of the word; and before that
        // of whoever sees what we do next. So who is asked in our place sees the work that we were asked for. (Loom does
        // not miss this one: its fences are stronger.)
        fence(SeqCst);
        asked
    }

    /// Asks a core or two to give way, if there are any that can. Called after a fence.
    #[inline]
    pub(crate) fn interrupt_some(&self) {
        for (index, word) in self.armed.iter().enumerate() {
            if word.load(Relaxed) != 0 && self.interrupt_some_of(index) {
                return;
            }
        }
    }

    #[cold]
    fn interrupt_some_of(&self, index: usize) -> bool {
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
                self.interrupt(index * BITS + asked.trailing_zeros() as usize);
                asked &= asked - 1;
            }
            return true;
        }
    }

    /// Asks this core to give way.
    pub(crate) fn interrupt(&self, core: usize) {
        self.interrupts[core].sent.fetch_add(1, Relaxed);
        self.interrupt_self(core);
    }

    /// Has this core ask itself to give way. The holder's to call.
    pub(crate) fn interrupt_self(&self, core: usize) {
        let interrupt = &self.interrupts[core];
        if !interrupt.flag.load(Relaxed) {
            interrupt.at.store((self.clock)(), Relaxed);
        }
        interrupt.flag.store(true, Relaxed);
    }

    /// For how long a core has not answered a request, in nanoseconds. Zero if there is none.
    pub(crate) fn unanswered_for(&self, core: usize) -> u64 {
        let interrupt = &self.interrupts[core];
        if interrupt.flag.load(Relaxed) { (self.clock)().saturating_sub(interrupt.at.load(Relaxed)) } else { 0 }
    }

    /// How often cores were asked by others to give way.
    pub(crate) fn interrupts_sent(&self) -> u64 {
        self.interrupts.iter().map(|interrupt| interrupt.sent.load(Relaxed)).sum()
    }

    /// Asks this core to give way, if it runs something that can. Called after a fence.
    pub(crate) fn interrupt_if_armed(&self, core: usize) {
        let (word, bit) = self.place(core);
        if word.load(Relaxed) & bit != 0 && word.fetch_and(!bit, Relaxed) & bit != 0 {
            self.interrupt(core);
        }
    }

    /// Whether a core runs something that can give way, asked to or not. A moment ago, and not exactly: a request that comes
    /// late holds for what runs next.
    pub(crate) fn is_polite(&self, core: usize) -> bool {
        let (word, bit) = self.place(core);
        word.load(Relaxed) & bit != 0 || self.is_interrupted(core)
    }

    #[inline]
    pub(crate) fn is_interrupted(&self, core: usize) -> bool {
        self.interrupts[core].flag.load(Relaxed)
    }

    /// Forgets a request. The holder's to call.
    #[inline]
    pub(crate) fn clear(&self, core: usize) {
        let interrupt = &self.interrupts[core].flag;
        // See `arm` for why a request that comes just now is not lost with it.
        if interrupt.load(Relaxed) {
            interrupt.store(false, Relaxed);
        }
    }

    /// The flag by which the core is asked.
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

/// The `n` lowest bits that are set.
fn lowest(bits: usize, n: u32) -> usize {
    let rest = (0..n).fold(bits, |rest, _| rest & rest.wrapping_sub(1));
    bits & !rest
}

#[cfg(all(test, not(giveway_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_request_goes_to_others() {
        let set = PoliteSet::new(130, || 0);
        for core in [3, 5, 7, 64, 129] {
            set.arm(core);
        }
        let mut asked = Vec::new();
        for _ in 0..5 {
            set.interrupt_some();
            asked.push((0..130).filter(|&core| set.is_interrupted(core)).collect::<Vec<_>>());
        }
        assert_eq!(asked[..2], [vec![3, 5], vec![3, 5, 7]]);
        assert_eq!(asked[4], [3, 5, 7, 64, 129]);
        assert!((0..130).all(|core| !set.is_armed(core)));
    }

    #[test]
    fn who_stops_being_polite_learns_whether_it_was_asked() {
        let set = PoliteSet::new(2, || 0);
        set.arm(0);
        assert!(!set.disarm(0));
        set.arm(0);
        set.interrupt_some();
        assert!(set.disarm(0));
        assert!(!set.is_interrupted(0));
        set.interrupt_some();
        assert!(!set.is_interrupted(0), "it is not armed any more");
    }
}
