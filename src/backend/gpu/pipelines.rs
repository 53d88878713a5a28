//! Kernels compiled for a device: each when it is first asked for, and kept on disk where the driver has a form for it.

use std::collections::HashMap;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use web_time::Instant;

use super::compose::Permutation;
use super::kernels::Kernel;
use crate::error::{Error, Result};
use crate::file::output;

/// A compiled kernel.
#[derive(Debug)]
pub(super) struct Pipeline {
    /// Of no other pipeline of the device.
    pub id: u64,
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// What compiling took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileStats {
    /// Kernels.
    pub pipelines: usize,
    /// Of all of them.
    pub time: Duration,
}

/// All of a device.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    made: Mutex<Made>,
    disk: Option<Disk>,
}

#[derive(Debug, Default)]
struct Made {
    pipelines: HashMap<(&'static str, Permutation), Arc<Pipeline>>,
    time: Duration,
}

impl Pipelines {
    /// As they are kept in `folder`, if the device can keep any.
    pub fn kept_in(device: &wgpu::Device, info: &wgpu::AdapterInfo, folder: &Path) -> Pipelines {
        Pipelines { made: Mutex::default(), disk: Disk::open(device, info, folder) }
    }

    /// Whether they are kept.
    pub fn are_kept(&self) -> bool {
        self.disk.is_some()
    }

    /// What was compiled so far.
    pub fn stats(&self) -> CompileStats {
        let made = self.made();
        CompileStats { pipelines: made.pipelines.len(), time: made.time }
    }

    /// The pipeline of a permutation.
    ///
    /// # Errors
    /// [`crate::Error::Shader`] if the shader can't be composed or read.
    pub fn get(
        &self,
        device: &wgpu::Device,
        kernel: &'static Kernel,
        permutation: &Permutation,
    ) -> Result<Arc<Pipeline>> {
        let mut made = self.made();
        let key = (kernel.name, permutation.clone());
        if let Some(pipeline) = made.pipelines.get(&key) {
            return Ok(Arc::clone(pipeline));
        }
        let start = Instant::now();
        let cache = self.disk.as_ref().map(|disk| &disk.cache);
        let id = made.pipelines.len() as u64;
        let pipeline = Arc::new(compile(device, kernel, permutation, id, cache)?);
        made.time += start.elapsed();
        made.pipelines.insert(key, Arc::clone(&pipeline));
        Ok(pipeline)
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        let compiled = !self.made().pipelines.is_empty();
        if let Some(disk) = self.disk.as_ref().filter(|_| compiled) {
            disk.save();
        }
    }
}

fn compile(
    device: &wgpu::Device,
    kernel: &'static Kernel,
    permutation: &Permutation,
    id: u64,
    cache: Option<&wgpu::PipelineCache>,
) -> Result<Pipeline> {
    let composed = kernel.compose(permutation)?;
    let entries = layout_entries(&kernel.parse(&composed)?);
    // Browsers ask for it, naga does not know it.
    let subgroups = cfg!(target_family = "wasm") && permutation.flags.contains(&"SUBGROUPS");
    let text = if subgroups { format!("enable subgroups;\n{}", composed.text) } else { composed.text };
    let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
        label: Some(kernel.name),
        entries: &entries,
    });
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(kernel.name),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(kernel.name),
        bind_group_layouts: &[Some(&layout)],
        ..Default::default()
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(kernel.name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(kernel.name),
        compilation_options: wgpu::PipelineCompilationOptions {
            // Kernels write before they read.
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache,
    });
    Ok(Pipeline { id, pipeline, layout })
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

/// A driver's compiled kernels in a file: [`MAGIC`], a hash of the rest, and what the driver gave.
#[derive(Debug)]
struct Disk {
    cache: wgpu::PipelineCache,
    path: PathBuf,
    /// Hash of what the file held.
    found: Option<u64>,
}

const MAGIC: [u8; 8] = *b"hadalpc1";
/// Drivers never drop anything from a cache: one that has grown this large is begun anew.
const MOST_BYTES: usize = 64 << 20;

impl Disk {
    /// `None` if the device can't, or if there is nothing to tell its driver from others.
    fn open(device: &wgpu::Device, info: &wgpu::AdapterInfo, folder: &Path) -> Option<Disk> {
        let name = wgpu::util::pipeline_cache_key(info)?;
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let path = folder.join(name);
        let small = std::fs::metadata(&path).is_ok_and(|file| file.len() <= MOST_BYTES as u64 + 16);
        let data = if small { std::fs::read(&path).ok().and_then(unpacked) } else { None };
        let descriptor =
            wgpu::PipelineCacheDescriptor { label: Some("hadal"), data: data.as_deref(), fallback: true };
        // SAFETY: the data are what `get_data` gave: they come from a file in the user's own folder that only `save`
        // writes, and have its hash. wgpu checks that they belong to this adapter and driver.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(Disk { cache, path, found: data.map(|data| hash(&data)) })
    }

    /// Writes what there is now, if it is news. A cache that can't be kept costs time, nothing else.
    fn save(&self) {
        let Some(data) = self.cache.get_data() else { return };
        if self.found == Some(hash(&data)) {
            return;
        }
        let written = if data.len() > MOST_BYTES {
            std::fs::remove_file(&self.path).map_err(|error| Error::io(&self.path, error))
        } else {
            let folder = self.path.parent().map_or(Ok(()), std::fs::create_dir_all);
            let folder = folder.map_err(|error| Error::io(&self.path, error));
            folder.and_then(|()| output::write(&self.path, &packed(&data)))
        };
        if let Err(error) = written {
            tracing::debug!(%error, path = %self.path.display(), "compiled kernels are not kept");
        }
    }
}

/// The same in every run of one build of the program; a file of another build is not used.
fn hash(data: &[u8]) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    hasher.write(data);
    hasher.finish()
}

fn packed(data: &[u8]) -> Vec<u8> {
    [&MAGIC[..], &hash(data).to_le_bytes(), data].concat()
}

/// What [`packed`] was given, if the file is whole.
fn unpacked(mut file: Vec<u8>) -> Option<Vec<u8>> {
    let head = file.first_chunk::<16>()?;
    let whole = head[..8] == MAGIC && head[8..] == hash(&file[16..]).to_le_bytes();
    whole.then(|| file.split_off(16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_no_cache() {
        let file = packed(b"compiled");
        assert_eq!(unpacked(file.clone()).as_deref(), Some(&b"compiled"[..]));
        for (at, _) in file.iter().enumerate() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert_eq!(unpacked(damaged), None, "byte {at}");
            assert_eq!(unpacked(file[..at].to_vec()), None, "{at} bytes");
        }
    }
}
