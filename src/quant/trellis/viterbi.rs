//! The nearest path through the trellis of a block, in whole numbers: the same bytes on every machine.
//!
//! A step looks at all 4096 states: the error of a state's code, as i16, plus the best of the paths that lead to it. Only
//! the best sums of each step are kept, 2^(12 - k) numbers; the path is found again from its end by comparing 2^k sums a step. A
//! first pass over the block's seam, where its end and its beginning meet, says which bits they share; a second one over the
//! block is held to them at both ends (QTIP's algorithm 4, whose first pass takes the whole block).
//!
//! Of a step, 16 states take four instructions of AVX2 (difference, square, sum, minimum), and the copy of the last step's
//! best to all states one and a half: these bind, not memory, as what is kept stays in the second-level cache.

use std::cell::RefCell;

use super::{BIAS, LEN, STATES, code};
use crate::math::per_isa;
use crate::simd::Isa;

/// Codes are multiplied by this, and so are weights, which may be 85 codes or 4.6 times the scale; squares are cut by 16 bits.
const UNIT: f32 = 384.0;

/// Codes of all states in units.
static CODES: [i16; STATES] = {
    let mut codes = [0; STATES];
    let mut state = 0;
    while state < STATES {
        let units = (code(state as u16) as i32 - BIAS as i32) * UNIT as i32;
        codes[state] = if units > 32767 { 32767 } else { units as i16 };
        state += 1;
    }
    codes
};

/// Working memory of a thread.
struct Scratch {
    /// Best sums before the first step and after each: steps + 1 × 2^(12 - k). The least of each row is 0.
    best: Vec<i16>,
    /// Of the last row, for each state the best that leads to it: four i16 a word.
    spread: Box<[u64; STATES / 4]>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch { best: Vec::new(), spread: Box::new([0; STATES / 4]) });
}

/// The states and the scale of 256 weights. Meaningless but defined for numbers that are not finite.
pub fn encode<const K: usize>(values: &[f32]) -> ([u16; LEN], f32) {
    let energy: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    let scale = ((energy / LEN as f64).sqrt() / code_rms()) as f32;
    if scale.is_nan() || scale < f32::MIN_POSITIVE {
        return ([0; LEN], 0.0);
    }
    let states = states::<K>(values, scale);
    (states, refined(values, &states, scale).min(65504.0))
}

/// The states of 256 weights that will be multiplied by `scale`.
pub fn states<const K: usize>(values: &[f32], scale: f32) -> [u16; LEN] {
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    let inverse = f64::from(UNIT) / f64::from(scale);
    // The last weight is coded first.
    let units = |t: usize| (f64::from(values[LEN - 1 - t]) * inverse).round_ties_even() as i16;
    let steps: [i16; LEN] = std::array::from_fn(units);
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.best.resize((LEN + 1) * (STATES >> K), 0);
        let mut seam = steps;
        // Weights on both sides of the seam that count: the fewer bits, the longer is what one says of another.
        let side = if K < 3 { LEN / 2 } else { 48 };
        seam.rotate_right(side);
        let mut found = [0; LEN];
        scratch.path::<K>(isa, &seam[..2 * side], None, &mut found[..2 * side]);
        let shared = found[side] >> K;
        scratch.path::<K>(isa, &steps, Some(shared), &mut found);
        found.reverse();
        found
    })
}

/// The scale that suits the codes best.
fn refined(values: &[f32], states: &[u16; LEN], scale: f32) -> f32 {
    let (mut products, mut squares) = (0.0f64, 0.0f64);
    for (&value, &state) in values.iter().zip(states) {
        let code = f64::from(code(state)) - f64::from(BIAS);
        products += f64::from(value) * code;
        squares += code * code;
    }
    let best = (products / squares) as f32;
    if best > 0.0 { best } else { scale }
}

/// The root of the mean square of all codes.
pub fn code_rms() -> f64 {
    let code = |state: usize| f64::from(code(state as u16)) - f64::from(BIAS);
    ((0..STATES).map(|state| code(state) * code(state)).sum::<f64>() / STATES as f64).sqrt()
}

