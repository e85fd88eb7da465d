//! What the system tells of a process: how much CPU time it has used, and whether it wants more.

use crate::CHILDREN;
use std::fs;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The error number for too many open files, on every Unix.
const EMFILE: i32 = 24;

/// The unit in which Linux tells CPU times, on every architecture that Rust supports.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Returns the threads of this process, one a line: number, state, name, and where in the kernel it
/// waits.
pub fn threads() -> String {
    Process::current().threads()
}

/// A process, named by its directory in `/proc`.
#[derive(Debug)]
pub(crate) struct Process {
    directory: String,
    #[cfg(test)]
    pretended: Option<(Duration, bool)>,
}

impl Process {
    pub(crate) fn current() -> Self {
        Self::at("/proc/self".into())
    }

    pub(crate) fn other(pid: u32) -> Self {
        Self::at(format!("/proc/{pid}"))
    }

    fn at(directory: String) -> Self {
        Self {
            directory,
            #[cfg(test)]
            pretended: None,
        }
    }

    /// Returns the CPU time that all its threads have used, including those that have ended; `None`
    /// if the system does not tell.
    pub(crate) fn cpu_time(&self) -> Option<Duration> {
        #[cfg(test)]
        if let Some((used, _)) = self.pretended {
            return Some(used);
        }
        let stat = fs::read_to_string(format!("{}/stat", self.directory)).ok()?;
        // User and system time are the 14th and 15th field. The second is the name, in brackets,
        // which may contain anything, so the fields are counted from the closing bracket.
        let mut fields = stat.rsplit_once(") ")?.1.split_ascii_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u32>().ok();
        Some(CLOCK_TICK * (ticks()? + ticks()?))
    }

    /// Returns whether the process waits for a child, or one of its threads has a CPU, waits for
    /// one, or waits for a page. The calling thread does not count.
    pub(crate) fn waits_for_child_or_cpu(&self) -> bool {
        #[cfg(test)]
        if let Some((_, wants_cpu)) = self.pretended {
            return wants_cpu;
        }
        let is_current = self.directory == "/proc/self";
        let own = fs::read_link("/proc/thread-self").ok();
        let own = own.as_deref().and_then(|path| path.file_name()).filter(|_| is_current);
        let threads = match fs::read_dir(format!("{}/task", self.directory)) {
            // This process may open no file, so it cannot tell whether it hangs. Its parent can.
            Err(error) if error.raw_os_error() == Some(EMFILE) => return true,
            threads => threads.into_iter().flatten().flatten(),
        };
        let wants_cpu = |stat: String| {
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['R', 'D']))
        };
        is_current && CHILDREN.load(SeqCst) > 0
            || threads
                .filter(|thread| Some(&*thread.file_name()) != own)
                .any(|thread| fs::read_to_string(thread.path().join("stat")).is_ok_and(wants_cpu))
    }

    fn threads(&self) -> String {
        let threads =
            fs::read_dir(format!("{}/task", self.directory)).into_iter().flatten().flatten();
        let describe = |thread: fs::DirEntry| {
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            let (name, stat, waits_in) = (read("comm"), read("stat"), read("wchan"));
            let state =
                stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
            format!(
                "  {:>8} {state} {:<16} {waits_in}\n",
                thread.file_name().display(),
                name.trim_end()
            )
        };
        threads.map(describe).collect()
    }
}

#[cfg(test)]
impl Process {
    pub(crate) fn pretended() -> Self {
        Self { directory: String::new(), pretended: Some((Duration::ZERO, false)) }
    }

    pub(crate) fn pretend(&mut self, used: Duration, wants_cpu: bool) {
        self.pretended = Some((used, wants_cpu));
    }
}
