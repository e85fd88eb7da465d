//! Yield points: what they give way to, and when the task goes on. With one worker, none is idle
//! while a task runs, and the test knows what is in the queues. With more, each worker is kept in a
//! poll.

use giveway::{Handle, should_yield, yield_now, yield_now_if_busy};
use giveway_tests::{
    Gate, Log, Polls, each_strict, eventually, occupy, on_one_worker, outside, recv, watch,
};
use giveway_tests::{with_runtimes, with_runtimes_of};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::time::Instant;

type Count = Arc<AtomicUsize>;

/// Spawns a task that spawns two like it, and so on, `depth` times: 2^(depth+1) - 1 tasks in all.
/// Each goes through the slot or the deque, and then once more to the back of the deque.
fn tree(handle: &Handle, ran: &Count, depth: usize) {
    let ran = ran.clone();
    handle.spawn(async move {
        let handle = Handle::current();
        if depth > 0 {
            (0..2).for_each(|_| tree(&handle, &ran, depth - 1));
        }
        yield_now().await;
        ran.fetch_add(1, SeqCst);
    });
}

/// Spawns a task that spawns the next, `length` tasks in all. There is never more than one of them.
fn chain(handle: &Handle, ran: &Count, length: usize) {
    let ran = ran.clone();
    handle.spawn(async move {
        ran.fetch_add(1, SeqCst);
        if length > 1 {
            chain(&Handle::current(), &ran, length - 1);
        }
    });
}

#[test]
fn what_gave_way_to_the_injector_goes_on_when_every_queue_is_empty() {
    on_one_worker(async {
        let (handle, ran) = (Handle::current(), Count::default());
        outside(|| (0..10).for_each(|_| tree(&handle, &ran, 6)));
        yield_now_if_busy().await;
        assert_eq!(ran.load(SeqCst), 10 * 127);
    });
}

/// One successor is always queued, and never two.
#[test]
fn what_gave_way_waits_for_the_successors_of_what_it_gave_way_to() {
    on_one_worker(async {
        let (handle, ran) = (Handle::current(), Count::default());
        outside(|| chain(&handle, &ran, 1_000));
        yield_now_if_busy().await;
        assert_eq!(ran.load(SeqCst), 1_000);
    });
}

/// The first time, the task changes places with what is in its own queue. The second time, it goes
/// into the yield queue.
#[test]
fn what_gives_way_to_its_own_queue_goes_to_the_back_and_then_into_the_yield_queue() {
    on_one_worker(async {
        let log = Log::default();
        for task in ["first", "second"] {
            let log = log.clone();
            giveway::spawn(async move {
                log.add(task);
                // Goes behind the polite task, if that has only changed places.
                yield_now().await;
                log.add(format!("{task} again"));
                yield_now().await;
                log.add(format!("{task} at last"));
            });
        }
        yield_now_if_busy().await;
        // `second` is in the slot, which goes before the deque.
        log.assert(&["second", "first"]);
        yield_now_if_busy().await;
        let all = log.all();
        assert_eq!(all.len(), 6, "everything went first: {all:?}");
    });
}

/// All workers but that of the polite task are kept in a poll. What the last of them has in its
/// deque is stolen before anything leaves the yield queue.
#[test]
fn what_gave_way_waits_for_the_queues_of_other_workers() {
    with_runtimes_of(2, |runtime| {
        let (handle, ran, gate) = (runtime.handle(), Count::default(), Gate::new());
        let (pushed, end) = (Gate::new(), Gate::new());
        let (starts, started) = mpsc::channel();
        let polite = runtime.spawn({
            let (ran, pushed, end) = (ran.clone(), pushed.clone(), end.clone());
            async move {
                starts.send(()).unwrap();
                pushed.wait();
                yield_now_if_busy().await;
                end.open();
                ran.load(SeqCst)
            }
        });
        recv(&started);
        let others = occupy(handle, handle.workers() - 2, &gate);
        let pusher = runtime.spawn(async move {
            for _ in 0..100 {
                let ran = ran.clone();
                giveway::spawn(async move { _ = ran.fetch_add(1, SeqCst) });
            }
            pushed.open();
            end.wait();
        });
        // The last of the hundred is in the slot of the pusher's worker, which may be back at any
        // moment. So it may stay there.
        assert!(runtime.block_on(polite).unwrap() >= 99);
        gate.open();
        others.into_iter().chain([pusher]).for_each(|task| runtime.block_on(task).unwrap());
    });
}

