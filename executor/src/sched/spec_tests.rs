//! The work-stealing specification, clause by clause, over the scheduler's plain data.
//!
//! I: invariants, L: liveness, S: safety, F: fairness. The clauses that need threads (I7, L1, L2,
//! S1, S2, F1, F2, F5, and F4 again) are in the integration tests under the same names.

use super::*;
use std::collections::HashSet;
use std::sync::Arc;
use std::thread;

type Task = Box<usize>;

/// Returns a scheduler whose first core has `queued` tasks in its deque, the oldest being 0, and
/// nothing in its slot.
fn with_queued(cores: usize, queued: usize) -> (Scheduler<Task>, Vec<Local<Task>>) {
    let (scheduler, locals) = Scheduler::new(cores, Settings::default());
    (0..queued).for_each(|task| locals[0].deque().push(Box::new(task)));
    (scheduler, locals)
}

#[test]
fn i1_stealing_moves_a_task_and_does_not_copy_it() {
    let (scheduler, cores) = with_queued(2, 10);
    let mut seen: Vec<usize> =
        scheduler.steal(&cores[1], 0, false).map(|task| *task).into_iter().collect();
    for core in &cores {
        seen.extend(std::iter::from_fn(|| core.deque().pop()).map(|task| *task));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
}

#[test]
fn i2_a_running_task_is_in_no_queue() {
    let (scheduler, cores) = with_queued(2, 1);
    let running = scheduler.next(&cores[0]);
    assert!(running.is_some());
    assert!(!scheduler.anything_queued());
    assert!(scheduler.steal(&cores[1], SEARCH_ROUNDS - 1, true).is_none());
}

#[test]
fn i3_the_owner_pushes_at_the_back_and_a_thief_takes_from_the_front() {
    let (scheduler, cores) = with_queued(2, 4);
    assert_eq!(scheduler.steal(&cores[1], 0, false).as_deref(), Some(&0), "the oldest first");
    assert_eq!(cores[1].deque().pop().as_deref(), Some(&1));
    assert_eq!(cores[0].deque().pop().as_deref(), Some(&2), "the owner keeps the younger half");
}

#[test]
fn i4_a_thief_takes_half_rounded_up_and_at_most_128() {
    for (queued, taken) in
        [(0, 0), (1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (100, 50), (255, 128), (256, 128)]
    {
        let (scheduler, cores) = with_queued(2, queued);
        let found = usize::from(scheduler.steal(&cores[1], 0, false).is_some());
        assert_eq!(found + cores[1].deque().len(), taken, "of {queued}");
        assert_eq!(cores[0].deque().len(), queued - taken);
    }
}

#[test]
fn i5_work_that_is_announced_has_a_searcher_if_anybody_was_idle() {
    let (scheduler, _cores) = Scheduler::<Task>::new(3, Settings::default());
    let _asleep = scheduler.idle.enter(1, false);
    let _asleep = scheduler.idle.enter(2, false);
    scheduler.injector.push(Box::new(0));
    assert_eq!(scheduler.announce(), Some(2));
    assert_eq!(scheduler.idle.counts().searching(), 1);
    assert_eq!(
        scheduler.announce(),
        None,
        "one push wakes one worker, and a second finds it searching"
    );
    assert_eq!(
        scheduler.found_work(),
        Some(1),
        "the last searcher found something and leaves more behind"
    );
}

#[test]
fn i5_a_searcher_that_takes_the_last_task_wakes_nobody() {
    let (scheduler, cores) = with_queued(2, 1);
    let _asleep = scheduler.idle.enter(0, false);
    assert!(scheduler.idle.try_start_search());
    assert!(scheduler.steal(&cores[1], 0, false).is_some());
    assert_eq!(scheduler.found_work(), None);
}

#[test]
fn i6_there_are_never_more_searchers_than_cores() {
    for cores in 1..10 {
        let (scheduler, _cores) = Scheduler::<Task>::new(cores, Settings::default());
        let searchers = (0..100).filter(|_| scheduler.idle.try_start_search()).count();
        assert_eq!(searchers, cores.div_ceil(2), "half of {cores}");
    }
}

#[test]
fn i8_a_slot_is_stolen_in_the_fourth_round_only_and_only_from_a_stuck_worker() {
    let (scheduler, cores) = Scheduler::<Task>::new(2, Settings::default());
    let victim = scheduler.remote(&cores[0]);
    victim.begin_poll(5);
    assert_eq!(scheduler.push_woken(&cores[0], Box::new(7)), Announce::NotNeeded);
    assert!(scheduler.steal(&cores[1], 3, false).is_none(), "its worker is not stuck");
    victim.mark_stuck(4);
    assert!(scheduler.steal(&cores[1], 3, false).is_none(), "it was stuck, in an earlier poll");
    victim.mark_stuck(5);
    assert!(
        (0..3).all(|round| scheduler.steal(&cores[1], round, false).is_none()),
        "not before the last round"
    );
    assert_eq!(scheduler.steal(&cores[1], 3, false).as_deref(), Some(&7));
}

#[test]
fn i9_the_injector_has_the_only_lock_on_the_way_to_a_task() {
    let (scheduler, cores) = with_queued(2, 8);
    // The other lock is the idle set's. A function that needed one of them here would wait for
    // ever.
    scheduler.idle.with_list_locked(|| {
        scheduler.injector.with_locked(|| {
            assert!(scheduler.next(&cores[0]).is_some());
            assert!(scheduler.steal(&cores[1], 0, false).is_some());
            assert!(scheduler.anything_queued());
        });
        scheduler.injector.push(Box::new(8));
        assert!(scheduler.take_injected(&cores[1]).is_some());
    });
}

#[test]
fn i10_what_a_thief_gets_is_ready_to_run() {
    let (scheduler, cores) = Scheduler::<Box<async_task::Runnable>>::new(2, Settings::default());
    let (runnable, task) = async_task::spawn(async { 7 }, |_| unreachable!("it does not wait"));
    cores[0].deque().push(Box::new(runnable));
    // It was scheduled before it was pushed: the thief runs it and needs nothing else for that.
    let stolen = scheduler.steal(&cores[1], 0, false).expect("one is queued");
    stolen.run();
    assert!(task.is_finished());
}

#[test]
fn l3_looking_for_work_ends_with_a_task_or_with_sleep() {
    let (scheduler, cores) = Scheduler::<Task>::new(4, Settings::default());
    let core = &cores[0];
    assert!(scheduler.next(core).is_none());
    assert!((0..SEARCH_ROUNDS).all(|round| scheduler.steal(core, round, false).is_none()));
    assert!(scheduler.idle.enter(0, false).looks_again());
    assert!(!scheduler.anything_queued());
    assert_eq!(scheduler.idle.counts().idle(), 1);
}

#[test]
fn l4_f3_the_injector_is_served_every_61st_tick_however_much_is_queued_locally() {
    let (scheduler, cores) = with_queued(1, 100);
    scheduler.injector.push(Box::new(1_000));
    let place = (1..=61).find(|_| {
        let (task, _) = scheduler.next(&cores[0]).expect("there is always something");
        let injected = *task == 1_000;
        scheduler.requeue(&cores[0], task);
        injected
    });
    assert_eq!(place, Some(61));
}

#[test]
fn l4_the_injector_is_served_after_the_first_long_poll_and_shares_the_time_with_the_cores_own_queue()
 {
    let (scheduler, cores) = with_queued(4, 100);
    (1_000..1_004).for_each(|n| scheduler.injector.push(Box::new(n)));
    let (mut now, mut order) = (1, Vec::new());
    for _ in 0..7 {
        let (task, _) = scheduler.next_local(&cores[0], || now).expect("there is always something");
        let injected = *task >= 1_000;
        // Polls of ten milliseconds, and injected ones of six.
        now += if injected { 6_000_000 } else { 10_000_000 };
        order.push(injected);
    }
    assert_eq!(order, [false, true, true, false, true, true, false]);
}

#[test]
fn s3_a_core_is_held_or_idle_and_never_both() {
    let (scheduler, _cores) = Scheduler::<Task>::new(2, Settings::default());
    let _asleep = scheduler.idle.enter(0, false);
    assert!(scheduler.idle.remove(0));
    assert!(!scheduler.idle.remove(0), "it is held now");
    assert!(scheduler.idle.wake_all().is_empty());
}

/// S2 and S5, and the question asked in crossbeam PR 148: a half-steal must not overshoot while the
/// owner pops. In CVE-2021-32810 a task was popped twice and others were lost.
#[test]
fn s5_thieves_and_an_owner_that_pops_take_each_task_exactly_once() {
    const TASKS: usize = 20_000;
    let (scheduler, mut cores) = Scheduler::<Task>::new(3, Settings::default());
    let scheduler = Arc::new(scheduler);
    let owner = cores.remove(0);
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let thieves: Vec<_> = cores
        .into_iter()
        .map(|core| {
            let (scheduler, done) = (scheduler.clone(), done.clone());
            thread::spawn(move || {
                let mut taken = Vec::new();
                loop {
                    // Read before the look: the last look sees what was pushed before `done`.
                    let last = done.load(std::sync::atomic::Ordering::Acquire);
                    taken.extend(scheduler.steal(&core, 0, false).map(|task| *task));
                    while let Some(task) = core.deque().pop() {
                        taken.push(*task);
                    }
                    if last {
                        return taken;
                    }
                }
            })
        })
        .collect();
    let mut taken = Vec::new();
    for task in 0..TASKS {
        owner.deque().push(Box::new(task));
        if task % 3 == 0 {
            taken.extend(owner.deque().pop().map(|task| *task));
        }
    }
    taken.extend(std::iter::from_fn(|| owner.deque().pop()).map(|task| *task));
    done.store(true, std::sync::atomic::Ordering::Release);
    for thief in thieves {
        taken.extend(thief.join().unwrap());
    }
    assert_eq!(taken.len(), TASKS);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), TASKS);
}

