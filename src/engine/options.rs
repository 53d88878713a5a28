//! How a model is run.

use std::path::PathBuf;

use super::placement::GpuLayers;
use crate::backend::cpu::Activations;
use crate::cache::CacheType;
use crate::error::{Error, Result};
use crate::simd::Isa;

/// What runs a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The CPU.
    #[default]
    Cpu,
    /// The best GPU that there is, or the best one with this in its name; or an error.
    Gpu(Option<String>),
    /// The best GPU, if it is no software device and passes its self-test. Else, or once it fails, the CPU.
    Auto,
}

/// How a model is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Tokens that fit in the conversation; by default what the model was trained for, at most 8192.
    pub context: Option<usize>,
    /// What runs the model.
    pub device: Device,
    /// Layers that run on the GPU, if there is one.
    pub gpu_layers: GpuLayers,
    /// Bytes of the GPU's memory that may be used; by default what its driver gives.
    pub gpu_memory: Option<u64>,
    /// Whether the GPU is used with no more than what every WebGPU device has.
    pub gpu_floor: bool,
    /// Flags of kernels that the GPU can run beside those that its driver's features say: in a browser, where wgpu does not
    /// know of all of them.
    pub gpu_variants: Vec<&'static str>,
    /// Folder for compiled kernels, which some drivers let us keep; by default they are not.
    pub pipelines: Option<PathBuf>,
    /// Threads; by default one a core.
    pub threads: Option<usize>,
    /// Instruction set; by default the fastest one, or what `HADAL_ISA` says. Never changes a result.
    pub isa: Option<Isa>,
    /// What weights are multiplied with.
    pub activations: Activations,
    /// Whether weights are repacked for prompts, some rows at a time: faster, the same bits. See `Cpu::with_repack`.
    pub repack: bool,
    /// How keys and values are stored.
    pub cache: CacheType,
    /// Tokens of a prompt that are computed together; never changes a result.
    pub batch: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            context: None,
            device: Device::default(),
            gpu_layers: GpuLayers::default(),
            gpu_memory: None,
            gpu_floor: false,
            gpu_variants: Vec::new(),
            pipelines: None,
            threads: None,
            isa: None,
            activations: Activations::default(),
            repack: true,
            cache: CacheType::default(),
            batch: 256,
        }
    }
}

/// The context when none is asked for: long trained contexts would reserve gigabytes.
const DEFAULT_CONTEXT: usize = 8192;

/// The context to reserve: what was asked for, within what the model was trained for.
pub(super) fn context(trained: usize, asked: Option<usize>) -> Result<usize> {
    match asked {
        None => Ok(trained.min(DEFAULT_CONTEXT)),
        Some(0) => Err(Error::option("--ctx-size", "0 tokens: at least 1 is needed")),
        Some(asked) if asked > trained => {
            let message =
                format!("{asked} tokens, but the model was trained for {trained}: give at most that");
            Err(Error::option("--ctx-size", message))
        }
        Some(asked) => Ok(asked),
    }
}
