//! What the runtime knows of a task, in the task's own allocation.

use super::{Class, Id, Mark, describe};
use crate::registry::Links;
use crate::runtime::Shared;
use crate::sched::PointerSized;
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
/// async-task moves its metadata into the allocation. A struct of a hundred bytes, filled field by field and moved at
/// once, is copied in wide loads that wait for all the narrow stores before them; a quarter of a spawn was that wait.
/// So an empty box is moved, which costs nothing, and filled in place.
pub(crate) struct InPlace(UnsafeCell<MaybeUninit<Meta>>);

impl InPlace {
    /// Nothing yet. To be written before anything else is done with it, but for asking its address.
    #[inline]
    pub(super) fn unwritten() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Where the metadata will be.
    #[inline]
    pub(super) fn address(&self) -> NonNull<Meta> {
        NonNull::from(&self.0).cast()
    }

    /// Writes the metadata.
    ///
    /// # Safety
    ///
    /// Called once, first, while nobody else knows of this place.
    #[inline]
    pub(super) unsafe fn write(&self, meta: Meta) -> &Meta {
        // SAFETY: nobody else has a reference into the cell.
        unsafe { &mut *self.0.get() }.write(meta)
    }
}

impl Deref for InPlace {
    type Target = Meta;

    #[inline]
    fn deref(&self) -> &Meta {
        // SAFETY: after `write` the cell is only ever read.
        let place = unsafe { &*self.0.get() };
        // SAFETY: written before anything else was done, as `unwritten` asks.
        unsafe { place.assume_init_ref() }
    }
}

impl Drop for InPlace {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: written, as above, and dropped once.
        unsafe { self.0.get_mut().assume_init_drop() };
    }
}

// SAFETY: once written it is a `Meta`, which is both.
unsafe impl Sync for InPlace {}

/// A task's metadata. Its address is fixed for the life of the allocation.
///
/// Kept to seven words. With async-task's header of five and a future of three (a boxed one) a task is 120 bytes: the
/// most that glibc frees without a lock when the thread is not the one that allocated. One word more, and two workers
/// that free each other's tasks meet at that lock: two thirds of the context switches of a fork-join load were there.
pub(crate) struct Meta {
    /// The runtime. Not counted: see `crate::worker::schedule` for why it is alive whenever it is looked at.
    pub(crate) shared: *const Shared,
    pub(crate) id: Id,
    origin: Origin,
    /// This task's place in the registry; under the lock of its shard.
    pub(crate) links: Links,
    // The vtable of the task's waker. Written once, before the task is first seen by anybody else. The waker's data
    // pointer is that of the allocation, some bytes before this struct; its provenance is exposed at the same time.
    waker: Cell<Option<&'static RawWakerVTable>>,
    // `NAMED`, `BACKGROUND` and `PINNED`, what is fixed at the spawn; and above them how far before this struct the
    // allocation begins, in units of four bytes. Written before the task is first seen by anybody else.
    traits: Cell<u8>,
    // Where the task is. Written by whoever spawns, polls or queues it, of whom there is one at a time; read by dumps.
    mark: AtomicU16,
    // `REGISTERED`: the registry has this task; `PACED`: it has a pacer, and its polls are timed; `LOWERED`: it is polled on
    // lowered threads; `OUTRIGHT`: whether it is, is not for the runtime to learn. Belongs to whoever spawns, queues, polls or
    // drops it, of whom there is one at a time.
    known: Cell<u8>,
    // The number of the registry's shard, for the same; for a pinned task that of its worker.
    pub(crate) shard: Cell<u16>,
    // Set when the future is gone, read by the handle.
    ended: AtomicBool,
    // Set by whoever aborts, read by the task at each poll.
    aborted: AtomicBool,
}

/// The name is there, with the location: see [`Origin`].
const NAMED: u8 = 1;
const BACKGROUND: u8 = 2;
const PINNED: u8 = 4;
/// The rest of the byte is the offset of the waker.
const OFFSET_SHIFT: u32 = 3;
const OFFSET_UNIT: usize = 4;

const REGISTERED: u8 = 1;
const PACED: u8 = 2;
const LOWERED: u8 = 4;
const OUTRIGHT: u8 = 8;

const _: () = assert!(size_of::<Meta>() <= 7 * size_of::<u64>());

/// Where a task comes from.
union Origin {
    location: &'static Location<'static>,
    named: ManuallyDrop<Box<Named>>,
}

struct Named {
    location: &'static Location<'static>,
    name: Box<str>,
}

