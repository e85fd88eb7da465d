//! The runtimes under comparison, behind one trait.
//!
//! Each is set up the way its own documentation sets up a multi-threaded server: tokio with its
//! multi-thread scheduler; the smol stack as the `smol` crate wires it (one executor, and threads
//! that are in `async_io::block_on`); Giveway with its defaults. Most programs start all of them in
//! one process; those that are not measured are idle.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

/// A runtime. All functions are static: a process has at most one of each peer.
pub trait Peer: Sized + 'static {
    /// The name in the table.
    const NAME: &'static str;

    /// The handle of a spawned task. Awaiting it gives the output, or panics if the task panicked.
    type Handle<T: Send + 'static>: Future<Output = T> + Send + 'static;

    /// Starts the runtime with `workers` workers. Called once, before all else.
    fn start(workers: usize);

    /// Runs a future on the calling thread, which is no worker.
    fn block_on<F: Future>(future: F) -> F::Output;

    /// Spawns a task, from inside or outside of the runtime.
    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;

    /// Spawns a task that no other task waits for.
    fn spawn_detached<F>(future: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Most handles detach their task when they are dropped.
        drop(Self::spawn(future));
    }

    /// Yields once.
    fn yield_now() -> impl Future<Output = ()> + Send;

    /// Awaits the politest yield point of this runtime: what a background loop should call between
    /// two chunks.
    fn polite_yield() -> impl Future<Output = ()> + Send {
        Self::yield_now()
    }

    /// Runs a function that blocks, inside of a task, in the runtime's way of doing that; if it has
    /// none, just calls the function.
    #[track_caller]
    fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
        f()
    }

    /// A TCP listener of this runtime.
    type Listener: Send + 'static;
    /// A TCP stream of this runtime.
    type Stream: Send + 'static;

    /// Waits for `duration`.
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;

    /// Waits for `ticks` ticks of an interval.
    fn ticks(period: Duration, ticks: usize) -> impl Future<Output = ()> + Send;

    /// Listens on a free port of loopback.
    fn listen() -> impl Future<Output = io::Result<(Self::Listener, SocketAddr)>> + Send;

    /// Accepts a connection.
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Connects.
    fn connect(address: SocketAddr) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Reads what is there; returns zero at the end.
    fn read(
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;

    /// Writes all bytes.
    fn write_all(
        stream: &mut Self::Stream,
        bytes: &[u8],
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// Spawns a background task, if the runtime has such a class; otherwise a plain task.
    #[track_caller]
    fn spawn_background<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Self::spawn(future)
    }
}

/// The sockets and timers of a peer that has tokio's names for them, and names of tokio's traits in
/// `$traits`.
macro_rules! sockets_by_tokios_names {
    ($peer:ident, $traits:path) => {
        type Listener = $peer::net::TcpListener;
        type Stream = $peer::net::TcpStream;

        fn sleep(duration: Duration) -> impl Future<Output = ()> + Send {
            $peer::time::sleep(duration)
        }

        async fn ticks(period: Duration, ticks: usize) {
            let mut interval = $peer::time::interval(period);
            for _ in 0..ticks {
                interval.tick().await;
            }
        }

        async fn listen() -> io::Result<(Self::Listener, SocketAddr)> {
            let listener = $peer::net::TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        }

        async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }

        async fn connect(address: SocketAddr) -> io::Result<Self::Stream> {
            let stream = $peer::net::TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        }

        async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
            use $traits as traits;
            traits::AsyncReadExt::read(stream, buffer).await
        }

        async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
            use $traits as traits;
            traits::AsyncWriteExt::write_all(stream, bytes).await
        }
    };
}

/// Giveway. Its background work is plain tasks with yield points.
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

    #[track_caller]
    fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
        giveway::block_in_place(f)
    }

    sockets_by_tokios_names!(giveway, futures);
}

/// Giveway with background tasks that have no yield points. They await a resource that spends the
/// budget or, with `PREEMPTIBLE`, run on lowered threads.
#[derive(Debug)]
pub struct GivewayWithout<const PREEMPTIBLE: bool>;

/// Background tasks from `spawn_background`.
pub type GivewayBackground = GivewayWithout<false>;
/// Preemptible tasks: the kernel preempts them.
pub type GivewayPreemptible = GivewayWithout<true>;

