//! The self-test: a small case of each family of kernels, against the CPU. Drivers that compile a shader wrongly do not
//! say so.

use std::sync::Arc;

use super::{Device, Gpu};
use crate::backend::cpu::{Activations, Cpu};
use crate::backend::now;
use crate::backend::{AttentionShape, Backend, Gate, Heads, Hidden, Linear, RmsNorm, Rotation, Source, Span};
use crate::cache::{CacheType, KvCache, LayerShape};
use crate::error::{Error, Result};
use crate::quant::{Format, f16, q8_0};
use crate::tensor::{Bytes, Tensor};

/// How far a family of kernels is from the CPU.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// What was tested.
    pub family: &'static str,
    /// sum (gpu - cpu)² / sum cpu²; NaN if a result is no number.
    pub error: f64,
}

/// Sums are taken in another order, which rounds some inputs of the next product to a neighbouring byte: some 1e-5. A
/// wrong kernel is off by 1.
const ALLOWED: f64 = 1e-3;

impl Check {
    /// Whether the device computes what the CPU does.
    pub fn passed(&self) -> bool {
        self.error <= ALLOWED
    }
}

/// Tests every family of kernels on `device`.
///
/// # Errors
/// [`Error::Gpu`] or [`Error::Shader`] if a kernel can't be run at all.
pub fn self_test(device: &Arc<Device>) -> Result<Vec<Check>> {
    now(run(device))
}

async fn run(device: &Arc<Device>) -> Result<Vec<Check>> {
    let cpu = Cpu::new(Some(1), None, Activations::Quantized)?;
    let gpu = Gpu::new(Arc::clone(device), Activations::Quantized);
    // Rows of inputs: a product with several is another kernel, with many where cooperative matrices are used.
    let cooperative = !device.cooperative().is_empty();
    let products = [(1, "matvec"), (5, "matmul"), (20, "matmul by cooperative matrices")];
    let products = if cooperative { &products[..] } else { &products[..2] };
    let pairs = outputs(&gpu, products).await?.into_iter().zip(outputs(&cpu, products).await?);
    let checks = pairs.map(|((family, found), (_, expected))| {
        let square = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>();
        let both = found.values().iter().zip(expected.values());
        let distance = square(&mut both.map(|(&a, &b)| f64::from(a) - f64::from(b)));
        Check { family, error: distance / square(&mut expected.values().iter().map(|&b| f64::from(b))) }
    });
    Ok(checks.collect())
}

/// As [`self_test`] where nothing may wait, and an error that names the first family that is wrong.
///
/// # Errors
/// [`Error::Gpu`].
pub async fn require(device: &Arc<Device>) -> Result<()> {
    match run(device).await?.iter().find(|check| !check.passed()) {
        None => Ok(()),
        Some(check) => {
            let message = format!("the self-test of {} is off by {:.1e}", check.family, check.error);
            Err(Error::gpu(device.name(), message))
        }
    }
}

const HIDDEN: usize = 256;
const DIM: usize = 64;

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 2.0 - 1.0).collect()
}

fn layer(seed: u64, format: &'static Format, rows: usize, columns: usize) -> Result<Linear> {
    let values: Vec<f32> = noise(seed, rows * columns).iter().map(|value| value * 0.1).collect();
    let mut bytes = vec![0; format.bytes_for(values.len())?];
    format.encode(&values, &mut bytes)?;
    let weight = Tensor::new("self-test", vec![rows, columns], format, Bytes::Owned(bytes.into()))?;
    Ok(Linear { weight, bias: None })
}

fn norm(seed: u64) -> RmsNorm {
    RmsNorm { weight: noise(seed, HIDDEN).into(), eps: 1e-5 }
}

/// The same small decoder layer on any backend, for each number of rows in `products`.
async fn outputs(
    ops: &dyn Backend,
    products: &[(usize, &'static str)],
) -> Result<Vec<(&'static str, Hidden)>> {
    let mut outputs = Vec::new();
    let table = layer(1, &q8_0::FORMAT, 40, HIDDEN)?.weight;
    outputs.push(("embed", ops.fetching(ops.embed(&table, &[3, 39], 2.0)?).await?));
    for &(rows, product) in products {
        let mut x = ops.hold(Hidden::new(noise(2, rows * HIDDEN), HIDDEN))?;
        let up = [layer(3, &q8_0::FORMAT, 96, HIDDEN)?, layer(4, &q8_0::FORMAT, 96, HIDDEN)?];
        let mut out = [Hidden::empty(), Hidden::empty()];
        ops.linear(Source::Normed(&x, &norm(5)), &[&up[0], &up[1]], &mut out)?;
        let down = layer(6, &q8_0::FORMAT, HIDDEN, 96)?;
        let post = (rows > 1).then(|| norm(7));
        ops.add_linear(&mut x, Source::Gated(Gate::Silu, &out[0], &out[1]), &down, post.as_ref())?;
        let [up, _] = out;
        outputs.push((product, ops.fetching(up).await?));
        let mut capped = [Hidden::empty()];
        ops.linear(Source::Plain(&x), &[&layer(8, &f16::FORMAT, 70, HIDDEN)?], &mut capped)?;
        let [mut capped] = capped;
        ops.softcap(&mut capped, 10.0)?;
        outputs.push(("float products", ops.fetching(capped).await?));
        outputs.push(("residuals", ops.fetching(x).await?));
        outputs.push(("attention", attention(ops, &[rows]).await?));
    }
    outputs.push(("attention in segments", attention(ops, &[540, 1]).await?));
    Ok(outputs)
}

/// What the rows of the last piece see, one piece behind the other.
async fn attention(ops: &dyn Backend, pieces: &[usize]) -> Result<Hidden> {
    let total = pieces.iter().sum();
    let mut cache = KvCache::new(&[LayerShape { heads: 1, dim: DIM, window: None }], CacheType::F16, total)?;
    let layers =
        [(10, 2 * DIM), (11, DIM), (12, DIM)].map(|(seed, rows)| layer(seed, &q8_0::FORMAT, rows, HIDDEN));
    let [query, key, value] = layers;
    let (query, key, value) = (query?, key?, value?);
    let mut attended = Hidden::empty();
    let mut start = 0;
    for &rows in pieces {
        let x = ops.hold(Hidden::new(noise(9, rows * HIDDEN), HIDDEN))?;
        let mut out = [Hidden::empty(), Hidden::empty(), Hidden::empty()];
        ops.linear(Source::Plain(&x), &[&query, &key, &value], &mut out)?;
        let [query, key, value] = out;
        let mut heads = Heads { query, key, value };
        let turns = ops.hold(Hidden::new(noise(13, rows * DIM), DIM))?;
        ops.append(cache.layer(0), &mut heads, [None, None], &Rotation { turns, interleaved: false })?;
        let shape = AttentionShape { heads: 2, scale: 0.125, softcap: None, sinks: None };
        let span = Span { start, len: rows };
        attended = ops.attention(&heads.query, cache.layer(0), span, shape)?;
        start += rows;
    }
    ops.fetching(attended).await
}
