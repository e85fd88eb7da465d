//! Polls that do not return: the monitor gets help for what waits behind them, asks them to return,
//! and reports them.

use super::long_poll::{HANGS, LongPoll, Reports};
use crate::handoff::Loan;
use crate::handoff::{LONG_CALL, POLLS};
use crate::os;
use crate::runtime::Shared;
use crate::runtime::host::SLICE;
use std::sync::Arc;
use std::sync::atomic::{Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

/// What a poll is granted.
struct Terms {
    /// How long the poll may go on before it is asked to return.
    slice: Duration,
    /// How long it then has to return.
    grace: Duration,
    /// The time on a CPU within which a poll that can return does so when it is asked.
    enough_to_hear: Duration,
}

/// The terms of polls in general.
const USUAL: Terms = Terms {
    slice: Duration::from_nanos(SLICE),
    grace: Duration::from_millis(1),
    enough_to_hear: Duration::from_millis(5),
};

/// The terms of a background poll of which nothing is known yet: see `overruns.md`.
const UNPROVEN: Terms = Terms {
    slice: Duration::from_micros(100),
    grace: Duration::from_micros(100),
    enough_to_hear: Duration::from_micros(100),
};

/// An unproven poll that has a CPU is asked to return, and returns or does not, within this many
/// looks.
const QUICK_LOOKS: u32 = 4;

/// What the monitor has seen of each worker.
pub(super) struct Polls {
    /// By core, spare ones included.
    seen: Vec<Seen>,
    /// When the next look is due for the sake of a poll, if one is.
    look_again_after: Option<Duration>,
    reports: Reports,
}

/// The poll that a worker was in.
struct Seen {
    /// Its tick.
    poll: u32,
    /// The blocking call that it was in.
    loan: Option<Loan>,
    /// When it was first seen.
    began: Instant,
    /// Since when no request to return stands.
    unasked_since: Instant,
    /// When it was asked to return, if the request stands.
    asked: Option<Instant>,
    /// How long its thread had had a CPU when it was asked, if the OS tells.
    had_cpu: Option<Duration>,
    /// How often it was looked at while nothing was known of it.
    looks: u32,
    /// Whether it was asked to return and did not, though it had a CPU, as far as the OS tells. Up
    /// to its end it has a spare worker beside it.
    deaf: bool,
    /// Whether it is deaf, and held its core at the last look.
    holds: bool,
    /// How long its thread had waited for a CPU when it was seen the second time.
    starved: Option<Duration>,
    /// What there will be to report of it.
    report: Option<LongPoll>,
}

impl Seen {
    fn new(poll: u32, loan: Option<Loan>, now: Instant) -> Self {
        Self {
            poll,
            loan,
            began: now,
            unasked_since: now,
            asked: None,
            had_cpu: None,
            looks: 0,
            deaf: false,
            holds: false,
            starved: None,
            report: None,
        }
    }
}

impl Polls {
    pub(super) fn new(cores: usize) -> Self {
        let now = Instant::now();
        Self {
            seen: (0..cores).map(|_| Seen::new(0, None, now)).collect(),
            look_again_after: None,
            reports: Reports::default(),
        }
    }

    /// Returns whether the poll that a core was in at the last look had been asked to return, and
    /// held the core all the same.
    pub(super) fn holds(&self, core: usize) -> bool {
        self.seen[core].holds
    }

    /// Returns how long the next look may wait, if a poll wants one.
    pub(super) fn look_again_after(&self) -> Option<Duration> {
        self.look_again_after
    }

    /// Has the next look come at most `pause` after this one.
    fn look_soon(&mut self, pause: Duration) {
        self.look_again_after =
            Some(self.look_again_after.map_or(pause, |before| before.min(pause)));
    }

    /// Looks for polls that were going on at the last look too: gets help for what waits behind
    /// them, and asks those that have had their time to return. Returns whether any slot is full.
    ///
    /// Steps 1 to 4 are made for each core, step 5 once.
    pub(super) fn look(&mut self, shared: &Arc<Shared>, now: Instant) -> bool {
        let (mut stuck, mut slot_stuck, mut any_full) = (false, false, false);
        self.look_again_after = None;
        for (index, core) in shared.scheduler.cores().iter().enumerate() {
            // 1. Read what the core's holder does.
            let post = &shared.posts[index];
            let (poll, full, running) =
                (core.polling(), !core.slot.is_empty_relaxed(), post.is_running());
            let loan = post.lease.on_loan();
            // A full slot between two polls does not count: it runs next.
            any_full |= full && running;
            if post.has_unproven() {
                // This thread is to see such polls while every CPU has one.
                os::hurry();
                // The poll goes on, or has yet to begin, and may have to wait for a CPU first.
                self.look_soon(if post.is_unproven(poll) { UNPROVEN.slice } else { USUAL.grace });
            }
            // 2. Another poll or blocking call than at the last look, or none: end what was begun
            //    for the last one, and note the new one. That is all, because nothing is known yet
            //    of how long it goes on.
            if poll != self.seen[index].poll || loan != self.seen[index].loan {
                self.over(shared, index, now);
                if poll != self.seen[index].poll {
                    post.first_seen(poll, shared.now());
                }
                self.seen[index] = Seen::new(poll, loan, now);
                continue;
            }
            // 3. The same poll, with work behind it: mark it as stuck, so that other workers take
            //    the work, from the slot too.
            if full || core.has_task() {
                core.mark_stuck(poll);
                (stuck, slot_stuck) = (true, slot_stuck || full);
            }
            // 4. A poll that is still in the same blocking call does without its core: send a
            //    thread for it. A poll that holds its core can only be asked to return.
            match loan {
                Some(loan) => {
                    self.seen[index].holds = false;
                    // Another call may have cut the pause since the last look short.
                    let length = now - self.seen[index].began;
                    match LONG_CALL.checked_sub(length) {
                        None | Some(Duration::ZERO) => shared.offer(index, loan),
                        Some(left) => self.look_soon(left),
                    }
                }
                None => {
                    self.same_poll(shared, index, running, now);
                    self.seen[index].holds = running && self.seen[index].deaf;
                }
            }
        }
        shared.scheduler.set_stuck(stuck);
        // 5. Wake one worker, after all marks are set, so that it finds them. A searcher comes by
        //    these slots in its last round. If one searches now, it may have passed already: then
        //    the next look finds the slot still stuck. If no worker is idle, a polite task gives
        //    way to what waits. What is in a deque beside an idle worker was announced when it was
        //    queued, and is left to `rescue.rs`.
        if slot_stuck || stuck && shared.scheduler.idle.nobody_idle() {
            shared.unpark(shared.scheduler.announce());
        }
        any_full
    }

    /// Ends what was begun for the polls that were seen, and takes back requests that came too late
    /// for any poll: all workers were idle a moment ago.
    pub(super) fn all_over(&mut self, shared: &Arc<Shared>, now: Instant) {
        for (index, core) in shared.scheduler.cores().iter().enumerate() {
            self.over(shared, index, now);
            // A worker may begin a poll at any moment, and that poll may be asked to return. If all
            // workers are idle after the tick was read, the poll with this tick is over.
            let last = core.polling();
            // Ordering: SeqCst fence, without a partner: it keeps the two reads in this order.
            fence(SeqCst);
            if super::all_idle(shared) {
                shared.scheduler.take_request_back(index, last);
            }
        }
    }

    /// Reports what is known by now: the monitor looks no more.
    pub(super) fn look_no_more(&mut self, shared: &Arc<Shared>, now: Instant) {
        for index in 0..self.seen.len() {
            let (core, post, seen) =
                (shared.scheduler.core(index), &shared.posts[index], &mut self.seen[index]);
            let goes_on = core.polling() == seen.poll && post.is_running() && !post.is_dropping();
            match &mut seen.report {
                Some(report) if goes_on && !report.is_out() => {
                    report.go_on(now - seen.began);
                    self.reports.send(shared, report);
                }
                _ => self.over(shared, index, now),
            }
        }
    }

    /// Looks at a core that is as it was at the last look and is not lent: the same poll goes on,
    /// or no new one has begun since.
    ///
    /// A request to return goes through three states, and each look makes at most one step:
    ///
    /// 1. Not asked. After its slice the poll is asked. The CPU time of its thread is read after
    ///    the request, so that it counts only what the poll could hear.
    /// 2. Asked. The request stands for the grace, and for as long as the poll could not hear.
    /// 3. Asked and not returned in time, or no poll runs any more. The request is taken back. A
    ///    poll that was asked is deaf from now on, and overrun too if it computes. After another
    ///    slice it is asked again.
    ///
    /// Whether it is one to report is decided last, because that depends on whether it is deaf.
    fn same_poll(&mut self, shared: &Arc<Shared>, index: usize, running: bool, now: Instant) {
        let (seen, post) = (&mut self.seen[index], &shared.posts[index]);
        let unproven = running
            && !seen.deaf
            && now - seen.began < USUAL.slice
            && (post.is_unproven(seen.poll) || ignores(shared, index));
        let terms = if unproven { &UNPROVEN } else { &USUAL };
        // How long the thread has had a CPU since the poll was asked, if the OS tells.
        let had_since = || Some(post.had_cpu()?.saturating_sub(seen.had_cpu?));
        let too_soon = |asked: Instant| {
            // The poll could not hear if its thread wants a CPU and has hardly had one since, which
            // is no fault of the program's. Of an unproven poll it is enough that the thread has
            // hardly had one: if it sleeps, in a lock say, it is not one to preempt, and the poll
            // is left to the usual terms.
            let could_not_hear = had_since().is_some_and(|had| {
                had < terms.enough_to_hear && (unproven || post.wants_cpu() == Some(true))
            });
            now - asked < terms.grace || could_not_hear
        };
        if running && seen.asked.is_some_and(too_soon) {
            // The request stands: the monitor was called meanwhile, or the poll could not hear.
        } else if seen.asked.is_some() || !running {
            // The poll does not hear, because it has no yield points, or it was over already when
            // it was asked. The request is taken back, because it makes every yield point of the
            // runtime look closer. A request to a poll that has begun since then stands.
            shared.scheduler.take_request_back(index, seen.poll);
            let computes = || had_since().is_none_or(|had| had >= UNPROVEN.enough_to_hear);
            if seen.asked.is_some() && running && !seen.deaf && computes() {
                overrun(shared, index, seen.poll);
            }
            if seen.asked.is_some() {
                seen.deaf = true;
                // Nothing is left to find out.
                post.end_unproven(seen.poll);
            }
            (seen.asked, seen.unasked_since) = (None, now);
        } else if now - seen.unasked_since >= terms.slice {
            shared.scheduler.ask_to_return(index, seen.poll);
            // After the request: what the thread did before is not held against the poll.
            seen.had_cpu = post.had_cpu();
            seen.asked = Some(now);
        }
        if unproven && !seen.deaf {
            seen.looks += 1;
            // A poll that has to wait for a CPU is looked at less and less often.
            let pause = UNPROVEN.grace * (1 << seen.looks.saturating_sub(QUICK_LOOKS).min(5));
            self.look_soon(pause);
        }
        if running {
            self.suspect(shared, index, now);
        } else {
            self.over(shared, index, now);
        }
    }

    /// Decides whether a poll that goes on is one to report.
    fn suspect(&mut self, shared: &Arc<Shared>, index: usize, now: Instant) {
        let (seen, post) = (&mut self.seen[index], &shared.posts[index]);
        let length = now - seen.began;
        if let Some(report) = &mut seen.report {
            if length >= HANGS.max(2 * shared.hooks.long_poll_threshold) && !report.is_out() {
                report.go_on(length);
                self.reports.send(shared, report);
            }
            return;
        }
        if !self.reports.are_wanted(shared, length) {
            return;
        }
        let starved = post.starved();
        let before = *seen.starved.get_or_insert(starved);
        // A poll that returns on request delays no other task and is not reported.
        if length < shared.hooks.long_poll_threshold || !seen.deaf {
            return;
        }
        if 2 * starved.saturating_sub(before) > length {
            // Its thread had no CPU for most of the time, which is no fault of the poll's: it
            // begins anew.
            (seen.began, seen.starved) = (now, Some(starved));
            return;
        }
        seen.report = self.reports.begin(shared, index);
        if seen.report.is_some() {
            post.watch_end(seen.poll);
        }
    }

    /// Ends what was begun for the poll that was seen, which is over.
    fn over(&mut self, shared: &Arc<Shared>, index: usize, now: Instant) {
        // If the worker has not done it: it may have missed that it was to (M5 of `overruns.md`).
        shared.posts[index].step_back();
        let seen = &mut self.seen[index];
        let Some(mut report) = seen.report.take() else { return };
        let ended = shared.posts[index].take_end().map(|at| shared.instant(at));
        if !report.is_out() {
            report.end(ended.unwrap_or(now).saturating_duration_since(seen.began));
            self.reports.send(shared, &mut report);
        }
    }
}

/// Returns whether a background poll was asked to give way a while ago, for work that waits, and
/// has not.
fn ignores(shared: &Shared, index: usize) -> bool {
    shared.preempts_background()
        && Duration::from_nanos(shared.scheduler.interrupts.unanswered_for(index)) >= USUAL.grace
        && shared.posts[index].learns_of().is_some()
}

/// Accounts for a poll that was asked to return and did not. If it is of the background, other
/// threads are to go before it from now on, and before further polls from the same place.
fn overrun(shared: &Shared, index: usize, poll: u32) {
    let (post, core) = (&shared.posts[index], shared.scheduler.core(index));
    let Some(spawned_at) = post.learns_of().filter(|_| shared.preempts_background()) else {
        return;
    };
    // 1. Is it still the poll that was asked? This thread may have had no CPU since it saw the
    //    poll, and then another goes on there that was asked nothing.
    //
    // Ordering: SeqCst fences, here and below: the task that was read is that of the poll whose
    // tick is read after it, as far as a worker's plain stores have an order.
    fence(SeqCst);
    if core.polling() != poll {
        return;
    }
    // 2. Remember the place, and have the thread step aside (M2 to M4 of `overruns.md`).
    shared.monitor.count_overrun();
    POLLS.learn(POLLS.at(spawned_at), true);
    post.step_aside(poll);
    // 3. Look once more: if the poll has ended before M2, its end was not watched, and the thread
    //    of another poll has stepped aside.
    fence(SeqCst);
    if core.polling() != poll {
        post.step_back();
    }
}
