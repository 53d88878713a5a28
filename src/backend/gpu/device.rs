//! A wgpu device: adapters, pipelines, and running recorded commands.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::memory::Ledger;
use super::pipelines::{CompileStats, Pipeline, Pipelines};
use super::record::{Buffer, Command, Memory};
use crate::error::{Error, Result};

/// Bytes between the parameters of two commands: what every device allows as a uniform's offset.
const PARAMS_STRIDE: u64 = 256;

/// A device and what was compiled for it.
#[derive(Debug)]
pub struct Device {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    pipelines: Pipelines,
    groups: Mutex<BindGroups>,
    ledger: Arc<Ledger>,
    /// Bytes written since the last commands or the last wait.
    written: AtomicU64,
    failure: Arc<Mutex<Failure>>,
}

/// What went wrong beside what was asked for.
#[derive(Debug, Default)]
struct Failure {
    /// Why the device was lost, which explains all else.
    lost: Option<String>,
    /// The first error that nobody waited for.
    error: Option<String>,
}

/// Bind groups live from token to token; what was not used for a while is dropped.
#[derive(Debug, Default)]
struct BindGroups {
    /// By pipeline and buffers: the group and the run that last used it.
    made: HashMap<(u64, u64, Vec<u64>), (wgpu::BindGroup, u64)>,
    run: u64,
    params: Option<wgpu::Buffer>,
}

/// Runs after which an unused bind group is dropped.
const GROUP_LIFE: u64 = 64;

/// Bytes of writes that may wait for the device: wgpu keeps a copy of each until then.
const MOST_WRITTEN: u64 = 64 << 20;
/// The largest binding that shaders can address: they count bytes in 32 bits.
const MOST_BOUND: u64 = u32::MAX as u64 & !255;

/// Whether the environment variable `HADAL_GPU_LIMITS` asks for no more than every WebGPU device has.
///
/// # Errors
/// [`Error::Option`] if it says something else.
pub fn floor_asked() -> Result<bool> {
    match std::env::var("HADAL_GPU_LIMITS") {
        Err(_) => Ok(false),
        Ok(name) if name == "floor" => Ok(true),
        Ok(name) if name == "adapter" => Ok(false),
        Ok(name) => Err(Error::option("HADAL_GPU_LIMITS", format!("{name:?} is not one of floor, adapter"))),
    }
}

