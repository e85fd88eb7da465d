//! Pacers on a machine whose clock stands still unless a job works, or all jobs wait.

use super::super::Settings;
use super::super::fake::{Executor, MS, SECOND, Woken};
use super::*;
use std::cell::Cell;
use std::pin::pin;

impl Pacer {
    /// Forgets what is left of the slice.
    pub(in super::super) fn use_up(&self) {
        self.lock().left = 0;
        self.countdown.store(1, Relaxed);
    }
}

const MINUTE: u64 = 60 * SECOND;

/// Does pieces of work of `chunk` nanoseconds until `until`, with a call after each, and
/// `chunks_a_poll` of them in each poll. Adds what it has worked to `done`.
async fn job(
    executor: &Executor,
    pacer: &Pacer,
    chunk: u64,
    chunks_a_poll: u64,
    until: u64,
    done: &Cell<u64>,
) {
    for chunks in 1.. {
        if executor.now() >= until {
            return;
        }
        executor.work(chunk);
        done.set(done.get() + chunk);
        pacer.pace().await;
        if chunks % chunks_a_poll == 0 {
            crate::yield_now().await;
        }
    }
}

/// Runs `jobs` such jobs for some minutes. Returns which part of the time each has worked.
fn run(settings: Settings, jobs: usize, chunk: u64, chunks_a_poll: u64) -> Vec<f64> {
    let executor = Executor::new(1, settings);
    let time = if chunk < MS { MINUTE } else { 10 * MINUTE };
    let until = executor.now() + time;
    let (done, pacers) = (vec![Cell::new(0); jobs], vec![Pacer::new(); jobs]);
    let job = |(pacer, done)| {
        Box::pin(job(&executor, pacer, chunk, chunks_a_poll, until, done)) as Pin<Box<_>>
    };
    let all_done = executor.run(pacers.iter().zip(&done).map(job).collect());
    assert!(all_done);
    done.into_iter().map(|done| done.get() as f64 / time as f64).collect()
}

#[track_caller]
fn assert_share(done: &[f64], share: f64) {
    let used = done.iter().sum::<f64>();
    assert!((used - share).abs() < share / 50.0 + 0.002, "{used}, and not {share}");
}

#[test]
fn one_job_uses_the_limit_however_long_its_pieces_are() {
    for chunk in [50_000, MS, 30 * MS, 150 * MS] {
        let done = run(Settings::fixed(0.25), 1, chunk, u64::MAX);
        assert_share(&done, 0.25);
    }
}

/// What flows in during a long piece may not fit into the bucket.
#[test]
fn a_job_whose_pieces_are_very_long_uses_no_more_than_the_limit() {
    let done = run(Settings::fixed(0.25), 1, SECOND, u64::MAX);
    assert!((0.2..=0.25).contains(&done[0]), "{done:?}");
}

#[test]
fn many_jobs_use_the_limit_together_and_each_its_part() {
    for (jobs, limit) in [(2, 0.9), (10, 0.25), (100, 0.5)] {
        let done = run(Settings::fixed(limit), jobs, MS, u64::MAX);
        assert_share(&done, limit);
        let (least, most) = done.iter().fold((1.0_f64, 0.0_f64), |(l, m), &x| (l.min(x), m.max(x)));
        // Five slices: the job that runs may get several in a row before the others have been
        // polled and ask.
        assert!(most - least <= most / 50.0 + 0.5 / 600.0, "{least} to {most} of {jobs}");
    }
}

#[test]
fn time_in_polls_that_end_elsewhere_is_counted_too() {
    for (chunk, chunks_a_poll) in [(50_000, 1), (50_000, 3), (10_000, 30), (MS, 7)] {
        let done = run(Settings::fixed(0.25), 2, chunk, chunks_a_poll);
        let used = done.iter().sum::<f64>();
        assert!(
            (0.23..0.27).contains(&used),
            "{used}, with {chunks_a_poll} pieces of {chunk} ns in a poll"
        );
    }
}

#[test]
fn time_in_which_the_task_is_not_polled_is_not_counted() {
    let executor = Executor::new(1, Settings::fixed(0.25));
    let pacer = Pacer::new();
    // A tenth of a core is less than the limit, so the job never waits.
    let job = async {
        for _ in 0..10_000 {
            executor.work(MS);
            pacer.pace().await;
            crate::yield_now().await;
        }
    };
    let other = async {
        for _ in 0..10_000 {
            executor.work(9 * MS);
            crate::yield_now().await;
        }
    };
    let start = executor.now();
    assert!(executor.run(vec![Box::pin(job), Box::pin(other)]));
    assert_eq!(executor.now() - start, 100 * SECOND);
}

#[test]
fn a_tight_loop_hardly_looks_at_the_clock() {
    let executor = Executor::new(1, Settings::fixed(1.0));
    let pacer = Pacer::new();
    let job = async {
        for _ in 0..1_000_000 {
            executor.work(10);
            pacer.pace().await;
        }
    };
    assert!(executor.run(vec![Box::pin(job)]));
    assert!(executor.looks.get() < 1_000_000 / 100, "{} looks", executor.looks.get());
}

