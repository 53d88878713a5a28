use super::*;
use crate::backend::cpu::Activations;
use crate::cache::{CacheType, KvCache, LayerShape, Store};
use crate::simd::Isa;

#[derive(Clone, Copy, Debug)]
struct Case {
    heads: usize,
    kv: LayerShape,
    kind: &'static str,
    softcap: Option<f32>,
    sinks: Option<&'static [f32]>,
}

const PLAIN: Case = Case {
    heads: 6,
    kv: LayerShape { heads: 2, dim: 64, window: None },
    kind: "f16",
    softcap: None,
    sinks: None,
};

/// Segments, chunks and their edges, windows that begin inside of a chunk, head widths with and without a rest of eight.
const CASES: &[Case] = &[
    PLAIN,
    Case { kind: "f32", heads: 2, ..PLAIN },
    Case { kv: LayerShape { window: Some(100), ..PLAIN.kv }, ..PLAIN },
    Case { kv: LayerShape { heads: 1, dim: 80, window: Some(600) }, heads: 4, ..PLAIN },
    Case { kv: LayerShape { heads: 1, dim: 12, window: None }, heads: 1, softcap: Some(2.0), ..PLAIN },
    Case { kind: "bf16/q8_0", heads: 4, ..PLAIN },
    Case { kind: "q8_0/turbo3", heads: 2, ..PLAIN },
    Case { kind: "q4_0:rot", kv: LayerShape { heads: 1, dim: 128, window: None }, ..PLAIN },
    Case { kind: "affine8/affine4", ..PLAIN },
    Case { kind: "turbo", ..PLAIN },
    Case { kind: "turbo", heads: 2, kv: LayerShape { heads: 1, dim: 256, window: None }, ..PLAIN },
    Case { kind: "k5v5", heads: 2, softcap: Some(30.0), ..PLAIN },
    Case { kind: "k4v2", heads: 2, ..PLAIN },
    Case { kind: "k2v8", heads: 2, ..PLAIN },
    Case { sinks: Some(&[1.0, -3.0, 0.0, 20.0, 5.0, 2.0]), softcap: Some(30.0), ..PLAIN },
];

const TOKENS: usize = 1200;

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.f32() * 6.0 - 3.0).collect()
}

impl Case {
    fn cache(&self) -> KvCache {
        let mut cache = KvCache::new(&[self.kv], self.kind.parse().unwrap(), TOKENS).unwrap();
        let len = TOKENS * self.kv.heads * self.kv.dim;
        cache.layer(0).append(Isa::Scalar, &noise(1, len), &noise(2, len)).unwrap();
        cache
    }

    fn shape(&self) -> AttentionShape<'static> {
        let scale = 1.0 / (self.kv.dim as f32).sqrt();
        AttentionShape { heads: self.heads, scale, softcap: self.softcap, sinks: self.sinks }
    }

    fn columns(&self) -> usize {
        self.heads * self.kv.dim
    }

    /// The rows of `positions`, `chunk` at a time.
    fn run(&self, cpu: &Cpu, cache: &LayerCache, positions: Range<usize>, chunk: usize) -> Vec<f32> {
        let queries = noise(3, TOKENS * self.columns());
        let mut found = Vec::new();
        for start in positions.clone().step_by(chunk) {
            let at = Span { start, len: chunk.min(positions.end - start) };
            let rows = queries[start * self.columns()..(start + at.len) * self.columns()].to_vec();
            let query = Hidden::new(rows, self.columns());
            found.extend_from_slice(attention(cpu, &query, cache, at, self.shape()).unwrap().values());
        }
        found
    }

    /// The row at `position` in f64, all scores first.
    fn naive(&self, cache: &LayerCache, position: usize) -> Vec<f64> {
        let dim = self.kv.dim;
        let shape = self.shape();
        let queries = noise(3, TOKENS * self.columns());
        let query = &queries[position * self.columns()..(position + 1) * self.columns()];
        let visible = self.kv.window.map_or(0, |window| (position + 1).saturating_sub(window))..position + 1;
        let mut out = Vec::new();
        for (head, query) in query.chunks_exact(dim).enumerate() {
            let kv_head = head / (self.heads / self.kv.heads);
            let decode = |store: Store, bytes: &[u8]| {
                let mut values = vec![0.0; visible.len() * dim];
                store.format.decode(bytes, &mut values).unwrap();
                if store.turned {
                    values.chunks_exact_mut(dim).for_each(|row| turbo::rotate_back(Isa::Scalar, row));
                }
                values
            };
            let keys = decode(cache.key_store(), cache.keys(kv_head, visible.clone()));
            let values = decode(cache.value_store(), cache.values(kv_head, visible.clone()));
            let score = |key: &[f32]| {
                let dot: f64 = query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).sum();
                let score = dot * f64::from(shape.scale);
                shape.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
            };
            let weights: Vec<f64> = keys.chunks_exact(dim).map(|key| score(key).exp()).collect();
            let sum = weights.iter().sum::<f64>() + shape.sinks.map_or(0.0, |s| f64::from(s[head]).exp());
            out.extend((0..dim).map(|column| {
                let values = values.iter().skip(column).step_by(dim);
                weights.iter().zip(values).map(|(w, &v)| w * f64::from(v)).sum::<f64>() / sum
            }));
        }
        out
    }
}

