//! An allocator that tells what is asked of it.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, which calls this with the bytes that are taken, or given back (less than zero). It may not allocate.
pub struct Counting(pub fn(isize));

// SAFETY: every call goes to the system's allocator unchanged; what is called besides allocates nothing. Zeroed and grown
// memory comes through `alloc` too: the trait's own versions of those call it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size() as isize);
        // SAFETY: the caller's promises are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        (self.0)(-(layout.size() as isize));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}
