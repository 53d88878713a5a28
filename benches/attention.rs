//! What attention of one token over the cache takes, by kind and keys: `cargo bench --bench attention [-- CONTEXT... KIND...]`.
//! Kinds take turns, so that a pause of the machine is nobody's alone; minimum, median and maximum of the rounds.

#![allow(clippy::unwrap_used, reason = "a panic is how a bench reports")]

use std::time::Instant;

use hadal::backend::cpu::{Activations, Cpu};
use hadal::backend::{AttentionShape, Backend, Heads, Hidden, Rotation, Span};
use hadal::cache::{CacheType, KvCache, LayerShape};

const KINDS: [&str; 4] = ["f16", "q8_0", "turbo:k8v3", "turbo:k4v4"];
/// Heads of queries, heads of keys, elements of a head: SmolLM2-135M, Llama 3 8B.
const SHAPES: [[usize; 3]; 2] = [[9, 3, 64], [32, 8, 128]];
const ROUNDS: usize = 15;
/// Operations that are run together, as the layers of a token are.
const LAYERS: usize = 8;
/// Rows that are appended together.
const BATCH: usize = 256;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let mut contexts: Vec<usize> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let mut kinds: Vec<&str> = arguments.iter().map(String::as_str).collect();
    kinds.retain(|argument| argument.parse::<usize>().is_err());
    if contexts.is_empty() {
        contexts = vec![128, 2048, 8192];
    }
    if kinds.is_empty() {
        kinds = KINDS.to_vec();
    }
    let cpu = Cpu::new(None, None, Activations::Quantized).unwrap();
    table("CPU", &cpu, &contexts, &kinds, &|| ());
    #[cfg(feature = "gpu")]
    for adapter in hadal::backend::gpu::adapters() {
        use hadal::backend::gpu::{Device, Gpu, Reach};
        let gpu = Gpu::new(Device::open(&adapter, Reach::Adapter).unwrap().into(), Activations::Quantized);
        table(gpu.name(), &gpu, &contexts, &kinds, &|| gpu.finish().unwrap());
    }
}

fn table(name: &str, ops: &dyn Backend, contexts: &[usize], kinds: &[&str], finish: &dyn Fn()) {
    println!(
        "\n{name}: microseconds, minimum / median / maximum\n\n| heads | keys | {} |",
        kinds.join(" | ")
    );
    println!("|---|---|{}", "---|".repeat(kinds.len()));
    for shape in SHAPES {
        for &context in contexts {
            let caches: Vec<KvCache> = kinds.iter().map(|kind| filled(ops, shape, kind, context)).collect();
            finish();
            let mut times = vec![Vec::new(); kinds.len()];
            for _ in 0..=ROUNDS {
                for (cache, times) in caches.iter().zip(&mut times) {
                    times.push(time(ops, shape, cache, context, finish));
                }
            }
            let cells = times.iter_mut().map(|times| {
                // The first round compiles.
                times.remove(0);
                times.sort_by(f64::total_cmp);
                format!("{:.0} / {:.0} / {:.0}", times[0], times[ROUNDS / 2], times[ROUNDS - 1])
            });
            let [heads, kv_heads, dim] = shape;
            let cells: Vec<_> = cells.collect();
            println!("| {heads}/{kv_heads} of {dim} | {context} | {} |", cells.join(" | "));
        }
    }
}

fn noise(seed: u64, rows: usize, columns: usize) -> Hidden {
    let mut random = fastrand::Rng::with_seed(seed);
    Hidden::new((0..rows * columns).map(|_| random.f32() * 2.0 - 1.0).collect(), columns)
}

/// What the rows hold is of no account: a GPU takes all from the queries' buffer.
fn filled(ops: &dyn Backend, [heads, kv_heads, dim]: [usize; 3], kind: &str, context: usize) -> KvCache {
    let shape = LayerShape { heads: kv_heads, dim, window: None };
    let kind: CacheType = kind.parse().unwrap();
    let mut cache = KvCache::new(&[shape], kind, context).unwrap();
    for first in (0..context).step_by(BATCH) {
        let rows = BATCH.min(context - first);
        let hold = |seed, columns| ops.hold(noise(seed, rows, columns)).unwrap();
        let mut rows = Heads {
            query: hold(1, heads * dim),
            key: hold(first as u64, kv_heads * dim),
            value: hold(first as u64 + 1, kv_heads * dim),
        };
        let rotation = Rotation { turns: hold(2, dim), interleaved: false };
        ops.append(cache.layer(0), &mut rows, [None, None], &rotation).unwrap();
    }
    cache
}

/// Microseconds of an operation.
fn time(
    ops: &dyn Backend,
    [heads, _, dim]: [usize; 3],
    cache: &KvCache,
    context: usize,
    finish: &dyn Fn(),
) -> f64 {
    let query = ops.hold(noise(5, 1, heads * dim)).unwrap();
    let at = Span { start: context - 1, len: 1 };
    let shape = AttentionShape { heads, scale: 0.125, softcap: None, sinks: None };
    finish();
    let start = Instant::now();
    for _ in 0..LAYERS {
        drop(ops.attention(&query, &cache.layers()[0], at, shape).unwrap());
    }
    finish();
    start.elapsed().as_secs_f64() * 1e6 / LAYERS as f64
}
