//! The workloads of the table, each written once against [`Peer`]. The question that a row asks is
//! at its function.
//!
//! All peers use channels of the same crates, so that a row compares schedulers and not channels.
//!
//! Not isolated: single costs. Spawning includes the allocator, joining includes the wake-up of the
//! task that joins.

use crate::crew::Crew;
use crate::peers::Peer;
use crate::report::Goal;
use futures::channel::oneshot;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A workload: its name, its number of operations, and its goal.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name in the table.
    pub name: &'static str,
    /// The number of operations in one run.
    pub operations: usize,
    /// What Giveway's time has to be.
    pub goal: Goal,
}

/// Every row, in the order of the table.
pub const ROWS: [Row; 12] = [
    Row { name: "spawn from a task", operations: 10_000, goal: Goal::Ratio(0.8) },
    Row { name: "spawn from outside", operations: 10_000, goal: Goal::Ratio(0.8) },
    Row { name: "spawn from outside, busy", operations: 2_000, goal: Goal::Ratio(1.0) },
    Row { name: "yield", operations: 200_000, goal: Goal::Ratio(0.8) },
    Row { name: "ping-pong", operations: 1_000, goal: Goal::Ratio(0.8) },
    Row { name: "chained spawn", operations: 10_000, goal: Goal::Ratio(0.6) },
    Row { name: "token through channels", operations: 20_000, goal: Goal::Ratio(0.8) },
    Row { name: "fork-join, fib(20)", operations: 21_891, goal: Goal::Ratio(0.7) },
    Row { name: "sleeps made and dropped", operations: 20_000, goal: Goal::Ratio(0.5) },
    Row { name: "1,000 tasks sleep 1 ms, ten times", operations: 10_000, goal: Goal::AtMost(11.0) },
    Row { name: "TCP echo, 1 pair", operations: 2_000, goal: Goal::Ratio(1.0) },
    Row { name: "TCP echo, 64 pairs", operations: 64 * 200, goal: Goal::Ratio(0.95) },
];

/// Runs the row with this index once.
///
/// # Panics
///
/// If there is no such row.
pub fn run<P: Peer>(row: usize) {
    match row {
        0 => spawn_from_task::<P>(ROWS[0].operations),
        1 => spawn_from_outside::<P>(ROWS[1].operations),
        2 => spawn_from_outside::<P>(ROWS[2].operations),
        3 => yield_many::<P>(200, 1_000),
        4 => ping_pong::<P>(ROWS[4].operations),
        5 => chained_spawn::<P>(ROWS[5].operations),
        6 => token::<P>(ROWS[6].operations),
        7 => assert_eq!(in_task::<P, _>(fib::<P>(20)), 6_765),
        8 => drop_sleeps::<P>(ROWS[8].operations),
        9 => sleep_many::<P>(1_000, 10),
        10 => echo::<P>(1, 2_000),
        11 => echo::<P>(64, 200),
        _ => panic!("there is no row {row}"),
    }
}

/// Returns whether the row is to be run beside the tasks of [`keep_busy`].
pub fn wants_busy(row: usize) -> bool {
    row == 2
}

/// Runs a future as a task, and waits for the task on the calling thread, which is no worker.
fn in_task<P: Peer, F>(future: F) -> F::Output
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    P::block_on(async { P::spawn(future).await })
}

/// How fast can one task spawn others? The tasks are empty, and the spawning task joins all of
/// them.
fn spawn_from_task<P: Peer>(n: usize) {
    in_task::<P, _>(async move {
        let tasks: Vec<_> = (0..n).map(|_| P::spawn(async {})).collect();
        for task in tasks {
            task.await;
        }
    });
}

/// How fast can a thread that is no worker spawn tasks?
fn spawn_from_outside<P: Peer>(n: usize) {
    P::block_on(async move {
        let tasks: Vec<_> = (0..n).map(|_| P::spawn(async {})).collect();
        for task in tasks {
            task.await;
        }
    });
}

/// Keeps every worker busy, with ten tasks each that do nothing but yield.
pub fn keep_busy<P: Peer>(workers: usize) -> Crew<P> {
    Crew::start(10 * workers, |stop| {
        P::spawn(async move {
            while !stop.load(Relaxed) {
                P::yield_now().await;
            }
        })
    })
}

