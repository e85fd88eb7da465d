//! What the runtime knows of a task, in the task's own allocation.
//!
//! async-task's state word says whether a task is scheduled, running, completed or closed. [`Meta`]
//! holds what the runtime adds to that.
//!
//! # The owner
//!
//! A task has one *owner* at a time: the thread that spawns, polls, queues or drops it. The task
//! passes from owner to owner by async-task's state word and by a queue; both order what one owner
//! wrote before what the next one reads. So the fields that only the owner touches need no atomics,
//! and `mark`, which dumps read as well, needs no ordering.
//!
//! # The words
//!
//! ```text
//! traits: u8   bit 0      NAMED        set by `new`
//!              bit 1      BACKGROUND   set by `new`
//!              bit 2      PINNED       set by `pin_to`
//!              bits 3-7   offset of this struct in the allocation, in units of four bytes:
//!                                      set by `remember_waker`
//! known: u8    bit 0      REGISTERED   set by `register`, cleared by `unregister`
//!              bit 1      PACED        set by `set_paced`, never cleared
//!              bit 2      LOWERED      set and cleared by `set_lowered`
//!              bit 3      OUTRIGHT     set by `pin_to` and `set_preemptible_by_user`, never cleared
//! mark: u16    where the task is: see `mark.rs`
//! ```
//!
//! `traits` is fixed once the task is published. `known` and `mark` belong to the owner.
//!
//! # The transitions
//!
//! 1. *Allocated.* `allocate_with` writes the metadata ([`InPlace::write`]) and then has it
//!    remember the waker. No other thread knows of the task yet.
//! 2. *Allocated to queued.* The spawning thread pins the task, says whether it is lowered,
//!    registers it if it has a name, and sets the mark, each as far as it applies. The push comes
//!    last: it publishes the task, and from then on another thread may own it.
//! 3. *Queued to running.* The polling thread takes the mark ([`Meta::take_mark`]).
//! 4. *Running to waiting.* [`Meta::begin_wait`] registers the task and sets the mark inside of the
//!    poll, before async-task marks the task as not running. After that a waker may reach
//!    `schedule`, which relies on the registration for a runtime that is alive, and sets the mark
//!    itself.
//! 5. *Waiting or running to queued.* The schedule function sets the mark, then pushes. A task that
//!    was woken in its poll takes this step on the polling thread, after step 4.
//! 6. *Ended.* The destructor of `TaskFuture` drops the future if the last poll has not, then calls
//!    [`Meta::unregister`], then [`Meta::set_ended`]. Shutdown waits for registered tasks alone, so
//!    the runtime may be gone after `unregister`: the future's destructor runs before it, and
//!    `set_ended` touches nothing but the task's allocation.

use super::{Class, Id, Mark, describe};
use crate::runtime::Shared;
use crate::sched::PointerSized;
use crate::task::registry::Links;
use std::cell::{Cell, UnsafeCell};
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::Deref;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU16,
    Ordering::{Acquire, Relaxed, Release},
};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// A task that is due to run.
pub(crate) type Runnable = async_task::Runnable<InPlace>;

/// Metadata that is written where it stays.
///
/// async-task moves its metadata into the allocation. A struct of this size that is filled field by
/// field and moved at once is copied in wide loads, which wait for all the narrow stores before
/// them. That wait was a quarter of a spawn. So an empty cell is moved, which costs nothing, and
/// filled in place.
pub(crate) struct InPlace(UnsafeCell<MaybeUninit<Meta>>);

impl InPlace {
    /// Returns a cell without metadata. Nothing but [`Self::address`] may be called before
    /// [`Self::write`], and it must not be dropped before that.
    #[inline]
    pub(super) fn unwritten() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Returns the address that the metadata has, or will have.
    #[inline]
    pub(super) fn address(&self) -> NonNull<Meta> {
        NonNull::from(&self.0).cast()
    }

    /// Writes the metadata.
    ///
    /// # Safety
    ///
    /// The caller calls this once, before anything else but [`Self::address`], and while no other
    /// thread can reach this cell.
    #[inline]
    pub(super) unsafe fn write(&self, meta: Meta) -> &Meta {
        // SAFETY: the pointer is that of a live cell. The caller guarantees that no other reference
        // into the cell exists: none was made before, and no other thread can make one.
        unsafe { &mut *self.0.get() }.write(meta)
    }
}

impl Deref for InPlace {
    type Target = Meta;

