//! Each line with a mark gives one error with that text, at that line; no other line gives any.

#![deny(warnings)]

mod not_async {
    #[giveway::main]
    pub
    fn main() {} //~ `giveway::main` is for an async function: write `async fn main`

    #[giveway::test]
    pub fn test() {} //~ `giveway::test` is for an async function: write `async fn test`
}

mod not_a_function {
    #[giveway::main]
    #[derive(Clone)]
    pub
    struct Main; //~ `giveway::main` is for an async function

    #[giveway::test]
    mod tests {} //~ `giveway::test` is for an async function

    #[giveway::main]
    impl Clone for super::Other { //~ `giveway::main` is for an async function
        fn clone(&self) -> Self {
            Self
        }
    }

    #[giveway::main]
    const fn_: fn() = || (); //~ `giveway::main` is for an async function
}

#[allow(dead_code)]
struct Other;

mod no_body {
    pub trait Runs {
        #[giveway::main]
        async fn run(); //~ the function has no body
    }
}

mod with_arguments {
    #[giveway::main]
    pub async fn main
    (_count: u32) -> u32 { //~ a function of `giveway::main` takes no arguments
        std::future::ready(_count).await
    }

    #[giveway::test]
    async fn test(_: ()) {} //~ a function of `giveway::test` takes no arguments
}

mod generic {
    #[giveway::main]
    pub async fn main
    <T: Default> //~ a function of `giveway::main` cannot be generic: nobody could say for which type
    () -> T {
        T::default()
    }

    #[giveway::test]
    async fn test<'a>() {} //~ a function of `giveway::test` cannot be generic: nobody could say for which type
}

mod other_qualifiers {
    #[giveway::main]
    pub async
    unsafe //~ a function of `giveway::main` cannot be `unsafe`
    fn main() {}

    #[giveway::main]
    pub async
    extern "C" //~ a function of `giveway::main` cannot be `extern`
    fn foreign() {}
}

mod unknown_options {
    #[giveway::main(
        start_paused = true, //~ `giveway::main` has no option `start_paused`; there are `workers` (or `worker_threads`), `flavor`, `tokio` and `crate`
        worker = 1 //~ `giveway::main` has no option `worker`; there are `workers` (or `worker_threads`), `flavor`, `tokio` and `crate`
    )]
    pub async fn main() {}

    #[giveway::test(threads = 1)] //~ `giveway::test` has no option `threads`; there are `timeout`, `detect_deadlock`, `workers` (or `worker_threads`), `flavor`, `tokio` and `crate`
    async fn test() {}
}

mod bad_values {
    #[giveway::main(workers = 0)] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn zero() {}
    #[giveway::main(workers =
        -1)] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn negative() {}
    #[giveway::main(worker_threads = "2")] //~ `worker_threads` is a whole number from 1, such as `worker_threads = 4`
    pub async fn string() {}
    #[giveway::main(workers = 1.5)] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn fraction() {}
    #[giveway::main(workers = 4u8)] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn byte() {}
    #[giveway::main(workers = 1 + 1)] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn sum() {}
    #[giveway::main(workers = )] //~ `workers` is a whole number from 1, such as `workers = 4`
    pub async fn nothing() {}
    #[giveway::main(flavor = "local")] //~ `flavor` is "multi_thread", which is the default, or "current_thread", which is `workers = 1`
    pub async fn flavor() {}
    #[giveway::main(flavor = current_thread)] //~ `flavor` is "multi_thread", which is the default, or "current_thread", which is `workers = 1`
    pub async fn flavor_without_quotes() {}
    #[giveway::main(crate = "not a path")] //~ `crate` is a path in quotes, such as `crate = "giveway"`
    pub async fn path() {}
    #[giveway::main(crate = "")] //~ `crate` is a path in quotes, such as `crate = "giveway"`
    pub async fn no_path() {}
    #[giveway::main(crate = "a²")] //~ `crate` is a path in quotes, such as `crate = "giveway"`
    pub async fn no_name() {}
    #[giveway::main(crate = "r#crate")] //~ `crate` is a path in quotes, such as `crate = "giveway"`
    pub async fn no_raw_name() {}
    #[giveway::main(crate = giveway)] //~ `crate` is a path in quotes, such as `crate = "giveway"`
    pub async fn path_without_quotes() {}
}

