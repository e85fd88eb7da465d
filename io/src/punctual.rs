//! How to wake up in time: who sleeps until a timer is due gets up a little too soon, and stays awake for the rest.
//!
//! The kernel wakes nobody at the moment he asked for. Its timer goes off in time, but a CPU that was idle has to wake up
//! first, and the thread has to get it: a few microseconds on a busy machine, fifty and more on a virtual one. How many is
//! much the same from one sleep to the next, so it can be learnt, and asked for in advance.
//!
//! Getting up sooner is paid for with a CPU that spins, so two things bound it. What is expected is less than what was
//! mostly seen: too soon moves it by a half of the error, too late by a sixteenth, and it is never more than
//! [`MOST`]. And nobody stays awake for longer than that between two sleeps, however close together timers are: then he
//! sleeps for as long as he would have, is late, and finds several of them due.
//!
//! Plain numbers, for whoever has the turn at the reactor; nothing here knows a clock.

/// In nanoseconds. What is later than that is not the waking of a CPU, but another thread that has it.
const MOST: u64 = 50_000;

/// What whoever takes the turn knows of earlier sleeps.
#[derive(Debug, Default)]
pub(crate) struct Punctual {
    // How late a sleeper is expected to wake up.
    late: u64,
    // How long they have stayed awake since the last sleep.
    awake: u64,
}

impl Punctual {
    /// How long to sleep for what is due after `left` nanoseconds; `None` if not at all.
    pub(crate) fn sleep_for(&self, left: u64) -> Option<u64> {
        let early = if self.awake < MOST { self.late } else { 0 };
        left.checked_sub(early).filter(|sleep| *sleep > 0)
    }

    /// Somebody has slept as long as he wanted, and woke up so much too late.
    pub(crate) fn slept(&mut self, late: u64) {
        let late = late.min(MOST);
        self.late = match late.checked_sub(self.late) {
            Some(error) => self.late + error / 16,
            None => self.late - (self.late - late).div_ceil(2),
        };
        self.awake = 0;
    }

    /// Somebody was awake for so long until something was due.
    pub(crate) fn stayed_awake(&mut self, nanos: u64) {
        self.awake = self.awake.saturating_add(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(sleeps: impl IntoIterator<Item = u64>) -> Punctual {
        let mut punctual = Punctual::default();
        sleeps.into_iter().for_each(|late| punctual.slept(late));
        punctual
    }

    #[test]
    fn one_who_was_never_late_sleeps_for_all_of_it() {
        assert_eq!(Punctual::default().sleep_for(1_000), Some(1_000));
        assert_eq!(Punctual::default().sleep_for(0), None);
    }

    #[test]
    fn who_is_always_late_gets_up_so_much_sooner() {
        let punctual = after([30_000; 200]);
        let sleep = punctual.sleep_for(1_000_000).unwrap();
        assert!((970_000..971_000).contains(&sleep), "{sleep}");
        assert_eq!(punctual.sleep_for(29_000), None, "he would be too late");
    }

    /// Otherwise every sleep of an idle program would end in a spin.
    #[test]
    fn what_is_sometimes_early_is_not_expected_to_be_late() {
        let mixed = (0..1_000).map(|nth| if nth % 4 == 0 { 5_000 } else { 45_000 });
        let punctual = after(mixed);
        assert!(punctual.late < 30_000, "{}", punctual.late);
        let punctual = after([45_000; 200].into_iter().chain([1_000; 6]));
        assert!(punctual.late < 3_000, "{}", punctual.late);
    }

    #[test]
    fn a_cpu_that_another_has_is_not_made_up_for() {
        let punctual = after([50_000_000; 1_000]);
        assert!(punctual.sleep_for(1_000_000).unwrap() >= 950_000);
    }

    #[test]
    fn timers_that_are_close_together_do_not_keep_anybody_awake_for_ever() {
        let mut punctual = after([40_000; 200]);
        let mut awake = 0;
        while punctual.sleep_for(10_000).is_none() {
            punctual.stayed_awake(10_000);
            awake += 10_000;
        }
        assert_eq!(awake, MOST);
        punctual.slept(40_000);
        assert_eq!(punctual.sleep_for(10_000), None, "and then again");
    }
}
