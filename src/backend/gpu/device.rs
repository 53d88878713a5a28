//! A wgpu device: adapters, memory and failures.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::memory::{Asked, Ledger};
use super::pipelines::{CompileStats, Pipelines};
use super::record::Buffer;
use super::run::{Kept, Pace};
use crate::backend::now;
use crate::error::{Error, Result};

/// A device and what was compiled for it.
#[derive(Debug)]
pub struct Device {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    variants: Vec<&'static str>,
    cooperative: &'static [&'static str],
    pub(super) pipelines: Pipelines,
    pub(super) kept: Kept,
    pub(super) ledger: Arc<Ledger>,
    /// Bytes written since the last commands or the last wait.
    written: AtomicU64,
    failure: Arc<Mutex<Failure>>,
    pub(super) asked: Asked,
}

/// What went wrong beside what was asked for.
#[derive(Debug, Default)]
struct Failure {
    /// Why the device was lost, which explains all else.
    lost: Option<String>,
    /// The first error that nobody waited for.
    error: Option<String>,
}

/// Bytes of writes that may wait for the device: wgpu keeps a copy of each until then.
const MOST_WRITTEN: u64 = 64 << 20;
/// Lanes of the narrowest subgroups that sum a row. Four are tested in a browser only, whose software GPU has them.
const LEAST_LANES: u32 = if cfg!(target_family = "wasm") { 4 } else { 8 };
/// The largest binding that shaders can address: they count bytes in 32 bits.
const MOST_BOUND: u64 = u32::MAX as u64 & !255;

/// How much of an adapter is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// No more than every WebGPU device has.
    Floor,
    /// All that it has.
    Adapter,
    /// Also what wgpu calls experimental: cooperative matrices.
    Experimental,
}

impl Reach {
    /// What the environment variable `HADAL_GPU_LIMITS` asks for.
    ///
    /// # Errors
    /// [`Error::Option`] if it says something else.
    pub fn asked() -> Result<Reach> {
        match std::env::var("HADAL_GPU_LIMITS").as_deref() {
            Err(_) | Ok("adapter") => Ok(Reach::Adapter),
            Ok("floor") => Ok(Reach::Floor),
            Ok("experimental") => Ok(Reach::Experimental),
            Ok(name) => {
                let message = format!("{name:?} is not one of floor, adapter, experimental");
                Err(Error::option("HADAL_GPU_LIMITS", message))
            }
        }
    }
}

/// Adapters that wgpu finds, best first: discrete, integrated, virtual, software.
pub fn adapters() -> Vec<wgpu::Adapter> {
    now(async { Ok(find_adapters().await) }).unwrap_or_default()
}

/// As [`adapters`], where nothing may wait.
pub async fn find_adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        // Where a driver tells what is left, the last of it is the desktop's.
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds {
            for_resource_creation: Some(95),
            for_device_loss: None,
        },
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    });
    adapters
}

/// Whether the adapter is more than a program on the CPU.
pub fn is_hardware(adapter: &wgpu::Adapter) -> bool {
    adapter.get_info().device_type != wgpu::DeviceType::Cpu
}

impl Device {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the adapter refuses.
    pub fn open(adapter: &wgpu::Adapter, reach: Reach) -> Result<Device> {
        now(Device::request(adapter, reach))
    }