/// Adapters that wgpu finds, best first: discrete, integrated, virtual, software.
pub fn adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        // Where a driver tells what is left, the last of it is the desktop's.
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds {
            for_resource_creation: Some(95),
            for_device_loss: None,
        },
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
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
    /// Opens an adapter; `floor`: with no more than every WebGPU device has.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the adapter refuses.
    pub fn open(adapter: &wgpu::Adapter, floor: bool) -> Result<Device> {
        let info = adapter.get_info();
        let limits = if floor { wgpu::Limits::default() } else { adapter.limits() };
        let wanted = if floor { wgpu::Features::empty() } else { wgpu::Features::PIPELINE_CACHE };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("hadal"),
            required_features: adapter.features() & wanted,
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = pollster::block_on(adapter.request_device(&descriptor));
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
            pipelines: Pipelines::default(),
            groups: Mutex::default(),
            ledger: Arc::default(),
            written: AtomicU64::new(0),
            failure,
        })
    }

    /// With buffers of no more than `bytes` together.
    #[must_use]
    pub fn with_memory(self, bytes: u64) -> Device {
        Device { ledger: Arc::new(Ledger::limited(bytes)), ..self }
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

    /// The most bytes that one binding may have.
    pub fn binding_bytes(&self) -> u64 {
        let limits = self.device.limits();
        limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(MOST_BOUND)
    }

    fn error(&self, message: impl Into<String>) -> Error {
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

    /// The memory of `buffer`.
    ///
    /// # Errors
    /// [`Error::GpuMemory`] if there is not enough.
    fn memory<'a>(&self, buffer: &'a Buffer) -> Result<&'a wgpu::Buffer> {
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
        let refused = || {
            let used = self.memory_used();
            Error::GpuMemory { device: self.info.name.clone(), needed: used + bytes, available: used }
        };
        let claim = self.ledger.claim(bytes).ok_or_else(refused)?;
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        match pollster::block_on(scope.pop()) {
            None => Ok(Memory { buffer, _claim: claim }),
            Some(_) => {
                drop(claim);
                Err(refused())
            }
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

    /// Frees the memory of what was dropped, which bind groups and pending work keep.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn release(&self) -> Result<()> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).made.clear();
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

    /// Runs `commands` in order.
    ///
    /// # Errors
    /// [`Error::Shader`] if one can't be compiled, [`Error::GpuMemory`] if there is none for its buffers, [`Error::Gpu`]
    /// if the device fails.
    pub fn run(&self, commands: &[Command]) -> Result<()> {
        let compiled =
            |command: &Command| self.pipelines.get(&self.device, command.kernel, &command.permutation);
        let pipelines: Vec<_> = commands.iter().map(compiled).collect::<Result<_>>()?;
        self.check()?;
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let params = self.write_params(&mut groups, commands);
        groups.run += 1;
        let run = groups.run;
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for (index, (command, pipeline)) in commands.iter().zip(&pipelines).enumerate() {
            let ids: Vec<u64> = command.bindings.iter().map(|(_, buffer)| buffer.id).collect();
            let key = (pipeline.id, params.size(), ids);
            let (group, used) = match groups.made.entry(key) {
                Entry::Occupied(made) => made.into_mut(),
                Entry::Vacant(place) => place.insert((self.bind_group(pipeline, &params, command)?, run)),
            };
            *used = run;
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &*group, &[(index as u64 * PARAMS_STRIDE) as u32]);
            pass.dispatch_workgroups(command.groups[0], command.groups[1], command.groups[2]);
        }
        drop(pass);
        self.queue.submit([encoder.finish()]);
        if run.is_multiple_of(GROUP_LIFE) {
            groups.made.retain(|_, (_, used)| *used + GROUP_LIFE > run);
        }
        Ok(())
    }

    /// All parameters in one buffer, each at its command's offset.
    fn write_params(&self, groups: &mut BindGroups, commands: &[Command]) -> wgpu::Buffer {
        let mut bytes = vec![0; commands.len() * PARAMS_STRIDE as usize];
        for (command, bytes) in commands.iter().zip(bytes.chunks_exact_mut(PARAMS_STRIDE as usize)) {
            let params: &[u8] = bytemuck::cast_slice(&command.params);
            bytes[..params.len()].copy_from_slice(params);
        }
        let size = (bytes.len() as u64).next_power_of_two().max(64 * PARAMS_STRIDE);
        let buffer = match groups.params.take() {
            Some(buffer) if buffer.size() >= size => buffer,
            _ => self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("params"),
                size,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        };
        self.queue.write_buffer(&buffer, 0, &bytes);
        groups.params = Some(buffer.clone());
        buffer
    }

    fn bind_group(
        &self,
        pipeline: &Pipeline,
        params: &wgpu::Buffer,
        command: &Command,
    ) -> Result<wgpu::BindGroup> {
        let uniform = wgpu::BufferBinding { buffer: params, offset: 0, size: NonZeroU64::new(PARAMS_STRIDE) };
        let mut entries =
            vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(uniform) }];
        for (binding, buffer) in &command.bindings {
            let resource = self.memory(buffer)?.as_entire_binding();
            entries.push(wgpu::BindGroupEntry { binding: *binding, resource });
        }
        Ok(self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(command.kernel.name),
            layout: &pipeline.layout,
            entries: &entries,
        }))
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
            let start = std::time::Instant::now();
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

    /// The first `bytes` of `buffer`, once all commands have run.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the device fails.
    pub fn read(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("readback"),
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(self.memory(buffer)?, offset, &staging, 0, bytes);
        self.queue.submit([encoder.finish()]);
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.map_async(wgpu::MapMode::Read, .., move |result| drop(sender.send(result)));
        self.wait()?;
        let mapped = receiver.recv().map_err(|error| self.error(error.to_string()))?;
        mapped.map_err(|error| self.error(error.to_string()))?;
        let range = staging.get_mapped_range(..).map_err(|error| self.error(error.to_string()))?;
        Ok(range.to_vec())
    }
}
