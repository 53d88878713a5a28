//! Waiting: first awake, then asleep.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use web_time::Instant;

/// How long a waiting thread spins. Longer than the caller takes between two regions of a token.
const SPIN: Duration = Duration::from_micros(40);
/// How often it then offers its core to others before it sleeps.
const YIELDS: usize = 4;

/// Where threads wait and, when that takes long, sleep.
#[derive(Debug, Default)]
pub struct Bed {
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    alarm: Condvar,
}

impl Bed {
    /// Returns when `ready`. Whoever makes it so calls [`Bed::wake`] afterwards.
    pub fn wait(&self, ready: impl Fn() -> bool) {
        if spin(&ready) {
            return;
        }
        let mut guard = lock(&self.lock);
        // Announced before the last look: either that look sees the change, or `wake` sees the sleeper.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !ready() {
            guard = self.alarm.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            // A sleeper that has looked but does not sleep yet holds the lock.
            drop(lock(&self.lock));
            self.alarm.notify_all();
        }
    }
}

/// Spins, then yields; whether it became `ready` meanwhile.
fn spin(ready: &impl Fn() -> bool) -> bool {
    /// Looks between two looks at the clock.
    const LOOKS: usize = 32;
    if ready() {
        return true;
    }
    let start = Instant::now();
    while start.elapsed() < SPIN {
        for _ in 0..LOOKS {
            if ready() {
                return true;
            }
            std::hint::spin_loop();
        }
    }
    for _ in 0..YIELDS {
        std::thread::yield_now();
        if ready() {
            return true;
        }
    }
    false
}

/// No code that can panic runs under these locks.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
