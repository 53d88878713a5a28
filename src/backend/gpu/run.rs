//! Running recorded commands: submissions that end soon, bind groups that live from token to token, and one readback.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;

use super::device::Device;
use super::pipelines::Pipeline;
use super::profile::{KernelTime, Profile};
use super::record::{Buffer, Command, Work, submissions};
use crate::backend::now;
use crate::error::Result;

/// Bytes between the parameters of two commands: what every device allows as a uniform's offset.
const PARAMS_STRIDE: u64 = 256;
/// Runs after which an unused bind group is dropped.
const GROUP_LIFE: u64 = 64;
/// Bytes that are read back at once, and so the most that a device keeps for it.
const MOST_READ: u64 = 16 << 20;

/// What is kept from one run to the next.
#[derive(Debug, Default)]
pub(super) struct Kept {
    groups: Mutex<BindGroups>,
    /// What results are copied to and mapped.
    staging: Mutex<Option<wgpu::Buffer>>,
    profile: Mutex<Option<Profile>>,
    counts: Mutex<Counts>,
    pace: Pace,
}

/// Multiplications that a device does while what the desktop wants to draw waits: in some 50 ms.
#[derive(Debug)]
pub(super) struct Pace {
    most: AtomicU64,
    fixed: bool,
}

impl Default for Pace {
    /// That of an integrated GPU, which does 100 thousand millions a second.
    fn default() -> Pace {
        Pace { most: AtomicU64::new(5_000_000_000), fixed: false }
    }
}

impl Pace {
    const WAIT: Duration = Duration::from_millis(50);
    /// Less would be dispatches that cost more than what they do, more would be as good as no limit.
    const RANGE: [u64; 2] = [1 << 26, 1 << 40];

    /// One that follows nothing.
    pub fn fixed(most: u64) -> Pace {
        Pace { most: AtomicU64::new(most), fixed: true }
    }

    fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Goes by a run of `macs` multiplications, if they are so many that they, not what is beside them, took the time.
    fn follow(&self, macs: u64, time: Duration) {
        if !self.fixed && macs >= self.most() {
            let most = macs as f64 * Pace::WAIT.as_secs_f64() / time.as_secs_f64().max(1e-9);
            self.most.store((most as u64).clamp(Pace::RANGE[0], Pace::RANGE[1]), Ordering::Relaxed);
        }
    }
}

/// What a device did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands.
    pub dispatches: u64,
    /// Lists of them, and copies, that were handed to the driver.
    pub submissions: u64,
    /// Of all commands.
    pub work: Work,
    /// Bytes that were read back.
    pub fetched: u64,
}

/// Bind groups live from token to token; what was not used for a while is dropped.
#[derive(Debug, Default)]
struct BindGroups {
    /// By pipeline, size of the parameters and buffers: the group and the run that last used it.
    made: HashMap<(u64, u64, Vec<u64>), (wgpu::BindGroup, u64)>,
    run: u64,
    params: Option<wgpu::Buffer>,
}

impl Kept {
    /// Nothing yet.
    pub fn with_pace(pace: Pace) -> Kept {
        Kept { pace, ..Kept::default() }
    }

    /// Drops bind groups, which keep their buffers.
    pub fn forget(&self) {
        lock(&self.groups).made.clear();
    }
}

