//! A device's memory: how much its buffers take, and how much they may.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of live buffers.
#[derive(Debug)]
pub(super) struct Ledger {
    used: AtomicU64,
    /// No more than this; by default as much as the driver gives.
    pub most: u64,
}

impl Default for Ledger {
    fn default() -> Self {
        Ledger { used: AtomicU64::new(0), most: u64::MAX }
    }
}

impl Ledger {
    /// With a limit.
    pub fn limited(most: u64) -> Self {
        Ledger { most, ..Ledger::default() }
    }

    /// Bytes of live buffers.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the claim is dropped; `None` if that is more than there may be.
    pub fn claim(self: &Arc<Self>, bytes: u64) -> Option<Claim> {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Claim { bytes, ledger: Arc::clone(self) })
    }
}

/// Bytes of a buffer that lives.
#[derive(Debug)]
pub(super) struct Claim {
    bytes: u64,
    ledger: Arc<Ledger>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ledger.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_end_at_the_limit_and_are_given_back() {
        let ledger = Arc::new(Ledger::limited(100));
        let first = ledger.claim(60);
        assert!(first.is_some() && ledger.claim(41).is_none() && ledger.claim(u64::MAX).is_none());
        let second = ledger.claim(40);
        assert_eq!(ledger.used(), 100);
        drop((first, second));
        assert_eq!(ledger.used(), 0);
    }
}
