//! After construction, receiving, sending and waiting allocate nothing. One test, because the count is the process's.

#![allow(unsafe_code, reason = "counting allocations takes a global allocator")]
#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use net::{BoundSocket, DeadlineTimer, RecvBatch, Reuse, SendBatch};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` took the memory from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn echoing_two_thousand_datagrams_and_waiting_allocates_nothing() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let any = "0.0.0.0:0".parse().unwrap();
        let [left, right] = [any; 2].map(|any| BoundSocket::bind(any, Reuse::Exclusive).unwrap().register().unwrap());
        let [left_ip, right_ip] = [left.local_addr(), right.local_addr()].map(|bound| {
            let mut local = bound;
            local.set_ip([127, 0, 0, 1].into());
            local
        });
        let (mut received, mut replies) = (RecvBatch::new(), SendBatch::new());
        let timer = DeadlineTimer::new().unwrap();

        let mut before = 0;
        for round in 0..110 {
            if round == 10 {
                before = ALLOCATIONS.load(Ordering::Relaxed);
            }
            for _ in 0..20 {
                replies.push(left_ip, right_ip, &[round; 100]);
            }
            left.send_batch(&mut replies);
            let mut count = 0;
            while count < 20 {
                count += right.recv_batch(&mut received).await.unwrap();
                for datagram in received.iter_mut() {
                    replies.push(datagram.local, datagram.remote, datagram.bytes);
                }
            }
            assert_eq!(right.send_batch(&mut replies), 20);
            let mut back = 0;
            while back < 20 {
                back += left.recv_batch(&mut received).await.unwrap();
            }
            timer.set(Instant::now() + Duration::from_micros(50));
            timer.wait().await;
        }
        assert_eq!(ALLOCATIONS.load(Ordering::Relaxed) - before, 0);
    });
}