#[test]
fn s4_a_full_deque_makes_room_without_waiting_for_a_thief() {
    let (scheduler, cores) = with_queued(2, 0);
    // One more than fits: each push displaces the slot's task into the deque.
    for task in 0..DEQUE_CAPACITY + 2 {
        let _ = scheduler.push_woken(&cores[0], Box::new(task));
    }
    assert_eq!(cores[0].deque().len(), DEQUE_CAPACITY - MAX_BATCH + 1);
    let mut injected: Vec<usize> =
        std::iter::from_fn(|| scheduler.injector.take_one()).map(|task| *task).collect();
    injected.sort_unstable();
    assert_eq!(
        injected,
        (0..MAX_BATCH).collect::<Vec<_>>(),
        "the oldest half went to the injector"
    );
}

#[test]
fn f1_every_core_is_a_victim_in_every_round() {
    let (scheduler, cores) = Scheduler::<Task>::new(8, Settings::default());
    for (index, victim) in cores.iter().enumerate().skip(1) {
        victim.deque().push(Box::new(index));
    }
    let mut robbed: Vec<_> =
        (1..8).map(|_| *scheduler.steal(&cores[0], 0, false).expect("all have one")).collect();
    robbed.sort_unstable();
    assert_eq!(robbed, (1..8).collect::<Vec<_>>());
}