    /// As [`Device::open`], where nothing may wait.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub async fn request(adapter: &wgpu::Adapter, reach: Reach) -> Result<Device> {
        let limits = if reach == Reach::Floor { wgpu::Limits::default() } else { adapter.limits() };
        Device::request_with(adapter, reach, limits).await
    }

    /// As [`Device::open`] at the floor, with bindings of no more than `bytes`: even small matrices and caches are cut.
    ///
    /// # Errors
    /// As [`Device::open`].
    pub fn open_with_bindings(adapter: &wgpu::Adapter, bytes: u64) -> Result<Device> {
        let limits = wgpu::Limits { max_storage_buffer_binding_size: bytes, ..wgpu::Limits::default() };
        now(Device::request_with(adapter, Reach::Floor, limits))
    }

    async fn request_with(adapter: &wgpu::Adapter, reach: Reach, limits: wgpu::Limits) -> Result<Device> {
        let info = adapter.get_info();
        let beyond =
            wgpu::Features::PIPELINE_CACHE | wgpu::Features::TIMESTAMP_QUERY | wgpu::Features::SUBGROUP;
        let tile = cooperative_tile(adapter).filter(|_| reach == Reach::Experimental);
        if reach == Reach::Experimental && tile.is_none() {
            tracing::warn!("{} offers no cooperative matrices that kernels know: it does without", info.name);
        }
        let wanted = match (reach, tile) {
            (Reach::Floor, _) => wgpu::Features::empty(),
            (_, Some(_)) => beyond | COOPERATIVE,
            (_, None) => beyond,
        };
        let experimental_features = match tile {
            // SAFETY: what wgpu asks to be acknowledged is that experimental features may have bugs that are undefined
            // behaviour. They are used only by who asks for them by name, and pass the self-test first.
            Some(_) => unsafe { wgpu::ExperimentalFeatures::enabled() },
            None => wgpu::ExperimentalFeatures::disabled(),
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("hadal"),
            required_features: adapter.features() & wanted,
            required_limits: limits,
            experimental_features,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) = opened.map_err(|error| Error::gpu(&info.name, error.to_string()))?;
        let failure = Arc::<Mutex<Failure>>::default();
        let slot = Arc::clone(&failure);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).error.get_or_insert(error.to_string());
        }));
        let slot = Arc::clone(&failure);
        device.set_device_lost_callback(move |_, message| {
            slot.lock().unwrap_or_else(PoisonError::into_inner).lost.get_or_insert(message);
        });
        Ok(Device {
            device,
            queue,
            info,
            variants: if reach == Reach::Floor { vec![] } else { variants(adapter) },
            cooperative: match tile {
                None => &[],
                Some(16) => &["COOPERATIVE", "SIXTEEN"],
                Some(_) => &["COOPERATIVE"],
            },
            pipelines: Pipelines::default(),
            kept: Kept::default(),
            ledger: Arc::default(),
            written: AtomicU64::new(0),
            failure,
            asked: Asked::default(),
        })
    }

    /// With kernels for what the device can do and wgpu does not know of.
    #[must_use]
    pub fn with_variants(mut self, variants: &[&'static str]) -> Device {
        let new = variants.iter().copied().filter(|flag| !self.variants.contains(flag));
        let runs = |flag: &&str| *flag != "SUBGROUPS" || self.info.subgroup_min_size >= LEAST_LANES;
        let new: Vec<_> = new.filter(runs).collect();
        self.variants.extend(new);
        self
    }

    /// With buffers of no more than `bytes` together.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Device {
        Device { ledger: Arc::new(Ledger::limited(bytes)), ..self }
    }

    /// With dispatches and submissions of no more than `macs` multiplications as far as they can be cut, however fast it is.
    #[must_use]
    pub fn with_most_macs(self, macs: u64) -> Device {
        Device { kept: Kept::with_pace(Pace::fixed(macs)), ..self }
    }

    /// With compiled kernels kept in a file in `folder`, where the driver has a form for that.
    #[must_use]
    pub fn with_pipelines_in(self, folder: &Path) -> Device {
        Device { pipelines: Pipelines::kept_in(&self.device, &self.info, folder), ..self }
    }

    /// Bytes that buffers may take together, if there is a limit.
    pub fn memory_limit(&self) -> Option<u64> {
        (self.ledger.most < u64::MAX).then_some(self.ledger.most)
    }

    /// Bytes of the live buffers that operations use.
    pub fn memory_used(&self) -> u64 {
        self.ledger.used()
    }

    /// What wgpu allocated, where it tells.
    pub fn allocated(&self) -> Option<u64> {
        self.device.generate_allocator_report().map(|report| report.total_allocated_bytes)
    }

    /// Whether compiled kernels are kept.
    pub fn keeps_pipelines(&self) -> bool {
        self.pipelines.are_kept()
    }

    /// What compiling kernels took so far.
    pub fn compile_stats(&self) -> CompileStats {
        self.pipelines.stats()
    }

    /// Gives the device up. Whatever is asked of it then is an error, as if its driver had been reset.
    pub fn destroy(&self) {
        self.device.destroy();
    }

    /// What it allows.
    pub fn limits(&self) -> wgpu::Limits {
        self.device.limits()
    }

    /// The adapter's name.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Flags of every permutation: what the device has beyond the floor.
    pub fn variants(&self) -> &[&'static str] {
        &self.variants
    }

    /// Flags of a prompt's products by cooperative matrices; none where these were not asked for or are not there.
    pub fn cooperative(&self) -> &'static [&'static str] {
        self.cooperative
    }

    /// Neighbouring invocations that surely are of one subgroup; 1 where there are none.
    pub fn lanes(&self) -> u32 {
        if self.variants.contains(&"SUBGROUPS") { self.info.subgroup_min_size } else { 1 }
    }

    /// The most bytes that one binding may have.
    pub fn binding_bytes(&self) -> u64 {
        let limits = self.device.limits();
        limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MOST_BOUND)
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        Error::gpu(&self.info.name, message)
    }

    /// The failure that was noted, if any.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn check(&self) -> Result<()> {
        let failed = || self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let unexplained = matches!(&*failed(), Failure { lost: None, error: Some(_) });
        if unexplained {
            // That the device was lost is told when somebody listens.
            drop(self.device.poll(wgpu::PollType::Poll));
        }
        let failure = failed();
        match (&failure.lost, &failure.error) {
            (Some(reason), _) => Err(self.error(format!("the device was lost: {reason}"))),
            (None, Some(error)) => Err(self.error(error)),
            (None, None) => Ok(()),
        }
    }

    /// Writes `bytes` (a multiple of 4) to `buffer`, before all commands that run later.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] if there is none for the buffer.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
        self.queue.write_buffer(self.memory(buffer)?, offset, bytes);
        if self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed) > MOST_WRITTEN {
            self.written.store(0, Ordering::Relaxed);
            self.queue.submit([]);
            self.wait()?;
        }
        Ok(())
    }

    /// Waits until all is done and dropped buffers are free.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn wait(&self) -> Result<()> {
        let polled = self.device.poll(wgpu::PollType::wait_indefinitely());
        polled.map_err(|error| self.error(error.to_string()))?;
        self.check()
    }

    /// As [`Device::wait`], where nothing may wait for what was submitted: until it is known which buffers there is memory
    /// for.
    ///
    /// # Errors
    /// As [`Device::wait`]; [`Error::GpuMemory`] for the first buffer that there is none for.
    pub async fn settle(&self) -> Result<()> {
        self.answers().await?;
        self.wait()
    }

    /// Frees the memory of what was dropped, which bind groups and pending work keep.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn release(&self) -> Result<()> {
        self.kept.forget();
        self.wait()
    }

    /// A buffer that holds `bytes` (a multiple of 4).
    ///
    /// # Errors
    /// [`Error::GpuMemory`] if there is no memory for it.
    pub fn upload(&self, bytes: &[u8]) -> Result<Arc<Buffer>> {
        let buffer = Buffer::new(bytes.len() as u64);
        self.write(&buffer, 0, bytes)?;
        Ok(buffer)
    }

    /// Bytes a second that copies within the device read and write together.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn copy_bandwidth(&self) -> Result<f64> {
        const BYTES: u64 = 64 << 20;
        const COPIES: u32 = 4;
        let (source, target) = (Buffer::new(BYTES), Buffer::new(BYTES));
        let copy = |copies: u32| -> Result<std::time::Duration> {
            let start = web_time::Instant::now();
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for _ in 0..copies {
                encoder.copy_buffer_to_buffer(self.memory(&source)?, 0, self.memory(&target)?, 0, BYTES);
            }
            self.queue.submit([encoder.finish()]);
            self.read(&target, 0, 16)?;
            Ok(start.elapsed())
        };
        copy(1)?; // Memory is made when it is first used.
        Ok((2 * BYTES * u64::from(COPIES)) as f64 / copy(COPIES)?.as_secs_f64())
    }
}

