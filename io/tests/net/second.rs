//! A second thread that waits in a reactor, beside the one that has the turn.

use super::watch;
use futures::task::noop_waker_ref;
use giveway_io::driver::{Reactor, Turn, Wait, enter, wake_all};
use giveway_io::net::UnixStream;
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::Context;
use std::thread;

/// Returns whether this system lets two threads wait at once.
fn is_possible(reactor: &Reactor) -> bool {
    reactor.wait_second(&|| true, &mut Vec::new()).unwrap()
}

#[test]
fn it_hears_of_a_socket_while_nobody_has_the_turn() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    if !is_possible(&reactor) {
        return;
    }
    let (here, there) = enter(&reactor, 0, UnixStream::pair).unwrap();
    let mut cx = Context::from_waker(noop_waker_ref());
    let mut there = there.into_std().unwrap();
    thread::scope(|threads| {
        threads.spawn(|| {
            let mut woken = Vec::new();
            while here.poll_read_ready(&mut Context::from_waker(noop_waker_ref())).is_pending() {
                assert!(reactor.wait_second(&|| false, &mut woken).unwrap());
                wake_all(&mut woken);
            }
        });
        there.write_all(b"x").unwrap();
    });
    assert!(here.poll_read_ready(&mut cx).is_ready());
}

#[test]
fn it_fires_the_timers_that_it_knew_of() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    if !is_possible(&reactor) {
        return;
    }
    let _soon = reactor.wake_at(reactor.now() + 100_000, noop_waker_ref());
    let mut woken = Vec::new();
    while woken.is_empty() {
        assert!(reactor.wait_second(&|| false, &mut woken).unwrap());
    }
}

#[test]
fn there_is_room_for_one() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    let inside = Cell::new(None);
    let try_it = || {
        inside.set(Some(reactor.wait_second(&|| true, &mut Vec::new()).unwrap()));
        true
    };
    let possible = reactor.wait_second(&try_it, &mut Vec::new()).unwrap();
    assert_eq!(inside.get(), possible.then_some(false));
    assert_eq!(is_possible(&reactor), possible, "it was left");
}

#[test]
fn it_leaves_the_turn_to_others() {
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    let turn = Cell::new(None);
    let look = || {
        turn.set(Some(reactor.turn(Wait::Not, &mut Vec::new()).unwrap()));
        assert!(reactor.is_attended());
        true
    };
    if reactor.wait_second(&look, &mut Vec::new()).unwrap() {
        assert_eq!(turn.get(), Some(Turn::Taken));
    }
    assert!(!reactor.is_attended());
}

/// Each is called a thousand times, while both wait and a third thread looks. The kernel hands the
/// call to any of them. A call that is lost is a hang.
#[test]
fn each_of_two_that_wait_hears_its_own_calls() {
    const CALLS: usize = 1_000;
    let _watch = watch();
    let reactor = Reactor::new(1).unwrap();
    if !is_possible(&reactor) {
        return;
    }
    // The third thread looks only if there is something to look for.
    let _pair = enter(&reactor, 0, UnixStream::pair).unwrap();
    let over = AtomicBool::new(false);
    let called = [AtomicUsize::new(0), AtomicUsize::new(0)];
    thread::scope(|threads| {
        let listen = |place: usize, heard: mpsc::Sender<()>| {
            let (reactor, called) = (&reactor, &called[place]);
            threads.spawn(move || {
                for call in 1..=CALLS {
                    let is_called = || called.load(SeqCst) >= call;
                    while !is_called() {
                        match place {
                            0 => {
                                _ = reactor.turn(Wait::Unless(&is_called), &mut Vec::new()).unwrap()
                            }
                            _ => _ = reactor.wait_second(&is_called, &mut Vec::new()).unwrap(),
                        }
                    }
                    heard.send(()).unwrap();
                }
            });
        };
        let hears = [0, 1].map(|place| {
            let (heard, hears) = mpsc::channel();
            listen(place, heard);
            hears
        });
        threads.spawn(|| {
            while !over.load(SeqCst) {
                reactor.turn(Wait::Not, &mut Vec::new()).unwrap();
                thread::yield_now();
            }
        });
        let call = |place: usize, call| {
            called[place].store(call, SeqCst);
            match place {
                0 => reactor.notify(),
                _ => reactor.notify_second(),
            }
        };
        for nth in 1..=CALLS {
            call(nth % 2, nth);
            if nth % 3 == 0 {
                // In the other rounds both are called at once.
                hears[nth % 2].recv().unwrap();
            }
            call(1 - nth % 2, nth);
            hears[1 - nth % 2].recv().unwrap();
            if nth % 3 != 0 {
                hears[nth % 2].recv().unwrap();
            }
        }
        over.store(true, SeqCst);
    });
}
