//! The shared half of a worker: where it parks, whose core it holds, and what it tells the monitor
//! and the reports of its polls.
//!
//! The words are written by the thread that holds the core or by the monitor, as each field says,
//! and read without a lock. None of them orders anything but what `monitor/overruns.md` and
//! `handoff/hand_off.md` say of `aside`, `lease` and `recall`.

use crate::handoff::{Lease, Recall};
use crate::monitor::Aside;
use crate::os;
use crate::parker::Parker;
use crate::task::{Class, Id, Meta};
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};
use std::time::Duration;

/// The shared half of a worker: where it parks, what it is doing, and which thread holds its core.
pub(crate) struct Post {
    /// Where the thread that holds the core parks.
    pub(crate) parker: Parker,
    /// Whether the core is held, or on loan to the thread that takes it first.
    pub(crate) lease: Lease,
    /// Whether the home thread, or the monitor for a spare core, wants the core back.
    pub(crate) recall: Recall,
    /// Where the home thread waits for its core, and at its end for its last pinned tasks.
    pub(crate) home: Parker,
    /// How many tasks are pinned to this core. Raised by spawns, lowered when a future is dropped;
    /// the home thread waits for zero before it ends.
    pub(crate) pinned: AtomicUsize,
    /// What the worker is in: twice the id of the task, and one more if it is a background task, or
    /// zero for none. With `LEARNS` if the place of the task is one to learn of
    /// (`monitor/overruns.md`). With `DROPPED` if the task is not polled but dropped. Written by
    /// the worker at each poll, read for reports. Those tolerate a mixture of one task and the
    /// next, so this and `spawned_at` are two plain words.
    running: AtomicU64,
    /// Where that task was spawned. Written and read like `running`.
    spawned_at: AtomicPtr<Location<'static>>,
    /// How many polls there were. Written by the core's holder.
    polls: AtomicU64,
    /// How many of the polls were of a task from the slot. Written by the core's holder.
    hand_offs: AtomicU64,
    /// The tick of the poll whose end the monitor wants to know, or zero. Written by the monitor,
    /// cleared by the worker when that poll has ended.
    watched: AtomicU32,
    /// When that poll ended, or zero. Written by the worker, taken by the monitor.
    ended_at: AtomicU64,
    /// The tick of the poll that the monitor has seen last. Written by the monitor.
    seen: AtomicU32,
    /// When the monitor first saw that poll. Written by the monitor.
    seen_at: AtomicU64,
    /// The tick of a poll of which nothing is known yet, or zero. The monitor watches that poll.
    /// Written by the worker.
    unproven: AtomicU32,
    /// The tick of the poll that was overrun last. Written by the monitor.
    overrun: AtomicU32,
    /// Whether the thread of an overrun poll steps aside, and how to undo that.
    aside: Aside,
    /// The number by which the OS knows the thread that holds the core. Written by that thread.
    thread: AtomicI32,
}

/// In `Post::running`: the task is dropped, not polled. The bit is beyond every id of a task.
const DROPPED: u64 = 1 << 63;
/// In `Post::running`: the monitor may learn of the task's place. The bit is beyond every id.
const LEARNS: u64 = 1 << 62;

impl Post {
    pub(crate) fn new() -> Self {
        Self {
            parker: Parker::new(),
            lease: Lease::new(),
            recall: Recall::new(),
            home: Parker::new(),
            pinned: AtomicUsize::new(0),
            running: AtomicU64::new(0),
            spawned_at: AtomicPtr::new(ptr::null_mut()),
            polls: AtomicU64::new(0),
            hand_offs: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            ended_at: AtomicU64::new(0),
            seen: AtomicU32::new(0),
            seen_at: AtomicU64::new(0),
            unproven: AtomicU32::new(0),
            overrun: AtomicU32::new(0),
            aside: Aside::default(),
            thread: AtomicI32::new(0),
        }
    }

    /// Publishes that the worker begins to poll the task.
    #[inline]
    pub(crate) fn begin(&self, meta: &Meta, background: bool) {
        // Ordering: relaxed, both; reports read them and tolerate a mixture. The location is static
        // data, so nothing has to be published with the pointer.
        let class =
            if background && meta.may_be_lowered() { LEARNS | 1 } else { u64::from(background) };
        self.running.store(meta.id.get() << 1 | class, Relaxed);
        self.spawned_at.store(ptr::from_ref(meta.location()).cast_mut(), Relaxed);
    }

    /// Publishes that the worker drops the task, at the end of the runtime.
    pub(crate) fn begin_drop(&self, meta: &Meta) {
        self.begin(meta, meta.is_background());
        self.running.store(self.running.load(Relaxed) | DROPPED, Relaxed);
    }

    /// Counts a poll.
    #[inline]
    pub(crate) fn count_poll(&self) {
        // Ordering: relaxed, here and below: one thread at a time writes, and the others only take
        // snapshots.
        self.polls.store(self.polls.load(Relaxed) + 1, Relaxed);
    }

    /// Counts that the task of the next poll was in the slot.
    #[inline]
    pub(crate) fn count_hand_off(&self) {
        self.hand_offs.store(self.hand_offs.load(Relaxed) + 1, Relaxed);
    }

    /// Returns how many polls there were, and how many of them were of a task from the slot.
    pub(crate) fn polls(&self) -> (u64, u64) {
        (self.polls.load(Relaxed), self.hand_offs.load(Relaxed))
    }

    /// Publishes that the worker is in no task.
    #[inline]
    pub(crate) fn end(&self) {
        self.running.store(0, Relaxed);
    }

