//! The CPU: rows are split over a thread pool, dots are taken from the weights' [`Format`](crate::quant::Format).
//! Every result is the same bits for any number of threads, any batch and any instruction set.

use rayon::prelude::*;

use super::{AttentionShape, Backend, Gate, Hidden, Linear, Rotation, Span};
use crate::cache::LayerCache;
use crate::error::{Error, Result};
use crate::math::{self, per_isa};
use crate::simd::Isa;
use crate::tensor::Tensor;

mod attention;
mod matmul;
pub mod pool;

/// What weights are multiplied with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// Rounded to 8 bits a block, as the weights' format asks: fast.
    #[default]
    Quantized,
    /// f32 against decoded weights: slow, the reference.
    Float,
}

/// A thread pool and the choices that hold for a whole run.
#[derive(Debug)]
pub struct Cpu {
    pool: rayon::ThreadPool,
    isa: Isa,
    activations: Activations,
}

impl Cpu {
    /// # Errors
    /// [`Error::Option`] if `threads` is zero or the system refuses them, if the CPU lacks `isa`, or if `HADAL_ISA`
    /// names no known set.
    pub fn new(threads: Option<usize>, isa: Option<Isa>, activations: Activations) -> Result<Self> {
        let isa = match isa {
            Some(isa) if !isa.is_available() => {
                return Err(Error::option("isa", format!("this CPU has no {}", isa.name())));
            }
            Some(isa) => isa,
            None => Isa::detect()?,
        };
        let threads = match threads {
            Some(0) => return Err(Error::option("--threads", "0 threads: at least 1 is needed")),
            Some(threads) => threads,
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|index| format!("hadal-{index}"))
            .build()
            .map_err(|error| Error::option("--threads", format!("{threads} threads: {error}")))?;
        Ok(Cpu { pool, isa, activations })
    }

    /// Runs `work` on a thread of the pool. The operations inside it need not hand themselves over to the pool one by
    /// one, which costs several microseconds each.
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }
}

impl Backend for Cpu {
    fn embed(&self, table: &Tensor, tokens: &[u32], scale: f32) -> Result<Hidden> {
        let columns = table.columns();
        let mut values = vec![0.0; tokens.len() * columns];
        for (out, &token) in values.chunks_exact_mut(columns).zip(tokens) {
            let row = token as usize;
            if row >= table.rows() {
                return Err(Error::Tokenizer(format!(
                    "token {token} is not in the model's {} rows",
                    table.rows()
                )));
            }
            table.format().decode(table.row(row), out)?;
            out.iter_mut().for_each(|value| *value *= scale);
        }
        Ok(Hidden::new(values, columns))
    }

    fn linear(&self, input: &Hidden, layers: &[&Linear]) -> Result<Vec<Hidden>> {
        self.pool.install(|| matmul::linear(self.isa, self.activations, input, layers))
    }

    fn rms_norm(&self, input: &Hidden, weight: &[f32], eps: f32) -> Hidden {
        let mut values = input.values().to_vec();
        self.rows(&mut values, weight.len(), |row| rms_norm(self.isa, row, weight, eps));
        Hidden::new(values, input.columns())
    }

    fn rope(&self, mut input: Hidden, dim: usize, rotation: &Rotation) -> Hidden {
        let (columns, pairs) = (input.columns(), rotation.pairs);
        let tables = rotation.cos.chunks_exact(pairs).zip(rotation.sin.chunks_exact(pairs));
        for (row, (cos, sin)) in input.values_mut().chunks_exact_mut(columns).zip(tables) {
            for head in row.chunks_exact_mut(dim) {
                rotate(self.isa, head, cos, sin, rotation.interleaved);
            }
        }
        input
    }

    fn append(&self, cache: &mut LayerCache, keys: &Hidden, values: &Hidden) -> Result<()> {
        cache.append(self.isa, keys.values(), values.values())
    }

    fn attention(
        &self,
        query: &Hidden,
        cache: &LayerCache,
        at: Span,
        shape: AttentionShape,
    ) -> Result<Hidden> {
        self.pool.install(|| attention::attention(self.isa, query, cache, at, shape))
    }

    fn gated(&self, gate: Gate, mut a: Hidden, b: &Hidden) -> Hidden {
        let columns = a.columns();
        let bend = match gate {
            Gate::Silu => silu_times,
            Gate::Gelu => gelu_times,
        };
        self.pool.install(|| {
            let rows = a.values_mut().par_chunks_mut(columns).zip(b.values().par_chunks(columns));
            rows.for_each(|(a, b)| bend(self.isa, a, b));
        });
        a
    }

    fn add(&self, mut a: Hidden, b: &Hidden) -> Hidden {
        add(self.isa, a.values_mut(), b.values());
        a
    }

    fn softcap(&self, mut input: Hidden, cap: f32) -> Hidden {
        softcap(self.isa, input.values_mut(), cap);
        input
    }
}

impl Cpu {
    /// `work` on every run of `len` elements, over the threads if there is enough of it.
    fn rows(&self, values: &mut [f32], len: usize, work: impl Fn(&mut [f32]) + Send + Sync) {
        const WORTH_A_THREAD: usize = 16 * 1024;
        if values.len() < WORTH_A_THREAD {
            values.chunks_exact_mut(len).for_each(work);
        } else {
            self.pool.install(|| values.par_chunks_exact_mut(len).for_each(work));
        }
    }
}

per_isa! {
    /// One row in place. The mean of squares is summed in 8 lanes.
    fn rms_norm(row: &mut [f32], weight: &[f32], eps: f32) {
        let mut lanes = [0.0f32; 8];
        let (chunks, rest) = row.as_chunks::<8>();
        for chunk in chunks {
            for lane in 0..8 {
                lanes[lane] += chunk[lane] * chunk[lane];
            }
        }
        for (lane, value) in rest.iter().enumerate() {
            lanes[lane] += value * value;
        }
        let scale = 1.0 / (math::sum_lanes(lanes) / row.len() as f32 + eps).sqrt();
        for (value, weight) in row.iter_mut().zip(weight) {
            *value = (*value * scale) * weight;
        }
    }
}

per_isa! {
    fn rotate(head: &mut [f32], cos: &[f32], sin: &[f32], interleaved: bool) {
        let pairs = cos.len();
        if interleaved {
            for ((pair, &cos), &sin) in head.chunks_exact_mut(2).zip(cos).zip(sin) {
                let (x, y) = (pair[0], pair[1]);
                pair[0] = x * cos - y * sin;
                pair[1] = x * sin + y * cos;
            }
        } else {
            let (low, high) = head.split_at_mut(pairs);
            for (((x, y), &cos), &sin) in low.iter_mut().zip(high).zip(cos).zip(sin) {
                (*x, *y) = (*x * cos - *y * sin, *x * sin + *y * cos);
            }
        }
    }
}

per_isa! {
    fn silu_times(a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = math::silu(*a) * b;
        }
    }
}

per_isa! {
    fn gelu_times(a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a = math::gelu(*a) * b;
        }
    }
}

per_isa! {
    fn add(a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
    }
}

per_isa! {
    fn softcap(values: &mut [f32], cap: f32) {
        for value in values {
            *value = cap * math::tanh(*value / cap);
        }
    }
}