/// What these hold is whole whatever panicked while it was locked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device {
    /// Multiplications that one dispatch or submission should not exceed, so that others can use the device in between.
    pub fn most_macs(&self) -> u64 {
        self.kept.pace.most()
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        *lock(&self.kept.counts)
    }

    /// Runs `commands` in order.
    ///
    /// # Errors
    /// [`crate::Error::Shader`] if one can't be compiled, [`crate::Error::GpuMemory`] if there is none for its buffers,
    /// [`crate::Error::Gpu`] if the device fails.
    pub fn run(&self, commands: &[Command]) -> Result<()> {
        self.submit(commands, |_| Ok(()))
    }

    /// Runs `commands` and gives `bytes` of `buffer` from `offset` on, both multiples of 4.
    ///
    /// # Errors
    /// As [`Device::run`]; [`crate::Error::Gpu`] if the device fails.
    pub async fn run_and_read(
        &self,
        mut commands: &[Command],
        buffer: &Buffer,
        offset: u64,
        bytes: u64,
    ) -> Result<Vec<u8>> {
        // Not locked while it waits: somebody else may read in the meantime, with a buffer of his own.
        let mut kept = lock(&self.kept.staging).take();
        let mut found = Vec::new();
        for at in (0..bytes).step_by(MOST_READ as usize) {
            let piece = MOST_READ.min(bytes - at);
            let staging = match kept.take() {
                Some(staging) if staging.size() >= piece => staging,
                _ => self.staging(piece.next_power_of_two().max(4096)),
            };
            self.submit(commands, |encoder| {
                let source = self.memory(buffer)?;
                encoder.copy_buffer_to_buffer(source, offset + at, &staging, 0, piece);
                Ok(())
            })?;
            let start = web_time::Instant::now();
            self.map(&staging, piece, |bytes| found.extend_from_slice(bytes)).await?;
            self.kept.pace.follow(commands.iter().map(|command| command.work.macs).sum(), start.elapsed());
            kept = Some(staging);
            commands = &[];
        }
        *lock(&self.kept.staging) = kept;
        lock(&self.kept.counts).fetched += bytes;
        Ok(found)
    }

    /// `bytes` of `buffer` from `offset` on, once all commands have run.
    ///
    /// # Errors
    /// [`crate::Error::Gpu`] if the device fails.
    pub fn read(&self, buffer: &Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        now(self.run_and_read(&[], buffer, offset, bytes))
    }

    /// Runs `work` and tells what its kernels took on the device; nothing where the device has no timestamps. Each is
    /// timed alone, so that together they take longer than usual.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn profile<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<KernelTime>)> {
        *lock(&self.kept.profile) = Profile::new(&self.device, &self.queue);
        let done = work();
        let profile = lock(&self.kept.profile).take();
        Ok((done?, profile.map(Profile::times).unwrap_or_default()))
    }

    /// A buffer that can be mapped.
    fn staging(&self, bytes: u64) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("readback"),
            size: bytes,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    }

    /// Waits for all commands, and gives `read` the first `bytes` of a buffer that can be mapped.
    async fn map(&self, staging: &wgpu::Buffer, bytes: u64, read: impl FnOnce(&[u8])) -> Result<()> {
        let (sender, receiver) = oneshot::channel();
        staging.map_async(wgpu::MapMode::Read, ..bytes, move |result| drop(sender.send(result)));
        self.settle().await?;
        let mapped = receiver.await.map_err(|error| self.error(error.to_string()));
        self.check()?;
        mapped?.map_err(|error| self.error(error.to_string()))?;
        let range = staging.get_mapped_range(..bytes).map_err(|error| self.error(error.to_string()))?;
        read(&range);
        drop(range);
        staging.unmap();
        Ok(())
    }

    fn encoder(&self) -> wgpu::CommandEncoder {
        self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
    }

    fn hand_in(&self, encoder: wgpu::CommandEncoder) {
        self.queue.submit([encoder.finish()]);
        lock(&self.kept.counts).submissions += 1;
    }

    /// Submits `commands`, cut where they take long, and what `finish` adds to the last piece.
    fn submit(
        &self,
        commands: &[Command],
        finish: impl FnOnce(&mut wgpu::CommandEncoder) -> Result<()>,
    ) -> Result<()> {
        let compiled =
            |command: &Command| self.pipelines.get(&self.device, command.kernel, &command.permutation);
        let pipelines: Vec<_> = commands.iter().map(compiled).collect::<Result<_>>()?;
        self.check()?;
        let mut groups = lock(&self.kept.groups);
        groups.start(self, commands);
        let mut profile = lock(&self.kept.profile);
        let most = if profile.is_some() { Profile::MOST } else { usize::MAX };
        let mut encoder = self.encoder();
        let mut done = 0;
        for piece in submissions(commands, most, self.most_macs()) {
            if done > 0 {
                self.hand_in(std::mem::replace(&mut encoder, self.encoder()));
            }
            groups.encode(self, &mut encoder, piece, &pipelines[done..], done, profile.as_ref())?;
            done += piece.len();
            if let Some(profile) = profile.as_mut() {
                profile.resolve(&mut encoder, piece.len());
                self.hand_in(std::mem::replace(&mut encoder, self.encoder()));
                let mut ticks = Vec::new();
                let staging = &profile.staging;
                now(self.map(staging, staging.size(), |bytes| ticks.extend_from_slice(bytes)))?;
                profile.add(piece, &ticks);
            }
        }
        finish(&mut encoder)?;
        self.hand_in(encoder);
        let mut counts = lock(&self.kept.counts);
        counts.dispatches += commands.len() as u64;
        for command in commands {
            counts.work.bytes += command.work.bytes;
            counts.work.macs += command.work.macs;
        }
        Ok(())
    }
}