/// What does a trip through the run queue cost?
fn yield_many<P: Peer>(tasks: usize, yields: usize) {
    in_task::<P, _>(async move {
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                P::spawn(async move {
                    for _ in 0..yields {
                        P::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
}

/// What do spawns and wake-ups of many short-lived pairs cost? Each pair is two tasks that answer
/// each other over new oneshot channels.
fn ping_pong<P: Peer>(n: usize) {
    in_task::<P, _>(async move {
        let (done, finished) = async_channel::bounded(1);
        let left = Arc::new(AtomicUsize::new(n));
        for _ in 0..n {
            let (done, left) = (done.clone(), left.clone());
            P::spawn_detached(async move {
                let (ping, pinged) = oneshot::channel();
                let (pong, ponged) = oneshot::channel();
                P::spawn_detached(async move {
                    pinged.await.expect("pinged");
                    pong.send(()).expect("awaited");
                });
                ping.send(()).expect("awaited");
                ponged.await.expect("ponged");
                if left.fetch_sub(1, Relaxed) == 1 {
                    done.try_send(()).expect("once");
                }
            });
        }
        finished.recv().await.expect("finished");
    });
}

/// What does it cost to pass work on by spawning? Each task spawns the next.
fn chained_spawn<P: Peer>(n: usize) {
    // A plain function breaks a cycle: an `async fn` that spawned itself would have a future whose
    // type depends on itself.
    fn link<P: Peer>(left: usize, done: oneshot::Sender<()>) {
        if left == 0 {
            done.send(()).expect("awaited");
        } else {
            P::spawn_detached(async move { link::<P>(left - 1, done) });
        }
    }
    P::block_on(async {
        let (done, finished) = oneshot::channel();
        P::spawn_detached(async move { link::<P>(n, done) });
        finished.await.expect("finished");
    });
}

/// What does a wake-up cost from task to task? Two tasks pass one token to and fro through two
/// bounded channels.
fn token<P: Peer>(trips: usize) {
    in_task::<P, _>(async move {
        let (there, arrivals) = async_channel::bounded::<()>(1);
        let (back, returns) = async_channel::bounded::<()>(1);
        let echo = P::spawn(async move {
            while arrivals.recv().await.is_ok() {
                back.send(()).await.expect("awaited");
            }
        });
        for _ in 0..trips {
            there.send(()).await.expect("received");
            returns.recv().await.expect("returned");
        }
        drop(there);
        echo.await;
    });
}

/// What do spawns and joins cost in a recursion? Each call is a task.
fn fib<P: Peer>(n: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        if n < 2 {
            return n;
        }
        let (left, right) = (P::spawn(fib::<P>(n - 1)), P::spawn(fib::<P>(n - 2)));
        left.await + right.await
    })
}

/// What does a timeout cost that never comes? It is made, polled once, and dropped.
fn drop_sleeps<P: Peer>(n: usize) {
    in_task::<P, _>(async move {
        for _ in 0..n {
            let mut sleep = std::pin::pin!(P::sleep(Duration::from_secs(1)));
            assert!(futures::poll!(sleep.as_mut()).is_pending());
        }
    });
}

/// How late are the timers of many tasks that sleep again and again? Ten milliseconds are the
/// floor.
fn sleep_many<P: Peer>(tasks: usize, times: usize) {
    in_task::<P, _>(async move {
        let sleeper = |_| {
            P::spawn(async move {
                for _ in 0..times {
                    let start = Instant::now();
                    P::sleep(Duration::from_millis(1)).await;
                    assert!(start.elapsed() >= Duration::from_millis(1), "a sleep was early");
                }
            })
        };
        for task in (0..tasks).map(sleeper).collect::<Vec<_>>() {
            task.await;
        }
    });
}

/// What does a round trip over loopback cost? Pairs of tasks send a hundred bytes to and fro.
/// Setting up the pairs is part of the run.
fn echo<P: Peer>(pairs: usize, trips: usize) {
    in_task::<P, _>(async move {
        let (listener, address) = P::listen().await.expect("listens on loopback");
        let mut clients = Vec::new();
        for _ in 0..pairs {
            let (client, server) = futures::join!(P::connect(address), P::accept(&listener));
            let (mut client, mut server) = (client.expect("connects"), server.expect("accepts"));
            P::spawn_detached(async move {
                let mut buffer = [0; 1024];
                while let Ok(read @ 1..) = P::read(&mut server, &mut buffer).await {
                    P::write_all(&mut server, &buffer[..read]).await.expect("the client reads");
                }
            });
            clients.push(P::spawn(async move {
                let mut buffer = [0; 1024];
                for _ in 0..trips {
                    P::write_all(&mut client, &[7; 100]).await.expect("the server reads");
                    let mut read = 0;
                    while read < 100 {
                        read +=
                            P::read(&mut client, &mut buffer).await.expect("the server answers");
                    }
                }
            }));
        }
        for client in clients {
            client.await;
        }
    });
}
