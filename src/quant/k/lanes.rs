//! The searches of [`super::search`] and of IQ4, eight groups or eight candidates at a time, each in a lane of its own. A
//! lane adds in the reference's order, so the bits are the same and the compiler may make vectors of lanes.

use super::search::{Steps, nearest};
use crate::math::per_isa;
use crate::simd::Isa;

/// Groups or candidates that are searched at once.
pub const LANES: usize = 8;

/// One number for each.
pub type Lanes = [f32; LANES];

/// Values of a group at most.
const MOST: usize = 32;

/// What the searches are compiled for.
pub fn isa() -> Isa {
    #[cfg(target_arch = "x86_64")]
    if Isa::Avx2.is_available() {
        return Isa::Avx2;
    }
    Isa::Scalar
}

/// All bits, or none.
#[inline(always)]
pub fn mask(holds: bool) -> u32 {
    u32::from(holds).wrapping_neg()
}

/// `new` where the mask is set: in bits, since of an `if` the compiler makes a branch for each lane.
#[inline(always)]
pub fn select(mask: u32, new: f32, old: f32) -> f32 {
    f32::from_bits(new.to_bits() & mask | old.to_bits() & !mask)
}

per_isa! {
    /// [`super::search::affine`] of eight groups that follow each other, of 16 or 32 values. Their scales and minimums.
    pub fn affine(values: &[f32], weights: &[f32], steps: &Steps, codes: &mut [i8]) -> (Lanes, Lanes) {
        let length = values.len() / LANES;
        let (mut x, mut w) = ([[0.0; LANES]; MOST], [[0.0; LANES]; MOST]);
        for lane in 0..LANES {
            for i in 0..length {
                (x[i][lane], w[i][lane]) = (values[length * lane + i], weights[length * lane + i]);
            }
        }
        let mut groups = Groups::new(&x[..length], &w[..length], steps);
        for step in 0..=steps.last {
            groups.step(steps.first + steps.delta * f32::from(step) + f32::from(steps.most));
        }
        groups.finish(codes)
    }
}

/// Eight groups and their best candidates so far.
struct Groups<'a> {
    /// Values × groups.
    x: &'a [Lanes],
    w: &'a [Lanes],
    steps: &'a Steps,
    sum_w: Lanes,
    sum_x: Lanes,
    max: Lanes,
    /// The smallest values, or 0.
    lowest: Lanes,
    scale: Lanes,
    min: Lanes,
    error: Lanes,
    /// What the best codes are made with: steps a unit, and the minimum that they count from.
    inverse: Lanes,
    origin: Lanes,
}