#[test]
fn the_limit_rises_while_jobs_wait_and_goes_back_when_they_are_done() {
    let executor = Executor::new(1, Settings::new());
    let pacer = Pacer::new();
    let until = executor.now() + 30 * SECOND;
    assert!(executor.run(vec![Box::pin(job(
        &executor,
        &pacer,
        MS,
        u64::MAX,
        until,
        &Cell::new(0)
    ))]));
    let limit = pacer.limit().expect("it has been paced");
    assert!((0.53..0.57).contains(&limit), "30 seconds, a hundredth each: {limit}");
    executor.work(10 * SECOND);
    assert!(executor.run(vec![Box::pin(async { pacer.pace().await })]));
    let limit = pacer.limit().expect("it has been paced");
    assert!((0.48..0.52).contains(&limit), "10 seconds, half as fast: {limit}");
}

#[test]
fn the_controller_goes_on_while_nobody_comes_for_a_slice() {
    let executor = Executor::new(1, Settings::new());
    let pacer = Pacer::with_slice(Duration::from_secs(1));
    let job = async {
        for _ in 0..90 {
            executor.work(10 * MS);
            executor.board.latencies[1].fetch_add(1, Relaxed);
            pacer.pace().await;
        }
    };
    assert!(executor.run(vec![Box::pin(job)]));
    let limit = pacer.limit().expect("it has been paced");
    assert!((0.231..0.239).contains(&limit), "0.8 seconds, two hundredths each: {limit}");
}

#[test]
fn outside_of_a_host_every_call_is_ready() {
    let (pacer, mut cx) = (Pacer::new(), Context::from_waker(Waker::noop()));
    for _ in 0..10_000 {
        assert!(pin!(pacer.pace()).poll(&mut cx).is_ready());
    }
    assert_eq!(pacer.limit(), None);
}

#[test]
fn a_pacer_gives_back_what_is_left_when_it_is_dropped() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    // One slice is available at once, and then none for ten seconds.
    for _ in 0..10 {
        let pacer = Pacer::new();
        assert!(executor.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
        assert_eq!(pacer.lock().left, 100 * MS);
    }
    let pacers = [Pacer::new(), Pacer::new()];
    assert!(executor.poll(pin!(pacers[0].pace()), Waker::noop()).is_ready());
    assert!(executor.poll(pin!(pacers[1].pace()), Waker::noop()).is_pending());
}

#[test]
fn a_slice_that_is_given_back_is_had_by_whoever_waits() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    let (first, second, woken) = (Pacer::new(), Pacer::new(), Arc::<Woken>::default());
    let waker = Waker::from(woken.clone());
    assert!(executor.poll(pin!(first.pace()), &waker).is_ready());
    let mut call = pin!(second.pace());
    assert!(executor.poll(call.as_mut(), &waker).is_pending());
    assert!(!woken.take());
    drop(first);
    assert!(woken.take());
    assert!(executor.poll(call.as_mut(), &waker).is_ready());
}

#[test]
fn a_call_that_is_dropped_leaves_its_place_and_its_slice_to_the_next() {
    for served in [false, true] {
        let executor = Executor::new(1, Settings::fixed(0.01));
        let _used_up = executor.exhaust();
        let pacers = [Pacer::new(), Pacer::new()];
        let woken: [Arc<Woken>; 2] = Default::default();
        let mut calls = pacers.each_ref().map(|pacer| Box::pin(pacer.pace()));
        for (call, woken) in calls.iter_mut().zip(&woken) {
            assert!(executor.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending());
        }
        let [first, mut second] = calls;
        if served {
            while !woken[0].take() {
                assert!(executor.board.wait());
            }
            assert!(!woken[1].take(), "there is but one slice");
        }
        let before = executor.now();
        drop(first);
        while !woken[1].take() {
            assert!(
                !served && executor.board.wait(),
                "what was the first's is the second's at once"
            );
        }
        assert!(executor.poll(second.as_mut(), Waker::noop()).is_ready());
        assert!(executor.now() - before <= 10 * SECOND, "it did not wait for two");
    }
}

#[test]
fn the_waker_of_the_last_poll_is_woken() {
    let executor = Executor::new(1, Settings::fixed(0.5));
    let _used_up = executor.exhaust();
    let (pacer, woken) = (Pacer::new(), <[Arc<Woken>; 2]>::default());
    let mut call = pin!(pacer.pace());
    for woken in &woken {
        assert!(executor.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending());
    }
    while !woken[1].take() {
        assert!(executor.board.wait());
    }
    assert!(!woken[0].take());
}

