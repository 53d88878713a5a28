//! Where a pool's threads come from. The system starts them; in a browser, where the standard library can start none,
//! workers of the page's lend themselves.

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
pub use lent::{Worker, lend, start};
#[cfg(not(all(target_arch = "wasm32", target_os = "unknown")))]
pub use system::{Worker, start};

#[cfg(not(all(target_arch = "wasm32", target_os = "unknown")))]
mod system {
    use std::io;
    use std::thread::{Builder, JoinHandle};

    /// A thread that was started.
    #[derive(Debug)]
    pub struct Worker(JoinHandle<()>);

    /// Runs `work` on a thread of its own.
    pub fn start(index: usize, work: impl FnOnce() + Send + 'static) -> io::Result<Worker> {
        Builder::new().name(format!("hadal-{index}")).spawn(work).map(Worker)
    }

    impl Worker {
        /// Returns when its work is done.
        pub fn join(self) {
            self.0.join().expect("workers catch the panics of parts");
        }
    }
}

#[cfg(all(target_arch = "wasm32", target_os = "unknown"))]
mod lent {
    use std::collections::VecDeque;
    use std::io;
    use std::sync::{Condvar, Mutex, PoisonError};

    use super::super::bed::lock;

    type Job = Box<dyn FnOnce() + Send>;

    static JOBS: Mutex<VecDeque<Job>> = Mutex::new(VecDeque::new());
    static CALL: Condvar = Condvar::new();

    /// Work that a lent thread takes on when it is free.
    #[derive(Debug)]
    pub struct Worker(());

    /// Has the next free thread do `work`. A pool does with fewer threads than it asked for, too.
    pub fn start(_index: usize, work: impl FnOnce() + Send + 'static) -> io::Result<Worker> {
        lock(&JOBS).push_back(Box::new(work));
        CALL.notify_one();
        Ok(Worker(()))
    }

    impl Worker {
        /// Nothing is waited for: a thread that is told to end touches nothing but what it shares.
        pub fn join(self) {}
    }

    /// Lends the thread that calls this to pools, for ever. It sleeps while no pool needs it.
    pub fn lend() -> ! {
        let mut jobs = lock(&JOBS);
        loop {
            match jobs.pop_front() {
                Some(job) => {
                    drop(jobs);
                    job();
                    jobs = lock(&JOBS);
                }
                None => jobs = CALL.wait(jobs).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}
