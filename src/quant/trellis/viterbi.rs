//! The nearest path through the trellis of a block, in whole numbers: the same bytes on every machine.
//!
//! A step looks at all 16384 states: the errors of a state's two codes, as i16, plus the best of the paths that lead to it. Only
//! the best sums of each step are kept, 2^(14 - 2 k) numbers; the path is found again from its end by comparing 2^2k sums a step. A
//! first pass over the block's seam, where its end and its beginning meet, says which bits they share; a second one over the
//! block is held to them at both ends (QTIP's algorithm 4, whose first pass takes the whole block).
//!
//! Of a step, 16 states take seven instructions of AVX2 (two differences, two squares, two sums, a minimum): their ports bind,
//! not memory, as what is kept stays in the second-level cache.

use std::cell::RefCell;

use super::{BIAS, LEN, PAIRS, STATES, codes, first_weight};
use crate::math::per_isa;
use crate::simd::Isa;

/// Codes are multiplied by this, and so are weights, which may be 85 codes or 3.5 times the scale; squares are cut by 16 bits.
const UNIT: f32 = 384.0;

/// Of all states, the code of either weight in units.
struct Units([[i16; STATES]; 2]);

/// By state.
static BY_STATE: Units = units(STATES, 1);

/// By state for k from 1 to 4, those that differ in the oldest symbol only beside each other.
static BY_GROUP: [Units; 4] = [by_group(1), by_group(2), by_group(3), by_group(4)];

const fn by_group(k: usize) -> Units {
    units(STATES >> (2 * k), 1 << (2 * k))
}

/// State `of * across + at` at place `at * each + of`, of `each` times `across` states.
const fn units(across: usize, each: usize) -> Units {
    let mut units = [[0; STATES]; 2];
    let mut state = 0;
    while state < STATES {
        let codes = codes(state as u16);
        let place = state % across * each + state / across;
        let mut i = 0;
        while i < 2 {
            units[i][place] = (codes[i] as i16 - BIAS as i16) * UNIT as i16;
            i += 1;
        }
        state += 1;
    }
    Units(units)
}

thread_local! {
    /// Best sums before the first step and after each: steps + 1 × 2^(14 - 2 k). The least of each row is 0.
    static BEST: RefCell<Vec<i16>> = const { RefCell::new(Vec::new()) };
}

/// What to multiply the scale of codes as large as the weights with, k from 1 to 4: the nearer they come to the
/// weights, the more do the farthest weights count.
const SPREAD: [f32; 4] = [1.0, 1.02, 1.14, 1.2];

/// The states of all pairs in the order of the path, and the scale. Meaningless but defined for numbers that are not
/// finite.
pub fn encode<const K: usize>(values: &[f32]) -> ([u16; PAIRS], f32) {
    let energy: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    let of_codes = f64::from(SUM_OF_SQUARES) / (2 * STATES) as f64;
    let usual = (energy / LEN as f64 / of_codes).sqrt() as f32 * SPREAD[K - 1];
    if usual.is_nan() || usual < f32::MIN_POSITIVE {
        return ([0; PAIRS], 0.0);
    }
    let mut found = attempt::<K>(values, usual);
    // A weight that no code reaches: all of them a little coarser may cost less.
    let reaching = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs())) / FARTHEST;
    if reaching > 1.1 * usual {
        let other = attempt::<K>(values, reaching.min(1.4 * usual));
        if other.2 < found.2 {
            found = other;
        }
    }
    (found.0, found.1.min(65504.0))
}

/// A magnitude that codes of both signs reach.
const FARTHEST: f32 = 52.0;

/// The states, the scale that suits them best and the sum of squared errors, when they are looked for with `scale`.
fn attempt<const K: usize>(values: &[f32], scale: f32) -> ([u16; PAIRS], f32, f64) {
    let states = states::<K>(values, scale);
    let (mut products, mut squares, mut energy) = (0.0f64, 0.0f64, 0.0f64);
    for (j, &state) in states.iter().enumerate() {
        for (&value, code) in values[first_weight(j)..].iter().zip(codes(state)) {
            let (value, code) = (f64::from(value), f64::from(code) - f64::from(BIAS));
            products += value * code;
            squares += code * code;
            energy += value * value;
        }
    }
    let best = products / squares;
    let best = if best > 0.0 { best } else { f64::from(scale) };
    (states, best as f32, energy - 2.0 * best * products + best * best * squares)
}

/// The states of 256 weights that will be multiplied by `scale`.
fn states<const K: usize>(values: &[f32], scale: f32) -> [u16; PAIRS] {
    let isa = Isa::detect().unwrap_or(Isa::Scalar);
    let inverse = f64::from(UNIT) / f64::from(scale);
    // The last pair is coded first.
    let units = |weight: usize| (f64::from(values[weight]) * inverse).round_ties_even() as i16;
    let steps: [[i16; 2]; PAIRS] = std::array::from_fn(|t| {
        let first = first_weight(PAIRS - 1 - t);
        [units(first), units(first + 1)]
    });
    BEST.with_borrow_mut(|best| {
        best.resize((PAIRS + 1) * (STATES >> (2 * K)), 0);
        let mut seam = steps;
        // Pairs on both sides of the seam that count: the fewer bits, the longer is what one says of another.
        let side = if K < 3 { PAIRS / 2 } else { 24 };
        seam.rotate_right(side);
        let mut found = [0; PAIRS];
        path::<K>(best, isa, &seam[..2 * side], None, &mut found[..2 * side]);
        let shared = found[side] >> (2 * K);
        path::<K>(best, isa, &steps, Some(shared), &mut found);
        found.reverse();
        found
    })
}