    #[inline]
    fn deref(&self) -> &Meta {
        // SAFETY: the pointer is that of a live cell. Nothing has a mutable reference into it:
        // `write`, which has one, is over, and from then on the cell is only read.
        let place = unsafe { &*self.0.get() };
        // SAFETY: `write` has initialized the metadata: it is called before anything else, as
        // `unwritten` demands.
        unsafe { place.assume_init_ref() }
    }
}

impl Drop for InPlace {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `write` has initialized the metadata: `allocate_with` calls it as soon as
        // async-task has moved the cell into the allocation, and nothing drops the cell before
        // that. It is dropped once, here, and not touched afterwards.
        unsafe { self.0.get_mut().assume_init_drop() };
    }
}

// SAFETY: a shared reference gives access to the metadata alone, as a `&Meta`, and `Meta` is
// `Sync`. `address` does not read the cell. `write` does write to it, but its caller excludes other
// threads.
unsafe impl Sync for InPlace {}

/// A task's metadata. Its address is fixed for the life of the allocation.
///
/// Kept to seven words. With async-task's header of five words and a future of three (a boxed one)
/// a task has 120 bytes. That is the most that glibc frees without a lock on a thread other than
/// the one that allocated. With one word more, two workers that free each other's tasks meet at
/// that lock: two thirds of the context switches of a fork-join load were there.
pub(crate) struct Meta {
    /// The runtime. Not counted: `crate::worker::schedule` says why it is alive whenever this
    /// pointer is followed.
    pub(crate) shared: *const Shared,
    pub(crate) id: Id,
    /// Where the task was spawned, and its name: `Origin::named` if and only if `NAMED` is set.
    /// Written by `new`, read by any thread, dropped with the metadata.
    origin: Origin,
    /// This task's place in the registry. Read and written under the lock of its shard.
    pub(crate) links: Links,
    /// The vtable of the task's waker. Written once, by `remember_waker`, before the task is
    /// published; read by any thread. The data pointer of the waker is the start of the allocation,
    /// a few bytes before this struct; its provenance is exposed when the vtable is written.
    waker: Cell<Option<&'static RawWakerVTable>>,
    /// `NAMED`, `BACKGROUND`, `PINNED`, and above them how far before this struct the allocation
    /// begins, in units of `OFFSET_UNIT` bytes. Written by the spawning thread before the task is
    /// published; read by any thread.
    traits: Cell<u8>,
    /// Where the task is, as the bits of a [`Mark`]. Written by the owner, read by it and by dumps,
    /// relaxed.
    mark: AtomicU16,
    /// `REGISTERED`, `PACED`, `LOWERED`, `OUTRIGHT`. Read and written by the owner alone.
    known: Cell<u8>,
    /// The number of the task's shard in the registry, written by the owner when it registers the
    /// task; of a pinned task the number of its worker, written before the task is published.
    pub(crate) shard: Cell<u16>,
    /// Set by the thread that has dropped the future, read by the handles.
    ended: AtomicBool,
    /// Set by any thread that aborts the task, read by the owner at each poll.
    aborted: AtomicBool,
}

/// Of `Meta::traits`: the task has a name, which `Origin::named` holds beside the location.
const NAMED: u8 = 1;
/// The task is of the background.
const BACKGROUND: u8 = 2;
/// The task stays on the worker that `Meta::shard` names.
const PINNED: u8 = 4;
/// The rest of the byte is the offset of the metadata in the allocation.
const OFFSET_SHIFT: u32 = 3;
/// The offset is counted in units of this many bytes.
const OFFSET_UNIT: usize = 4;

/// Of `Meta::known`: the task is in the registry, which holds a waker reference to it.
const REGISTERED: u8 = 1;
/// The task has a pacer, so its polls are timed.
const PACED: u8 = 2;
/// Lowered threads poll the task.
const LOWERED: u8 = 4;
/// `LOWERED` was set or cleared for good: the runtime does not learn it from the task's polls.
const OUTRIGHT: u8 = 8;

const _: () = assert!(size_of::<Meta>() <= 7 * size_of::<u64>());

/// Where a task comes from. Which field is valid is in `Meta::traits`: `named` with `NAMED`,
/// `location` without.
union Origin {
    location: &'static Location<'static>,
    named: ManuallyDrop<Box<Named>>,
}

/// The location and the name of a task, boxed so that a task without a name is no larger for it.
struct Named {
    location: &'static Location<'static>,
    name: Box<str>,
}

