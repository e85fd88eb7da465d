//! The attributes of the Giveway runtime. Use them as `giveway::main` and `giveway::test`.
//!
//! An async function becomes a plain one that has the async one inside, as it was written, and runs it:
//!
//! ```
//! # mod written {
//! #[giveway::main]
//! async fn main() -> std::io::Result<()> {
//!     giveway::fs::read("/dev/null").await?;
//!     Ok(())
//! }
//! # }
//! # mod made {
//! // is
//! fn main() -> std::io::Result<()> {
//!     async fn main() -> std::io::Result<()> {
//!         giveway::fs::read("/dev/null").await?;
//!         Ok(())
//!     }
//!     ::giveway::block_on(main())
//! }
//! # pub fn run() { main().unwrap(); }
//! # }
//! # made::run();
//! ```
//!
//! So the compiler checks the function as if the attribute were not there, and what is wrong with it is reported where it
//! is. The function inside sees none of the local variables around it, and if it is one of an `impl`, neither
//! `Self` nor the generics of that.

#![deny(unsafe_code)]

mod error;
mod expand;
mod function;
mod options;

use expand::Kind;
use proc_macro::TokenStream;

/// Makes an async function a plain one that runs it on a runtime; above all `main`.
///
/// Without options it is `giveway::block_on`: the runtime is the default one, with as many workers as the process may use
/// CPUs, or as `GIVEWAY_WORKERS` says. The future itself runs on the calling thread, what it spawns on the workers; so a
/// server accepts faster in a task.
///
/// The value comes through, whatever its type: `Result`, `ExitCode`, `!`.
///
/// # Options
///
/// - `workers = 4`: a runtime of its own with so many workers, whatever `GIVEWAY_WORKERS` says. `worker_threads`, tokio's
///   name, is the same.
/// - `flavor = "current_thread"`: the same as `workers = 1`. Unlike tokio's, tasks run on the one worker's thread and not on
///   the calling one, and have to be `Send`; for others there is `giveway::spawn_pinned`. `flavor = "multi_thread"` changes
///   nothing.
/// - `crate = "path"`: where `giveway` is found, if it has another name: `crate = "my_prelude::giveway"`.
///
/// # What is not guaranteed
///
/// Tasks are not waited for. The default runtime is never shut down: what runs when the function returns goes on, or ends
/// with the process, and is not dropped. A runtime of its own (`workers`) is shut down when the function returns or panics:
/// its tasks are dropped at their next await point, and its threads joined.
///
/// # Panics
///
/// If the future does, and if the runtime cannot be started.
///
/// # Errors
///
/// It does not compile on anything but an async function without arguments and generics.
///
/// # Examples
///
/// ```
/// #[giveway::main]
/// async fn main() -> Result<(), giveway::task::JoinError> {
///     let answer = giveway::spawn(async { 6 * 7 });
///     assert_eq!(answer.await?, 42);
///     Ok(())
/// }
/// ```
///
/// ```
/// #[giveway::main(workers = 3)]
/// async fn main() {
///     assert_eq!(giveway::Handle::current().workers(), 3);
/// }
/// ```
///
/// ```compile_fail
/// #[giveway::main]
/// fn main() {} // not async
/// ```
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Main, options, item)
}

/// Makes an async function a test, with a runtime of its own.
///
/// The runtime has two workers: so what is spawned really runs at once, on any machine. It is shut down when the function
/// returns or panics. What the test has left behind is dropped then, and a task or a blocking job that never ends shows: the
/// test hangs.
///
/// Other attributes stay: `#[should_panic]`, `#[ignore]`, documentation. It adds `#[test]`, unless that follows it. A test
/// that returns a `Result` fails with its error.
///
/// # Options
///
/// Those of `giveway::main`. `workers` is 2 without them, whatever `GIVEWAY_WORKERS` says.
///
/// # What is not guaranteed
///
/// A panic in a task fails the test only if its `JoinHandle` is awaited, and the error unwrapped.
///
/// # Panics
///
/// If the future does, and if the runtime cannot be started.
///
/// # Errors
///
/// It does not compile on anything but an async function without arguments and generics.
///
/// # Examples
///
/// ```
/// #[giveway::test]
/// async fn an_answer_comes() {
///     assert_eq!(giveway::spawn(async { 6 * 7 }).await.unwrap(), 42);
/// }
///
/// #[giveway::test(workers = 8)]
/// #[should_panic(expected = "no bread")]
/// async fn without_bread_there_is_no_toast() {
///     giveway::spawn(async { panic!("no bread") }).await.unwrap()
/// }
/// ```
#[proc_macro_attribute]
pub fn test(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::expand(Kind::Test, options, item)
}
