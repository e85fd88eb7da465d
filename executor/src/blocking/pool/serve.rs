//! A thread of the pool: which duty it takes next, and what it does for it.

use super::state::{State, Work};
use super::{Kind, Pool};
use crate::handoff::Loan;
use crate::lowered;
use crate::os;
use crate::parker::Parker;
use crate::runtime::{Phase, Shared, context};
use crate::task::{Class, Runnable};
use crate::worker;
use giveway_io::driver::on_behalf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

/// How many times as long as the others the last idle thread waits before it ends: a program that
/// blocks every now and then finds it there.
const LAST_STAYS: u32 = 20;

/// What a thread of the pool is called for.
enum Duty {
    Job(Runnable),
    /// Drops a job that the shutdown has given up on.
    Drop(Runnable),
    /// Holds a core, if the loan is still open.
    StandIn(usize, Loan),
}

/// What a thread of the pool does next.
enum Next {
    Duty(Duty),
    /// Waits to be called, for this many times as long as a thread is kept.
    Wait {
        patience: u32,
    },
    End,
}

/// Runs a thread of the pool.
pub(super) fn serve(shared: &Arc<Shared>, kind: Kind, me: u64) {
    let pool = shared.pool_of(kind);
    match kind.class() {
        Class::Foreground => pool.serve(shared, me),
        Class::Background => lowered::run(shared, &pool.config, || pool.serve(shared, me)),
    }
}

impl Pool {
    fn serve(&self, shared: &Arc<Shared>, me: u64) {
        let (pool, kind, class) = (self, self.kind(), self.class());
        let parker = Arc::new(Parker::new());
        parker.bind();
        pool.started(me);
        let inside = context::Entered::new(shared.clone());
        shared.tokio.enter_for_good();
        shared.hooks.thread_started();
        while let Some(duty) = pool.next(shared, me, &parker) {
            match duty {
                Duty::Job(job) => {
                    if kind == Kind::Lowered {
                        pool.serve_polls(shared, me, job);
                        if shared.gate.phase() != Phase::Open {
                            // The thread may drop other tasks below: those are not the job that it
                            // is said to do.
                            pool.idle_again(me);
                        }
                        shared.leave_after_poll(|| ());
                    } else {
                        let id = job.metadata().id;
                        context::in_job(shared, id, class, || job.run());
                    }
                    if shared.deadlocks.is_some() {
                        pool.idle_again(me);
                        shared.monitor.call();
                    }
                }
                Duty::Drop(job) => drop(job),
                Duty::StandIn(core, loan) => {
                    worker::stand_in(shared, core, loan);
                    pool.stood_in();
                }
            }
        }
        shared.hooks.thread_stopping();
        drop(inside);
        pool.ended(me);
    }

