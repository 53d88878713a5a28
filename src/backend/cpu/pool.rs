//! A thread pool for regions of a few microseconds, of which a decoder runs hundreds a token.
//!
//! A region is a number of parts and one function. Workers and the caller claim parts from one atomic word, so a worker
//! that the system took off its core holds up no part but the one it is in. Whoever waits (a worker for the next region,
//! the caller for the last part) spins for tens of microseconds, then yields a few times, then sleeps: between requests
//! the threads cost nothing, and another program's threads get the cores. Where other programs do take the cores, regions
//! are run alone for a while (`Crowd`).
//!
//! `cargo bench --bench pool` on two Zen 3 cores, which others used too, so the fastest of some hundred samples: a region of
//! 8 parts of 0.6 µs takes 4.9 µs on one thread and 2.9 µs on two. With rayon it takes 5.1 µs on two: by the time its second
//! thread is there, the first has done the parts.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use web_time::Instant;

mod bed;
mod crowd;
mod threads;

use bed::{Bed, lock};
use crowd::Crowd;
use threads::Worker;
#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
pub use threads::lend;

/// Threads that run the parts of one region at a time. Dropping it ends them.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    crowd: Crowd,
    workers: Vec<Worker>,
}

/// What a region does with the number of a thread and of a part.
type Work<'a> = dyn Fn(usize, usize) + Sync + 'a;

#[derive(Debug)]
struct Shared {
    /// Parts of the region in the upper half, the next one to claim in the lower.
    claims: Padded<AtomicU64>,
    /// Parts that are not finished.
    pending: Padded<AtomicUsize>,
    /// Written while no part can be claimed, read after one was.
    work: UnsafeCell<Option<*const Work<'static>>>,
    /// Whether a region runs.
    busy: AtomicBool,
    ending: AtomicBool,
    /// What the first part that panicked had to say.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    workers: Bed,
    caller: Bed,
}

// SAFETY: `work` alone is not `Sync`. The thread that set `busy` writes it before it publishes parts in `claims`
// (release), others read it after they claimed one of them (acquire), and it is not written again before those parts
// are finished. The function behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is never used after `Pool::run` returned.
unsafe impl Send for Shared {}

/// On cache lines of its own: two of 64 bytes, which are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