/// What a polite task shares with a task that pushes work beside it.
#[derive(Default)]
struct Push {
    yield_points: AtomicUsize,
    pushed: AtomicBool,
    ran: AtomicBool,
    end: Gate,
}

/// Keeps every worker busy: one with a task that goes from `yield_point` to `yield_point`, another
/// with one that calls `push`. Returns whether what was pushed ran at the first yield point after
/// the push.
fn given_way_at_the_next_yield_point<F, P>(
    runtime: &giveway::Runtime,
    background: bool,
    yield_point: impl Fn() -> F + Send + 'static,
    push: P,
) -> bool
where
    F: Future<Output = ()> + Send,
    P: FnOnce(Arc<Push>) + Send + 'static,
{
    let (shared, handle) = (Arc::new(Push::default()), runtime.handle());
    let others = occupy(handle, handle.workers() - 2, &shared.end);
    let polite = {
        let shared = shared.clone();
        async move {
            loop {
                let pushed = shared.pushed.load(SeqCst);
                yield_point().await;
                shared.yield_points.fetch_add(1, SeqCst);
                if pushed {
                    let ran = shared.ran.load(SeqCst);
                    shared.end.open();
                    return ran;
                }
            }
        }
    };
    let polite = if background { runtime.spawn_background(polite) } else { runtime.spawn(polite) };
    eventually(|| shared.yield_points.load(SeqCst) > 0);
    let pusher = runtime.spawn({
        let shared = shared.clone();
        async move {
            // From here on no worker is idle. The next yield points let the polite task see that.
            let before = shared.yield_points.load(SeqCst);
            eventually(|| shared.yield_points.load(SeqCst) > before + 1);
            push(shared.clone());
            shared.pushed.store(true, SeqCst);
            shared.end.wait();
        }
    });
    let given_way = runtime.block_on(polite).unwrap();
    others.into_iter().chain([pusher]).for_each(|task| runtime.block_on(task).unwrap());
    given_way
}

/// Pushes work into the deque of a worker that does not come back: the second task displaces the
/// first from the slot.
fn push_to_deque(shared: Arc<Push>) {
    giveway::spawn(async move { shared.ran.store(true, SeqCst) });
    giveway::spawn(async {});
}

fn push_from_outside(shared: Arc<Push>) {
    let handle = Handle::current();
    outside(move || _ = handle.spawn(async move { shared.ran.store(true, SeqCst) }));
}

#[test]
fn work_in_the_deque_of_a_busy_worker_interrupts_a_polite_task_of_another() {
    each_strict(2, |runtime| {
        for _ in 0..20 {
            assert!(given_way_at_the_next_yield_point(
                &runtime,
                false,
                yield_now_if_busy,
                push_to_deque
            ));
        }
    });
}

#[test]
fn work_in_the_deque_of_a_busy_worker_cuts_short_a_background_task_of_another() {
    each_strict(2, |runtime| {
        for _ in 0..20 {
            assert!(given_way_at_the_next_yield_point(
                &runtime,
                true,
                giveway::budget::consume,
                push_to_deque
            ));
        }
    });
}

#[test]
fn work_from_outside_is_seen_at_the_next_yield_point() {
    each_strict(2, |runtime| {
        for _ in 0..20 {
            assert!(given_way_at_the_next_yield_point(
                &runtime,
                false,
                yield_now_if_busy,
                push_from_outside
            ));
            assert!(given_way_at_the_next_yield_point(
                &runtime,
                true,
                giveway::budget::consume,
                push_from_outside
            ));
        }
    });
}