// SAFETY: the raw pointers are used under rules of their own (the registry's lock; `schedule`). The waker's cells are
// written before the task is shared and only read after, those of the registry by one owner at a time.
unsafe impl Send for Meta {}
// SAFETY: as above.
unsafe impl Sync for Meta {}

impl Drop for Meta {
    #[inline]
    fn drop(&mut self) {
        if self.traits.get() & NAMED != 0 {
            // SAFETY: `NAMED` says that this field is there.
            let named = unsafe { &mut self.origin.named };
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(named) };
        }
    }
}

impl Meta {
    #[inline(always)]
    pub(crate) fn new(
        shared: *const Shared,
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
            id: Id::next(),
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

    fn named(&self) -> Option<&Named> {
        // SAFETY: `NAMED` says that this field is there.
        (self.traits.get() & NAMED != 0).then(|| &***unsafe { &self.origin.named })
    }

    /// The task's name, if it was given one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.named().map(|named| &*named.name)
    }

    /// Where the task was spawned.
    #[inline]
    pub(crate) fn location(&self) -> &'static Location<'static> {
        match self.named() {
            Some(named) => named.location,
            // SAFETY: it has no name, so this field is there.
            None => unsafe { self.origin.location },
        }
    }

    #[inline]
    pub(crate) fn is_background(&self) -> bool {
        self.traits.get() & BACKGROUND != 0
    }

    /// The task stays on this worker. Before it is pushed anywhere.
    pub(crate) fn pin_to(&self, worker: usize) {
        self.traits.set(self.traits.get() | PINNED);
        // Lowered threads are not for it.
        self.known.set(self.known.get() | OUTRIGHT);
        self.shard.set(u16::try_from(worker).expect("a runtime has at most `MAX_WORKERS`"));
    }

    #[inline]
    pub(crate) fn is_pinned(&self) -> bool {
        self.traits.get() & PINNED != 0
    }

    /// The worker that a pinned task stays on.
    pub(crate) fn pinned_to(&self) -> usize {
        debug_assert!(self.is_pinned(), "only a pinned task stays anywhere");
        usize::from(self.shard.get())
    }

    /// Whether the task's polls are timed for its pacer. For whoever polls it.
    #[inline]
    pub(crate) fn is_paced(&self) -> bool {
        self.known.get() & PACED != 0
    }

    /// The task has a pacer. For whoever polls it.
    pub(crate) fn set_paced(&self) {
        self.known.set(self.known.get() | PACED);
    }

    /// Whether the task is polled on lowered threads. For whoever queues it.
    #[inline]
    pub(crate) fn is_lowered(&self) -> bool {
        self.known.get() & LOWERED != 0
    }

    /// Fixes whether the task is polled on lowered threads. For the thread that spawns or queues it.
    pub(crate) fn set_lowered_outright(&self, lowered: bool) {
        self.set_lowered(lowered);
        self.known.set(self.known.get() | OUTRIGHT);
    }

    /// Whether the runtime is to learn from the task's polls if they are for lowered threads. For the thread that polls it.
    #[inline]
    pub(crate) fn may_be_lowered(&self) -> bool {
        self.is_background() && self.known.get() & OUTRIGHT == 0
    }

    /// The task is polled on lowered threads from now on, or by workers. For whoever spawns or queues it.
    pub(crate) fn set_lowered(&self, lowered: bool) {
        debug_assert!(self.is_background() || !lowered, "the foreground is never lowered");
        let known = self.known.get() & !LOWERED;
        self.known.set(if lowered { known | LOWERED } else { known });
    }

    /// Where the task was a moment ago.
    pub(crate) fn mark(&self) -> Mark {
        // Ordering: relaxed, here and below. Who polls or queues the task has it from the one before, by a queue; a dump
        // is content with what was.
        Mark::from_bits(self.mark.load(Relaxed))
    }

    /// Says where the task is. For whoever queues it, before it is queued.
    #[inline]
    pub(crate) fn set_mark(&self, mark: Mark) {
        self.mark.store(mark.bits(), Relaxed);
    }

    /// The task is about to be polled. Where it was.
    #[inline]
    pub(crate) fn take_mark(&self) -> Mark {
        let mark = self.mark();
        self.set_mark(Mark::RUNNING);
        mark
    }

    /// The task changes places with another. For whoever queues it, before it is queued.
    pub(crate) fn set_swapped(&self) {
        self.set_mark(self.mark().with_swap());
    }

