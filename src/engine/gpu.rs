//! Opening the GPU that the options ask for, and moving layers to it. What fits is planned from the file's sizes and then
//! tried: one token is run before anything else.

use std::sync::Arc;

use super::placement::{GpuLayers, Offload, Placed};
use super::{Device, Options};
use crate::backend::cpu::Cpu;
use crate::backend::gpu::{self, Adapter, Reach};
use crate::backend::now;
use crate::cache::KvCache;
use crate::error::{Error, Result};
use crate::file::Weights;
use crate::model::{Config, Outputs};

/// The best adapter, or the one that the options name. Software is chosen by name, or where there is nothing else and a
/// GPU was asked for.
async fn adapter(device: &Device) -> Result<Adapter> {
    let adapters = gpu::find_adapters().await;
    let name = |adapter: &Adapter| adapter.get_info().name;
    let wanted = |adapter: &Adapter| match device {
        Device::Gpu(None) => true,
        Device::Gpu(Some(part)) => name(adapter).to_lowercase().contains(&part.to_lowercase()),
        Device::Cpu | Device::Auto => gpu::is_hardware(adapter),
    };
    let names: Vec<String> = adapters.iter().map(name).collect();
    adapters.into_iter().find(wanted).ok_or_else(|| {
        let found = if names.is_empty() { "no GPU was found".into() } else { names.join(", ") };
        Error::option("--device", format!("no GPU like that; there is: {found}"))
    })
}

/// The device that the options ask for, tested.
///
/// # Errors
/// [`Error::Option`] if there is none like that, [`Error::Gpu`] if it fails.
pub fn open(options: &Options) -> Result<Arc<gpu::Device>> {
    now(request(options))
}

/// As [`open`], where nothing may wait.
///
/// # Errors
/// As [`open`].
pub(super) async fn request(options: &Options) -> Result<Arc<gpu::Device>> {
    let adapter = adapter(&options.device).await?;
    let reach = if options.gpu_floor { Reach::Floor } else { Reach::asked()? };
    let mut device = gpu::Device::request(&adapter, reach).await?;
    device = device.with_variants(&options.gpu_variants);
    if let Some(bytes) = options.gpu_memory {
        device = device.with_memory(bytes);
    }
    if let Some(folder) = &options.pipelines {
        device = device.with_pipelines_in(folder);
    }
    let device = Arc::new(device);
    gpu::check::require(&device).await?;
    Ok(device)
}

