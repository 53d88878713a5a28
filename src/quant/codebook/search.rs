//! The encoder of the formats with codebooks, which looks for the least weighted error: sum of weight * (value -
//! scale * multiplier * code)^2.
//!
//! 1. For each group of weights that share a multiplier, several steps (scale * multiplier) are tried. At a given step each
//!    run's best entry is found exactly ([`Book`]), and what it costs at another step follows from two sums.
//! 2. Scales are tried for which the groups' best steps become odd multiples; each group takes the multiple and the one of
//!    its choices that suit it.
//! 3. The scale is fitted to what was chosen.
//!
//! Floats are added in the order written, so every instruction set gives the same bytes.

use super::book::{Book, Costs, Found, HALVES, LANES, Lanes, Sums};
use super::{Bits, Codebook, Grid};
use crate::quant::le::{F16, U32};

/// A block that can be searched for.
pub(in crate::quant) trait Searched: Codebook {
    /// What the bytes of entries may be, lowest first: three, or eight for entries of four.
    const LEVELS: &'static [i8];
    /// Weights that share a multiplier.
    const GROUP: usize;
    /// Multipliers are 1, 3, 5 … up to this.
    const MOST: u8;
    /// How free the bits are.
    const FREEDOM: Freedom;
    /// The stored scale over [`Codebook::scale`].
    const STORED: f32;
    /// How much the block's mean square counts in what an error weighs, beside the value's own.
    const ENERGY: f32;
    /// Steps that are tried: the largest code is between these, in units of the group's root mean square.
    const RANGE: [f32; 2];

    /// The codebook, arranged.
    fn book() -> &'static Book;

    /// The block that holds this.
    fn assemble(scale: F16, choice: &Choice) -> Self;
}

/// Which bits a block can have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::quant) enum Freedom {
    /// Of each 8 weights any.
    Any,
    /// Of each 8 weights an even number is set.
    Even,
    /// The 8 weights of a run have one bit.
    OneARun,
    /// The weights of a group have one bit.
    OneAGroup,
}

/// What is stored beside the scale.
pub(in crate::quant) struct Choice {
    /// Of 4 weights each, or the first half of them of 8 weights each.
    pub indices: [u16; 64],
    /// For 8 weights each a bit of their own, lowest first.
    pub bits: [u8; 32],
    /// Of 16 weights each, as stored: `(multiplier - 1) / 2`.
    pub multipliers: [u8; 16],
}

impl Choice {
    /// For the 32 weights of group `g`: four times 7 bits of signs, lowest first, and above them the multiplier.
    pub fn even_signs(&self, g: usize) -> U32 {
        let signs = (0..4).fold(0, |word, i| word | u32::from(self.bits[4 * g + i] & 127) << (7 * i));
        U32::new(signs | u32::from(self.multipliers[2 * g]) << 28)
    }

    /// Two to a byte, the first one low.
    pub fn multiplier_pairs(&self) -> [u8; 8] {
        std::array::from_fn(|i| self.multipliers[2 * i] | self.multipliers[2 * i + 1] << 4)
    }
}

/// Scales tried for a block.
const SCALES: usize = 14;
/// A block whose values are below this is stored as zeros: no scale is so small.
const SMALLEST: f32 = 1e-20;

/// 8 weights.
#[derive(Clone, Copy, Default)]
struct Eight {
    /// Values, without signs where the format stores these apart: negative only where the sign is the wrong one.
    targets: [f32; 8],
    /// What their errors count.
    weights: [f32; 8],
    /// The signs that are stored.
    signs: u8,
}

/// Entries for 8 weights.
#[derive(Clone, Copy, Default)]
struct Match {
    entries: [u16; 2],
    bits: u8,
    /// Sum of weight * value * code.
    product: f32,
    /// Sum of weight * code^2.
    square: f32,
}

/// Matches for the weights of a group, at most four of eight each, and their sums.
#[derive(Clone, Copy, Default)]
struct Group {
    matches: [Match; 4],
    product: f32,
    square: f32,
}

impl Match {
    /// The entry of all eight weights.
    #[inline(always)]
    fn take(&mut self, found: Found) {
        (self.entries[0], self.product, self.square) = (found.index, found.product, found.square);
    }

    /// The error at a step, less what it would be with codes of zero.
    #[inline(always)]
    fn cost(&self, step: f32) -> f32 {
        step * (step * self.square - 2.0 * self.product)
    }
}

impl Group {
    #[inline(always)]
    fn cost(&self, step: f32) -> f32 {
        step * (step * self.square - 2.0 * self.product)
    }