mod bad_values_of_tokio {
    #[giveway::main(tokio = 1)] //~ `tokio` is `true` or `false`; `tokio` alone is `tokio = true`
    pub async fn number() {}
    #[giveway::test(tokio = "true")] //~ `tokio` is `true` or `false`; `tokio` alone is `tokio = true`
    async fn string() {}
    #[giveway::test(tokio = )] //~ `tokio` is `true` or `false`; `tokio` alone is `tokio = true`
    async fn nothing() {}
    #[giveway::main(tokio,
        tokio = false)] //~ `tokio` is given twice
    pub async fn twice() {}
    #[giveway::main(tokio true)] //~ expected `name = value`, such as `workers = 4`
    pub async fn no_equals() {}
}

mod bad_values_of_tests {
    #[giveway::test(timeout = 30)] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn no_unit() {}
    #[giveway::test(timeout = "30")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn no_unit_in_quotes() {}
    #[giveway::test(timeout = "30m")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn minutes_or_months() {}
    #[giveway::test(timeout = "s")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn no_number() {}
    #[giveway::test(timeout = "0s")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn no_time() {}
    #[giveway::test(timeout = "1.5s")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn fraction() {}
    #[giveway::test(timeout = "-1s")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn negative() {}
    #[giveway::test(timeout = "1s 5ms")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn two() {}
    #[giveway::test(timeout = )] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn nothing() {}
    #[giveway::test(timeout = "99999999999999999999s")] //~ `timeout` is a time in quotes, such as `timeout = "30s"`: a whole number from 1 with `ms`, `s` or `min`
    async fn too_long() {}
    #[giveway::test(detect_deadlock = 1)] //~ `detect_deadlock` is `true` or `false`
    async fn number() {}
    #[giveway::test(detect_deadlock)] //~ expected `name = value`, such as `workers = 4`
    async fn name_alone() {}
    #[giveway::test(timeout = "1s",
        timeout = "2s")] //~ `timeout` is given twice
    async fn twice() {}
    #[giveway::main(timeout = "1s")] //~ `giveway::main` has no option `timeout`; there are `workers` (or `worker_threads`), `flavor`, `tokio` and `crate`
    pub async fn of_main() {}
}

mod bad_syntax {
    #[giveway::main(workers)] //~ expected `name = value`, such as `workers = 4`
    pub async fn name_alone() {}
    #[giveway::main(4)] //~ expected `name = value`, such as `workers = 4`
    pub async fn value_alone() {}
    #[giveway::main(workers: 4)] //~ expected `name = value`, such as `workers = 4`
    pub async fn colon() {}
    #[giveway::main(,)] //~ expected `name = value`, such as `workers = 4`
    pub async fn comma() {}
}

mod twice {
    #[giveway::main(workers = 1,
        workers = 2)] //~ the number of workers is given twice: by `workers`, `worker_threads` or `flavor = "current_thread"`
    pub async fn workers() {}
    #[giveway::main(flavor = "current_thread",
        worker_threads = 2)] //~ the number of workers is given twice: by `workers`, `worker_threads` or `flavor = "current_thread"`
    pub async fn flavor_and_workers() {}
    #[giveway::main(crate = "giveway",
        crate = "giveway")] //~ `crate` is given twice
    pub async fn path() {}
}

// What is wrong with the options does not hide the function: this one is called, and has its type.
mod still_there {
    #[giveway::main(wokers = 4)] //~ `giveway::main` has no option `wokers`; there are `workers` (or `worker_threads`), `flavor`, `tokio` and `crate`
    pub async fn run() -> u8 {
        5
    }

    pub fn call() -> u8 {
        run()
    }
}