/// Of all codes.
const SUM_OF_SQUARES: u32 = {
    let (mut sum, mut state) = (0, 0);
    while state < STATES {
        let [a, b] = codes(state as u16);
        let (a, b) = (a.abs_diff(BIAS) as u32, b.abs_diff(BIAS) as u32);
        sum += a * a + b * b;
        state += 1;
    }
    sum
};

/// The states nearest to `steps`. `shared`: what the first state has above its symbol, and the last one below its
/// oldest.
fn path<const K: usize>(
    best: &mut [i16],
    isa: Isa,
    steps: &[[i16; 2]],
    shared: Option<u16>,
    out: &mut [u16],
) {
    let groups = STATES >> (2 * K);
    let before = &mut best[..groups];
    before.fill(if shared.is_some() { i16::MAX } else { 0 });
    if let Some(shared) = shared {
        before[usize::from(shared)] = 0;
    }
    for (t, &pair) in steps.iter().enumerate() {
        let (before, after) = best[t * groups..(t + 2) * groups].split_at_mut(groups);
        step(isa, K, pair, before, after);
    }
    let row = |t: usize| &best[t * groups..(t + 1) * groups];
    let last = row(steps.len());
    let mut group = match shared {
        Some(shared) => usize::from(shared),
        None => (0..groups).min_by_key(|&group| last[group]).unwrap_or(0),
    };
    for (t, out) in out.iter_mut().enumerate().rev() {
        let oldest = oldest(isa, K, steps[t], row(t), group);
        let state = oldest * groups + group;
        *out = state as u16;
        group = state >> (2 * K);
    }
}

/// The squares of two differences, without their lowest 16 bits. Three and four bits a weight are so near that differences are
/// doubled first, which cuts them at 42 codes.
#[inline(always)]
fn error<const K: usize>(pair: [i16; 2], codes: [i16; 2]) -> i16 {
    let square = |i: usize| {
        let difference = pair[i].saturating_sub(codes[i]);
        let difference = i32::from(if K > 2 { difference.saturating_add(difference) } else { difference });
        ((difference * difference) >> 16) as i16
    };
    square(0).saturating_add(square(1))
}

per_isa! {
    /// For each group of states that differ in the oldest of their symbols of 2 `k` bits only, the least sum; then takes the
    /// least of all off all of them, so that sums stay small.
    fn step(k: usize, pair: [i16; 2], before: &[i16], after: &mut [i16]) {
        match k {
            1 => least::<1, 4>(pair, before, after),
            2 => least::<2, 16>(pair, before, after),
            3 => least::<3, 64>(pair, before, after),
            _ => least::<4, 64>(pair, before, after),
        }
        let least = after.iter().fold(i16::MAX, |least, &sum| least.min(sum));
        for sum in after.iter_mut() {
            *sum = sum.wrapping_sub(least);
        }
    }
}

/// Reads the codes of all states in their order: they are more than the first-level cache holds. The same group leads to
/// `LANES` states, which are handled at once.
#[inline(always)]
fn least<const K: usize, const LANES: usize>(pair: [i16; 2], before: &[i16], after: &mut [i16]) {
    after.fill(i16::MAX);
    let codes = BY_STATE.0.each_ref().map(|codes| codes.as_chunks::<LANES>().0);
    let (after, _) = after.as_chunks_mut::<LANES>();
    for oldest in 0..1 << (2 * K) {
        let first = oldest * after.len();
        let codes = [&codes[0][first..][..after.len()], &codes[1][first..][..after.len()]];
        for (at, after) in after.iter_mut().enumerate() {
            let before = before[((first + at) * LANES) >> (2 * K)];
            for i in 0..LANES {
                let sum = error::<K>(pair, [codes[0][at][i], codes[1][at][i]]);
                after[i] = after[i].min(sum.saturating_add(before));
            }
        }
    }
}

per_isa! {
    /// The oldest symbol of the state of `group` with the least sum, the lowest of equal ones.
    fn oldest(k: usize, pair: [i16; 2], before: &[i16], group: usize) -> usize {
        match k {
            1 => nearest::<1, 4>(pair, before, group),
            2 => nearest::<2, 16>(pair, before, group),
            3 => nearest::<3, 64>(pair, before, group),
            _ => nearest::<4, 256>(pair, before, group),
        }
    }
}

/// `N` is 2^2k.
#[inline(always)]
fn nearest<const K: usize, const N: usize>(pair: [i16; 2], before: &[i16], group: usize) -> usize {
    let codes = [&BY_GROUP[K - 1].0[0][group * N..][..N], &BY_GROUP[K - 1].0[1][group * N..][..N]];
    let groups = STATES / N;
    let sums: [i16; N] = std::array::from_fn(|oldest| {
        error::<K>(pair, [codes[0][oldest], codes[1][oldest]])
            .saturating_add(before[(oldest * groups + group) / N])
    });
    let least = sums.iter().fold(i16::MAX, |least, &sum| least.min(sum));
    sums.iter().position(|&sum| sum == least).unwrap_or(0)
}