/// The slice came late, and was not used late.
#[test]
fn a_slice_that_was_waited_for_for_long_is_used_up_before_another_is_asked_for() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    let (one, other) = (Pacer::new(), Pacer::new());
    assert!(executor.poll(pin!(one.pace()), Waker::noop()).is_ready());
    let mut call = pin!(other.pace());
    let start = executor.board.now();
    while executor.poll(call.as_mut(), Waker::noop()).is_pending() {
        assert!(executor.board.wait());
    }
    assert!(executor.board.now() - start > 2 * LAPSES_AFTER, "it was waited for");
    assert!(executor.poll(pin!(other.pace()), Waker::noop()).is_ready(), "the slice has lapsed");
}

#[test]
fn a_slice_that_nobody_used_for_long_has_lapsed() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    let pacers = vec![Pacer::new(); 20];
    // Each gets a slice, long after the one before.
    for pacer in &pacers {
        assert!(executor.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
        executor.board.pass(20 * SECOND);
    }
    let ready =
        pacers.iter().filter(|pacer| executor.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
    assert_eq!(ready.count(), 1, "they share what is there now");
}

#[test]
fn a_pacer_may_move_from_one_executor_to_another() {
    let (here, there) =
        (Executor::new(1, Settings::fixed(0.01)), Executor::new(1, Settings::fixed(0.02)));
    let pacer = Pacer::new();
    assert!(here.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
    assert_eq!(pacer.limit(), Some(0.01));
    assert!(there.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
    assert_eq!(pacer.limit(), Some(0.02));
    let other = Pacer::new();
    assert!(here.poll(pin!(other.pace()), Waker::noop()).is_ready(), "the slice was given back");
    assert!(there.poll(pin!(other.pace()), Waker::noop()).is_pending(), "it is in use");
}

#[test]
fn a_call_that_waits_may_move_from_one_executor_to_another() {
    let (here, there) =
        (Executor::new(1, Settings::fixed(0.01)), Executor::new(1, Settings::fixed(0.01)));
    let _used_up = here.exhaust();
    let (pacer, woken) = (Pacer::new(), Arc::<Woken>::default());
    let mut call = pin!(pacer.pace());
    assert!(here.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending());
    assert!(there.poll(pin!(pacer.pace()), Waker::noop()).is_ready(), "the pacer is another's");
    assert!(there.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending(), "the call is not");
    while !woken.take() {
        assert!(here.board.wait());
    }
    assert!(there.poll(call.as_mut(), &Waker::from(woken)).is_ready());
    assert_eq!(pacer.lock().left, 100 * MS, "what came from elsewhere was sent back");
    assert!(here.poll(pin!(Pacer::new().pace()), Waker::noop()).is_ready(), "and is there again");
}

#[test]
fn when_the_executor_ends_nobody_waits_any_more() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    let _used_up = executor.exhaust();
    let (pacers, woken) = ([Pacer::new(), Pacer::new()], Arc::<Woken>::default());
    let mut call = pin!(pacers[0].pace());
    assert!(executor.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending());
    executor.board.end();
    assert!(woken.take());
    assert!(executor.poll(call.as_mut(), Waker::noop()).is_ready());
    for _ in 0..100 {
        executor.work(SECOND);
        assert!(executor.poll(pin!(pacers[1].pace()), Waker::noop()).is_ready());
    }
}

/// No alarm was set when the executor ended.
#[test]
fn who_comes_to_wait_after_the_executor_has_ended_does_not() {
    let executor = Executor::new(1, Settings::fixed(0.01));
    let pacer = Pacer::new();
    assert!(executor.poll(pin!(pacer.pace()), Waker::noop()).is_ready());
    executor.board.end();
    pacer.use_up();
    let (woken, mut call) = (Arc::<Woken>::default(), pin!(pacer.pace()));
    assert!(executor.poll(call.as_mut(), &Waker::from(woken.clone())).is_pending());
    assert!(woken.take(), "let go at once");
    assert!(executor.poll(call.as_mut(), Waker::noop()).is_ready());
}

#[test]
fn jobs_that_share_a_pacer_use_the_limit_together() {
    let executor = Executor::new(1, Settings::fixed(0.25));
    let until = executor.now() + 10 * MINUTE;
    let (pacer, done) = (Pacer::new(), Cell::new(0));
    let jobs =
        (0..5).map(|_| Box::pin(job(&executor, &pacer, MS, u64::MAX, until, &done)) as Pin<Box<_>>);
    assert!(executor.run(jobs.collect()));
    assert_share(&[done.get() as f64 / (10 * MINUTE) as f64], 0.25);
}

#[test]
#[should_panic(expected = "a slice of no CPU time")]
fn a_slice_of_nothing_is_refused() {
    let _ = Pacer::with_slice(Duration::ZERO);
}

#[test]
fn a_slice_of_a_lifetime_is_one_of_a_second() {
    assert_eq!(Pacer::with_slice(Duration::MAX).slice, SECOND);
}

#[test]
fn a_job_that_is_paced_may_be_sent() {
    fn is_send<T: Send + Sync>(_: T) {}
    is_send(Pacer::new().pace());
    is_send(Pacer::new());
}