impl Pool {
    /// A pool of `threads`, the caller of [`Pool::run`] being one of them; one thread where the target has no more.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let single = cfg!(all(target_family = "wasm", not(target_feature = "atomics")));
        let workers = if single { 0 } else { threads.saturating_sub(1) };
        let shared = Arc::new(Shared {
            claims: Padded::default(),
            pending: Padded::default(),
            work: UnsafeCell::new(None),
            busy: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            panic: Mutex::new(None),
            workers: Bed::default(),
            caller: Bed::default(),
        });
        // Threads that were started before one is refused end when this is dropped.
        let mut pool = Pool { shared, crowd: Crowd::new(), workers: Vec::with_capacity(workers) };
        for index in 1..=workers {
            let shared = pool.shared.clone();
            pool.workers.push(threads::start(index, move || shared.work_until_the_end(index))?);
        }
        Ok(pool)
    }

    /// Threads, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work` with every number below `parts`, once each, and returns when all are done. Inside a part, or while
    /// another thread's region runs, everything is done by the caller.
    ///
    /// # Panics
    /// If a part does, with its message.
    pub fn run(&self, parts: usize, work: &(dyn Fn(usize) + Sync)) {
        self.region(parts, &|_, part| work(part));
    }

    /// `work` is also told the number of the thread, below [`Pool::threads`].
    fn region(&self, parts: usize, work: &Work<'_>) {
        if parts <= 1
            || self.workers.is_empty()
            || self.crowd.keeps_away()
            || self.shared.busy.swap(true, Ordering::Acquire)
        {
            (0..parts).for_each(|part| work(0, part));
            return;
        }
        let start = Instant::now();
        self.shared.publish(parts, work);
        let mut own = 0;
        while self.shared.run_part(0) {
            own += 1;
        }
        let claimed = Instant::now();
        self.shared.caller.wait(|| self.shared.pending.0.load(Ordering::SeqCst) == 0);
        self.crowd.judge(own, claimed - start, claimed.elapsed());
        let panic = lock(&self.shared.panic).take();
        self.shared.busy.store(false, Ordering::Release);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// [`Pool::run`], where every thread has a share of `scratch` to itself.
    pub fn run_with<T: Send>(&self, scratch: &mut [T], parts: usize, work: impl Fn(&mut [T], usize) + Sync) {
        let share = scratch.len() / self.threads();
        let start = Start(scratch.as_mut_ptr());
        self.region(parts, &|thread, part| {
            // SAFETY: threads have different numbers, below `threads`, and each runs one part at a time; `scratch` is
            // borrowed until `region` returns.
            work(unsafe { start.slice(thread * share, share) }, part);
        });
    }

    /// Calls `work` with the index of every run of `len` elements (the last may be shorter) and the run, `per_part` runs
    /// a part.
    pub fn chunks_mut<T: Send>(
        &self,
        values: &mut [T],
        len: usize,
        per_part: usize,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.chunks_with(&mut [(); 0], values, len, per_part, |_, index, chunk| work(index, chunk));
    }

    /// [`Pool::chunks_mut`] with scratch as in [`Pool::run_with`].
    pub fn chunks_with<S: Send, T: Send>(
        &self,
        scratch: &mut [S],
        values: &mut [T],
        len: usize,
        per_part: usize,
        work: impl Fn(&mut [S], usize, &mut [T]) + Sync,
    ) {
        let (total, stride) = (values.len(), len * per_part);
        let start = Start(values.as_mut_ptr());
        self.run_with(scratch, total.div_ceil(stride), |scratch, part| {
            let from = part * stride;
            // SAFETY: parts are disjoint ranges of `values`, each number is given out once, and `values` is borrowed
            // until `run_with` returns.
            let run = unsafe { start.slice(from, stride.min(total - from)) };
            for (index, chunk) in run.chunks_mut(len).enumerate() {
                work(scratch, part * per_part + index, chunk);
            }
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        self.shared.workers.wake();
        self.workers.drain(..).for_each(Worker::join);
    }
}

impl Shared {
    fn publish(&self, parts: usize, work: &Work<'_>) {
        let parts = u32::try_from(parts).expect("a region of less than 2^32 parts");
        // SAFETY: only the lifetime changes. `region` returns after the last call of `work`.
        let work = unsafe { std::mem::transmute::<&Work<'_>, *const Work<'static>>(work) };
        // SAFETY: `busy` is ours, and all parts of the last region are claimed and finished.
        unsafe { *self.work.get() = Some(work) };
        self.pending.0.store(parts as usize, Ordering::Relaxed);
        self.claims.0.store(u64::from(parts) << 32, Ordering::SeqCst);
        self.workers.wake();
    }

    fn has_parts(&self) -> bool {
        let claims = self.claims.0.load(Ordering::SeqCst);
        claims & u64::from(u32::MAX) < claims >> 32
    }

    /// Claims a part and runs it; whether there was one.
    fn run_part(&self, thread: usize) -> bool {
        // The look before the step keeps the count from running on while threads poll.
        if !self.has_parts() {
            return false;
        }
        // Whatever region this counts in, it is one that waits for the claimed part.
        let claims = self.claims.0.fetch_add(1, Ordering::AcqRel);
        let (part, parts) = (claims & u64::from(u32::MAX), claims >> 32);
        if part >= parts {
            return false;
        }
        // SAFETY: a claimed part that is not finished keeps `work` from being written and its function alive.
        let work = unsafe { &*(*self.work.get()).expect("written before parts are published") };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(thread, part as usize))) {
            lock(&self.panic).get_or_insert(panic);
        }
        if self.pending.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.caller.wake();
        }
        true
    }

    fn work_until_the_end(&self, thread: usize) {
        let ending = || self.ending.load(Ordering::SeqCst);
        while !ending() {
            while self.run_part(thread) {}
            self.workers.wait(|| self.has_parts() || ending());
        }
    }
}

/// The start of a slice whose parts go to different threads.
struct Start<T>(*mut T);

