//! How long kernels take on the device: timestamps before and after each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{Command, Work};

/// The runs of one kernel for one format.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTime {
    /// Its name, and the format's if it has one.
    pub kernel: String,
    /// Runs.
    pub dispatches: u64,
    /// Of all runs.
    pub time: Duration,
    /// Of all runs.
    pub work: Work,
}

/// Timestamps of the commands of a submission, and the sums of earlier ones.
#[derive(Debug)]
pub(super) struct Profile {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    pub staging: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f64,
    times: BTreeMap<String, KernelTime>,
}

impl Profile {
    /// Commands of a submission: each takes two queries.
    pub const MOST: usize = wgpu::QUERY_SET_MAX_QUERIES as usize / 2;

    /// `None` if the device has no timestamps.
    pub fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Option<Profile> {
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let count = 2 * Profile::MOST as u32;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timestamps"),
                size: u64::from(count * wgpu::QUERY_SIZE),
                usage,
                mapped_at_creation: false,
            })
        };
        Some(Profile {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timestamps"),
                ty: wgpu::QueryType::Timestamp,
                count,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            staging: buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST),
            period: f64::from(queue.get_timestamp_period()),
            times: BTreeMap::new(),
        })
    }

    /// Where the pass of command `index` of the submission puts its timestamps.
    pub fn writes(&self, index: u32) -> wgpu::ComputePassTimestampWrites<'_> {
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(2 * index),
            end_of_pass_write_index: Some(2 * index + 1),
        }
    }

    /// After the last of `count` passes.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder, count: usize) {
        encoder.resolve_query_set(&self.queries, 0..2 * count as u32, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.staging, 0, self.staging.size());
    }

    /// Adds the times of `commands`; `ticks` are u64: two a command.
    pub fn add(&mut self, commands: &[Command], ticks: &[u8]) {
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(ticks);
        for (command, ticks) in commands.iter().zip(ticks.chunks_exact(2)) {
            let kernel = match command.permutation.quant {
                Some(format) => format!("{} {format}", command.kernel.name),
                None => command.kernel.name.to_owned(),
            };
            let entry = self.times.entry(kernel.clone()).or_insert(KernelTime {
                kernel,
                dispatches: 0,
                time: Duration::ZERO,
                work: Work::SMALL,
            });
            entry.dispatches += 1;
            entry.work.bytes += command.work.bytes;
            entry.work.macs += command.work.macs;
            // Some drivers' clocks step back now and then.
            let nanoseconds = ticks[1].saturating_sub(ticks[0]) as f64 * self.period;
            entry.time += Duration::from_nanos(nanoseconds as u64);
        }
    }

    /// The longest first.
    pub fn times(self) -> Vec<KernelTime> {
        let mut times: Vec<_> = self.times.into_values().collect();
        times.sort_by_key(|kernel| std::cmp::Reverse(kernel.time));
        times
    }
}