fn cpu(threads: usize, isa: Isa) -> Cpu {
    Cpu::new(Some(threads), Some(isa), Activations::Quantized).unwrap()
}

#[test]
fn it_is_the_softmax_of_all_scores() {
    for case in CASES {
        let mut cache = case.cache();
        let cache = cache.layer(0);
        for position in [0, 1, 62, 63, 64, 99, 100, 511, 512, 513, 599, 600, 1023, 1024, 1199] {
            let exact = case.naive(cache, position);
            // Queries of packed keys are rounded to 8 bits, unless activations stay floats.
            for (activations, most) in [(Activations::Float, 1e-5), (Activations::Quantized, 0.03)] {
                let cpu = Cpu::new(Some(2), Some(Isa::detect().unwrap()), activations).unwrap();
                let found = case.run(&cpu, cache, position..position + 1, 1);
                let difference: f64 =
                    found.iter().zip(&exact).map(|(&f, e)| (f64::from(f) - e).powi(2)).sum();
                let error = (difference / exact.iter().map(|e| e * e).sum::<f64>()).sqrt();
                let packed = cache.key_store().format.block_len > 1;
                assert!(error < if packed { most } else { 1e-5 }, "{case:?} at {position}: {error:e}");
            }
        }
    }
}

#[test]
fn threads_batches_and_isas_do_not_change_a_bit() {
    for case in CASES {
        let mut cache = case.cache();
        let cache = cache.layer(0);
        for positions in [0..70, 490..530, 1180..1200] {
            let expected = case.run(&cpu(1, Isa::Scalar), cache, positions.clone(), 1);
            for isa in Isa::available() {
                // Each number of threads with one size of chunks: other machines are emulated, which is slow.
                for (threads, chunk) in [(1, 70), (2, 3), (3, 16), (4, 1)] {
                    let found = case.run(&cpu(threads, isa), cache, positions.clone(), chunk);
                    let same = found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same, "{case:?} {positions:?} {isa:?} {threads} threads, chunks of {chunk}");
                }
            }
        }
    }
}

/// n keys with all scores 0, values 1 and a sink logit s: n / (n + e^s).
#[test]
fn sinks_take_part_in_the_softmax() {
    for (n, sink, expected) in [(4, 1.0, 0.59539), (1, 0.0, 0.5), (16, 2.0, 0.68408)] {
        let layer = LayerShape { heads: 1, dim: 8, window: None };
        let mut cache = KvCache::new(&[layer], CacheType::F16, 64).unwrap();
        let cache = cache.layer(0);
        cache.append(Isa::Scalar, &vec![0.0; 8 * n], &vec![1.0; 8 * n]).unwrap();
        let query = Hidden::new(vec![1.0; 8], 8);
        let shape = AttentionShape { heads: 1, scale: 1.0, softcap: None, sinks: Some(&[sink]) };
        let at = Span { start: n - 1, len: 1 };
        let out = attention(&cpu(1, Isa::Scalar), &query, cache, at, shape).unwrap();
        for value in out.values() {
            assert!((value - expected).abs() < 1e-5, "n={n} s={sink}: {value}");
        }
    }
}