impl Scratch {
    /// The states nearest to `steps`. `shared`: what the first state has above its symbol, and the last one below its
    /// oldest.
    fn path<const K: usize>(&mut self, isa: Isa, steps: &[i16], shared: Option<u16>, out: &mut [u16]) {
        let groups = STATES >> K;
        let before = &mut self.best[..groups];
        before.fill(if shared.is_some() { i16::MAX } else { 0 });
        if let Some(shared) = shared {
            before[usize::from(shared)] = 0;
        }
        spread(isa, K, before, &mut self.spread);
        for (&x, best) in steps.iter().zip(self.best[groups..].chunks_exact_mut(groups)) {
            step(isa, K, x, bytemuck::cast_slice(&self.spread[..]), best);
            spread(isa, K, best, &mut self.spread);
        }
        let row = |t: usize| &self.best[t * groups..(t + 1) * groups];
        let last = row(steps.len());
        let mut group = match shared {
            Some(shared) => usize::from(shared),
            None => (0..groups).min_by_key(|&group| last[group]).unwrap_or(0),
        };
        for (t, out) in out.iter_mut().enumerate().rev() {
            let row = row(t);
            let sum = |state: usize| row[state >> K].saturating_add(error::<K>(steps[t], CODES[state]));
            let candidates = (0..1 << K).map(|oldest| oldest * groups + group);
            let state = candidates.min_by_key(|&state| sum(state)).unwrap_or(0);
            *out = state as u16;
            group = state >> K;
        }
    }
}

/// The square of a difference, without its lowest 16 bits. Four bits a weight are so near that it is doubled first, which
/// cuts differences at 42 codes.
#[inline(always)]
fn error<const K: usize>(x: i16, code: i16) -> i16 {
    let difference = x.saturating_sub(code);
    let difference = i32::from(if K == 4 { difference.saturating_add(difference) } else { difference });
    ((difference * difference) >> 16) as i16
}

per_isa! {
    /// For each group of states that differ in the oldest of their symbols of `k` bits only, the least sum.
    fn step(k: usize, x: i16, spread: &[i16], best: &mut [i16]) {
        match k {
            1 => least::<1>(x, spread, best),
            2 => least::<2>(x, spread, best),
            3 => least::<3>(x, spread, best),
            _ => least::<4>(x, spread, best),
        }
    }
}

#[inline(always)]
fn least<const K: usize>(x: i16, spread: &[i16], best: &mut [i16]) {
    /// States that a loop handles at once.
    const LANES: usize = 32;
    let groups = best.len();
    for (at, best) in best.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut least = [i16::MAX; LANES];
        for oldest in 0..1 << K {
            let from = oldest * groups + at * LANES;
            let (codes, sums) = (&CODES[from..from + LANES], &spread[from..from + LANES]);
            for i in 0..LANES {
                least[i] = least[i].min(sums[i].saturating_add(error::<K>(x, codes[i])));
            }
        }
        *best = least;
    }
}

per_isa! {
    /// Takes the least of `best` off all of them, so that sums stay small, and copies each to the 2^k states that follow.
    fn spread(k: usize, best: &mut [i16], out: &mut [u64; STATES / 4]) {
        let least = best.iter().fold(i16::MAX, |least, &sum| least.min(sum));
        for sum in best.iter_mut() {
            *sum = sum.wrapping_sub(least);
        }
        // Copies double twice: this is what compilers vectorize.
        let twice = |sum: i16| u32::from(sum.cast_unsigned()) * 0x0001_0001;
        if k == 1 {
            let out: &mut [u32] = bytemuck::cast_slice_mut(out);
            out.iter_mut().zip(best).for_each(|(out, &mut sum)| *out = twice(sum));
            return;
        }
        let mut pairs = [0; STATES / 4];
        pairs.iter_mut().zip(best.iter()).for_each(|(pair, &sum)| *pair = twice(sum));
        match k {
            2 => copy::<1>(&pairs, out),
            3 => copy::<2>(&pairs, out),
            _ => copy::<4>(&pairs, out),
        }
    }
}

/// Each of `pairs` `2 N` times.
#[inline(always)]
fn copy<const N: usize>(pairs: &[u32; STATES / 4], out: &mut [u64; STATES / 4]) {
    for (out, &pair) in out.as_chunks_mut::<N>().0.iter_mut().zip(pairs) {
        let pair = u64::from(pair);
        *out = [pair | pair << 32; N];
    }
}
