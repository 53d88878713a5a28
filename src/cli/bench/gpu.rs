//! What a model's tests take of a GPU.

use hadal::Result;
use hadal::engine::Engine;

use super::Test;
use super::report::{GpuRow, Row};

/// A program without GPUs has none to measure.
#[cfg(not(feature = "gpu"))]
pub enum Meter {}

#[cfg(not(feature = "gpu"))]
impl Meter {
    pub fn of(_: &Engine) -> Result<Option<Meter>> {
        Ok(None)
    }

    pub fn measure(&self, _: &mut Engine, _: &Test, _: &Row) -> Result<GpuRow> {
        match *self {}
    }
}

/// The GPU of an engine.
#[cfg(feature = "gpu")]
pub struct Meter {
    device: std::sync::Arc<hadal::backend::gpu::Device>,
    /// Bytes that copies within the device read and write in a second.
    copies: f64,
}

#[cfg(feature = "gpu")]
impl Meter {
    /// `None` on the CPU.
    pub fn of(engine: &Engine) -> Result<Option<Meter>> {
        let Some(device) = engine.gpu() else { return Ok(None) };
        let copies = device.copy_bandwidth()?;
        Ok(Some(Meter { device, copies }))
    }

    /// Runs `test` twice: to count, and to time each kernel. `row` tells how fast it is.
    pub fn measure(&self, engine: &mut Engine, test: &Test, row: &Row) -> Result<GpuRow> {
        let tokens = test.random_tokens(engine);
        test.fill(engine, &tokens)?;
        let before = self.device.counts();
        test.run(engine, &tokens)?;
        let after = self.device.counts();
        test.fill(engine, &tokens)?;
        let (_, kernels) = self.device.profile(|| test.run(engine, &tokens))?;
        let per_token = |after: u64, before: u64| (after - before) as f64 / test.tokens as f64;
        let dispatches = per_token(after.dispatches, before.dispatches);
        let read = per_token(after.work.bytes, before.work.bytes);
        let kernels = kernels.iter().map(|kernel| kernel_row(kernel, test.tokens)).collect();
        Ok(GpuRow {
            dispatches_per_token: dispatches,
            dispatches_per_layer: dispatches / engine.info().layers as f64,
            submissions_per_token: per_token(after.submissions, before.submissions),
            read_bytes_per_token: read,
            readback_bytes_per_token: per_token(after.fetched, before.fetched),
            copy_gbytes_per_second: self.copies / 1e9,
            share_of_bandwidth: read * row.tokens_per_second.median / self.copies,
            kernels,
        })
    }
}

#[cfg(feature = "gpu")]
fn kernel_row(kernel: &hadal::backend::gpu::KernelTime, tokens: usize) -> super::report::KernelRow {
    // A clock may be too coarse for a short kernel.
    let per_second = |work: u64| work as f64 / kernel.time.as_secs_f64().max(1e-9) / 1e9;
    super::report::KernelRow {
        kernel: kernel.kernel.clone(),
        dispatches_per_token: kernel.dispatches as f64 / tokens as f64,
        microseconds_per_token: kernel.time.as_secs_f64() * 1e6 / tokens as f64,
        gbytes_per_second: per_second(kernel.work.bytes),
        gmacs_per_second: per_second(kernel.work.macs),
    }
}