    /// Polls a task on this lowered thread, and then others for as long as each goes to the back of
    /// the queue. The caller owes [`Shared::leave_after_poll`].
    ///
    /// At the gate the whole series is one poll. A thread that leaves the gate may have to wait
    /// until all tasks are dropped, so it leaves with none in its hands.
    fn serve_polls(&self, shared: &Arc<Shared>, me: u64, task: Runnable) {
        shared.gate.join();
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let Some(again) = lowered::poll(shared, task) else { return };
            match on_behalf(|| self.take_turns(shared, me, again)) {
                Ok(first) => next = first,
                // With no lock held, and on this thread, because it may run destructors.
                Err(again) => shared.end_lowered(again),
            }
        }
    }

    /// Notes which thread of the OS the calling one is.
    fn started(&self, me: u64) {
        let (thread, number) = (thread::current().id(), os::this_thread());
        on_behalf(|| {
            if let Some(member) = self.lock().members.get_mut(&me) {
                (member.thread, member.number) = (Some(thread), number);
            }
        });
    }

    /// Waits for the next duty. Returns none when the thread is to end.
    fn next(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Option<Duty> {
        loop {
            let patience = match on_behalf(|| self.take_duty(shared, me, parker)) {
                Next::Duty(duty) => {
                    if !matches!(duty, Duty::StandIn(core, _) if shared.is_spare(core)) {
                        os::calm();
                    }
                    return Some(duty);
                }
                Next::End => return None,
                Next::Wait { patience } => patience,
            };
            let deadline =
                Instant::now().checked_add(self.config.keep_alive.saturating_mul(patience));
            let called = match deadline {
                Some(deadline) => parker.park_until(deadline),
                None => {
                    parker.park();
                    true
                }
            };
            if !called {
                if on_behalf(|| self.give_up_waiting(me)) {
                    return None;
                }
                // It was called just before it gave up, so its token is there or about to be.
                parker.park();
            }
        }
    }

    /// Returns what a thread that is done with its duty does next. If there is nothing, the thread
    /// is among the idle ones from now on.
    fn take_duty(&self, shared: &Shared, me: u64, parker: &Arc<Parker>) -> Next {
        let mut state = self.lock();
        state.doing(me, None);
        if state.members.get_mut(&me).is_some_and(|member| std::mem::take(&mut member.hurried)) {
            os::note_hurried();
        }
        // 1. A core, before any job: what is queued on the core waits for it. Also while the
        //    runtime closes, because what is queued there is to be dropped.
        if let Some((core, loan)) = state.loans.pop_front() {
            state.standing_in += 1;
            if !state.jobs.is_empty() && !self.is_stalled() {
                // This thread may have been called for one of the jobs.
                self.stall(shared);
            }
            return Next::Duty(Duty::StandIn(core, loan));
        }
        // 2. A job.
        if state.running < self.most_running(&state)
            && let Some(job) = state.jobs.pop_front()
        {
            self.begin(&mut state, me, &job);
            if state.is_drained() {
                shared.monitor.call();
            }
            return Next::Duty(Duty::Job(job));
        }
        // 3. A job to be dropped, after those that are to run.
        if let Some(job) = state.given_up.pop_front() {
            state.doing(me, Some(Work::of(&job)));
            return Next::Duty(Duty::Drop(job));
        }
        // 4. The end, when nothing is left. Idle threads do not wait for a closed pool.
        if state.closed {
            // If jobs are left, as many threads as may be are in one, and take these next.
            state.serving -= 1;
            return Next::End;
        }
        // 5. Nothing. Under the same lock as the looks above, so that what is queued later finds
        //    this thread idle.
        self.publish(&state);
        let patience = if state.idle.is_empty() { LAST_STAYS } else { 1 };
        state.idle.push((me, parker.clone()));
        Next::Wait { patience }
    }

    /// Notes that a thread has taken a job from the queue.
    fn begin(&self, state: &mut State, me: u64, job: &Runnable) {
        // Ordering: relaxed; a count.
        self.begun.fetch_add(1, Relaxed);
        if state.jobs.is_empty() {
            state.relief = 0;
        }
        state.doing(me, Some(Work::of(job)));
        self.publish(state);
    }

    /// Puts a task to the back of the queue and takes the first one, in a single visit, because
    /// each visit costs a lowered thread a call of the proxy.
    ///
    /// Returns none if the thread is to look for its next duty as usual, and gives the task back if
    /// the pool is closed.
    fn take_turns(
        &self,
        shared: &Shared,
        me: u64,
        again: Runnable,
    ) -> Result<Option<Runnable>, Runnable> {
        let mut state = self.lock();
        if state.closed {
            return Err(again);
        }
        let is_one_too_many = state.running > self.most_running(&state);
        if is_one_too_many && !state.jobs.is_empty() {
            // This thread is there because no other came back for those that wait (`relieve`), and
            // the first of them has begun. The others may wait for this task, and no thread is
            // called for it, so the monitor has to know: it may be about to sleep.
            state.jobs.push_back(again);
            self.publish(&state);
            drop(state);
            shared.monitor.rouse();
            return Ok(None);
        }
        // Nothing else waits, or this thread would take the first job anyway.
        state.jobs.push_back(again);
        let first = state.jobs.pop_front();
        first.iter().for_each(|job| self.begin(&mut state, me, job));
        Ok(first)
    }

    /// Takes a thread that has waited for long enough off the idle ones, so that it may end.
    /// Returns false if it was called at this moment.
    fn give_up_waiting(&self, me: u64) -> bool {
        let mut state = self.lock();
        let place = state.idle.iter().position(|(number, _)| *number == me);
        if let Some(place) = place {
            state.idle.remove(place);
            state.serving -= 1;
        }
        place.is_some()
    }

    /// Notes that a thread has done its job, for the detection of deadlocks and for reports of a
    /// shutdown.
    fn idle_again(&self, me: u64) {
        on_behalf(|| self.lock().doing(me, None));
    }

    /// Notes that a thread that has held a core is back.
    fn stood_in(&self) {
        self.lock().standing_in -= 1;
    }

    /// Takes a thread that has nothing left to do off the pool.
    fn ended(&self, me: u64) {
        on_behalf(|| {
            let mut state = self.lock();
            let handle = state.members.remove(&me).and_then(|member| member.handle);
            state.retired.retain(|thread| !thread.is_finished());
            state.retired.extend(handle);
            drop(state);
            self.one_fewer.notify_all();
        });
    }
}