    /// Returns whether the monitor wants to know when this poll has ended.
    #[inline]
    pub(crate) fn is_watched(&self, tick: u32) -> bool {
        // Ordering: relaxed, here and below: if a store is missed, a report is a little less exact.
        self.watched.load(Relaxed) == tick
    }

    /// Tells the monitor that the watched poll has ended.
    #[cold]
    pub(crate) fn tell_end(&self, now: u64) {
        self.watched.store(0, Relaxed);
        self.ended_at.store(now, Relaxed);
    }

    /// Asks the worker to tell when this poll ends. The monitor calls it.
    pub(crate) fn watch_end(&self, tick: u32) {
        self.ended_at.store(0, Relaxed);
        self.watched.store(tick, Relaxed);
    }

    /// Takes the time when the watched poll ended, if the worker has told it.
    pub(crate) fn take_end(&self) -> Option<u64> {
        Some(self.ended_at.swap(0, Relaxed)).filter(|&at| at != 0)
    }

    /// Notes that the monitor sees a poll for the first time.
    pub(crate) fn first_seen(&self, tick: u32, now: u64) {
        // Ordering: relaxed, here and below: if a store is missed, a report is a little less exact.
        self.seen.store(tick, Relaxed);
        self.seen_at.store(now, Relaxed);
    }

    /// Publishes that the worker is about to begin a poll of which nothing is known yet.
    pub(crate) fn begin_unproven(&self, tick: u32) {
        self.unproven.store(tick, Relaxed);
    }

    /// Publishes that that poll is over. Without effect on a later poll: the thread that ends this
    /// one may have lost its core, which polls others by now.
    pub(crate) fn end_unproven(&self, tick: u32) {
        // Ordering: relaxed, in two steps; a hint. A mark that is lost costs one poll its quick
        // looks.
        if self.unproven.load(Relaxed) == tick {
            self.unproven.store(0, Relaxed);
        }
    }

    /// Returns whether nothing is known of a poll that goes on or is about to begin.
    pub(crate) fn has_unproven(&self) -> bool {
        self.unproven.load(Relaxed) != 0
    }

    /// Returns whether nothing was known of this poll when it began.
    pub(crate) fn is_unproven(&self, tick: u32) -> bool {
        tick != 0 && self.unproven.load(Relaxed) == tick
    }

    /// Makes the thread that holds the core step aside for others until the end of the poll with
    /// this tick, or until [`Self::step_back`]. The monitor calls it.
    pub(crate) fn step_aside(&self, tick: u32) {
        self.overrun.store(tick, Relaxed);
        if self.aside.set(|| os::step_aside(self.thread())) {
            self.watch_end(tick);
        }
    }

    /// Makes the thread that has stepped aside, if there is one, step back.
    pub(crate) fn step_back(&self) {
        self.aside.take(os::step_back);
    }

    /// Returns whether the poll with this tick is overrun.
    pub(crate) fn is_overrun(&self, tick: u32) -> bool {
        self.is_running() && self.overrun.load(Relaxed) == tick
    }

    /// Returns the time since which this poll has gone on, if the monitor has seen it.
    pub(crate) fn seen_since(&self, tick: u32) -> Option<u64> {
        (self.seen.load(Relaxed) == tick).then(|| self.seen_at.load(Relaxed))
    }

    /// Returns whether the running task is being dropped, and not polled.
    pub(crate) fn is_dropping(&self) -> bool {
        self.running.load(Relaxed) & DROPPED != 0
    }

    /// Makes the calling thread the one that holds the core.
    pub(crate) fn bind(&self) {
        self.parker.bind();
        self.thread.store(os::this_thread(), Relaxed);
    }

    /// Returns the number by which the OS knows the thread that holds the core.
    pub(crate) fn thread(&self) -> i32 {
        self.thread.load(Relaxed)
    }

    /// Returns how long the thread that holds the core has waited for a CPU since it was started,
    /// as far as the OS tells. A wait that goes on now does not count.
    pub(crate) fn starved(&self) -> Duration {
        os::starved(self.thread()).unwrap_or(Duration::ZERO)
    }

    /// Returns how long the thread that holds the core has had a CPU until now, if the OS tells.
    pub(crate) fn had_cpu(&self) -> Option<Duration> {
        os::had_cpu(self.thread())
    }

    /// Returns whether the thread that holds the core has a CPU or waits for one, if the OS tells.
    pub(crate) fn wants_cpu(&self) -> Option<bool> {
        os::wants_cpu(self.thread())
    }

    /// Returns whether a task is running.
    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Relaxed) != 0
    }

    /// Returns where the background task that was being polled a moment ago was spawned, if that is
    /// a place to learn of.
    pub(crate) fn learns_of(&self) -> Option<&'static Location<'static>> {
        let learns = self.running.load(Relaxed) & (DROPPED | LEARNS) == LEARNS;
        if learns { self.running().map(|(_, location)| location) } else { None }
    }

    /// Returns the task that was running a moment ago, and where it was spawned.
    pub(crate) fn running(&self) -> Option<(Id, &'static Location<'static>)> {
        self.running_class().map(|(id, _, location)| (id, location))
    }

    /// Returns the task that was running a moment ago, its class, and where it was spawned.
    pub(crate) fn running_class(&self) -> Option<(Id, Class, &'static Location<'static>)> {
        let running = self.running.load(Relaxed);
        let class = if running & 1 == 1 { Class::Background } else { Class::Foreground };
        let id = Id::from_raw((running & !(DROPPED | LEARNS)) >> 1)?;
        // SAFETY: the pointer is null, or comes from a `&'static Location` that `begin` stored: it
        // is valid for ever, and nothing writes through it. It may be that of another task than the
        // id; both are only for reports.
        let location = unsafe { self.spawned_at.load(Relaxed).as_ref() }?;
        Some((id, class, location))
    }
}
