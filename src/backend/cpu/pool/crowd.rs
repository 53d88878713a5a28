//! Keeping away from cores that other programs want.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A caller that waits for the last part this long, and longer than four parts take, waits for a worker without a core.
const STALL: Duration = Duration::from_micros(150);
/// How many regions the caller runs alone after a stall: about as long as that took, since on a machine that is busy now
/// and then two threads are still the faster way. Twice as many after each further stall, up to the last number.
const ALONE: [u32; 2] = [32, 512];

/// Whether other programs want the cores. A worker that loses its core inside of a part stalls the caller for as long as
/// the system lets others run, a thousand times what the part would take; then one thread is faster than two.
#[derive(Debug)]
pub struct Crowd {
    /// Regions that the caller is still to run alone.
    alone: AtomicU32,
    /// How many it will be after the next stall. Each region without one takes one off.
    next: AtomicU32,
}

impl Crowd {
    pub fn new() -> Self {
        Crowd { alone: AtomicU32::new(0), next: AtomicU32::new(ALONE[0]) }
    }

    /// Whether the region that begins should be run alone. Callers that race may count one region for two.
    pub fn keeps_away(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        if alone > 0 {
            self.alone.store(alone - 1, Ordering::Relaxed);
        }
        alone > 0
    }

    /// Takes note of a region of which the caller ran `own` parts in the time `working`, and then waited.
    pub fn judge(&self, own: u32, working: Duration, waited: Duration) {
        let next = self.next.load(Ordering::Relaxed);
        if waited > STALL.max(4 * working / own.max(1)) {
            self.alone.store(next, Ordering::Relaxed);
            self.next.store((2 * next).min(ALONE[1]), Ordering::Relaxed);
        } else {
            self.next.store((next - 1).max(ALONE[0]), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_keeps_the_caller_alone_for_longer_each_time() {
        let crowd = Crowd::new();
        let micros = Duration::from_micros;
        crowd.judge(4, micros(20), micros(100)); // Short.
        crowd.judge(4, micros(2000), micros(1900)); // Long, but so are the parts.
        assert!(!crowd.keeps_away());
        for regions in [32, 64, 128, 256, 512, 512] {
            crowd.judge(4, micros(20), micros(3000));
            assert_eq!((0..10_000).filter(|_| crowd.keeps_away()).count(), regions);
        }
        (0..512).for_each(|_| crowd.judge(4, micros(20), micros(1)));
        crowd.judge(0, micros(0), micros(3000));
        assert_eq!((0..10_000).filter(|_| crowd.keeps_away()).count(), 32);
    }
}