#[test]
fn f4_the_slot_runs_at_most_three_times_before_the_deque() {
    let (scheduler, cores) = with_queued(1, 2);
    let slot = 1_000;
    let mut order = Vec::new();
    for _ in 0..8 {
        // A ping-pong: the task that runs wakes the other, into the slot.
        let _ = scheduler.push_woken(&cores[0], Box::new(slot));
        let (task, source) = scheduler.next(&cores[0]).expect("the slot is full");
        order.push((*task, source));
        if *task != slot {
            // The slot's task is still there; it is taken out so that the next turn starts alike.
            drop(scheduler.remote(&cores[0]).slot.take());
        }
    }
    let expected = [1_000, 1_000, 1_000, 0, 1_000, 1_000, 1_000, 1];
    assert_eq!(order.iter().map(|(task, _)| *task).collect::<Vec<_>>(), expected);
    assert!(order.iter().all(|(task, source)| (*task == slot) == (*source == Source::Slot)));
}

#[test]
fn f4_the_slot_runs_on_when_nothing_else_waits_with_a_fresh_budget() {
    let (scheduler, cores) = Scheduler::<Task>::new(1, Settings::default());
    let sources: Vec<_> = (0..8)
        .map(|task| {
            let _ = scheduler.push_woken(&cores[0], Box::new(task));
            scheduler.next(&cores[0]).expect("the slot is full").1
        })
        .collect();
    use Source::{Queue, Slot};
    assert_eq!(sources, [Slot, Slot, Slot, Queue, Slot, Slot, Slot, Queue]);
}

