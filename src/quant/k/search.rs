//! The searches for scales behind the K-quant encoders. Byte parity with the reference needs its order of float
//! operations, so each expression is kept as it evaluates it, without FMA. (ggml: `make_qkx2_quants`, `make_qkx3_quants`,
//! `make_qx_quants`, `make_qp_quants`, `nearest_int`.)

use super::lanes::{self, LANES};

/// Groups whose largest magnitude is below this count as zeros.
pub const EPSILON: f32 = 1e-15;

/// The nearest integer, ties to even, for magnitudes below 2^22; beyond, and for NaN, the wrapped number that the
/// reference gets from the bits of a float sum, so always something within ±2^22.
#[inline(always)]
pub fn nearest(value: f32) -> i32 {
    ((value + 12_582_912.0).to_bits() & 0x007f_ffff).cast_signed() - 0x0040_0000
}

/// What [`affine`] tries: candidate i has `most + first + delta * i` steps from the smallest to the largest value.
pub struct Steps {
    /// The largest code.
    pub most: i8,
    /// Of the first candidate, relative to `most`.
    pub first: f32,
    /// From one candidate to the next.
    pub delta: f32,
    /// The last candidate; there is one more than that.
    pub last: u8,
    /// Whether the error counts the squares of differences, or their magnitudes.
    pub squares: bool,
}

/// Codes, and the scale and minimum of least weighted error, for value = scale * code - minimum. The minimum is not
/// negative: 0 is always within reach. At most 32 values.
pub fn affine(values: &[f32], weights: &[f32], steps: &Steps, codes: &mut [i8]) -> (f32, f32) {
    let (mut min, mut max) = (values[0], values[0]);
    let (mut sum_w, mut sum_x) = (0.0f32, 0.0f32);
    for (&x, &w) in values.iter().zip(weights) {
        min = if x < min { x } else { min };
        max = if x > max { x } else { max };
        sum_w += w;
        sum_x += w * x;
    }
    min = if min > 0.0 { 0.0 } else { min };
    if max == min {
        codes.fill(0);
        return (0.0, -min);
    }
    let error = |scale: f32, min: f32, codes: &[i8]| {
        let pairs = values.iter().zip(weights).zip(codes);
        pairs.fold(0.0f32, |sum, ((&x, &w), &l)| {
            let difference = scale * f32::from(l) + min - x;
            sum + w * if steps.squares { difference * difference } else { difference.abs() }
        })
    };
    let most = f32::from(steps.most);
    let inverse = most / (max - min);
    let mut scale = 1.0 / inverse;
    assign(values, min, inverse, steps.most, codes);
    let mut best = error(scale, min, codes);
    let mut candidate = [0; 32];
    let candidate = &mut candidate[..values.len()];
    for step in 0..=steps.last {
        // From the minimum of the best candidate so far, no longer the smallest value: so the reference does.
        let inverse = (steps.first + steps.delta * f32::from(step) + most) / (max - min);
        assign(values, min, inverse, steps.most, candidate);
        let Some((new_scale, new_min)) = fit(values, weights, candidate, sum_w, sum_x) else { continue };
        let new_error = error(new_scale, new_min, candidate);
        if new_error < best {
            codes.copy_from_slice(candidate);
            (best, scale, min) = (new_error, new_scale, new_min);
        }
    }
    (scale, -min)
}

/// The codes, 0..=most, of values at `inverse` steps a unit above `min`.
fn assign(values: &[f32], min: f32, inverse: f32, most: i8, codes: &mut [i8]) {
    for (code, &x) in codes.iter_mut().zip(values) {
        *code = nearest(inverse * (x - min)).clamp(0, i32::from(most)) as i8;
    }
}

/// The scale and (not positive) offset of least weighted squared error for given codes; `None` if the codes do not
/// determine them.
fn fit(values: &[f32], weights: &[f32], codes: &[i8], sum_w: f32, sum_x: f32) -> Option<(f32, f32)> {
    let (mut sum_l, mut sum_l2, mut sum_xl) = (0.0f32, 0.0f32, 0.0f32);
    for ((&x, &w), &l) in values.iter().zip(weights).zip(codes) {
        let l = f32::from(l);
        sum_l += w * l;
        sum_l2 += w * l * l;
        sum_xl += w * l * x;
    }
    let determinant = sum_w * sum_l2 - sum_l * sum_l;
    if determinant.is_nan() || determinant <= 0.0 {
        return None;
    }
    let scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    let min = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    Some(if min > 0.0 { (sum_xl / sum_l2, 0.0) } else { (scale, min) })
}

impl Steps {
    /// What the encoders that weigh errors by importance try, for codes up to `most`.
    pub const fn fine(most: i8) -> Steps {
        Steps { most, first: -0.9, delta: 0.05, last: 36, squares: true }
    }
}

