//! The searches of Q6_K and Q3_K, eight groups of 16 at a time, each in a lane of its own. A lane adds in the reference's
//! order, so the bits are the same and the compiler may make vectors of lanes.

use std::ops::Range;

use super::lanes::{LANES, Lanes, mask, select};
use super::search::{EPSILON, nearest};
use crate::math::per_isa;

/// Values of a group.
const LENGTH: usize = 16;

/// Scales of the 16 groups of a block, and their codes: `search` is told which values it is to take, eight groups at a time.
pub fn of_block(codes: &mut [i8; 256], search: impl Fn(Range<usize>, &mut [i8]) -> Lanes) -> [f32; 16] {
    let mut scales = [0.0; 16];
    for (half, scales) in scales.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let part = LANES * LENGTH * half..LANES * LENGTH * (half + 1);
        *scales = search(part.clone(), &mut codes[part]);
    }
    scales
}

per_isa! {
    /// [`super::search::symmetric_weighted`] of eight groups that follow each other. Their scales.
    pub fn weighted(values: &[f32], weights: &[f32], most: i8, codes: &mut [i8]) -> Lanes {
        let (x, w) = (across(values), across(weights));
        let extreme = extremes(&x);
        let mut best = Candidate::new(&x, &w, &extreme, 0, most);
        let mut product = [0.0; LANES];
        for lane in 0..LANES {
            best.scale[lane] = if best.sum_l2[lane] == 0.0 { 0.0 } else { best.scale[lane] };
            product[lane] = best.scale[lane] * best.sum_lx[lane];
        }
        for step in -9..=9 {
            if step == 0 {
                continue;
            }
            let new = Candidate::new(&x, &w, &extreme, step, most);
            for lane in 0..LANES {
                let (sum_lx, sum_l2) = (new.sum_lx[lane], new.sum_l2[lane]);
                let better = mask(sum_l2 > 0.0) & mask(sum_lx * sum_lx > product[lane] * sum_l2);
                product[lane] = select(better, new.scale[lane] * sum_lx, product[lane]);
                best.scale[lane] = select(better, new.scale[lane], best.scale[lane]);
                best.inverse[lane] = select(better, new.inverse[lane], best.inverse[lane]);
            }
        }
        let mut found = [[0; LANES]; LENGTH];
        for i in 0..LENGTH {
            for lane in 0..LANES {
                found[i][lane] = code(best.inverse[lane] * x[i][lane], most);
            }
        }
        finish(&extreme, &found, best.scale, most, codes)
    }
}

per_isa! {
    /// Codes in `-most..most`, and their scales of least error, of eight groups that follow each other; a value weighs its
    /// square. From those that map the first largest magnitude to `-most`, one code after the other is changed to what
    /// suits the others best, at most five times round. 0 for (almost) zeros. (ggml: `make_q3_quants`.)
    pub fn adjusted(values: &[f32], most: i8, codes: &mut [i8]) -> Lanes {
        let x = across(values);
        let extreme = extremes(&x);
        let (mut sum_lx, mut sum_l2) = ([0.0; LANES], [0.0; LANES]);
        let mut found = [[0; LANES]; LENGTH];
        for i in 0..LENGTH {
            for lane in 0..LANES {
                let x = x[i][lane];
                found[i][lane] = code(-f32::from(most) / extreme[lane] * x, most);
                let (w, l) = (x * x, found[i][lane] as f32);
                sum_lx[lane] += w * x * l;
                sum_l2[lane] += w * l * l;
            }
        }
        for _ in 0..5 {
            let mut changed = [0; LANES];
            for i in 0..LENGTH {
                for lane in 0..LANES {
                    let (x, old) = (x[i][lane], found[i][lane]);
                    let (w, l) = (x * x, old as f32);
                    let (others_lx, others_l2) = (sum_lx[lane] - w * x * l, sum_l2[lane] - w * l * l);
                    let new = code(x * others_l2 / others_lx, most);
                    let l = new as f32;
                    let (new_lx, new_l2) = (others_lx + w * x * l, others_l2 + w * l * l);
                    let better = new_lx * new_lx * sum_l2[lane] > sum_lx[lane] * sum_lx[lane] * new_l2;
                    let change =
                        mask(others_lx > 0.0) & mask(new_l2 > 0.0) & mask(better) & mask(new != old);
                    sum_lx[lane] = select(change, new_lx, sum_lx[lane]);
                    sum_l2[lane] = select(change, new_l2, sum_l2[lane]);
                    found[i][lane] = new & change.cast_signed() | old & !change.cast_signed();
                    changed[lane] |= change;
                }
            }
            // Where nothing changes, nothing will.
            if changed == [0; LANES] {
                break;
            }
        }
        let mut scales = [0.0; LANES];
        for lane in 0..LANES {
            scales[lane] = if sum_l2[lane] > 0.0 { sum_lx[lane] / sum_l2[lane] } else { 0.0 };
        }
        finish(&extreme, &found, scales, most, codes)
    }
}

