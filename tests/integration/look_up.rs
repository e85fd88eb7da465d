//! Names are looked up on threads of their own.

use super::blocking::{limited, occupy_thread};
use giveway::net::{TcpListener, TcpStream, lookup_host};
use giveway_tests::{Gate, isolated, occupy, recv, watch, with_runtimes};
use std::sync::mpsc;

/// Connects by name to a listener of its own. Nothing has to accept: the system makes the
/// connection.
async fn connect_by_name() -> TcpStream {
    let listener = TcpListener::bind("localhost:0").await.unwrap();
    TcpStream::connect(("localhost", listener.local_addr().unwrap().port())).await.unwrap()
}

#[test]
fn blocking_jobs_that_fill_their_pool_delay_no_look_up() {
    let _watch = watch();
    let (runtime, gate) = (limited(2, 2), Gate::new());
    let busy = [(); 2].map(|()| occupy_thread(runtime.handle(), &gate));
    let waiting = runtime.spawn_blocking(|| ());
    let looked_up = runtime
        .spawn(async { lookup_host("localhost:7").await.unwrap().all(|addr| addr.port() == 7) });
    assert!(runtime.block_on(looked_up).unwrap());
    runtime.block_on(runtime.spawn(connect_by_name())).unwrap();
    runtime.block_on(connect_by_name());
    assert!(!waiting.is_finished(), "the pool is full");
    gate.open();
    for job in busy.into_iter().chain([waiting]) {
        runtime.block_on(job).unwrap();
    }
}

/// A look-up needs no worker. Only a task that waits for it does.
#[test]
fn names_are_looked_up_while_every_worker_is_busy() {
    with_runtimes(|runtime| {
        let gate = Gate::new();
        let busy = occupy(runtime.handle(), runtime.handle().workers(), &gate);
        assert!(runtime.block_on(lookup_host("localhost:7")).unwrap().next().is_some());
        gate.open();
        busy.into_iter().for_each(|task| runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_look_up_goes_on_when_its_runtime_was_shut_down() {
    let _watch = watch();
    let (one, other) = (giveway_tests::runtime(1), giveway_tests::runtime(1));
    let (sent, received) = mpsc::channel();
    one.spawn(async move {
        let mut look_up = Box::pin(lookup_host("localhost:7"));
        let answered = futures::poll!(look_up.as_mut()).is_ready();
        sent.send((!answered).then_some(look_up)).unwrap();
    });
    let look_up = recv(&received);
    drop(one);
    if let Some(look_up) = look_up {
        assert!(other.block_on(look_up).unwrap().next().is_some());
    }
}

/// Limits the address space of this process to what it has and half of a thread's stack, or lifts
/// the limit. To be called in a process of its own.
#[cfg(target_os = "linux")]
fn refuse_threads(refuse: bool) {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    // SAFETY: the call takes no pointer, and only returns a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned();
    let most = if refuse { pages * page + (1 << 20) } else { libc::RLIM_INFINITY };
    let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is valid for reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

#[cfg(target_os = "linux")]
#[test]
fn a_look_up_for_which_the_os_refuses_a_thread_says_so() {
    isolated("look_up::a_look_up_for_which_the_os_refuses_a_thread_says_so", || {
        let _watch = watch();
        let runtime = giveway_tests::runtime(1);
        // A thread that is just starting would be refused its memory, and end the process.
        giveway_tests::eventually(super::fork::others_rest);
        refuse_threads(true);
        let refused: Vec<_> =
            (0..20).map(|_| runtime.block_on(lookup_host("localhost:7")).map(drop)).collect();
        refuse_threads(false);
        for refused in refused {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("no thread to look up a name"), "{error}");
        }
        assert!(runtime.block_on(lookup_host("localhost:7")).is_ok(), "as soon as there is one");
    });
}