    /// The step at which these codes err least.
    #[inline(always)]
    fn step(&self) -> f32 {
        if self.square > 0.0 { self.product / self.square } else { 0.0 }
    }
}

/// Quantizes a block of 256 finite values. Columns count as `importance` says.
pub(in crate::quant) fn encode<B: Searched>(values: &[f32], importance: Option<&[f32]>) -> B {
    #[cfg(target_arch = "x86_64")]
    if crate::simd::Isa::Avx2.is_available() {
        // SAFETY: the CPU has what it is compiled for.
        return unsafe { encode_avx2(values, importance) };
    }
    encode_block(values, importance)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn encode_avx2<B: Searched>(values: &[f32], importance: Option<&[f32]>) -> B {
    encode_block(values, importance)
}

#[inline(always)]
fn encode_block<B: Searched>(values: &[f32], importance: Option<&[f32]>) -> B {
    let largest = values.iter().fold(0.0f32, |largest, x| if x.abs() > largest { x.abs() } else { largest });
    let zeros = Choice { indices: [0; 64], bits: [0; 32], multipliers: [0; 16] };
    if largest < SMALLEST {
        return B::assemble(F16::new(0.0), &zeros);
    }
    let eights = eights::<B>(values, importance, largest);
    let (book, length) = (B::book(), B::GROUP / 8);
    let mut tried = [[Group::default(); LANES]; 16];
    let mut costs = [[[0.0; LANES]; HALVES]; 2];
    for (tried, eights) in tried.iter_mut().zip(eights.chunks_exact(length)) {
        matched::<B>(book, eights, &steps::<B>(eights), &mut costs, tried);
    }
    let Some(Scaled { scale, lanes, multipliers }) =
        best_scale::<B>(&tried[..32 / length], largest * B::STORED)
    else {
        return B::assemble(F16::new(0.0), &zeros);
    };
    let mut chosen: [Group; 16] = std::array::from_fn(|g| tried[g][lanes[g]]);
    let chosen = &mut chosen[..32 / length];
    if B::FREEDOM == Freedom::Even {
        for (group, eights) in chosen.iter_mut().zip(eights.chunks_exact(length)) {
            group.choose_signs::<B>(book, eights);
        }
    }
    let stored = fitted(chosen, &multipliers, scale, largest * B::STORED);
    B::assemble(stored, &choice::<B>(chosen, &multipliers))
}

/// The values in units of the largest one, what their errors count and the signs that can be stored.
#[inline(always)]
fn eights<B: Searched>(values: &[f32], importance: Option<&[f32]>, largest: f32) -> [Eight; 32] {
    let inverse = 1.0 / largest;
    let energy =
        values.iter().fold(0.0f32, |sum, x| sum + (x * inverse) * (x * inverse)) * (B::ENERGY / 256.0);
    let mut eights = [Eight::default(); 32];
    let mut heaviest = 0.0f32;
    for (e, eight) in eights.iter_mut().enumerate() {
        for i in 0..8 {
            let x = values[8 * e + i] * inverse;
            let weight = importance.map_or(1.0, |importance| importance[8 * e + i]) * (energy + x * x).sqrt();
            heaviest = if weight > heaviest { weight } else { heaviest };
            (eight.targets[i], eight.weights[i]) = (x, weight);
        }
        if matches!(B::BITS, Bits::Sign) {
            eight.part();
        }
    }
    /// What does not count at all counts so little, or any entry would do for it.
    const LIGHTEST: f32 = 1e-6;
    let inverse = if heaviest > 0.0 { 1.0 / heaviest } else { 0.0 };
    for weight in eights.iter_mut().flat_map(|eight| &mut eight.weights) {
        *weight = *weight * inverse + LIGHTEST;
    }
    for eight in eights.iter_mut().filter(|_| B::FREEDOM == Freedom::Even) {
        eight.make_even();
    }
    eights
}

impl Eight {
    /// Takes the signs off the values.
    #[inline(always)]
    fn part(&mut self) {
        for i in 0..8 {
            self.signs |= u8::from(self.targets[i] < 0.0) << i;
            self.targets[i] = self.targets[i].abs();
        }
    }

    /// If the number of signs is odd, the one whose loss weighs least is stored wrong.
    #[inline(always)]
    fn make_even(&mut self) {
        if self.signs.count_ones() % 2 == 1 {
            let costs: [f32; 8] = std::array::from_fn(|i| self.weights[i] * self.targets[i]);
            self.flip(least(&costs));
        }
    }

    #[inline(always)]
    fn flip(&mut self, i: usize) {
        self.signs ^= 1 << i;
        self.targets[i] = -self.targets[i];
    }

    /// The best entries at each of the `steps`.
    #[inline(always)]
    fn matched<B: Searched>(&self, book: &Book, steps: &Lanes, costs: &mut Costs) -> [Match; LANES] {
        let mut matches = [Match { bits: self.signs, ..Match::default() }; LANES];
        match (B::GRID, B::BITS) {
            (Grid::Fours(_), _) => {
                let parts = [self.sums_of_four::<B>(0), self.sums_of_four::<B>(1)];
                let found = book.cheapest([&parts[0], &parts[1]], steps, costs);
                for lane in 0..LANES {
                    let [first, second] = [found[lane % (LANES / 2)], found[LANES / 2 + lane % (LANES / 2)]];
                    matches[lane].entries = [first.index, second.index];
                    matches[lane].product = first.product + second.product;
                    matches[lane].square = first.square + second.square;
                }
            }
            (Grid::Eights(_), Bits::Sign) => {
                let found = book.cheapest([&self.sums_of_eight::<B>(0)], steps, costs);
                for lane in 0..LANES {
                    matches[lane].take(found[lane]);
                }
            }
            (Grid::Eights(_), Bits::Offset) => {
                let sums = [self.sums_of_eight::<B>(1), self.sums_of_eight::<B>(-1)];
                let found = book.cheapest([&sums[0], &sums[1]], steps, costs);
                for lane in 0..LANES {
                    matches[lane].take(found[lane]);
                    matches[lane].bits = if lane < LANES / 2 { 0 } else { 255 };
                }
            }
        }
        matches
    }

    /// Of three levels: number 27 a + 9 b + 3 c + d stands for the levels a, b, c, d.
    #[inline(always)]
    fn sums_of_eight<B: Searched>(&self, offset: i8) -> Sums {
        let (mut product, mut square) = ([[0.0; 8]; 3], [[0.0; 8]; 3]);
        for level in 0..3 {
            let code = f32::from(B::LEVELS[level] + offset);
            for i in 0..8 {
                let weighted = self.weights[i] * code;
                product[level][i] = weighted * self.targets[i];
                square[level][i] = weighted * code;
            }
        }
        Sums { product: halves_of_eight(&product), square: halves_of_eight(&square) }
    }

    /// Of eight levels: number 8 a + b stands for the levels a and b of a half of `part`'s four weights.
    #[inline(always)]
    fn sums_of_four<B: Searched>(&self, part: usize) -> Sums {
        let (mut product, mut square) = ([[0.0; 8]; 4], [[0.0; 8]; 4]);
        for i in 0..4 {
            let (target, weight) = (self.targets[4 * part + i], self.weights[4 * part + i]);
            for level in 0..8 {
                let code = f32::from(B::LEVELS[level]);
                let weighted = weight * code;
                product[i][level] = weighted * target;
                square[i][level] = weighted * code;
            }
        }
        Sums { product: halves_of_four(&product), square: halves_of_four(&square) }
    }
}

/// Sums of four of the numbers of each of 8 values, which there is one of for each level.
#[inline(always)]
fn halves_of_eight(of: &[[f32; 8]; 3]) -> [[f32; HALVES]; 2] {
    let mut sums = [[0.0; HALVES]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        let i = 4 * half;
        let mut pairs = [[0.0; 9]; 2];
        for first in 0..3 {
            for second in 0..3 {
                pairs[0][3 * first + second] = of[first][i] + of[second][i + 1];
                pairs[1][3 * first + second] = of[first][i + 2] + of[second][i + 3];
            }
        }
        for first in 0..9 {
            for second in 0..9 {
                sums[9 * first + second] = pairs[0][first] + pairs[1][second];
            }
        }
    }
    sums
}

/// Sums of two of the numbers of each of 4 values, which there is one of for each level. There are 64.
#[inline(always)]
fn halves_of_four(of: &[[f32; 8]; 4]) -> [[f32; HALVES]; 2] {
    let mut sums = [[0.0; HALVES]; 2];
    for (half, sums) in sums.iter_mut().enumerate() {
        for first in 0..8 {
            for second in 0..8 {
                sums[8 * first + second] = of[2 * half][first] + of[2 * half + 1][second];
            }
        }
    }
    sums
}

impl Group {
    /// Where a sign has to be wrong, it may be another one now that the codes are known.
    #[inline(always)]
    fn choose_signs<B: Searched>(&mut self, book: &Book, eights: &[Eight]) {
        for (found, eight) in self.matches.iter_mut().zip(eights) {
            let Some(wrong) = eight.targets.iter().position(|&target| target < 0.0) else { continue };
            let code = |i: usize| match B::GRID {
                Grid::Eights(_) => book.values(found.entries[0])[i],
                Grid::Fours(_) => book.values(found.entries[i / 4])[i % 4],
            };
            let losses =
                std::array::from_fn(|i| eight.weights[i] * (eight.targets[i].abs() * f32::from(code(i))));
            let other = least(&losses);
            let gain = 2.0 * (losses[wrong] - losses[other]);
            found.bits ^= 1 << wrong ^ 1 << other;
            found.product += gain;
            self.product += gain;
        }
    }
}

/// The first smallest of eight numbers.
#[inline(always)]
fn least(numbers: &[f32; 8]) -> usize {
    (1..8).fold(0, |least, i| if numbers[i] < numbers[least] { i } else { least })
}

/// The best entries of a group at each of the `steps`.
#[inline(always)]
fn matched<B: Searched>(
    book: &Book,
    eights: &[Eight],
    steps: &Lanes,
    costs: &mut Costs,
    groups: &mut [Group; LANES],
) {
    for (e, eight) in eights.iter().enumerate() {
        let mut matches = eight.matched::<B>(book, steps, costs);
        if B::FREEDOM == Freedom::OneARun {
            for lane in 0..LANES / 2 {
                let other = matches[lane + LANES / 2];
                if other.cost(steps[lane]) < matches[lane].cost(steps[lane]) {
                    matches[lane] = other;
                }
            }
        }
        for lane in 0..LANES {
            let (group, found) = (&mut groups[lane], matches[lane]);
            group.matches[e] = found;
            group.product += found.product;
            group.square += found.square;
        }
    }
}

/// Steps for which the largest code is in [`Searched::RANGE`], and last the one with which it is the largest value: the best
/// one where values are alike. Where offsets are added, or entries are of four, the upper half of the lanes repeats the lower.
#[inline(always)]
fn steps<B: Searched>(eights: &[Eight]) -> Lanes {
    let (mut squares, mut weights, mut largest) = (0.0, 0.0, 0.0f32);
    for eight in eights {
        for i in 0..8 {
            let size = eight.targets[i].abs();
            squares += eight.weights[i] * (size * size);
            weights += eight.weights[i];
            largest = if size > largest { size } else { largest };
        }
    }
    /// A group of zeros has some step, too.
    const SMALLEST: f32 = 1e-12;
    let [unit, largest] = [(squares / weights).sqrt(), largest]
        .map(|size| if size > SMALLEST { size } else { SMALLEST } / f32::from(B::LARGEST));
    let [from, to] = B::RANGE.map(|range| range * unit);
    let alike = matches!((B::GRID, B::BITS), (Grid::Eights(_), Bits::Sign));
    let last = if alike { LANES } else { LANES / 2 } - 1;
    std::array::from_fn(|lane| match lane % (last + 1) {
        k if k == last => largest,
        k => from + (to - from) * (k as f32 / (last - 1) as f32),
    })
}

/// A scale in units of the largest value, as it is after rounding, and of each group what suits it.
struct Scaled {
    scale: f32,
    /// Which of the choices.
    lanes: [usize; 16],
    multipliers: [u8; 16],
}

/// The scale with which the groups err least. What is stored is `unit` times a scale. None if all scales round to zero.
#[inline(always)]
fn best_scale<B: Searched>(tried: &[[Group; LANES]], unit: f32) -> Option<Scaled> {
    let mut own = [[0.0; LANES]; 16];
    let mut largest = 0.0;
    for (own, tried) in own.iter_mut().zip(tried) {
        *own = tried.each_ref().map(Group::step);
        let cost = |lane: usize| tried[lane].cost(own[lane]);
        let best = (1..LANES).fold(0, |best, lane| if cost(lane) < cost(best) { lane } else { best });
        largest = if own[best] > largest { own[best] } else { largest };
    }
    let mut best = None;
    let mut least = f32::INFINITY;
    for k in 0..SCALES {
        // The largest step is to be so many scales, from a bit more than the largest multiplier down to two thirds.
        let multiple = f32::from(B::MOST) * (1.05 - 0.4 * (k as f32 / (SCALES - 1) as f32));
        let scale = stored(largest / multiple, unit).get() / unit;
        if scale == 0.0 {
            continue;
        }
        let inverse = 1.0 / scale;
        let mut found = Scaled { scale, lanes: [0; 16], multipliers: [1; 16] };
        let mut cost = 0.0;
        for (g, tried) in tried.iter().enumerate() {
            let mut costs = [0.0; LANES];
            let mut multiples = [0.0; LANES];
            for lane in 0..LANES {
                // The odd multiple next to the best step.
                let half = ((own[g][lane] * inverse - 1.0) * 0.5).round_ties_even();
                let multiple = 2.0 * half.clamp(0.0, f32::from(B::MOST / 2)) + 1.0;
                (multiples[lane], costs[lane]) = (multiple, tried[lane].cost(scale * multiple));
            }
            let best = self::least(&costs);
            (found.lanes[g], found.multipliers[g]) = (best, multiples[best] as u8);
            cost += costs[best];
        }
        if cost < least {
            (least, best) = (cost, Some(found));
        }
    }
    best
}

/// What is stored for a scale in units of the largest value.
fn stored(scale: f32, unit: f32) -> F16 {
    F16::new((scale * unit).min(65504.0))
}

/// The stored scale that suits these codes best, or the one that they were chosen for.
#[inline(always)]
fn fitted(groups: &[Group], multipliers: &[u8; 16], scale: f32, unit: f32) -> F16 {
    let (mut product, mut square) = (0.0, 0.0);
    for (group, &multiplier) in groups.iter().zip(multipliers) {
        let multiplier = f32::from(multiplier);
        product += multiplier * group.product;
        square += multiplier * multiplier * group.square;
    }
    let cost = |scale: f32| scale * (scale * square - 2.0 * product);
    let fitted = stored(if square > 0.0 { product / square } else { 0.0 }, unit);
    if cost(fitted.get() / unit) < cost(scale) { fitted } else { stored(scale, unit) }
}

#[inline(always)]
fn choice<B: Searched>(groups: &[Group], multipliers: &[u8; 16]) -> Choice {
    let mut choice = Choice { indices: [0; 64], bits: [0; 32], multipliers: [0; 16] };
    let eights = B::GROUP / 8;
    for (g, (group, &multiplier)) in groups.iter().zip(multipliers).enumerate() {
        choice.multipliers[g * B::GROUP / 16..][..B::GROUP / 16].fill(multiplier / 2);
        for (e, found) in group.matches[..eights].iter().enumerate() {
            let at = g * eights + e;
            choice.bits[at] = found.bits;
            match B::GRID {
                Grid::Eights(_) => choice.indices[at] = found.entries[0],
                Grid::Fours(_) => choice.indices[2 * at..][..2].copy_from_slice(&found.entries),
            }
        }
    }
    choice
}

/// The encoders of a block that is searched for, and its arranged codebook.
macro_rules! searched {
    ($(#[$attribute:meta])* impl Searched for $block:ident { $($body:tt)* }) => {
        $(#[$attribute])*
        impl $crate::quant::codebook::search::Searched for $block {
            fn book() -> &'static $crate::quant::codebook::book::Book {
                static BOOK: std::sync::LazyLock<$crate::quant::codebook::book::Book> =
                    std::sync::LazyLock::new(|| $crate::quant::codebook::book::Book::new(
                        <$block as $crate::quant::codebook::Codebook>::GRID,
                        <$block as $crate::quant::codebook::search::Searched>::LEVELS,
                    ));
                &BOOK
            }
            $($body)*
        }

        impl $crate::quant::Encode for $block {
            fn encode(values: &[f32]) -> Self {
                $crate::quant::codebook::search::encode(values, None)
            }
        }

        impl $crate::quant::EncodeWeighted for $block {
            fn encode_weighted(values: &[f32], importance: &[f32], _: f32) -> Self {
                $crate::quant::codebook::search::encode(values, Some(importance))
            }
        }
    };
}
pub(in crate::quant) use searched;

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// What is compiled for vectors writes the bytes of the plain version.
    #[test]
    fn instruction_sets_agree() {
        if !crate::simd::Isa::Avx2.is_available() {
            return;
        }
        fn check<B: Searched>(random: &mut fastrand::Rng) {
            for _ in 0..20 {
                let values: Vec<f32> = (0..256).map(|_| (random.f32() - 0.5) * random.f32()).collect();
                let importance: Vec<f32> = (0..256).map(|_| random.f32() * random.f32()).collect();
                // SAFETY: checked above.
                let fast: B = unsafe { encode_avx2(&values, Some(&importance)) };
                let plain: B = encode_block(&values, Some(&importance));
                assert_eq!(bytemuck::bytes_of(&fast), bytemuck::bytes_of(&plain));
            }
        }
        let mut random = fastrand::Rng::with_seed(3);
        check::<crate::quant::iq1_m::Block>(&mut random);
        check::<crate::quant::iq2_xs::Block>(&mut random);
        check::<crate::quant::iq3_s::Block>(&mut random);
    }
}