impl BindGroups {
    /// Writes all parameters into one buffer, each at its command's offset.
    fn start(&mut self, device: &Device, commands: &[Command]) {
        self.run += 1;
        if self.run.is_multiple_of(GROUP_LIFE) {
            let run = self.run;
            self.made.retain(|_, (_, used)| *used + GROUP_LIFE > run);
        }
        if commands.is_empty() {
            return;
        }
        let mut bytes = vec![0; commands.len() * PARAMS_STRIDE as usize];
        for (command, bytes) in commands.iter().zip(bytes.chunks_exact_mut(PARAMS_STRIDE as usize)) {
            let params: &[u8] = bytemuck::cast_slice(&command.params);
            bytes[..params.len()].copy_from_slice(params);
        }
        let size = (bytes.len() as u64).next_power_of_two().max(64 * PARAMS_STRIDE);
        let params = match self.params.take() {
            Some(params) if params.size() >= size => params,
            _ => device.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("params"),
                size,
                usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            }),
        };
        device.queue.write_buffer(&params, 0, &bytes);
        self.params = Some(params);
    }

    /// Adds `commands` with their `pipelines`, `first` the first one's place in the list of all; each in a pass of its own
    /// if it is timed.
    fn encode(
        &mut self,
        device: &Device,
        encoder: &mut wgpu::CommandEncoder,
        commands: &[Command],
        pipelines: &[Arc<Pipeline>],
        first: usize,
        profile: Option<&Profile>,
    ) -> Result<()> {
        let Some(params) = self.params.clone() else { return Ok(()) };
        let together = if profile.is_some() { 1 } else { commands.len() };
        for (index, commands) in commands.chunks(together).enumerate() {
            let first_here = index * together;
            let timestamp_writes = profile.map(|profile| profile.writes(index as u32));
            let mut pass =
                encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes });
            let pairs = commands.iter().zip(&pipelines[first_here..]);
            for (index, (command, pipeline)) in (first + first_here..).zip(pairs) {
                let group = self.group(device, &params, command, pipeline)?;
                pass.set_pipeline(&pipeline.pipeline);
                pass.set_bind_group(0, group, &[(index as u64 * PARAMS_STRIDE) as u32]);
                pass.dispatch_workgroups(command.groups[0], command.groups[1], command.groups[2]);
            }
        }
        Ok(())
    }

    fn group(
        &mut self,
        device: &Device,
        params: &wgpu::Buffer,
        command: &Command,
        pipeline: &Pipeline,
    ) -> Result<&wgpu::BindGroup> {
        let ids: Vec<u64> = command.bindings.iter().map(|(_, buffer)| buffer.id).collect();
        let key = (pipeline.id, params.size(), ids);
        let (group, used) = match self.made.entry(key) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => place.insert((device.bind_group(pipeline, params, command)?, self.run)),
        };
        *used = self.run;
        Ok(group)
    }
}

impl Device {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_follows_long_runs() {
        let pace = Pace::default();
        pace.follow(4_000_000_000, Duration::from_secs(9));
        assert_eq!(pace.most(), 5_000_000_000);
        pace.follow(40_000_000_000, Duration::from_secs(4));
        assert_eq!(pace.most(), 500_000_000);
        pace.follow(1_000_000_000, Duration::from_millis(5));
        assert_eq!(pace.most(), 10_000_000_000);
        pace.follow(u64::MAX, Duration::ZERO);
        assert_eq!(pace.most(), Pace::RANGE[1]);
        pace.follow(1 << 40, Duration::from_secs(1 << 40));
        assert_eq!(pace.most(), Pace::RANGE[0]);
        let fixed = Pace::fixed(7);
        fixed.follow(70, Duration::from_secs(1));
        assert_eq!(fixed.most(), 7);
    }
}
