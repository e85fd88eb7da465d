//! Short time slices for workers: one that wakes up does not wait for the end of another's poll.
//!
//! The kernel often wakes a thread on the CPU that it ran on last. If a worker is in a long poll there, the one that was woken
//! waits behind it for the rest of a slice, some 3 ms, though another CPU may be free. Linux picks the thread whose slice ends
//! first (EEVDF), so a thread with short slices goes first when it wakes up. The share of the CPU that a thread gets does
//! not depend on it. With 0.1 ms, nine of ten ready sockets beside a poll of 2 ms were served 60 times sooner
//! (`second_socket.rs` of the benchmarks).
//!
//! Threads that a task starts have the slices of the process: the setting is not inherited.

#[cfg(target_os = "linux")]
pub(super) use linux::take_short_slices;

#[cfg(not(target_os = "linux"))]
pub(super) fn take_short_slices() {}

#[cfg(target_os = "linux")]
mod linux {
    use std::mem::{size_of, zeroed};

    /// In nanoseconds: the shortest that the kernel takes.
    const SLICE: u64 = 100_000;

    /// Gives the calling thread short slices, unless it has a policy, a priority or slices that somebody chose.
    ///
    /// A kernel that does not know of slices (before 6.12), or refuses, is left alone: then workers wait as others do.
    pub(crate) fn take_short_slices() {
        let Some(mut attributes) = get() else { return };
        // The kernel takes a negative nice value from new threads along with the slice.
        let is_chosen = attributes.sched_policy != libc::SCHED_OTHER as u32 || attributes.sched_nice < 0;
        // Zero: it does not know of slices.
        if !is_chosen && attributes.sched_runtime > SLICE {
            attributes.sched_runtime = SLICE;
            attributes.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
            set(&attributes);
        }
    }

    /// The attributes of the calling thread.
    pub(super) fn get() -> Option<libc::sched_attr> {
        // SAFETY: plain numbers, all of which may be zero.
        let mut attributes = unsafe { zeroed::<libc::sched_attr>() };
        let size = size_of::<libc::sched_attr>();
        // SAFETY: the kernel writes at most `size` bytes, to a structure of that size. Zero is the calling thread.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
        (result == 0).then_some(attributes)
    }

    fn set(attributes: &libc::sched_attr) {
        // SAFETY: the kernel reads as many bytes as the structure says that it has. Zero is the calling thread.
        let _refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::get;
    use std::thread;

    /// Policy, nice value and slice of the calling thread. None on a system that does not tell.
    fn attributes() -> Option<(u32, i32, u64)> {
        get().map(|attributes| (attributes.sched_policy, attributes.sched_nice, attributes.sched_runtime))
    }

    #[test]
    fn a_thread_that_a_task_starts_has_the_slices_of_the_process() {
        let outside = attributes();
        let runtime = crate::Builder::new().workers(1).build().unwrap();
        let task = runtime.spawn(async { (attributes(), thread::spawn(attributes).join().unwrap()) });
        let (worker, inside) = runtime.block_on(task).unwrap();
        assert_eq!(inside, outside);
        let Some((policy, nice, slice)) = outside else { return };
        let (of_worker, nice_of_worker, slice_of_worker) = worker.unwrap();
        assert_eq!((of_worker, nice_of_worker), (policy, nice), "nothing else is changed");
        assert!(slice_of_worker <= slice);
    }

    #[test]
    fn a_worker_whose_thread_has_a_nice_value_keeps_it() {
        thread::spawn(|| {
            // SAFETY: lowers the calling thread, and reads no memory.
            assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 5) }, 0);
            let runtime = crate::Builder::new().workers(1).build().unwrap();
            let worker = runtime.block_on(runtime.spawn(async { attributes() })).unwrap();
            assert!(worker.is_none_or(|(_, nice, _)| nice == 5), "{worker:?}");
        })
        .join()
        .unwrap();
    }
}