/// What products by cooperative matrices need: these, halves, and to know one subgroup from another.
const COOPERATIVE: wgpu::Features = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::SUBGROUP);

/// Rows and columns of the cooperative matrices that an adapter multiplies, of halves with sums in f32; `None` if it has none
/// that kernels know. wgpu would let others be asked for, so its list is what counts.
pub fn cooperative_tile(adapter: &wgpu::Adapter) -> Option<u32> {
    use wgpu::CooperativeScalarType::{F16, F32};
    let listed = adapter.cooperative_matrix_properties();
    let has = |side: &u32| {
        let sizes = [*side; 3];
        let fits = |of: &wgpu::CooperativeMatrixProperties| {
            [of.m_size, of.n_size, of.k_size] == sizes && (of.ab_type, of.cr_type) == (F16, F32)
        };
        listed.iter().any(fits)
    };
    [16, 8].into_iter().find(has).filter(|_| adapter.features().contains(COOPERATIVE))
}

fn variants(adapter: &wgpu::Adapter) -> Vec<&'static str> {
    // Browsers don't say whether they flush small halves; who asks them does (`Device::with_variants`).
    let halves = cfg!(not(target_family = "wasm"))
        && adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::SHADER_F16_IN_F32);
    let subgroups = adapter.features().contains(wgpu::Features::SUBGROUP)
        && adapter.get_info().subgroup_min_size >= LEAST_LANES;
    halves.then_some("HALVES").into_iter().chain(subgroups.then_some("SUBGROUPS")).collect()
}