impl<const PREEMPTIBLE: bool> Peer for GivewayWithout<PREEMPTIBLE> {
    const NAME: &'static str =
        if PREEMPTIBLE { "giveway, preemptible" } else { "giveway, spawn_background" };
    type Handle<T: Send + 'static> = Unwrapped<giveway::task::JoinHandle<T>>;

    fn start(_workers: usize) {
        // It shares the runtime of `Giveway`.
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
        // No yield point, but an operation on a resource that is always ready.
        giveway::budget::cooperative(std::future::ready(()))
    }

    #[track_caller]
    fn spawn_background<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Unwrapped(if PREEMPTIBLE {
            giveway::task::Builder::new().preemptible(true).spawn(future)
        } else {
            giveway::spawn_background(future)
        })
    }

    sockets_by_tokios_names!(giveway, futures);
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
            .enable_all()
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

    #[track_caller]
    fn block_in_place<R>(f: impl FnOnce() -> R) -> R {
        tokio::task::block_in_place(f)
    }

    sockets_by_tokios_names!(tokio, tokio::io);
}

/// Two tokio runtimes. The second is for background tasks: the kernel prefers all other threads to
/// its threads. These are under `SCHED_IDLE` with `IDLE`, and at nice 19 without.
#[derive(Debug)]
pub struct TwoTokios<const IDLE: bool>;

static LOWERED: [OnceLock<tokio::runtime::Runtime>; 2] = [const { OnceLock::new() }; 2];

impl<const IDLE: bool> Peer for TwoTokios<IDLE> {
    const NAME: &'static str = if IDLE { "two tokios, SCHED_IDLE" } else { "two tokios, nice 19" };
    type Handle<T: Send + 'static> = Unwrapped<tokio::task::JoinHandle<T>>;

    /// Starts the second runtime. The first is that of [`Tokio`], which has to be started too.
    fn start(workers: usize) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .on_thread_start(if IDLE { lower_to_idle } else { lower_to_nice_19 })
            .build()
            .expect("tokio starts");
        LOWERED[usize::from(IDLE)].set(runtime).expect("started once");
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        Tokio::block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Tokio::spawn(future)
    }

    fn spawn_background<F>(future: F) -> Self::Handle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        Unwrapped(LOWERED[usize::from(IDLE)].get().expect("started").spawn(future))
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    sockets_by_tokios_names!(tokio, tokio::io);
}

fn lower_to_nice_19() {
    // SAFETY: the call takes no pointer. It changes a setting of the calling thread, which 0 names.
    let failed = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    assert_eq!(failed, 0, "lowering a priority is always allowed");
}

fn lower_to_idle() {
    // SAFETY: an all-zero `sched_param` is a valid value of a plain C struct.
    let param: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: `param` is a readable `sched_param`, and zero is the calling thread.
    let failed = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) };
    assert_eq!(failed, 0, "lowering a priority is always allowed");
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
        // The yield that smol re-exports does the same.
        giveway::yield_now()
    }

    type Listener = async_io::Async<std::net::TcpListener>;
    type Stream = async_io::Async<std::net::TcpStream>;

    async fn sleep(duration: Duration) {
        async_io::Timer::after(duration).await;
    }

    async fn ticks(period: Duration, ticks: usize) {
        let mut interval = async_io::Timer::interval(period);
        for _ in 0..ticks {
            futures::StreamExt::next(&mut interval).await;
        }
    }

    async fn listen() -> io::Result<(Self::Listener, SocketAddr)> {
        let listener = async_io::Async::<std::net::TcpListener>::bind(([127, 0, 0, 1], 0))?;
        let address = listener.get_ref().local_addr()?;
        Ok((listener, address))
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        let (stream, _) = listener.accept().await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(stream)
    }

    async fn connect(address: SocketAddr) -> io::Result<Self::Stream> {
        let stream = async_io::Async::<std::net::TcpStream>::connect(address).await?;
        stream.get_ref().set_nodelay(true)?;
        Ok(stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        futures::AsyncReadExt::read(stream, buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        futures::AsyncWriteExt::write_all(stream, bytes).await
    }
}

/// A join handle that panics if its task did.
#[derive(Debug)]
pub struct Unwrapped<H>(H);

impl<T, E: std::fmt::Debug, H: Future<Output = Result<T, E>> + Unpin> Future for Unwrapped<H> {
    type Output = T;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<T> {
        std::pin::Pin::new(&mut self.0)
            .poll(cx)
            .map(|result| result.expect("no benchmark task panics"))
    }
}
