//! An allocator that counts: proof that the media path allocates nothing.
//!
//! [`Counting`] passes everything on to the system's allocator and keeps two plain integers per thread, so what it adds to an
//! allocation is a few instructions. A binary that wants the counts installs it:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: net::alloc::Counting = net::alloc::Counting;
//!
//! let before = net::alloc::thread();
//! let bytes = Vec::<u8>::with_capacity(1000);
//! let since = net::alloc::thread() - before;
//! assert_eq!((since.allocations, since.live_bytes), (1, 1000));
//! drop(bytes);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::Sub;

/// What a thread has allocated since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Allocations, and growths or shrinkages of one. Zero for ever where [`Counting`] is not installed.
    pub allocations: u64,
    /// Bytes allocated on this thread less the bytes freed on it; negative where others' memory is freed.
    pub live_bytes: i64,
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            allocations: self.allocations.wrapping_sub(earlier.allocations),
            live_bytes: self.live_bytes.wrapping_sub(earlier.live_bytes),
        }
    }
}

thread_local! {
    // Constant and without a destructor: reaching it allocates nothing and works at any point of a thread's life.
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { allocations: 0, live_bytes: 0 }) };
}

/// The counts of the calling thread.
#[must_use]
pub fn thread() -> Counts {
    COUNTS.get()
}

fn count(allocations: u64, bytes: i64) {
    let counts = COUNTS.get();
    COUNTS.set(Counts {
        allocations: counts.allocations.wrapping_add(allocations),
        live_bytes: counts.live_bytes.wrapping_add(bytes),
    });
}

/// No layout is larger than `isize::MAX`.
#[expect(clippy::cast_possible_wrap, reason = "bounded by Layout's own invariant")]
fn signed(size: usize) -> i64 {
    size as i64
}

/// The system's allocator, counted by thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counting;

// SAFETY: every call goes to `System` with the caller's own arguments, so its contract is the caller's; the counters
// neither allocate nor unwind.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(0, -signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(1, signed(new_size) - signed(layout.size()));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}