// SAFETY: two fields are not `Send` by themselves, and both may be used on any thread:
// - `shared` is never written, is followed only where the runtime is known to be alive
//   (`crate::worker::schedule`), and points to a value that is `Send` and `Sync`;
// - `links` is touched under the lock of the registry's shard alone.
unsafe impl Send for Meta {}
// SAFETY: each field that is not `Sync` by itself has a rule that keeps two threads from touching
// it at once, unless both read:
// - `shared` is never written, and points to a value that is `Sync`;
// - `links` is touched under the lock of the registry's shard alone;
// - `waker`, `traits` and the `shard` of a pinned task are written before the task is published,
//   and only read afterwards;
// - `known` and every other `shard` are touched by the owner alone, and the task passes from owner
//   to owner by a release and an acquire.
unsafe impl Sync for Meta {}

impl Drop for Meta {
    #[inline]
    fn drop(&mut self) {
        if self.traits.get() & NAMED != 0 {
            // SAFETY: `NAMED` is set, so `new` has initialized `named`.
            let named = unsafe { &mut self.origin.named };
            // SAFETY: `named` is initialized. It is dropped once, here, and not touched afterwards.
            unsafe { ManuallyDrop::drop(named) };
        }
    }
}

impl Meta {
    /// Returns the metadata of a task that is in no queue, and whose waker is not known yet.
    #[inline(always)]
    pub(crate) fn new(
        shared: *const Shared,
        id: Id,
        name: Option<Box<str>>,
        class: Class,
        location: &'static Location<'static>,
    ) -> Self {
        let named = if name.is_some() { NAMED } else { 0 };
        let class = if class == Class::Background { BACKGROUND } else { 0 };
        let origin = match name {
            None => Origin { location },
            Some(name) => Origin { named: ManuallyDrop::new(Box::new(Named { location, name })) },
        };
        Self {
            shared,
            id,
            origin,
            links: Links::new(),
            waker: Cell::new(None),
            traits: Cell::new(named | class),
            mark: AtomicU16::new(Mark::RUNNING.bits()),
            known: Cell::new(0),
            shard: Cell::new(0),
            ended: AtomicBool::new(false),
            aborted: AtomicBool::new(false),
        }
    }

    /// Returns the location and the name, if the task has a name.
    fn named(&self) -> Option<&Named> {
        // SAFETY: `named` is read only if `NAMED` is set, and then `new` has initialized it.
        (self.traits.get() & NAMED != 0).then(|| &***unsafe { &self.origin.named })
    }

