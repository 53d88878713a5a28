//! A device's memory: how much its buffers take, and how much they may.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use super::device::Device;
use super::record::{Buffer, Memory};
use crate::error::{Error, Result};

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

/// Buffers of which the driver has not told yet whether there is memory for them: a browser's tells later.
#[derive(Default)]
pub(super) struct Asked(Mutex<Vec<(u64, Answer)>>);

/// What went wrong, if anything did.
type Answer = Pin<Box<dyn Future<Output = Option<wgpu::Error>> + Send>>;

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("answers to come")
    }
}

impl Device {
    /// The memory of `buffer`.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] if there is not enough and the driver says so at once.
    pub(super) fn memory<'a>(&self, buffer: &'a Buffer) -> Result<&'a wgpu::Buffer> {
        if buffer.memory.get().is_none() {
            let memory = self.allocate(buffer.bytes)?;
            // Whoever was faster keeps the place.
            drop(buffer.memory.set(memory));
        }
        let memory = buffer.memory.get().ok_or_else(|| self.error("a buffer without memory"))?;
        Ok(&memory.buffer)
    }

    fn allocate(&self, bytes: u64) -> Result<Memory> {
        let most = self.binding_bytes();
        if bytes > most {
            return Err(self.error(format!("a buffer of {bytes} bytes, one binding holds {most}")));
        }
        let claim = self.ledger.claim(bytes).ok_or_else(|| self.refusal(bytes))?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        let mut answer: Answer = Box::pin(scope.pop());
        match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(_)) => {
                drop(claim);
                return Err(self.refusal(bytes));
            }
            Poll::Ready(None) => {}
            Poll::Pending => {
                self.asked.0.lock().unwrap_or_else(PoisonError::into_inner).push((bytes, answer));
            }
        }
        Ok(Memory { buffer, _claim: claim })
    }

    fn refusal(&self, bytes: u64) -> Error {
        let used = self.memory_used();
        Error::GpuMemory { device: self.name().to_owned(), needed: used + bytes, available: used }
    }

    /// Waits until the driver told of all buffers.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] for the first that there is no memory for.
    pub(super) async fn answers(&self) -> Result<()> {
        let asked = std::mem::take(&mut *self.asked.0.lock().unwrap_or_else(PoisonError::into_inner));
        for (bytes, answer) in asked {
            if answer.await.is_some() {
                return Err(self.refusal(bytes));
            }
        }
        Ok(())
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
