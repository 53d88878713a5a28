//! A wgpu device: adapters, pipelines, and running recorded commands.

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, PoisonError};

use super::compose::Permutation;
use super::kernels::Kernel;
use super::record::{Buffer, Command};
use crate::error::{Error, Result};

/// Bytes between the parameters of two commands: what every device allows as a uniform's offset.
const PARAMS_STRIDE: u64 = 256;

/// A device and what was compiled for it.
#[derive(Debug)]
pub struct Device {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    pipelines: Mutex<HashMap<(&'static str, Permutation), Arc<Pipeline>>>,
    groups: Mutex<BindGroups>,
    /// The first error that nobody waited for, or why the device was lost.
    failure: Arc<Mutex<Option<String>>>,
}

#[derive(Debug)]
struct Pipeline {
    id: u64,
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
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

/// Adapters that wgpu finds, best first: discrete, integrated, virtual, software.
pub fn adapters() -> Vec<wgpu::Adapter> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
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
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("hadal"),
            required_limits: limits,
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            ..Default::default()
        };
        let opened = pollster::block_on(adapter.request_device(&descriptor));
        let (device, queue) = opened.map_err(|error| Error::gpu(&info.name, error.to_string()))?;
        let failure = Arc::new(Mutex::new(None));
        let note = |failure: &Arc<Mutex<Option<String>>>, message: String| {
            failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(message);
        };
        let slot = Arc::clone(&failure);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| note(&slot, error.to_string())));
        let slot = Arc::clone(&failure);
        device.set_device_lost_callback(move |_, message| note(&slot, format!("device lost: {message}")));
        Ok(Device { device, queue, info, pipelines: Mutex::default(), groups: Mutex::default(), failure })
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
        self.device.limits().max_storage_buffer_binding_size.min(self.device.limits().max_buffer_size)
    }

    fn error(&self, message: impl Into<String>) -> Error {
        Error::gpu(&self.info.name, message)
    }

    /// The failure that was noted, if any.
    ///
    /// # Errors
    /// [`Error::Gpu`].
    pub fn check(&self) -> Result<()> {
        match &*self.failure.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(message) => Err(self.error(message)),
            None => Ok(()),
        }
    }

    /// The memory of `buffer`.
    fn memory<'a>(&self, buffer: &'a Buffer) -> &'a wgpu::Buffer {
        buffer.raw.get_or_init(|| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: buffer.bytes,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            })
        })
    }

    /// Writes `bytes` (a multiple of 4) to `buffer`, before all commands that run later.
    pub fn write(&self, buffer: &Buffer, offset: u64, bytes: &[u8]) {
        self.queue.write_buffer(self.memory(buffer), offset, bytes);
    }

    /// A buffer that holds `bytes` (a multiple of 4).
    pub fn upload(&self, bytes: &[u8]) -> Arc<Buffer> {
        let buffer = Buffer::new(bytes.len() as u64);
        self.write(&buffer, 0, bytes);
        buffer
    }

    /// Runs `commands` in order.
    ///
    /// # Errors
    /// [`Error::Shader`] if one can't be compiled.
    pub fn run(&self, commands: &[Command]) -> Result<()> {
        let pipelines: Vec<_> =
            commands.iter().map(|command| self.pipeline(command)).collect::<Result<_>>()?;
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let params = self.write_params(&mut groups, commands);
        groups.run += 1;
        let run = groups.run;
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for (index, (command, pipeline)) in commands.iter().zip(&pipelines).enumerate() {
            let ids: Vec<u64> = command.bindings.iter().map(|(_, buffer)| buffer.id).collect();
            let key = (pipeline.id, params.size(), ids);
            let (group, used) =
                groups.made.entry(key).or_insert_with(|| (self.bind_group(pipeline, &params, command), run));
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

    fn bind_group(&self, pipeline: &Pipeline, params: &wgpu::Buffer, command: &Command) -> wgpu::BindGroup {
        let uniform = wgpu::BufferBinding { buffer: params, offset: 0, size: NonZeroU64::new(PARAMS_STRIDE) };
        let mut entries =
            vec![wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(uniform) }];
        entries.extend(command.bindings.iter().map(|(binding, buffer)| wgpu::BindGroupEntry {
            binding: *binding,
            resource: self.memory(buffer).as_entire_binding(),
        }));
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some(command.kernel.name),
            layout: &pipeline.layout,
            entries: &entries,
        })
    }

    fn pipeline(&self, command: &Command) -> Result<Arc<Pipeline>> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (command.kernel.name, command.permutation.clone());
        if let Some(pipeline) = pipelines.get(&key) {
            return Ok(Arc::clone(pipeline));
        }
        let pipeline =
            Arc::new(self.compile(command.kernel, &command.permutation, pipelines.len() as u64)?);
        pipelines.insert(key, Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn compile(&self, kernel: &'static Kernel, permutation: &Permutation, id: u64) -> Result<Pipeline> {
        let composed = kernel.compose(permutation)?;
        let entries = layout_entries(&kernel.parse(&composed)?);
        let layout = self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some(kernel.name),
            entries: &entries,
        });
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.name),
            source: wgpu::ShaderSource::Wgsl(composed.text.into()),
        });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(kernel.name),
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.name),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        self.check()?;
        Ok(Pipeline { id, pipeline, layout })
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
                encoder.copy_buffer_to_buffer(self.memory(&source), 0, self.memory(&target), 0, BYTES);
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
        encoder.copy_buffer_to_buffer(self.memory(buffer), offset, &staging, 0, bytes);
        self.queue.submit([encoder.finish()]);
        let (sender, receiver) = std::sync::mpsc::channel();
        staging.map_async(wgpu::MapMode::Read, .., move |result| drop(sender.send(result)));
        self.device
            .poll(wgpu::PollType::wait_indefinitely())
            .map_err(|error| self.error(error.to_string()))?;
        self.check()?;
        let mapped = receiver.recv().map_err(|error| self.error(error.to_string()))?;
        mapped.map_err(|error| self.error(error.to_string()))?;
        let range = staging.get_mapped_range(..).map_err(|error| self.error(error.to_string()))?;
        Ok(range.to_vec())
    }
}

/// The bindings that a shader declares: uniforms with an offset of their own each time, and storage.
fn layout_entries(module: &naga::Module) -> Vec<wgpu::BindGroupLayoutEntry> {
    let mut entries: Vec<_> = module
        .global_variables
        .iter()
        .filter_map(|(_, variable)| {
            let binding = variable.binding.as_ref()?.binding;
            let (ty, has_dynamic_offset) = match variable.space {
                naga::AddressSpace::Uniform => (wgpu::BufferBindingType::Uniform, true),
                naga::AddressSpace::Storage { access } => {
                    let read_only = !access.contains(naga::StorageAccess::STORE);
                    (wgpu::BufferBindingType::Storage { read_only }, false)
                }
                _ => return None,
            };
            Some(wgpu::BindGroupLayoutEntry {
                binding,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
                count: None,
            })
        })
        .collect();
    entries.sort_by_key(|entry| entry.binding);
    entries
}
