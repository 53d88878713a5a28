//! What runs each layer: the CPU, or a GPU the last ones and the head.

use std::sync::Arc;

#[cfg(feature = "gpu")]
use super::gpu;
use super::options::{self, Device, Options};
use crate::backend::Backend;
use crate::backend::cpu::Cpu;
use crate::cache::KvCache;
#[cfg(not(feature = "gpu"))]
use crate::error::Error;
use crate::error::Result;
use crate::file::Weights;
use crate::model::{self, Model, Split};

/// How many decoder layers a GPU runs. The last ones are its own, so that the head can be, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuLayers {
    /// As many as fit.
    #[default]
    Auto,
    /// All of them.
    All,
    /// This many, or all if there are fewer.
    Last(usize),
}

/// A model and what runs it.
#[derive(Debug)]
pub(super) struct Placed {
    pub model: Arc<dyn Model>,
    pub cache: KvCache,
    pub gpu: Option<Offload>,
}

/// A GPU that runs the last layers of a model.
#[derive(Debug)]
pub(super) struct Offload {
    pub name: String,
    pub ops: Arc<dyn Backend>,
    /// The first layer that it runs.
    pub first: usize,
}

impl Offload {
    pub fn split<'a>(&'a self, cpu: &'a Cpu) -> Split<'a> {
        Split { first: cpu, layers: self.first, rest: &*self.ops }
    }
}

/// What runs layer `index`.
pub(super) fn of_layer<'a>(gpu: Option<&'a Offload>, cpu: &'a Cpu, index: usize) -> &'a dyn Backend {
    match gpu {
        Some(gpu) if index >= gpu.first => &*gpu.ops,
        _ => cpu,
    }
}

impl Placed {
    /// Everything on the CPU.
    pub fn new(weights: &Weights, options: &Options) -> Result<Placed> {
        let model = model::load(weights)?;
        let context = options::context(model.config().context, options.context)?;
        let cache = KvCache::new(&model.cache_shape(), options.cache, context)?;
        Ok(Placed { model, cache, gpu: None })
    }
}

/// Moves the model where the options want it. A GPU that can't be used is an error, or a reason to take the CPU.
#[cfg(feature = "gpu")]
pub(super) async fn place(
    placed: &mut Placed,
    weights: &Weights,
    options: &Options,
    cpu: &Cpu,
) -> Result<()> {
    if options.device == Device::Cpu || options.gpu_layers == GpuLayers::Last(0) {
        return Ok(());
    }
    let moved = async {
        let device = gpu::request(options).await?;
        gpu::offload(placed, weights, options, cpu, &device).await
    };
    match moved.await {
        Err(error) if options.device == Device::Auto => {
            tracing::warn!("the model runs on the CPU: {error}");
            *placed = Placed::new(weights, options)?;
            Ok(())
        }
        other => other,
    }
}

/// Refuses what this program was built without.
#[cfg(not(feature = "gpu"))]
pub(super) async fn place(_: &mut Placed, _: &Weights, options: &Options, _: &Cpu) -> Result<()> {
    match options.device {
        Device::Cpu | Device::Auto => Ok(()),
        Device::Gpu(_) => Err(Error::option("--device", "gpu: this program was built without GPUs")),
    }
}
