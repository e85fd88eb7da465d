//! Turns of a reactor that only the test drives.

use super::watch;
use futures::task::noop_waker_ref;
use giveway_io::driver::{Reactor, Turn, Wait, enter, wake_all};
use giveway_io::net::UnixStream;
use std::cell::Cell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

/// If a timer is due each time, a thread that takes no other turns would never hear of a socket.
#[test]
fn a_turn_that_may_wait_asks_the_kernel_though_a_timer_is_due() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    let (here, there) = enter(&reactor, 0, UnixStream::pair).unwrap();
    let mut cx = Context::from_waker(noop_waker_ref());
    // Uses up what is known of it before the kernel was asked.
    while here.poll_read_ready(&mut cx).is_ready() && here.try_read(&mut [0]).is_ok() {}
    assert!(here.poll_read_ready(&mut cx).is_pending());
    there.into_std().unwrap().write_all(b"x").unwrap();
    let _due = reactor.wake_at(reactor.now(), noop_waker_ref());
    let (mut woken, mut turns) = (Vec::new(), 0);
    while here.poll_read_ready(&mut cx).is_pending() {
        let _due = reactor.wake_at(reactor.now(), noop_waker_ref());
        reactor.turn(Wait::Unless(&|| false), &mut woken).unwrap();
        wake_all(&mut woken);
        turns += 1;
        assert!(turns < 10, "the kernel is never asked");
    }
    assert!(matches!(here.poll_read_ready(&mut cx), Poll::Ready(Ok(()))));
}

/// Others would go by the word that a thread waits there, and go to sleep.
#[test]
fn a_question_that_panics_leaves_nobody_waiting_in_the_reactor() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    // So soon that the thread stays awake for it, and asks again.
    let asked = Cell::new(0);
    let panics = || {
        asked.set(asked.get() + 1);
        assert!(asked.get() < 2, "a question of somebody else");
        false
    };
    for _ in 0..1_000 {
        asked.set(0);
        let _soon = reactor.wake_at(reactor.now() + 20_000, noop_waker_ref());
        let turn =
            catch_unwind(AssertUnwindSafe(|| reactor.turn(Wait::Unless(&panics), &mut Vec::new())));
        let inside = Cell::new(None);
        let look = || {
            inside.set(Some(reactor.turn(Wait::Not, &mut Vec::new()).unwrap()));
            true
        };
        reactor.turn(Wait::Unless(&look), &mut Vec::new()).unwrap();
        assert_eq!(inside.get(), Some(Turn::Looks), "after {turn:?}");
    }
}

/// A thread that finds the turn taken is told whether the holder comes back.
#[test]
fn who_finds_the_turn_taken_hears_whether_it_is_by_one_who_returns() {
    let _watch = watch();
    let (reactor, other) = (Reactor::new(1).unwrap(), Reactor::new(1).unwrap());
    let found = || {
        let found = Cell::new(None);
        let try_it = || {
            let turn = std::thread::scope(|threads| {
                threads.spawn(|| reactor.turn(Wait::Not, &mut Vec::new()).unwrap()).join().unwrap()
            });
            found.set(Some(turn));
            true
        };
        assert_eq!(reactor.turn(Wait::Unless(&try_it), &mut Vec::new()).unwrap(), Turn::Taken);
        found.get().unwrap()
    };
    assert_eq!(found(), Turn::Looks);
    assert_eq!(enter(&reactor, 0, found), Turn::Returns);
    assert_eq!(enter(&other, 0, found), Turn::Looks, "it drives another one");
    assert_eq!(found(), Turn::Looks, "what was said before is taken back");
}
