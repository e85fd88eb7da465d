//! The admission on a machine with a clock that tests move.

use super::super::fake::{Board, MS, SECOND, Woken};
use super::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const SLICE: u64 = 100 * MS;

/// Asks until a slice has to be waited for.
fn exhaust(board: &Board, admission: &Arc<Admission>) {
    while admission.ask(board.now(), 0, SLICE, Waker::noop()).is_none() {}
}

/// cockroach 66881: a controller that goes on at a fixed rate, and uses CPU time while no job is
/// there.
#[test]
fn without_anybody_who_waits_no_alarm_is_set() {
    let board = Board::new(1);
    let admission = board.admission(Settings::fixed(0.5));
    assert!(admission.ask(board.now(), 0, SLICE, Waker::noop()).is_none());
    admission.give_back(MS, board.now());
    admission.advance(board.now() + SECOND);
    assert_eq!(board.alarm_at(), None);
}

#[test]
fn the_alarm_is_set_for_the_moment_of_the_next_slice_and_at_least_for_the_next_step() {
    for (limit, expected) in [(0.01, 100 * MS), (1.0, 50 * MS)] {
        let board = Board::new(1);
        let admission = board.admission(Settings::fixed(limit));
        exhaust(&board, &admission);
        let waiting = admission.ask(board.now(), 0, SLICE, Waker::noop());
        assert!(waiting.is_some());
        let after = board.alarm_at().expect("somebody waits") - board.now();
        assert!(after.abs_diff(expected) <= 1, "{after}");
    }
}

#[test]
fn the_last_who_waits_is_still_served_when_all_before_it_have_left() {
    let board = Board::new(1);
    let admission = board.admission(Settings::fixed(0.1));
    exhaust(&board, &admission);
    let waits: Vec<_> =
        (0..100).filter_map(|_| admission.ask(board.now(), 0, SLICE, Waker::noop())).collect();
    let woken = Arc::<Woken>::default();
    let last =
        admission.ask(board.now(), 0, SLICE, &Waker::from(woken.clone())).expect("it has to wait");
    drop(waits);
    while !woken.take() {
        assert!(board.wait());
    }
    assert!(last.poll(Waker::noop()).is_ready());
    assert!(board.now() <= 4 * SECOND, "it waited for one slice, and not for a hundred");
}

#[test]
fn the_limit_follows_what_tasks_wait() {
    let board = Board::new(2);
    let admission = board.admission(Settings::new());
    exhaust(&board, &admission);
    let somebody = admission.ask(board.now(), 3_600 * SECOND, SLICE, Waker::noop());
    assert!(somebody.is_some());
    let second = |good: u64, bad: u64| {
        let until = board.now() + SECOND;
        while board.now() < until {
            for (count, more) in board.latencies.iter().zip([good, bad]) {
                count.fetch_add(more, SeqCst);
            }
            assert!(board.wait());
        }
        admission.limit()
    };
    let start = admission.limit();
    let up = second(1_000, 1);
    assert!((up - start - 0.01).abs() < 1e-9, "a hundredth in a second: {up}");
    let down = second(1_000, 500);
    assert!((down - up + 0.02).abs() < 1e-9, "twice as fast: {down}");
    // It goes on falling for as long as the bad ones are in the window: another 2.5 seconds.
    let after: Vec<_> = (0..5).map(|_| second(1_000, 0)).collect();
    assert!(after[0] < down && after[1] < after[0] && after[4] > after[3], "{after:?}");
    drop(somebody);
}

#[test]
fn nobody_overtakes_those_in_line() {
    let board = Board::new(1);
    let admission = board.admission(Settings::fixed(1.0));
    exhaust(&board, &admission);
    let first = admission.ask(board.now(), 0, SLICE, Waker::noop()).expect("it has to wait");
    // The bucket has something. It is the first's, although that has not been told yet.
    board.pass(board.alarm_at().expect("somebody waits") - board.now());
    let second = admission.ask(board.now(), 0, SLICE, Waker::noop()).expect("it is not the first");
    assert!(first.poll(Waker::noop()).is_ready());
    assert!(second.poll(Waker::noop()).is_pending());
}

#[test]
fn a_waker_that_panics_keeps_nobody_from_being_woken() {
    struct Bad;
    impl Wake for Bad {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let board = Board::new(1);
    let admission = board.admission(Settings::fixed(0.5));
    exhaust(&board, &admission);
    let _bad = admission.ask(board.now(), 0, SLICE, &Waker::from(Arc::new(Bad)));
    let woken = Arc::<Woken>::default();
    let _good = admission.ask(board.now(), 0, SLICE, &Waker::from(woken.clone()));
    board.end();
    assert!(woken.take());
}

#[test]
#[should_panic(expected = "the minimum is NaN")]
fn settings_that_make_no_sense_are_refused() {
    let _ = Board::new(1).admission(Settings::fixed(f64::NAN));
}

#[test]
fn a_machine_that_says_it_has_no_cores_has_one() {
    let board = Board::new(0);
    let admission = board.admission(Settings::fixed(0.5));
    exhaust(&board, &admission);
    let waiting = admission.ask(board.now(), 0, SLICE, Waker::noop()).expect("it has to wait");
    while waiting.poll(Waker::noop()).is_pending() {
        assert!(board.wait());
    }
}

/// Threads that come, leave, give up and give back at the same time, beside one that lets time
/// pass. Every place that is kept is served.
#[test]
fn stampede() {
    const THREADS: usize = 4;
    let calls = if cfg!(miri) { 20 } else { 2_000 };
    let board = Board::new(1);
    let admission = board.admission(Settings::fixed(0.5));
    let ended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (board, admission, ended) = (&board, &admission, &ended);
            scope.spawn(move || {
                struct Unpark(std::thread::Thread);
                impl Wake for Unpark {
                    fn wake(self: Arc<Self>) {
                        self.0.unpark();
                    }
                }
                let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
                for call in 0..calls {
                    let kept = admission.ask(board.now(), 0, MS, &waker);
                    let dropped = admission.ask(board.now(), 0, MS, &waker);
                    if (call + thread) % 3 == 0 {
                        std::thread::yield_now();
                    }
                    drop(dropped);
                    if let Some(kept) = kept {
                        while kept.poll(&waker).is_pending() {
                            std::thread::park();
                        }
                    }
                    admission.give_back(MS / 2, board.now());
                }
                ended.fetch_add(1, SeqCst);
            });
        }
        while ended.load(SeqCst) < THREADS {
            if !board.wait() {
                std::thread::yield_now();
            }
        }
    });
    assert_eq!(admission.lock().line.first(), None);
}