// SAFETY: it is only a number; `slice` says what makes using it sound.
unsafe impl<T: Send> Sync for Start<T> {}

impl<T> Start<T> {
    /// # Safety
    /// `from..from + len` lies in the slice, which is borrowed for `'a`, and nothing else uses that range meanwhile.
    unsafe fn slice<'a>(&self, from: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(from), len) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn pool(threads: usize) -> Pool {
        Pool::new(threads).expect("threads")
    }

    #[test]
    fn every_part_runs_once() {
        for threads in 1..=4 {
            let pool = pool(threads);
            assert_eq!(pool.threads(), threads);
            for parts in [0, 1, 2, 3, 7, 64, 1000] {
                let counts: Vec<_> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
                pool.run(parts, &|part| {
                    counts[part].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads}, {parts}");
            }
        }
    }

    /// Also after pauses in which the workers fell asleep, or are about to.
    #[test]
    fn many_short_regions_lose_nothing() {
        for threads in 1..=4 {
            let pool = pool(threads);
            let sum = AtomicUsize::new(0);
            for region in 0..20_000usize {
                let parts = region % 9;
                pool.run(parts, &|part| {
                    sum.fetch_add(region * part, Ordering::Relaxed);
                });
                if region % 500 == 0 {
                    std::thread::sleep(Duration::from_micros(region as u64 / 100));
                }
            }
            let expected: usize = (0..20_000).map(|region| region * (0..region % 9).sum::<usize>()).sum();
            assert_eq!(sum.into_inner(), expected, "{threads} threads");
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        for threads in 1..=4 {
            let pool = pool(threads);
            for _ in 0..50 {
                let work = |part| assert!(part != 3, "part three");
                let panic = catch_unwind(AssertUnwindSafe(|| pool.run(8, &work))).expect_err("it panics");
                assert_eq!(panic.downcast_ref::<&str>(), Some(&"part three"));
            }
            let count = AtomicUsize::new(0);
            pool.run(8, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(count.into_inner(), 8);
        }
    }

    #[test]
    fn regions_inside_parts_and_from_several_threads_are_done() {
        let pool = pool(3);
        let count = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        pool.run(4, &|_| {
                            pool.run(5, &|_| {
                                count.fetch_add(1, Ordering::Relaxed);
                            });
                        });
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 3 * 500 * 20);
    }

    #[test]
    fn dropping_ends_idle_and_sleeping_threads() {
        for pause in [0, 20, 2000] {
            for threads in 1..=4 {
                let pool = pool(threads);
                pool.run(4, &|_| {});
                std::thread::sleep(Duration::from_micros(pause));
                let shared = Arc::downgrade(&pool.shared);
                drop(pool);
                assert!(shared.upgrade().is_none(), "a worker still has its share");
            }
        }
        drop(pool(4));
    }

    #[test]
    fn scratch_is_used_by_one_thread_at_a_time() {
        for threads in 1..=4 {
            let mut scratch = vec![0usize; threads * 3 + 1];
            pool(threads).run_with(&mut scratch, 1000, |share, part| {
                assert_eq!(share.len(), (threads * 3 + 1) / threads);
                share[0] += 1;
                share[1] += part;
            });
            let shares = scratch.chunks((threads * 3 + 1) / threads).take(threads);
            let (counts, sums) = shares.fold((0, 0), |(counts, sums), s| (counts + s[0], sums + s[1]));
            assert_eq!((counts, sums), (1000, 999 * 500), "{threads} threads");
        }
    }

    #[test]
    fn chunks_are_disjoint_and_cover_all() {
        for (threads, total, len, per_part) in [(1, 10, 3, 1), (2, 10, 3, 2), (4, 1000, 7, 5), (3, 0, 4, 1)] {
            let mut values = vec![0usize; total];
            pool(threads).chunks_mut(&mut values, len, per_part, |index, chunk| {
                for (offset, value) in chunk.iter_mut().enumerate() {
                    *value += index * len + offset;
                }
            });
            assert_eq!(values, (0..total).collect::<Vec<_>>());
        }
    }
}