/// userver 65: a yield picked the very same task again, though others waited.
#[test]
fn a_task_that_yields_goes_behind_everything_queued() {
    let (scheduler, cores) = with_queued(1, 3);
    let (first, _) = scheduler.next(&cores[0]).expect("three are queued");
    scheduler.requeue(&cores[0], first);
    let order: Vec<_> =
        std::iter::from_fn(|| scheduler.next(&cores[0])).map(|(task, _)| *task).collect();
    assert_eq!(order, [1, 2, 0]);
}

/// tokio PR 6876 in small: what a worker put into its own deque between two polls is announced
/// before the next poll.
#[test]
fn a_yielded_task_is_announced_before_another_is_polled() {
    let (scheduler, cores) = with_queued(2, 1);
    let _asleep = scheduler.idle.enter(1, false);
    let (first, _) = scheduler.next(&cores[0]).expect("one is queued");
    assert_eq!(scheduler.before_poll(&cores[0]), None, "nothing is left behind");
    cores[0].deque().push(Box::new(1));
    scheduler.requeue(&cores[0], first);
    assert!(scheduler.next(&cores[0]).is_some());
    assert_eq!(scheduler.before_poll(&cores[0]), Some(1), "the yielded task is up for taking");
}

/// Otherwise it would have two turns each time: one before it changes places, and one after.
#[test]
fn an_overdue_task_leaves_again_at_its_first_yield_point() {
    let settings = Settings { yield_patience: Some(10), ..Settings::default() };
    let (scheduler, cores) = Scheduler::<Task>::new(1, settings);
    let core = &cores[0];
    scheduler.push_to_yield_queue(Yielded::Task(Box::new(7)), 0, || 0);
    core.deque().push(Box::new(1));
    let overdue = (0..100).find_map(|_| {
        let overdue = scheduler.take_overdue(core, || 100).map(|entry| entry.yielded);
        if overdue.is_none() {
            let (task, _) = scheduler.next(core).expect("one is always queued");
            scheduler.requeue(core, task);
        }
        overdue
    });
    assert!(matches!(overdue, Some(Yielded::Task(task)) if *task == 7));
    scheduler.begin_poll(core, Source::Overdue, false, false);
    assert_eq!(scheduler.yield_point(core, &AlwaysAt(100)), Some(Way::YieldQueue));
}

/// userver 65 again: after the slot's three turns the deque goes first, and what is in it is the
/// task that gives way.
#[test]
fn what_a_task_gives_way_to_goes_first_whatever_the_turn_of_the_slot() {
    let (scheduler, cores) = Scheduler::<Task>::new(1, Settings::default());
    let core = &cores[0];
    for task in 0..4 {
        let _ = scheduler.push_woken(core, Box::new(task));
        let _ = scheduler.next(core);
    }
    let _ = scheduler.push_woken(core, Box::new(7));
    assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), Some(Way::Swap));
    scheduler.queue_after_yield(core, Box::new(100), Way::Swap, 0, || 0);
    let order: Vec<_> =
        std::iter::from_fn(|| scheduler.next(core)).map(|(task, _)| *task).collect();
    assert_eq!(order, [7, 100]);
}

