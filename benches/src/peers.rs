//! The runtimes under comparison, behind one trait.
//!
//! Each is set up the way its own documentation sets up a multi-threaded server: tokio's multi-thread scheduler, the
//! smol stack as the `smol` crate wires it (one executor, a thread each in `async_io::block_on`), and ours. All live
//! in one process at once; the two that are not being measured are idle.

use std::future::Future;
use std::sync::OnceLock;

/// A runtime. All functions are static: a process has one of each peer.
pub trait Peer: Sized + 'static {
    /// What the table calls it.
    const NAME: &'static str;

    /// The handle of a spawned task. Awaiting it gives the output, or panics if the task did.
    type Handle<T: Send + 'static>: Future<Output = T> + Send + 'static;

    /// Starts the runtime with this many workers. Called once, first.
    fn start(workers: usize);

    /// Runs a future on the calling thread, which is no worker.
    fn block_on<F: Future>(future: F) -> F::Output;

    /// Spawns a task, from inside or outside.
    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;

    /// Spawns a task that nobody waits for.
    fn spawn_detached<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Most handles detach on drop.
        drop(Self::spawn(future));
    }

    /// Yields once.
    fn yield_now() -> impl Future<Output = ()> + Send;

    /// What a background loop of this runtime should call between two chunks: the politest yield point it has.
    fn polite_yield() -> impl Future<Output = ()> + Send {
        Self::yield_now()
    }

    /// Spawns a task of the background, if the runtime knows such a thing.
    fn spawn_background<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Self::spawn(future)
    }
}

/// This project.
#[derive(Debug)]
pub struct Giveway;

static GIVEWAY: OnceLock<giveway::Runtime> = OnceLock::new();

impl Peer for Giveway {
    const NAME: &'static str = "giveway";
    type Handle<T: Send + 'static> = Unwrapped<giveway::task::JoinHandle<T>>;

    fn start(workers: usize) {
        let runtime = giveway::Builder::new().workers(workers).build().expect("giveway starts");
        GIVEWAY.set(runtime).expect("started once");
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        GIVEWAY.get().expect("started").block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Unwrapped(giveway::spawn(future))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        giveway::yield_now()
    }

    fn polite_yield() -> impl Future<Output = ()> + Send {
        giveway::yield_now_if_busy()
    }
}

/// This project again: background tasks without yield points, which await a resource that spends the budget.
#[derive(Debug)]
pub struct GivewayBackground;

impl Peer for GivewayBackground {
    const NAME: &'static str = "giveway, spawn_background";
    type Handle<T: Send + 'static> = Unwrapped<giveway::task::JoinHandle<T>>;

    fn start(_workers: usize) {
        // It shares the other's runtime.
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        Giveway::block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Giveway::spawn(future)
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        giveway::yield_now()
    }

    fn polite_yield() -> impl Future<Output = ()> + Send {
        // No yield point: an operation on a resource that is always ready.
        giveway::budget::cooperative(std::future::ready(()))
    }

    fn spawn_background<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Unwrapped(giveway::spawn_background(future))
    }
}

/// tokio's multi-thread runtime.
#[derive(Debug)]
pub struct Tokio;

static TOKIO: OnceLock<tokio::runtime::Runtime> = OnceLock::new();

impl Peer for Tokio {
    const NAME: &'static str = "tokio";
    type Handle<T: Send + 'static> = Unwrapped<tokio::task::JoinHandle<T>>;

    fn start(workers: usize) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_time()
            .build()
            .expect("tokio starts");
        TOKIO.set(runtime).expect("started once");
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        TOKIO.get().expect("started").block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Unwrapped(tokio::spawn(future))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// The smol stack: async-executor on async-io.
#[derive(Debug)]
pub struct Smol;

static SMOL: async_executor::Executor<'static> = async_executor::Executor::new();

impl Peer for Smol {
    const NAME: &'static str = "smol";
    type Handle<T: Send + 'static> = async_executor::Task<T>;

    fn start(workers: usize) {
        for _ in 0..workers {
            std::thread::spawn(|| async_io::block_on(SMOL.run(std::future::pending::<()>())));
        }
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        async_io::block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        SMOL.spawn(future)
    }

    fn spawn_detached<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        SMOL.spawn(future).detach();
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        // The yield that smol re-exports does just this.
        giveway::yield_now()
    }
}

/// A join handle whose error, a panic, is passed on.
#[derive(Debug)]
pub struct Unwrapped<H>(H);

impl<T, E: std::fmt::Debug, H: Future<Output = Result<T, E>> + Unpin> Future for Unwrapped<H> {
    type Output = T;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<T> {
        std::pin::Pin::new(&mut self.0).poll(cx).map(|result| result.expect("no benchmark task panics"))
    }
}