impl<'a> Groups<'a> {
    /// With the candidate whose codes reach from the smallest to the largest value.
    #[inline(always)]
    fn new(x: &'a [Lanes], w: &'a [Lanes], steps: &'a Steps) -> Groups<'a> {
        let (mut min, mut max, mut sum_w, mut sum_x) = (x[0], x[0], [0.0; LANES], [0.0; LANES]);
        for i in 0..x.len() {
            let (x, w) = (&x[i], &w[i]);
            for lane in 0..LANES {
                min[lane] = if x[lane] < min[lane] { x[lane] } else { min[lane] };
                max[lane] = if x[lane] > max[lane] { x[lane] } else { max[lane] };
                sum_w[lane] += w[lane];
                sum_x[lane] += w[lane] * x[lane];
            }
        }
        let (mut inverse, mut scale, error) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for lane in 0..LANES {
            min[lane] = if min[lane] > 0.0 { 0.0 } else { min[lane] };
            inverse[lane] = f32::from(steps.most) / (max[lane] - min[lane]);
            scale[lane] = 1.0 / inverse[lane];
        }
        let mut groups =
            Groups { x, w, steps, sum_w, sum_x, max, lowest: min, scale, min, error, inverse, origin: min };
        groups.error = groups.error_of(&inverse, &scale, &min);
        groups
    }

    /// The codes of value `i`, at `inverse` steps a unit above `origin`.
    #[inline(always)]
    fn codes(&self, i: usize, inverse: &Lanes, origin: &Lanes) -> [i32; LANES] {
        let most = i32::from(self.steps.most);
        let mut codes = [0; LANES];
        for lane in 0..LANES {
            codes[lane] = nearest(inverse[lane] * (self.x[i][lane] - origin[lane])).clamp(0, most);
        }
        codes
    }

    /// Of codes at `inverse` steps a unit above the minimum, with a scale and another minimum.
    #[inline(always)]
    fn error_of(&self, inverse: &Lanes, scale: &Lanes, min: &Lanes) -> Lanes {
        let mut error = [0.0; LANES];
        for i in 0..self.x.len() {
            let codes = self.codes(i, inverse, &self.min);
            for lane in 0..LANES {
                let difference = scale[lane] * codes[lane] as f32 + min[lane] - self.x[i][lane];
                let cost = if self.steps.squares { difference * difference } else { difference.abs() };
                error[lane] += self.w[i][lane] * cost;
            }
        }
        error
    }

    /// Tries `count` steps from the minimum to the largest value.
    #[inline(always)]
    fn step(&mut self, count: f32) {
        let mut inverse = [0.0; LANES];
        for lane in 0..LANES {
            inverse[lane] = count / (self.max[lane] - self.min[lane]);
        }
        let (mut sum_l, mut sum_l2, mut sum_xl) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        for i in 0..self.x.len() {
            let codes = self.codes(i, &inverse, &self.min);
            for lane in 0..LANES {
                let l = codes[lane] as f32;
                let weighted = self.w[i][lane] * l;
                sum_l[lane] += weighted;
                sum_l2[lane] += weighted * l;
                sum_xl[lane] += weighted * self.x[i][lane];
            }
        }
        let (mut scale, mut min, mut fits) = ([0.0; LANES], [0.0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let (sum_w, sum_x) = (self.sum_w[lane], self.sum_x[lane]);
            let (sum_l, sum_l2, sum_xl) = (sum_l[lane], sum_l2[lane], sum_xl[lane]);
            let determinant = sum_w * sum_l2 - sum_l * sum_l;
            fits[lane] = mask(determinant > 0.0);
            let free = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
            let with_free = (sum_w * sum_xl - sum_x * sum_l) / determinant;
            let bound = mask(free > 0.0);
            scale[lane] = select(bound, sum_xl / sum_l2, with_free);
            min[lane] = select(bound, 0.0, free);
        }
        let error = self.error_of(&inverse, &scale, &min);
        for lane in 0..LANES {
            let better = fits[lane] & mask(error[lane] < self.error[lane]);
            self.inverse[lane] = select(better, inverse[lane], self.inverse[lane]);
            self.origin[lane] = select(better, self.min[lane], self.origin[lane]);
            self.scale[lane] = select(better, scale[lane], self.scale[lane]);
            self.min[lane] = select(better, min[lane], self.min[lane]);
            self.error[lane] = select(better, error[lane], self.error[lane]);
        }
    }

    /// Scales and minimums, and group after group the codes.
    #[inline(always)]
    fn finish(self, codes: &mut [i8]) -> (Lanes, Lanes) {
        let length = self.x.len();
        for i in 0..length {
            let found = self.codes(i, &self.inverse, &self.origin);
            for lane in 0..LANES {
                codes[length * lane + i] = found[lane] as i8;
            }
        }
        let (mut scales, mut mins) = (self.scale, self.min.map(|min| -min));
        for lane in 0..LANES {
            // All values are one.
            if self.max[lane] == self.lowest[lane] {
                codes[length * lane..length * (lane + 1)].fill(0);
                (scales[lane], mins[lane]) = (0.0, -self.lowest[lane]);
            }
        }
        (scales, mins)
    }
}

per_isa! {
    /// Sums of weight * value * code and of weight * code², where codes in -most..most are values at eight scales'
    /// reciprocals.
    pub fn symmetric_sums(values: &[f32], weights: &[f32], inverses: &Lanes, most: i8) -> [Lanes; 2] {
        let most = i32::from(most);
        let (mut sum_lx, mut sum_l2) = ([0.0; LANES], [0.0; LANES]);
        for (&x, &w) in values.iter().zip(weights) {
            for lane in 0..LANES {
                let l = nearest(inverses[lane] * x).clamp(-most, most - 1) as f32;
                sum_lx[lane] += w * x * l;
                sum_l2[lane] += w * l * l;
            }
        }
        [sum_lx, sum_l2]
    }
}

per_isa! {
    /// Sums of weight * code * value and of weight * code², where codes are those of `known`, which rise, that are nearest
    /// to values at eight scales' reciprocals; the upper one of two equally near.
    pub fn listed_sums(values: &[f32], weights: &[f32], inverses: &Lanes, known: &[i8; 16]) -> [Lanes; 2] {
        // Exact, as are the differences that they stand for wherever these are near each other.
        let middle = |k: usize| f32::from(i16::from(known[k]) + i16::from(known[k + 1])) * 0.5;
        let width = |k: usize| f32::from(i16::from(known[k + 1]) - i16::from(known[k]));
        let bounds: [[f32; 2]; 15] = std::array::from_fn(|k| [middle(k), width(k)]);
        let (mut code_value, mut code_code) = ([0.0; LANES], [0.0; LANES]);
        for (&x, &w) in values.iter().zip(weights) {
            let mut codes = [f32::from(known[0]); LANES];
            for [middle, width] in bounds {
                for lane in 0..LANES {
                    codes[lane] += if inverses[lane] * x >= middle { width } else { 0.0 };
                }
            }
            for lane in 0..LANES {
                code_value[lane] += w * codes[lane] * x;
                code_code[lane] += w * codes[lane] * codes[lane];
            }
        }
        [code_value, code_code]
    }
}

#[cfg(test)]
mod tests {
    use super::super::search;
    use super::*;

    /// Groups in lanes have the codes, scales and minimums of groups alone, odd ones too.
    #[test]
    fn lanes_agree_with_groups() {
        let mut random = fastrand::Rng::with_seed(11);
        for round in 0..200 {
            let length = if round % 2 == 0 { 16 } else { 32 };
            let mut values: Vec<f32> =
                (0..LANES * length).map(|_| (random.f32() - 0.3) * random.f32()).collect();
            let weights: Vec<f32> =
                (0..LANES * length).map(|_| random.f32() * f32::from(random.u8(0..3))).collect();
            values[..length].fill(random.f32() - 0.5);
            values[length..2 * length].fill(0.0);
            values[2 * length] = 1e30;
            let steps = [
                Steps { most: 15, first: -1.0, delta: 0.1, last: 20, squares: true },
                Steps { most: 3, first: -0.5, delta: 0.1, last: 15, squares: false },
                Steps::fine(31),
            ];
            for steps in &steps {
                let mut codes = vec![0; values.len()];
                let (scales, mins) = affine(isa(), &values, &weights, steps, &mut codes);
                for lane in 0..LANES {
                    let group = length * lane..length * (lane + 1);
                    let mut alone = vec![0; length];
                    let found =
                        search::affine(&values[group.clone()], &weights[group.clone()], steps, &mut alone);
                    assert_eq!(
                        (scales[lane].to_bits(), mins[lane].to_bits()),
                        (found.0.to_bits(), found.1.to_bits())
                    );
                    assert_eq!(codes[group], alone);
                }
            }
        }
    }
}