    /// Remembers the waker's parts. Before the task is pushed anywhere.
    #[inline]
    pub(crate) fn remember_waker(&self, waker: Waker) {
        // async-task's waker points to the start of the allocation, which this struct is a little way into.
        let offset = ptr::from_ref(self).addr().wrapping_sub(waker.data().expose_provenance());
        debug_assert!(offset < OFFSET_UNIT << (u8::BITS - OFFSET_SHIFT), "the header of a task is small");
        debug_assert!(offset.is_multiple_of(OFFSET_UNIT), "metadata is aligned");
        self.traits.set(self.traits.get() | ((offset / OFFSET_UNIT) as u8) << OFFSET_SHIFT);
        self.waker.set(Some(waker.vtable()));
    }

    /// The runtime, counted.
    ///
    /// # Safety
    ///
    /// The runtime is alive: see `crate::worker::schedule`.
    pub(crate) unsafe fn runtime(&self) -> Arc<Shared> {
        // SAFETY: the caller says that it is alive, and the pointer came from its `Arc`.
        unsafe { Arc::increment_strong_count(self.shared) };
        // SAFETY: the count just added is ours.
        unsafe { Arc::from_raw(self.shared) }
    }

    /// A poll has returned, and the task waits. For whoever polls it.
    #[inline]
    pub(crate) fn begin_wait(&self) {
        self.register();
        // SAFETY: the runtime is alive: the worker that polls holds it.
        let shared = unsafe { &*self.shared };
        // Ordering: relaxed, see `mark`.
        self.mark.store(shared.meter.seconds(), Relaxed);
    }

    /// Enters the task into the registry of its runtime, if it is not there. For whoever spawns or polls it.
    ///
    /// The registry counts as a waker. Without it async-task would free a detached task as soon as nobody could wake it
    /// any more, without dropping its future, and the registry would be left with a dangling link.
    #[inline]
    pub(crate) fn register(&self) {
        if self.known.get() & REGISTERED == 0 {
            self.known.set(self.known.get() | REGISTERED);
            std::mem::forget(self.waker());
            // SAFETY: the runtime is alive: in a spawn the caller holds it, in a poll the worker does.
            let shared = unsafe { &*self.shared };
            shared.registry.insert(self);
        }
    }

    /// Takes the task out of the registry, if it is there. For whoever drops it, and holds the task meanwhile.
    #[inline]
    pub(crate) fn unregister(&self) {
        if self.known.get() & REGISTERED != 0 {
            self.known.set(self.known.get() & !REGISTERED);
            // SAFETY: the runtime is alive: whoever drops a registered task holds it, as a worker or as the thread
            // that shuts it down.
            let shared = unsafe { &*self.shared };
            shared.registry.remove(self);
            // The count that `register` took.
            drop(ManuallyDrop::into_inner(self.borrow_waker()));
        }
    }

    /// The task's waker, borrowed: it holds no reference to the task, the caller does.
    #[inline]
    fn borrow_waker(&self) -> ManuallyDrop<Waker> {
        let vtable = self.waker.get().expect("the waker is remembered at spawn");
        let offset = usize::from(self.traits.get() >> OFFSET_SHIFT) * OFFSET_UNIT;
        let data = ptr::from_ref(self).addr().wrapping_sub(offset);
        let data = ptr::with_exposed_provenance(data);
        // SAFETY: the parts are those of a waker of this task, and `self` lies in the task's allocation, so whoever
        // has `&self` keeps it alive. Never dropped, it takes no reference away.
        ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(data, vtable)) })
    }

    /// A counted waker.
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
        // Ordering: release, partner of the acquire in `is_aborted`. If the task is running or queued, the wake below
        // is a read-modify-write of its state word that the next poll reads: the flag is seen then at the latest.
        self.aborted.store(true, Release);
        self.wake();
    }

    /// The future has been dropped.
    #[inline]
    pub(crate) fn set_ended(&self) {
        // Ordering: release, partner of the acquire in `has_ended`: who sees it sees what the destructors did.
        self.ended.store(true, Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        // Ordering: acquire, partner of the release in `set_ended`.
        self.ended.load(Acquire)
    }

    #[inline]
    pub(crate) fn is_aborted(&self) -> bool {
        // Ordering: acquire, partner of the release in `abort`: what the aborter did before, destructors see.
        self.aborted.load(Acquire)
    }
}

/// As errors and reports call it.
impl fmt::Display for Meta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, self.id, self.name(), self.location())
    }
}

// SAFETY: a `Runnable` is one non-null pointer that `into_raw` and `from_raw` convert, and is `Send`.
unsafe impl PointerSized for Runnable {
    fn into_pointer(self) -> NonNull<()> {
        self.into_raw()
    }

    unsafe fn from_pointer(pointer: NonNull<()>) -> Self {
        // SAFETY: the caller gives back, once, what `into_raw` gave.
        unsafe { Self::from_raw(pointer) }
    }
}
