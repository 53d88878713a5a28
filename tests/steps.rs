//! A decode step allocates nothing: what one token needed, the next one uses again.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::atomic::{AtomicUsize, Ordering};

use hadal::backend::cpu::{Activations, Cpu};
use hadal::cache::{CacheType, KvCache};
use hadal::model::{Outputs, Split};
use hadal::{Engine, Options, Sampler, Sampling};

#[path = "support/counting.rs"]
mod counting;
#[path = "support/random.rs"]
mod random;

use counting::Counting;

/// How often any thread asked for memory.
static ASKED: AtomicUsize = AtomicUsize::new(0);

fn count(bytes: isize) {
    if bytes > 0 {
        ASKED.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(count);

/// Allocations of 12 calls of `step` after 20 that warm up: the least of five rounds, as a thread without a core may only
/// then come to its first part.
fn allocations(mut step: impl FnMut()) -> usize {
    (0..20).for_each(|_| step());
    let mut round = || {
        let before = ASKED.load(Ordering::Relaxed);
        (0..12).for_each(|_| step());
        ASKED.load(Ordering::Relaxed) - before
    };
    (0..5).fold(usize::MAX, |least, _| least.min(round()))
}

fn engine_steps(threads: usize, cache: CacheType, sampling: &Sampling) -> usize {
    let options = Options { threads: Some(threads), cache, ..Options::default() };
    let mut engine = Engine::embedded(&options).unwrap();
    let vocab = engine.tokenizer().vocab_len();
    let mut sampler = Sampler::new(sampling, vocab, |_| "").unwrap();
    let mut logits = engine.prefill(&(1..40).collect::<Vec<u32>>()).unwrap().to_vec();
    allocations(|| {
        let token = sampler.sample(&mut logits).unwrap();
        sampler.accept(token);
        logits.copy_from_slice(engine.step(token).unwrap());
    })
}

/// Layers with and without a window, head norms and post-norms.
fn gemma_steps(threads: usize) -> usize {
    let model = random::random_model("gemma3", "q8_0", 64);
    let cpu = Cpu::new(Some(threads), None, Activations::Quantized).unwrap();
    let mut cache = KvCache::new(&model.cache_shape(), CacheType::F16, 100).unwrap();
    allocations(|| {
        model.forward(&[7], &mut cache, Outputs::Last, Split::none(&cpu)).unwrap();
    })
}

/// One test: the count is of all threads.
#[test]
fn a_step_allocates_nothing() {
    let before = ASKED.load(Ordering::Relaxed);
    drop(std::hint::black_box(vec![0u8; 100]));
    assert_eq!(ASKED.load(Ordering::Relaxed) - before, 1, "counting counts");

    let filters = Sampling {
        typical_p: 0.9,
        xtc_probability: 0.5,
        repeat_penalty: 1.1,
        repeat_last_n: 30,
        seed: Some(1),
        ..Sampling::default()
    };
    for threads in [1, 2] {
        for cache in [CacheType::F16, CacheType::F32, CacheType::TURBO] {
            for sampling in [&Sampling::greedy(), &Sampling::default(), &filters] {
                let found = engine_steps(threads, cache, sampling);
                assert_eq!(found, 0, "{threads} threads, {cache:?}, {sampling:?}");
            }
        }
        assert_eq!(gemma_steps(threads), 0, "Gemma 3 on {threads} threads");
    }
}
