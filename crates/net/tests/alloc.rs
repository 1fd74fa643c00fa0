//! The counting allocator counts each thread's own.

#[global_allocator]
static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;

use net::alloc::{Counts, thread};

#[test]
fn allocating_growing_and_freeing_is_counted() {
    let before = thread();
    let mut bytes = Vec::<u8>::with_capacity(100);
    assert_eq!(thread() - before, Counts { allocations: 1, live_bytes: 100 });
    bytes.reserve_exact(1000);
    assert_eq!(thread() - before, Counts { allocations: 2, live_bytes: 1000 });
    drop(bytes);
    assert_eq!(thread() - before, Counts { allocations: 2, live_bytes: 0 });
}

#[test]
fn zeroed_memory_counts_too() {
    let before = thread();
    let bytes = vec![0_u8; 4096];
    assert_eq!(thread() - before, Counts { allocations: 1, live_bytes: 4096 });
    drop(bytes);
}

#[test]
fn another_thread_has_its_own_count() {
    let started = std::sync::Barrier::new(2);
    let done = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            started.wait();
            let before = thread();
            let bytes: Vec<Vec<u8>> = (1..100).map(Vec::with_capacity).collect();
            assert_eq!((thread() - before).allocations, 100);
            done.wait();
            drop(bytes);
        });
        started.wait();
        let before = thread();
        done.wait();
        assert!((thread() - before).allocations < 10);
    });
}