/// `should_yield` takes the interrupt, and must leave the request for the yield point, which can
/// obey it.
#[test]
fn after_should_yield_said_so_the_next_yield_point_gives_way() {
    let ask_first = || async {
        if should_yield() {
            yield_now_if_busy().await;
        }
    };
    each_strict(2, |runtime| {
        for _ in 0..20 {
            assert!(given_way_at_the_next_yield_point(&runtime, false, ask_first, push_to_deque));
            assert!(given_way_at_the_next_yield_point(
                &runtime,
                false,
                ask_first,
                push_from_outside
            ));
        }
    });
}

#[test]
fn should_yield_is_true_while_foreground_work_waits_and_no_worker_is_idle() {
    assert!(!should_yield(), "outside any runtime");
    on_one_worker(async {
        let (handle, log) = (Handle::current(), Log::default());
        for inject in [false, true] {
            assert!(!should_yield(), "nothing waits");
            let log = log.clone();
            let work = async move { log.add("ran") };
            if inject {
                outside(|| handle.spawn(work));
            } else {
                giveway::spawn(work);
            }
            assert!(should_yield());
            assert!(should_yield(), "asking changes nothing");
            yield_now_if_busy().await;
        }
        log.assert(&["ran", "ran"]);
        // What waits in the yield queue does not count.
        giveway::spawn_background(async {});
        assert!(!should_yield());
    });
}

/// Right after the spawn the child is in the worker's own slot. The test waits for a look that
/// finds the child there and another worker asleep.
#[test]
fn should_yield_is_false_while_a_worker_is_idle() {
    with_runtimes_of(2, |runtime| {
        eventually(|| {
            let look = runtime.spawn(async {
                let started = Arc::new(AtomicBool::new(false));
                let child = started.clone();
                giveway::spawn(async move { child.store(true, SeqCst) });
                let look = should_yield();
                !look && !started.load(SeqCst)
            });
            runtime.block_on(look).unwrap()
        });
    });
}

#[test]
fn two_polite_tasks_do_not_change_places_for_ever() {
    let (polls, start) = (Polls::default(), Instant::now());
    on_one_worker({
        let polls = polls.clone();
        async move {
            let polite = || async {
                for _ in 0..10_000 {
                    yield_now_if_busy().await;
                }
            };
            let tasks = [(); 2].map(|()| giveway::spawn(polls.clone().of(polite())));
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
    assert!(polls.count() <= 10 + slices_since(start), "{} polls", polls.count());
}

/// Returns how many polls since `start` may have been asked to return after going on for 10 ms,
/// whatever else they did.
fn slices_since(start: Instant) -> usize {
    start.elapsed().as_millis() as usize / 10
}

#[test]
fn a_thousand_polite_tasks_give_way_a_few_times_each() {
    for workers in [1, 2] {
        let _watch = watch();
        let (runtime, start) = (giveway_tests::runtime(workers), Instant::now());
        // No task runs before all are spawned.
        let gate = Gate::new();
        let held = occupy(runtime.handle(), workers - 1, &gate);
        let (done, tasks_done) = mpsc::channel();
        let all: Vec<_> = (0..1_000).map(|_| Polls::default()).collect();
        let polls = all.clone();
        runtime.spawn(async move {
            for polls in polls {
                let done = done.clone();
                giveway::spawn(polls.of(async move {
                    for _ in 0..100 {
                        yield_now_if_busy().await;
                    }
                    done.send(()).unwrap();
                }));
            }
            gate.open();
        });
        giveway_tests::drain(&tasks_done);
        let most = all.iter().map(Polls::count).max().unwrap();
        assert!(most <= 6 + slices_since(start), "{workers} workers: one was polled {most} times");
        held.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    }
}

/// No other task waits. So at most one yield point every 10 ms is pending, however many workers
/// there are.
#[test]
fn a_polite_task_alone_is_polled_once_a_slice() {
    with_runtimes(|runtime| {
        let (polls, start) = (Polls::default(), Instant::now());
        let task = runtime.spawn(polls.clone().of(async {
            for _ in 0..100_000 {
                yield_now_if_busy().await;
            }
        }));
        runtime.block_on(task).unwrap();
        assert!(polls.count() <= 1 + slices_since(start), "{} polls", polls.count());
    });
}
