//! The function under `#[giveway::main]`.

use crate::runtime::{Builder, Lent, Runtime};
use std::future::Future;

/// The settings with which a function under `#[giveway::main]` runs.
#[derive(Debug)]
pub struct Main(Builder);

/// Returns the default settings.
pub fn main() -> Main {
    Main(Builder::new())
}

impl Main {
    /// Sets the number of workers.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self(self.0.workers(workers))
    }

    /// Sets whether a tokio runtime runs beside it.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio(self, on: bool) -> Self {
        Self(self.0.tokio(on))
    }

    /// Does not compile, and says why.
    #[cfg(not(feature = "tokio"))]
    #[must_use]
    pub fn tokio<On: super::FeatureTokio>(self, _on: On) -> Self {
        self
    }

    /// Runs the function on a runtime of its own. As long as the function runs, this runtime serves
    /// threads that are in no other.
    ///
    /// # Panics
    ///
    /// Panics if the function panics, or if the runtime cannot be started.
    #[track_caller]
    pub fn run<F: Future>(self, main: impl FnOnce() -> F) -> F::Output {
        let runtime = match self.0.build() {
            Ok(runtime) => runtime,
            Err(error) => panic!("the runtime of `giveway::main` could not be started: {error}"),
        };
        let lent = Lent::new(&runtime);
        let running = Running { runtime, _lent: lent };
        running.runtime.block_on(async { main().await })
    }
}

/// A running function. The runtime is dropped first: what a plain thread spawns while the runtime
/// is being shut down is refused by it, and does not start another runtime.
struct Running {
    runtime: Runtime,
    _lent: Lent,
}