/// What an error in each of `values` counts: its column's importance, and more for large values.
pub fn weights(values: &[f32], importance: &[f32], energy: f32, weights: &mut [f32]) {
    for ((weight, &x), &column) in weights.iter_mut().zip(values).zip(importance) {
        *weight = column * (energy + x * x).sqrt();
    }
}

/// Multiples in 0..=most of a scale, and the scale, of least weighted error for numbers that are not negative: of 9
/// candidates the best one, then one multiple after the other is changed to what suits the others best, at most five
/// times round.
pub fn multiples(numbers: &[f32], weights: &[f32], most: u8, multiples: &mut [u8]) -> f32 {
    let largest = numbers.iter().fold(0.0f32, |largest, &x| if x > largest { x } else { largest });
    if largest < EPSILON {
        multiples.fill(0);
        return 0.0;
    }
    let most_f = f32::from(most);
    let pairs = || numbers.iter().zip(weights);
    let error = |inverse: f32| {
        let scale = 1.0 / inverse;
        pairs().fold(0.0f32, |sum, (&x, &w)| {
            let difference = x - scale * (nearest(inverse * x).min(i32::from(most))) as f32;
            sum + w * difference * difference
        })
    };
    let mut inverse = most_f / largest;
    let mut best = error(inverse);
    for step in (-4i8..=4).filter(|&step| step != 0) {
        let candidate = (0.1 * f32::from(step) + most_f) / largest;
        let new = error(candidate);
        if new < best {
            (best, inverse) = (new, candidate);
        }
    }
    let (mut sum_lx, mut sum_l2) = (0.0f32, 0.0f32);
    for ((multiple, &x), &w) in multiples.iter_mut().zip(numbers).zip(weights) {
        *multiple = nearest(inverse * x).min(i32::from(most)) as u8;
        let l = f32::from(*multiple);
        sum_lx += w * x * l;
        sum_l2 += w * l * l;
    }
    for _ in 0..5 {
        let mut changed = false;
        for ((multiple, &x), &w) in multiples.iter_mut().zip(numbers).zip(weights) {
            let l = f32::from(*multiple);
            let (others_lx, others_l2) = (sum_lx - w * x * l, sum_l2 - w * l * l);
            let positive = others_lx > 0.0 && others_l2 > 0.0;
            if !positive {
                continue;
            }
            let new = nearest(x * others_l2 / others_lx).min(i32::from(most)) as u8;
            let l = f32::from(new);
            let (new_lx, new_l2) = (others_lx + w * x * l, others_l2 + w * l * l);
            if new != *multiple && new_lx * new_lx * sum_l2 > sum_lx * sum_lx * new_l2 {
                *multiple = new;
                (sum_lx, sum_l2) = (new_lx, new_l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    if sum_l2 > 0.0 { sum_lx / sum_l2 } else { 0.0 }
}

/// Codes in `-most..most`, and their scale of least weighted error: of 19 candidates around the one that maps the first
/// largest magnitude to `-most`, the best one refitted. 0 for (almost) zeros.
pub fn symmetric_weighted(values: &[f32], weights: &[f32], most: i8, codes: &mut [i8]) -> f32 {
    let extreme = crate::quant::q4_0::first_extreme(values);
    if extreme.abs() < EPSILON {
        codes.fill(-most); // Never scaled: what the reference leaves as its biased code 0.
        return 0.0;
    }
    let steps = f32::from(most);
    // The first one, then the others in order; the last lanes have nothing to do.
    let mut inverses = [[-steps / extreme; LANES]; 3];
    for (inverse, step) in
        inverses.as_flattened_mut()[1..].iter_mut().zip((-9i8..=9).filter(|&step| step != 0))
    {
        *inverse = -(steps + 0.1 * f32::from(step)) / extreme;
    }
    let isa = lanes::isa();
    let sums = inverses.map(|inverses| lanes::symmetric_sums(isa, values, weights, &inverses, most));
    let mut chosen = inverses[0][0];
    let [[sum_lx, ..], [sum_l2, ..]] = sums[0];
    let mut scale = if sum_l2 == 0.0 { 0.0 } else { sum_lx / sum_l2 };
    let mut best = scale * sum_lx;
    for candidate in 1..19 {
        let (eight, lane) = (candidate / LANES, candidate % LANES);
        let [sum_lx, sum_l2] = sums[eight].map(|sums| sums[lane]);
        if sum_l2 > 0.0 && sum_lx * sum_lx > best * sum_l2 {
            scale = sum_lx / sum_l2;
            best = scale * sum_lx;
            chosen = inverses[eight][lane];
        }
    }
    for (code, &x) in codes.iter_mut().zip(values) {
        *code = nearest(chosen * x).clamp(-i32::from(most), i32::from(most) - 1) as i8;
    }
    scale
}
