//! For executors: how to drive a reactor.
//!
//! # Examples
//!
//! An executor of one task, whose thread waits in the reactor:
//!
//! ```
//! use giveway::time::{Duration, Instant, sleep};
//! use giveway_io::driver::{Reactor, Turn, Wait, enter, poll_task, wake_all};
//! use std::future::Future;
//! use std::io;
//! use std::pin::pin;
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
//! use std::task::{Context, Poll, Wake, Waker};
//!
//! struct Bell {
//!     rung: AtomicBool,
//!     reactor: Arc<Reactor>,
//! }
//!
//! impl Wake for Bell {
//!     fn wake(self: Arc<Self>) {
//!         self.rung.store(true, SeqCst);
//!         self.reactor.notify(); // the thread may wait there
//!     }
//! }
//!
//! fn block_on<F: Future>(future: F) -> io::Result<F::Output> {
//!     let reactor = Reactor::new(1)?;
//!     let bell = Arc::new(Bell { rung: AtomicBool::new(true), reactor: reactor.clone() });
//!     let waker = Waker::from(bell.clone());
//!     let mut future = pin!(future);
//!     let mut woken = Vec::new();
//!     enter(&reactor, 0, || {
//!         loop {
//!             if bell.rung.swap(false, SeqCst) {
//!                 let mut cx = Context::from_waker(&waker);
//!                 if let Poll::Ready(output) = poll_task(&waker, || future.as_mut().poll(&mut cx))
//!                 {
//!                     return Ok(output);
//!                 }
//!             }
//!             // Asked with the turn in hand: a bell that rings later calls the thread back.
//!             let turn = reactor.turn(Wait::Unless(&|| bell.rung.load(SeqCst)), &mut woken)?;
//!             assert_eq!(turn, Turn::Taken, "nobody else takes turns here");
//!             wake_all(&mut woken);
//!         }
//!     })
//! }
//!
//! let start = Instant::now();
//! block_on(sleep(Duration::from_millis(5)))?;
//! assert!(start.elapsed() >= Duration::from_millis(5));
//! # Ok::<(), io::Error>(())
//! ```

pub use crate::current::{Finder, set_finder};
pub use crate::fork::Process;
pub use crate::proxy::{Proxy, on_behalf, with_proxy};
pub use crate::reactor::{Reactor, Turn, Wait, wake_all};
pub use crate::scope::{enter, lend};
pub use crate::timer::Alarm;
pub use crate::timer::now;
pub use crate::timer::poll_task;