/// Moves the last layers to `device`: as many as `options` ask for, or as fit.
///
/// # Errors
/// [`Error::GpuMemory`] if they don't fit, or no layer does; what the GPU says. There may be something in its memory
/// then, as long as `placed` lives.
pub(super) async fn offload(
    placed: &mut Placed,
    weights: &Weights,
    options: &Options,
    cpu: &Cpu,
    device: &Arc<gpu::Device>,
) -> Result<()> {
    let name = device.name();
    let mut limit =
        device.memory_limit().map_or(u64::MAX, |limit| limit.saturating_sub(device.memory_used()));
    loop {
        let layers = placed.model.config().layers;
        let sizes = Sizes::new(weights, placed.model.config(), &mut placed.cache, options.batch);
        let refusal = |needed| Error::GpuMemory { device: name.to_owned(), needed, available: limit };
        let count = sizes.plan(options.gpu_layers, limit).map_err(refusal)?;
        if count == 0 {
            return Ok(());
        }
        device.release()?;
        let ops = Arc::new(gpu::Gpu::new(Arc::clone(device), options.activations));
        let offload = Offload { name: name.to_owned(), ops, first: layers - count };
        match try_out(placed, &offload, cpu).await {
            Ok(()) => {
                tracing::info!("{count} of {layers} layers run on {name}");
                placed.gpu = Some(offload);
                return Ok(());
            }
            // Drivers say what they have when it is used up. Some is left for prompts, and for others.
            Err(Error::GpuMemory { available, .. }) if options.gpu_layers == GpuLayers::Auto => {
                limit = available.min(limit) / 8 * 7;
                *placed = Placed::new(weights, options)?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Runs a token, for which all weights come to the GPU, and forgets it.
async fn try_out(placed: &mut Placed, offload: &Offload, cpu: &Cpu) -> Result<()> {
    let on = offload.split(cpu);
    let logits = on.rest.fetching(placed.model.forward(&[0], &mut placed.cache, Outputs::Last, on)?).await?;
    placed.cache.truncate(0);
    if logits.values().iter().all(|logit| logit.is_finite()) {
        Ok(())
    } else {
        Err(Error::gpu(&offload.name, "the model's first logits are no numbers"))
    }
}

/// Bytes that a GPU needs for parts of a model.
#[derive(Debug)]
struct Sizes {
    embedding: u64,
    /// Weights and cache of each layer.
    layers: Vec<u64>,
    head: u64,
    /// What a batch of tokens needs.
    scratch: u64,
}

impl Sizes {
    fn new(weights: &Weights, config: &Config, cache: &mut KvCache, batch: usize) -> Sizes {
        let mut layers: Vec<u64> = (0..config.layers).map(|index| cache.layer(index).bytes()).collect();
        let mut head = 0;
        for (name, entry) in &weights.tensors {
            let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
            match layer.and_then(|layer: usize| layers.get_mut(layer)) {
                Some(bytes) => *bytes += entry.data.len() as u64,
                None if name == "output.weight" => head = entry.data.len() as u64,
                None => {}
            }
        }
        let embedding = weights.tensors.get("token_embd.weight").map_or(0, |entry| entry.data.len() as u64);
        // A tied table is there once.
        let (embedding, head) = if head == 0 { (0, embedding) } else { (embedding, head) };
        let Config { hidden, inner, heads, kv_heads, head_dim, vocab, .. } = *config;
        // Of a token: the residual and its copy, a layer's inputs as numbers and as bytes, heads twice, the feed-forward.
        let token = 4 * hidden + 3 * inner + 2 * (heads + 2 * kv_heads) * head_dim;
        let scratch = 4 * (token as u64 * batch as u64 + vocab as u64);
        Sizes { embedding, layers, head, scratch }
    }

    /// Of the last `count` layers and the head, and of the embedding if that is all.
    fn bytes(&self, count: usize) -> u64 {
        if count == 0 {
            return 0;
        }
        let first = self.layers.len().saturating_sub(count);
        let embedding = if first == 0 { self.embedding } else { 0 };
        self.layers[first..].iter().sum::<u64>() + embedding + self.head + self.scratch
    }

    /// How many of the last layers to move into `limit` bytes; or the bytes that what is wanted would take.
    fn plan(&self, wanted: GpuLayers, limit: u64) -> Result<usize, u64> {
        let layers = self.layers.len();
        let count = match wanted {
            GpuLayers::Auto => (1..=layers).rev().find(|&count| self.bytes(count) <= limit).unwrap_or(1),
            GpuLayers::All => layers,
            GpuLayers::Last(count) => count.min(layers),
        };
        if self.bytes(count) <= limit { Ok(count) } else { Err(self.bytes(count)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 70 layers of 2 GiB: nothing here may be counted in 32 bits.
    const SIZES: fn() -> Sizes =
        || Sizes { embedding: 5 << 30, layers: vec![2 << 30; 70], head: 6 << 30, scratch: 1 << 30 };

    #[test]
    fn as_many_layers_as_fit() {
        use GpuLayers::{All, Auto, Last};
        let cases = [
            (Auto, 0, Err(9)),
            (Auto, 8, Err(9)),
            (Auto, 9, Ok(1)),
            (Auto, 80, Ok(36)),
            // All layers, but not the embedding beside them.
            (Auto, 147, Ok(70 - 1)),
            (Auto, 152, Ok(70)),
            (All, 151, Err(152)),
            (All, 152, Ok(70)),
            (Last(0), 0, Ok(0)),
            (Last(3), 12, Err(13)),
            (Last(3), 13, Ok(3)),
            (Last(99), 200, Ok(70)),
        ];
        for (wanted, limit, planned) in cases {
            let found = SIZES().plan(wanted, limit << 30).map_err(|bytes| bytes >> 30);
            assert_eq!(found, planned, "{wanted:?} in {limit} GiB");
        }
    }
}
