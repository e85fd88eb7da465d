//! A library that gives way under Giveway, and works unchanged under any other executor.
//!
//! The module `library` stands for a crate of its own. It does not depend on the runtime, only on
//! `giveway-yield` and `giveway-budget`, which depend on nothing. `main` uses it under Giveway, and
//! then under the executor of `futures`, which supports neither yield points nor budgets.
//!
//! ```sh
//! cargo run --example polite_library
//! ```

use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

#[expect(unreachable_pub, reason = "it stands for a crate, whose public items are public")]
mod library {
    use std::collections::VecDeque;
    use std::future::poll_fn;
    use std::task::{Context, Poll, Waker, ready};

    /// Computes a checksum of a large slice, with a yield point after each chunk.
    pub async fn checksum(bytes: &[u8]) -> u64 {
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        // Some tens of microseconds between two yield points: other tasks wait at most that long.
        for chunk in bytes.chunks(4096) {
            for &byte in chunk {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            giveway_yield::yield_now_if_busy().await;
        }
        sum
    }

    /// A queue whose items can be awaited. It spends the operation budget, so that a task that
    /// reads from a queue that is never empty returns to the executor now and then.
    #[derive(Default)]
    pub struct Queue<T> {
        items: VecDeque<T>,
        waiting: Option<Waker>,
    }

    impl<T> Queue<T> {
        pub fn push(&mut self, item: T) {
            self.items.push_back(item);
            if let Some(waiting) = self.waiting.take() {
                waiting.wake();
            }
        }

        pub async fn pop(&mut self) -> T {
            poll_fn(|cx| self.poll_pop(cx)).await
        }

        fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<T> {
            // Asks for one operation. If none is left, `poll_proceed` has already woken the task,
            // and this function has to return `Pending`.
            let operation = ready!(giveway_budget::poll_proceed(cx));
            match self.items.pop_front() {
                Some(item) => {
                    operation.made_progress(); // spent
                    Poll::Ready(item)
                }
                None => {
                    self.waiting = Some(cx.waker().clone());
                    Poll::Pending // dropping `operation` gives it back: waiting is free
                }
            }
        }
    }
}

fn main() -> io::Result<()> {
    // One worker, so that the checksum and the other task compete for it.
    let runtime = giveway::Builder::new().workers(1).build()?;
    println!("Under Giveway:");
    runtime.block_on(async {
        take_turns().await;
        // The checksum keeps the only worker busy when an urgent task is spawned.
        let sum = giveway::spawn(timed(async { library::checksum(&vec![7; 8 << 20]).await }));
        giveway::time::sleep(Duration::from_millis(5)).await;
        let urgent = timed(giveway::spawn(async {})).await.1;
        let (sum, took) = sum.await?;
        println!(
            "  checksum {sum:x} in {took:.0?}; meanwhile somebody else waited for {urgent:.0?}"
        );
        io::Result::Ok(())
    })?;

    // This executor sets no budget and answers no yield points. Each call reads a thread-local
    // variable and returns.
    println!("Under futures::executor:");
    futures::executor::block_on(async {
        take_turns().await;
        let (sum, took) = timed(library::checksum(&vec![7; 8 << 20])).await;
        println!("  checksum {sum:x} in {took:.0?}");
    });
    Ok(())
}

/// Takes a thousand items that are already queued, beside a second future in the same task.
async fn take_turns() {
    let mut queue = library::Queue::default();
    (1..=1000).for_each(|item| queue.push(item));
    let taken = Cell::new(0);
    let greedy = async {
        while taken.get() < 1000 {
            taken.set(queue.pop().await);
        }
    };
    let neighbour =
        async { println!("  the neighbour got its turn after {} of 1000 items", taken.get()) };
    futures::join!(greedy, neighbour);
}

async fn timed<F: Future>(future: F) -> (F::Output, Duration) {
    let start = Instant::now();
    (future.await, start.elapsed())
}