per_isa! {
    /// Codes anew for the groups' scales as they are stored. Where one is 0 the reference keeps the codes of the search,
    /// although all of them mean 0.
    pub fn assign(values: &[f32], scales: &[f32], most: i8, codes: &mut [i8]) {
        for (g, &scale) in scales.iter().enumerate() {
            if scale == 0.0 {
                continue;
            }
            let (values, codes) = (&values[LENGTH * g..][..LENGTH], &mut codes[LENGTH * g..][..LENGTH]);
            for i in 0..LENGTH {
                codes[i] = code(values[i] / scale, most) as i8;
            }
        }
    }
}

/// Value `i` of each group side by side.
#[inline(always)]
fn across(values: &[f32]) -> [Lanes; LENGTH] {
    let mut across = [[0.0; LANES]; LENGTH];
    for lane in 0..LANES {
        for i in 0..LENGTH {
            across[i][lane] = values[LENGTH * lane + i];
        }
    }
    across
}

/// Of each group the first value of largest magnitude.
#[inline(always)]
fn extremes(x: &[Lanes; LENGTH]) -> Lanes {
    let mut extremes = [0.0f32; LANES];
    for i in 0..LENGTH {
        for lane in 0..LANES {
            let (x, extreme) = (x[i][lane], extremes[lane]);
            extremes[lane] = if x.abs() > extreme.abs() { x } else { extreme };
        }
    }
    extremes
}

#[inline(always)]
fn code(multiple: f32, most: i8) -> i32 {
    nearest(multiple).clamp(-i32::from(most), i32::from(most) - 1)
}

/// Codes that values have at one reciprocal of the scale, as sums of weight * value * code and of weight * code², and the
/// scale that suits them best.
struct Candidate {
    inverse: Lanes,
    sum_lx: Lanes,
    sum_l2: Lanes,
    scale: Lanes,
}

impl Candidate {
    /// The one that maps `extreme` to `-most` and `step` tenths.
    #[inline(always)]
    fn new(x: &[Lanes; LENGTH], w: &[Lanes; LENGTH], extreme: &Lanes, step: i8, most: i8) -> Candidate {
        let (mut inverse, mut scale) = ([0.0; LANES], [0.0; LANES]);
        let (mut sum_lx, mut sum_l2) = ([0.0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            inverse[lane] = -(f32::from(most) + 0.1 * f32::from(step)) / extreme[lane];
        }
        for i in 0..LENGTH {
            for lane in 0..LANES {
                let (x, w) = (x[i][lane], w[i][lane]);
                let l = code(inverse[lane] * x, most) as f32;
                sum_lx[lane] += w * x * l;
                sum_l2[lane] += w * l * l;
            }
        }
        for lane in 0..LANES {
            scale[lane] = sum_lx[lane] / sum_l2[lane];
        }
        Candidate { inverse, sum_lx, sum_l2, scale }
    }
}

/// Group after group the codes, and the scales. (Almost) zeros have a scale of 0 and never scaled what the reference leaves
/// as its biased code 0.
#[inline(always)]
fn finish(
    extreme: &Lanes,
    found: &[[i32; LANES]; LENGTH],
    mut scales: Lanes,
    most: i8,
    codes: &mut [i8],
) -> Lanes {
    for lane in 0..LANES {
        let zeros = extreme[lane].abs() < EPSILON;
        scales[lane] = if zeros { 0.0 } else { scales[lane] };
        for i in 0..LENGTH {
            codes[LENGTH * lane + i] = if zeros { -most } else { found[i][lane] as i8 };
        }
    }
    scales
}

#[cfg(test)]
mod tests {
    use super::super::{lanes, search};
    use super::*;

