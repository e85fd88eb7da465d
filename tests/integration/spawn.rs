//! Spawning and joining.

use giveway_tests::with_runtimes;

#[test]
fn a_task_hands_its_output_to_its_handle() {
    with_runtimes(|runtime| {
        assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
    });
}