/// A core that took the work which it was asked for does not ask others for the same.
#[test]
fn a_request_that_was_answered_is_not_passed_on() {
    let (scheduler, cores) = Scheduler::<Task>::new(8, Settings::default());
    for core in &cores {
        scheduler.begin_poll(core, Source::Queue, true, false);
    }
    scheduler.injector.push(Box::new(1));
    assert_eq!(scheduler.announce(), None);
    let asked = || (0..8).filter(|&core| scheduler.interrupts.is_raised(core)).collect::<Vec<_>>();
    assert_eq!(asked(), [0, 1]);
    let (_, source) = scheduler.next(&cores[0]).expect("it is in the injector");
    scheduler.begin_poll(&cores[0], source, false, false);
    assert_eq!(asked(), [1]);
}

/// The monitor may be late: it asks a poll that is over, while the next one begins.
#[test]
fn a_late_request_to_return_does_not_shut_out_the_next() {
    let (scheduler, cores) = Scheduler::<Task>::new(1, Settings::default());
    let core = &cores[0];
    core.deque().push(Box::new(0));
    let _ = scheduler.next(core);
    let late = core.tick();
    core.deque().push(Box::new(1));
    let _ = scheduler.next(core);
    scheduler.begin_poll(core, Source::Queue, false, false);
    scheduler.ask_to_return(0, late);
    assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), None);
    scheduler.ask_to_return(0, core.tick());
    assert_eq!(scheduler.yield_point(core, &AlwaysAt(0)), Some(Way::Swap));
}

#[test]
fn the_inbox_takes_turns_with_the_deque() {
    let (scheduler, cores) = with_queued(1, 3);
    (10..13).for_each(|task| assert!(scheduler.push_pinned(0, Box::new(task)).is_none()));
    let order: Vec<_> =
        std::iter::from_fn(|| scheduler.next(&cores[0])).map(|(task, _)| *task).collect();
    assert_eq!(order, [0, 10, 1, 11, 2, 12]);
}

#[test]
fn a_pinned_push_to_a_worker_that_is_awake_needs_no_lock_of_the_idle_set() {
    let (scheduler, cores) = with_queued(3, 1);
    let _asleep = scheduler.idle.enter(2, false);
    let asks = || scheduler.idle.idle_hint().load(Relaxed) <= 0;
    assert!(scheduler.next(&cores[0]).is_some());
    scheduler.begin_poll(&cores[0], Source::Queue, false, false);
    assert!(!asks(), "a worker is idle");
    // A push that needed the lock would wait for ever.
    scheduler.idle.with_list_locked(|| {
        (1..3).for_each(|task| assert!(scheduler.push_pinned(0, Box::new(task)).is_none()));
        assert!(asks(), "the idle one cannot help: the task that runs there is to give way");
        assert!(scheduler.has_returned(0));
        assert!(!asks());
    });
}

/// The monitor saw a poll that did not answer. Before it takes its request back, that poll ends,
/// another begins, and a pinned push asks it.
#[test]
fn the_monitor_leaves_a_request_that_is_not_its_own() {
    let (scheduler, cores) = with_queued(2, 1);
    let asks = || scheduler.idle.idle_hint().load(Relaxed) <= 0;
    let _asleep = scheduler.idle.enter(1, false);
    cores[0].advance_tick();
    scheduler.begin_poll(&cores[0], Source::Queue, false, false);
    let seen = scheduler.core(0).polling();
    scheduler.ask_to_return(0, seen);
    assert!(scheduler.has_returned(0));
    cores[0].advance_tick();
    scheduler.begin_poll(&cores[0], Source::Queue, false, false);
    assert!(scheduler.push_pinned(0, Box::new(1)).is_none());
    scheduler.take_request_back(0, seen);
    assert!(asks(), "the yield points of the new poll look");
    scheduler.take_request_back(0, scheduler.core(0).polling());
    assert!(!asks());
}