    /// Returns the task's name, if it was given one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.named().map(|named| &*named.name)
    }

    /// Returns the place where the task was spawned.
    #[inline]
    pub(crate) fn location(&self) -> &'static Location<'static> {
        match self.named() {
            Some(named) => named.location,
            // SAFETY: without a name `NAMED` is not set, so `new` has initialized `location`.
            None => unsafe { self.origin.location },
        }
    }

    /// Returns whether the task is of the background.
    #[inline]
    pub(crate) fn is_background(&self) -> bool {
        self.traits.get() & BACKGROUND != 0
    }

    /// Returns the task's class.
    pub(crate) fn class(&self) -> Class {
        if self.is_background() { Class::Background } else { Class::Foreground }
    }

    /// Pins the task to this worker. For the spawning thread, before it pushes the task.
    pub(crate) fn pin_to(&self, worker: usize) {
        self.traits.set(self.traits.get() | PINNED);
        // A pinned task is never left to a lowered thread.
        self.known.set(self.known.get() | OUTRIGHT);
        self.shard.set(u16::try_from(worker).expect("a runtime has at most `MAX_WORKERS`"));
    }

    /// Returns whether the task stays on one worker.
    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.traits.get() & PINNED != 0
    }

    /// Returns the worker that a pinned task stays on.
    pub(crate) fn pinned_to(&self) -> usize {
        debug_assert!(self.is_pinned(), "only a pinned task stays anywhere");
        usize::from(self.shard.get())
    }

    /// Returns whether the task's polls are timed for its pacer. For the owner.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.known.get() & PACED != 0
    }

    /// Notes that the task has a pacer. For the polling thread.
    pub(crate) fn set_paced(&self) {
        self.known.set(self.known.get() | PACED);
    }

    /// Returns whether the task is polled on lowered threads. For the owner.
    #[inline]
    pub(crate) fn is_lowered(&self) -> bool {
        self.known.get() & LOWERED != 0
    }

    /// Sets for good whether the task is polled on lowered threads. For the thread that spawns or
    /// queues it, before it pushes the task.
    pub(crate) fn set_preemptible_by_user(&self, lowered: bool) {
        self.set_lowered(lowered);
        self.known.set(self.known.get() | OUTRIGHT);
    }

    /// Returns whether the runtime learns from the task's polls if they are for lowered threads.
    /// For the polling thread.
    #[inline]
    pub(crate) fn may_be_lowered(&self) -> bool {
        self.is_background() && self.known.get() & OUTRIGHT == 0
    }

    /// Has lowered threads poll the task from now on, or workers. For the thread that spawns or
    /// queues it, before it pushes the task.
    pub(crate) fn set_lowered(&self, lowered: bool) {
        debug_assert!(self.is_background() || !lowered, "the foreground is never lowered");
        let known = self.known.get() & !LOWERED;
        self.known.set(if lowered { known | LOWERED } else { known });
    }

    /// Returns where the task is. To a thread that does not own the task this is where it was.
    pub(crate) fn mark(&self) -> Mark {
        // Ordering: relaxed, here and below. An owner has the task from the owner before, by
        // async-task's state word or a queue, which order the stores. A dump may show where the
        // task was before.
        Mark::from_bits(self.mark.load(Relaxed))
    }

    /// Says where the task is. For the owner; for the thread that queues the task, before the push.
    #[inline]
    pub(crate) fn set_mark(&self, mark: Mark) {
        self.mark.store(mark.bits(), Relaxed);
    }

    /// Marks the task as running and returns where it was. For the thread that is about to poll it.
    #[inline]
    pub(crate) fn take_mark(&self) -> Mark {
        let mark = self.mark();
        self.set_mark(Mark::RUNNING);
        mark
    }

    /// Marks the task as one that changes places with another. For the thread that queues it, after
    /// [`Self::set_mark`] and before the push.
    pub(crate) fn set_swapped(&self) {
        self.set_mark(self.mark().with_swap());
    }

    /// Remembers the parts of the task's waker. For the spawning thread, before it publishes the
    /// task.
    #[inline]
    pub(crate) fn remember_waker(&self, waker: Waker) {
        // async-task's waker points to the start of the allocation, and this struct is a few bytes
        // behind it. The offset and the vtable are kept, since a `Waker` would be a word larger.
        let offset = ptr::from_ref(self).addr().wrapping_sub(waker.data().expose_provenance());
        debug_assert!(
            offset < OFFSET_UNIT << (u8::BITS - OFFSET_SHIFT),
            "the header of a task is small"
        );
        debug_assert!(offset.is_multiple_of(OFFSET_UNIT), "metadata is aligned");
        self.traits.set(self.traits.get() | ((offset / OFFSET_UNIT) as u8) << OFFSET_SHIFT);
        self.waker.set(Some(waker.vtable()));
    }

    /// Returns the runtime, counted.
    ///
    /// # Safety
    ///
    /// The caller guarantees that the runtime is alive; `crate::worker::schedule` says why it is.
    pub(crate) unsafe fn runtime(&self) -> Arc<Shared> {
        // SAFETY: `shared` came from the runtime's `Arc`, and the caller guarantees that the
        // runtime is alive, so the count is at least one.
        unsafe { Arc::increment_strong_count(self.shared) };
        // SAFETY: `shared` came from the runtime's `Arc`, and the count that was just added is the
        // one that this `Arc` owns.
        unsafe { Arc::from_raw(self.shared) }
    }

    /// Registers the task and marks it as waiting. For the polling thread, when the future has
    /// returned `Pending` and async-task still has the task marked as running.
    #[inline]
    pub(crate) fn begin_wait(&self) {
        // 1. Before the poll ends. Afterwards a waker may reach `schedule`, which needs a
        //    registered task: without the entry nothing keeps the runtime alive for it.
        self.register();
        // SAFETY: the runtime is alive: the thread that polls, a worker or a lowered thread, holds
        // a count.
        let shared = unsafe { &*self.shared };
        // 2. Before the poll ends, too. Afterwards a waker may mark the task as queued, and this
        //    store would wipe that out.
        //
        // Ordering: relaxed. The next owner has the task by async-task's state word, as `mark`
        // says.
        self.mark.store(shared.meter.seconds(), Relaxed);
    }

    /// Enters the task into the registry of its runtime, if it is not there. For the thread that
    /// spawns or polls it.
    ///
    /// The registry holds a waker reference. Without it async-task frees a detached task whose poll
    /// returns `Pending` while no waker of it is left. It does so without dropping the future, and
    /// the registry would keep a dangling link.
    #[inline]
    pub(crate) fn register(&self) {
        if self.known.get() & REGISTERED == 0 {
            self.known.set(self.known.get() | REGISTERED);
            // Before the insertion: from then on the registry's link relies on this reference.
            std::mem::forget(self.waker());
            // SAFETY: the runtime is alive: in a spawn the caller holds a count, in a poll the
            // thread that polls does.
            let shared = unsafe { &*self.shared };
            shared.registry.insert(self);
        }
    }

    /// Takes the task out of the registry, if it is there. For the thread that drops the future,
    /// which holds a reference to the task meanwhile.
    #[inline]
    pub(crate) fn unregister(&self) {
        if self.known.get() & REGISTERED != 0 {
            self.known.set(self.known.get() & !REGISTERED);
            // SAFETY: the runtime is alive: the thread that drops the future of a registered task
            // holds a count, as a worker, as a lowered thread or as the thread that shuts the
            // runtime down.
            let shared = unsafe { &*self.shared };
            shared.registry.remove(self);
            // Gives back the reference that `register` took, after the removal: the link relied on
            // it.
            drop(ManuallyDrop::into_inner(self.borrow_waker()));
        }
    }

    /// Returns the task's waker, borrowed: it owns no reference to the task. The caller has one.
    #[inline]
    fn borrow_waker(&self) -> ManuallyDrop<Waker> {
        let vtable = self.waker.get().expect("the waker is remembered at spawn");
        let offset = usize::from(self.traits.get() >> OFFSET_SHIFT) * OFFSET_UNIT;
        let data = ptr::from_ref(self).addr().wrapping_sub(offset);
        let data = ptr::with_exposed_provenance(data);
        // SAFETY: the data pointer and the vtable are those of a waker of this task, and the
        // provenance of the data pointer was exposed by `remember_waker`. `self` lies in the task's
        // allocation, so a caller that has `&self` keeps the allocation alive. The waker is not
        // dropped, so it takes no reference away; `unregister`, which drops it, gives back a
        // reference that `register` took.
        ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, vtable)) })
    }

    /// Returns a waker with a reference of its own.
    pub(crate) fn waker(&self) -> Waker {
        Waker::clone(&self.borrow_waker())
    }

    /// Makes the task runnable, if it is neither runnable nor finished.
    #[inline]
    pub(crate) fn wake(&self) {
        self.borrow_waker().wake_by_ref();
    }

    /// Asks the task to end at its next poll, and makes sure that there is one.
    pub(crate) fn abort(&self) {
        // The flag before the wake: the other way round, the poll that the wake brings may have
        // looked at the flag already.
        //
        // Ordering: release, partner of the acquire in `is_aborted`: the future's destructor sees
        // what the caller did before. Relaxed would not order that. That the flag is seen, at the
        // next poll at the latest, comes from the wake below: it is a read-modify-write of the
        // task's state word, also if the task is running or queued, and that poll reads the word.
        self.aborted.store(true, Release);
        self.wake();
    }

    /// Notes that the future has been dropped. For the thread that has dropped it.
    #[inline]
    pub(crate) fn set_ended(&self) {
        // Ordering: release, partner of the acquire in `has_ended`: a thread that sees the flag
        // sees what the destructors did. Relaxed would not order that.
        self.ended.store(true, Release);
    }

    /// Returns whether the future has been dropped.
    pub(crate) fn has_ended(&self) -> bool {
        // Ordering: acquire, partner of the release in `set_ended`.
        self.ended.load(Acquire)
    }

    /// Returns whether the task is to end instead of being polled.
    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        // Ordering: acquire, partner of the release in `abort`: the future's destructor sees what
        // the aborting thread did before.
        self.aborted.load(Acquire)
    }
}

/// The task as errors and reports call it.
impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.id, self.name(), self.location())
    }
}

// SAFETY: a `Runnable` is one non-null pointer, which `into_raw` gives and `from_raw` takes, and it
// is `Send`.
unsafe impl PointerSized for Runnable {
    fn into_pointer(self) -> NonNull<()> {
        self.into_raw()
    }

    unsafe fn from_pointer(pointer: NonNull<()>) -> Self {
        // SAFETY: the pointer is one that `into_raw` returned, and the caller passes it here once.
        unsafe { Self::from_raw(pointer) }
    }
}