    /// Groups in lanes have the codes and scales of groups alone, odd ones too.
    #[test]
    fn lanes_agree_with_groups() {
        let mut random = fastrand::Rng::with_seed(12);
        for round in 0..200 {
            let mut values: Vec<f32> =
                (0..LANES * LENGTH).map(|_| (random.f32() - 0.4) * random.f32()).collect();
            let weights: Vec<f32> =
                (0..LANES * LENGTH).map(|_| random.f32() * f32::from(random.u8(0..3))).collect();
            values[..LENGTH].fill(random.f32() - 0.5);
            values[LENGTH..2 * LENGTH].fill(0.0);
            values[2 * LENGTH] = 1e30;
            values[3 * LENGTH..4 * LENGTH].iter_mut().for_each(|x| *x *= 1e-16);
            let most = if round % 2 == 0 { 32 } else { 4 };
            let mut codes = vec![0; values.len()];
            let scales = weighted(lanes::isa(), &values, &weights, most, &mut codes);
            let mut alone = vec![0; LENGTH];
            for lane in 0..LANES {
                let group = LENGTH * lane..LENGTH * (lane + 1);
                let (values, weights) = (&values[group.clone()], &weights[group.clone()]);
                let scale = search::symmetric_weighted(values, weights, most, &mut alone);
                assert_eq!((scales[lane].to_bits(), &codes[group]), (scale.to_bits(), &alone[..]));
            }
            let scales = adjusted(lanes::isa(), &values, most, &mut codes);
            for lane in 0..LANES {
                let group = LENGTH * lane..LENGTH * (lane + 1);
                let scale = adjusted_alone(&values[group.clone()], most, &mut alone);
                assert_eq!((scales[lane].to_bits(), &codes[group]), (scale.to_bits(), &alone[..]));
            }
        }
    }

    /// [`adjusted`] of one group, as the reference goes about it.
    fn adjusted_alone(values: &[f32], most: i8, codes: &mut [i8]) -> f32 {
        let extreme = crate::quant::q4_0::first_extreme(values);
        if extreme.abs() < EPSILON {
            codes.fill(-most);
            return 0.0;
        }
        let inverse = -f32::from(most) / extreme;
        let (mut sum_lx, mut sum_l2) = (0.0f32, 0.0f32);
        for (known, &x) in codes.iter_mut().zip(values) {
            *known = code(inverse * x, most) as i8;
            let (w, l) = (x * x, f32::from(*known));
            sum_lx += w * x * l;
            sum_l2 += w * l * l;
        }
        for _ in 0..5 {
            let mut changed = false;
            for (known, &x) in codes.iter_mut().zip(values) {
                let (w, l) = (x * x, f32::from(*known));
                let (others_lx, others_l2) = (sum_lx - w * x * l, sum_l2 - w * l * l);
                if others_lx.is_nan() || others_lx <= 0.0 {
                    continue;
                }
                let new = code(x * others_l2 / others_lx, most) as i8;
                let l = f32::from(new);
                let (new_lx, new_l2) = (others_lx + w * x * l, others_l2 + w * l * l);
                let better = new_l2 > 0.0 && new_lx * new_lx * sum_l2 > sum_lx * sum_lx * new_l2;
                if new != *known && better {
                    *known = new;
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
}