#[test]
fn nobody_but_the_home_thread_takes_from_an_inbox() {
    let (scheduler, cores) = with_queued(2, 0);
    assert!(scheduler.push_pinned(0, Box::new(1)).is_none());
    assert!(scheduler.steal(&cores[1], SEARCH_ROUNDS - 1, true).is_none());
    assert!(scheduler.take_any().is_none());
    cores[0].set_at_home(false);
    assert!(scheduler.next(&cores[0]).is_none(), "a stand-in leaves it alone");
    assert!(scheduler.next_before_pinned(&cores[0]).is_none());
    cores[0].set_at_home(true);
    assert_eq!(scheduler.next(&cores[0]).map(|(task, _)| *task), Some(1));
}

#[test]
fn a_pinned_task_that_gives_way_goes_behind_what_is_queued_here_and_one_of_another_core() {
    let (scheduler, cores) = with_queued(2, 2);
    (20..22).for_each(|task| scheduler.injector.push(Box::new(task)));
    (30..32).for_each(|task| cores[1].deque().push(Box::new(task)));
    scheduler.pinned_again(&cores[0], Box::new(99), true);
    let core = &cores[0];
    let next = || {
        let own = scheduler
            .next_local(core, || 0)
            .or_else(|| scheduler.take_injected(core).map(|task| (task, Source::Queue)));
        own.or_else(|| scheduler.next_before_pinned(core))
    };
    let order: Vec<_> = std::iter::from_fn(next).map(|(task, _)| *task).collect();
    assert_eq!(order[..2], [0, 1]);
    let pinned = order.iter().position(|&task| task == 99).expect("it runs");
    assert!([20, 21].iter().all(|task| order[..pinned].contains(task)), "{order:?}");
    assert!(pinned <= 5, "it does not wait for ever: {order:?}");
}

#[test]
fn what_waits_behind_a_stuck_core_is_taken_over_by_one_that_never_searches() {
    let (scheduler, cores) = with_queued(2, 4);
    assert!(scheduler.help_the_stuck(&cores[1]).is_none(), "nobody said that it is stuck");
    look_as_the_monitor(&scheduler);
    assert_eq!(scheduler.help_the_stuck(&cores[1]).as_deref(), Some(&0));
    assert!(scheduler.help_the_stuck(&cores[1]).is_none(), "its own work has the next turn");
    assert_eq!(scheduler.help_the_stuck(&cores[1]).as_deref(), Some(&1));
    assert_eq!(scheduler.cores()[1].steals(), (2, 2), "it counts as stolen");
}

/// Marks every core as stuck in the poll that it is in, as a look of the monitor would.
fn look_as_the_monitor(scheduler: &Scheduler<Task>) {
    scheduler.cores().iter().for_each(|core| core.mark_stuck(core.polling()));
    scheduler.set_stuck(true);
}

#[test]
fn cores_that_help_each_other_come_to_the_injector_and_to_their_own_work() {
    let (scheduler, cores) = with_queued(2, 8);
    (8..16).for_each(|task| scheduler.requeue(&cores[1], Box::new(task)));
    scheduler.injector.push(Box::new(1_000));
    let mut seen = Vec::new();
    for turn in 0..2 * INJECTOR_TICK {
        // All polls are long.
        look_as_the_monitor(&scheduler);
        let core = &cores[turn as usize % 2];
        let before = core.tick();
        let (task, _) = scheduler.next(core).expect("there is always something");
        assert_ne!(core.tick(), before, "every poll has a number of its own");
        seen.push(*task);
        scheduler.requeue(core, task);
    }
    assert!(seen.contains(&1_000));
    assert!((0..16).all(|task| seen.contains(&task)), "{seen:?}");
}
