//! The nearest paths through the trellis of some blocks, in whole numbers: the same bytes on every machine.
//!
//! A state's score for a pair of weights x is x · c - |c|² / 2, c being its codes: the higher the nearer. A step adds to the scores of
//! all 16384 states the best of the paths that lead to them, and keeps the best of those that differ in their oldest
//! symbol only: 2^(14 - 2 k) sums. The way back compares 2^2k sums a step instead of having noted where each came from. A
//! first search through the block's seam, where its end and its beginning meet, says which bits they share; a second one
//! through the block is held to them at both ends (QTIP's algorithm 4, whose first search takes the whole block).
//!
//! With AVX2 16 states are four instructions, and what binds is how many of them a core begins in a cycle. The table of all
//! states (64 KiB) comes from the second-level cache a part at a time, which all blocks of a batch use while it is in the first.

use std::cell::RefCell;
use std::sync::LazyLock;

use super::{BIAS, LEN, PAIRS, STATES, codes, first_weight};
use crate::math::per_isa;
use crate::simd::Isa;

#[cfg(target_arch = "x86_64")]
mod avx2;

/// Blocks that are searched at once. More of them no longer fit into the second-level cache with their sums.
const BATCH: usize = 8;
/// States beside each other in a table.
const LANES: usize = 64;
/// Rows of a table that the first-level cache holds.
const ROWS: usize = 64;

/// Scores are in units of half a code times a code.
const UNIT: f32 = 2.0;
/// The largest weight in units, 63.5 codes: it is stored as a byte, with [`OFFSET`] added.
const LARGEST: f32 = 127.0;
/// What is added to inputs.
const OFFSET: i16 = 128;
/// Sums of paths so far below the best are as good as this one. With any state's score, at least -24,448, an i16 holds them.
const HOPELESS: i16 = -8192;

/// What to multiply the scale of codes as large as the weights with, k from 1 to 4: the nearer they come to the
/// weights, the more do the farthest weights count.
const SPREAD: [f32; 4] = [0.88, 1.02, 1.05, 1.1];
/// The largest weight is at most so many codes, if the scale is thereby not made [`COARSEST`] times as large. This and the
/// spread lose least of Gaussian weights, and of those of the Austen model.
const FARTHEST: [f32; 4] = [100.0, 75.0, 60.0, 57.0];
const COARSEST: f32 = 1.4;

/// Pairs on both sides of the seam that are searched: the fewer bits, the longer is what one says of another. Longer ones lose
/// half a percent less at most.
const SIDE: [usize; 4] = [32, 24, 12, 8];

/// The two weights of a pair in units, from 1 to 255.
type Input = [u8; 2];

/// States that follow each other.
#[repr(C, align(64))]
struct Row {
    /// Less the bias.
    codes: [[i8; 2]; LANES],
    /// What is taken off the product of input and codes: half the codes' square in units, and what comes of the offset.
    norms: [i16; LANES],
}

/// All states for k bits a weight, in two orders.
struct Table {
    /// Those of [`LANES`] groups whose oldest symbol is the row's, for all symbols, before those of the next groups.
    across: Vec<Row>,
    /// Those of one group for all oldest symbols, before those of the next group.
    along: Vec<Row>,
}

/// For k from 1 to 4.
static TABLES: [LazyLock<Table>; 4] = [
    LazyLock::new(|| Table::new(1)),
    LazyLock::new(|| Table::new(2)),
    LazyLock::new(|| Table::new(3)),
    LazyLock::new(|| Table::new(4)),
];

impl Table {
    fn new(k: usize) -> Table {
        let (symbols, groups) = (1 << (2 * k), STATES >> (2 * k));
        let across = |place: usize| {
            let (row, lane) = (place / LANES, place % LANES);
            row % symbols * groups + row / symbols * LANES + lane
        };
        let along = |place: usize| place % symbols * groups + place / symbols;
        Table { across: rows(across), along: rows(along) }
    }
}

/// Rows of all states, of which `at` says which one has a place.
fn rows(at: impl Fn(usize) -> usize) -> Vec<Row> {
    let row = |index: usize| {
        let codes = std::array::from_fn(|lane| signed(at(index * LANES + lane)));
        Row { codes, norms: codes.map(norm) }
    };
    (0..STATES / LANES).map(row).collect()
}

/// The codes of a state less the bias.
fn signed(state: usize) -> [i8; 2] {
    codes(state as u16).map(|code| code as i8 - BIAS as i8)
}

fn norm(codes: [i8; 2]) -> i16 {
    let [a, b] = codes.map(i16::from);
    // In units half the square is the whole one.
    a * a + b * b + OFFSET * (a + b)
}

/// Of an input and a state: exact for all inputs and codes.
#[inline(always)]
fn score(input: Input, codes: [i8; 2], norm: i16) -> i16 {
    // Both codes cut out of a word: vectors have shifts of words, not bytes that lie apart.
    let word = i16::from_le_bytes(codes.map(i8::cast_unsigned));
    let [a, b] = input.map(i16::from);
    a.wrapping_mul(word << 8 >> 8).wrapping_add(b.wrapping_mul(word >> 8)).wrapping_sub(norm)
}

/// What a block of 256 weights becomes.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// Of all pairs, in the order in which the ring has them.
    pub states: [u16; PAIRS],
    /// What codes are multiplied by.
    pub scale: f32,
}

/// The scale with which states for 256 weights of `k` bits are looked for. The one that suits best those that are found
/// may be another.
pub fn scale(k: usize, values: &[f32]) -> f32 {
    let energy: f64 = values.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    let of_codes = f64::from(SUM_OF_SQUARES) / (2 * STATES) as f64;
    let usual = (energy / LEN as f64 / of_codes).sqrt() as f32 * SPREAD[k - 1];
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    (largest / FARTHEST[k - 1]).min(COARSEST * usual).max(usual)
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

thread_local! {
    /// The sums of a [`Search`].
    static SUMS: RefCell<Vec<i16>> = const { RefCell::new(Vec::new()) };
}

/// The paths of all blocks, of `K` bits a weight. Meaningless but defined for numbers that are not finite.
pub fn paths<const K: usize>(isa: Isa, values: &[f32]) -> Vec<Path> {
    values.chunks(BATCH * LEN).flat_map(|values| batch::<K>(isa, values)).collect()
}

fn batch<const K: usize>(isa: Isa, values: &[f32]) -> Vec<Path> {
    let blocks: Vec<&[f32]> = values.chunks_exact(LEN).collect();
    let scales: Vec<f32> = blocks.iter().map(|values| scale(K, values)).collect();
    let inputs: Vec<_> = blocks.iter().zip(&scales).map(|(values, &scale)| inputs(values, scale)).collect();
    let mut states = vec![[0; PAIRS]; blocks.len()];
    SUMS.with_borrow_mut(|sums| {
        let mut search = Search::<K> { isa, table: &TABLES[K - 1], sums };
        search.run(&inputs, &mut states);
    });
    let found = states.into_iter().zip(&scales).zip(blocks);
    found.map(|((states, &scale), values)| refined(states, scale, values)).collect()
}

/// In the order of the search: the last pair is coded first.
fn inputs(values: &[f32], scale: f32) -> [Input; PAIRS] {
    let inverse = if scale < f32::MIN_POSITIVE { 0.0 } else { UNIT / scale };
    let input = |weight: usize| {
        let units = (values[weight] * inverse).round_ties_even().clamp(-LARGEST, LARGEST);
        (units + f32::from(OFFSET)) as u8
    };
    std::array::from_fn(|step| {
        let first = first_weight(PAIRS - 1 - step);
        [input(first), input(first + 1)]
    })
}

/// With the scale that suits the states best.
fn refined(states: [u16; PAIRS], scale: f32, values: &[f32]) -> Path {
    if scale.is_nan() || scale < f32::MIN_POSITIVE {
        return Path { states: [0; PAIRS], scale: 0.0 };
    }
    let (mut products, mut squares) = (0.0f64, 0.0f64);
    for (j, &state) in states.iter().enumerate() {
        for (&value, code) in values[first_weight(j)..].iter().zip(signed(usize::from(state))) {
            products += f64::from(value) * f64::from(code);
            squares += f64::from(code) * f64::from(code);
        }
    }
    let best = products / squares;
    Path { states, scale: if best > 0.0 { best as f32 } else { scale }.min(65504.0) }
}

/// Searches of blocks side by side.
struct Search<'a, const K: usize> {
    isa: Isa,
    table: &'static Table,
    /// The best sums before the first step and after each: blocks × (steps + 1) × 2^(14 - 2 k).
    sums: &'a mut Vec<i16>,
}

impl<const K: usize> Search<'_, K> {
    /// States that differ in their oldest symbol only.
    const GROUPS: usize = STATES >> (2 * K);

    /// The rings nearest to `inputs`.
    fn run(&mut self, inputs: &[[Input; PAIRS]], states: &mut [[u16; PAIRS]]) {
        let side = SIDE[K - 1];
        let mut seams = inputs.to_vec();
        seams.iter_mut().for_each(|inputs| inputs.rotate_right(side));
        let seams: Vec<&[Input]> = seams.iter().map(|inputs| &inputs[..2 * side]).collect();
        self.forth(&seams, &vec![None; seams.len()]);
        let mut shared = Vec::new();
        for (block, inputs) in seams.iter().enumerate() {
            let sums = self.sums_after(block, 2 * side, 2 * side);
            let best = sums.iter().fold(i16::MIN, |best, &sum| best.max(sum));
            let group = sums.iter().position(|&sum| sum == best).unwrap_or(0);
            self.back(block, inputs, group, &mut states[block][..2 * side]);
            shared.push(Some(usize::from(states[block][side]) >> (2 * K)));
        }
        let inputs: Vec<&[Input]> = inputs.iter().map(<[Input; PAIRS]>::as_slice).collect();
        self.forth(&inputs, &shared);
        for (block, group) in shared.into_iter().enumerate() {
            self.back(block, inputs[block], group.unwrap_or(0), &mut states[block]);
            states[block].reverse();
        }
    }

    /// The sums of all steps. `shared`: the group that a block's path has to begin in.
    fn forth(&mut self, inputs: &[&[Input]], shared: &[Option<usize>]) {
        let steps = inputs[0].len();
        let each = (steps + 1) * Self::GROUPS;
        if self.sums.len() < inputs.len() * each {
            self.sums.resize(inputs.len() * each, 0);
        }
        for (sums, shared) in self.sums.chunks_exact_mut(each).zip(shared) {
            sums[..Self::GROUPS].fill(if shared.is_some() { HOPELESS } else { 0 });
            sums[shared.unwrap_or(0)] = 0;
        }
        let mut largest = vec![0; inputs.len()];
        for step in 0..steps {
            for (index, rows) in self.table.across.chunks_exact(ROWS).enumerate() {
                let part = Part { rows, index: index * ROWS };
                for (sums, inputs) in self.sums.chunks_exact_mut(each).zip(inputs) {
                    let sums = &mut sums[step * Self::GROUPS..][..2 * Self::GROUPS];
                    let (before, after) = sums.split_at_mut(Self::GROUPS);
                    best::<K>(self.isa, part, inputs[step], before, after);
                }
            }
            for (sums, largest) in self.sums.chunks_exact_mut(each).zip(&mut largest) {
                *largest = settle(self.isa, &mut sums[(step + 1) * Self::GROUPS..][..Self::GROUPS], *largest);
            }
        }
    }

    /// The states of the path of `block` that ends in `group`.
    fn back(&self, block: usize, inputs: &[Input], mut group: usize, states: &mut [u16]) {
        let steps = inputs.len();
        for step in (0..steps).rev() {
            let before = self.sums_after(block, steps, step);
            let oldest = oldest::<K>(self.isa, &self.table.along, inputs[step], before, group);
            let state = oldest * Self::GROUPS + group;
            states[step] = state as u16;
            group = state >> (2 * K);
        }
    }

    /// Of a block's groups after `step` of `steps`.
    fn sums_after(&self, block: usize, steps: usize, step: usize) -> &[i16] {
        &self.sums[(block * (steps + 1) + step) * Self::GROUPS..][..Self::GROUPS]
    }
}

/// Adds the scores of the states in rows `first` and on of the table, as many as [`ROWS`], to the sums `before` and keeps the
/// best of each group in `after`.
#[inline]
fn best<const K: usize>(isa: Isa, part: Part, input: Input, before: &[i16], after: &mut [i16]) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 => {
            // SAFETY: an Isa other than Scalar is only ever handed out after detection, and these have AVX2.
            unsafe { avx2::best::<K>(part, input, before, after) }
        }
        _ => plain_best::<K>(part, input, before, after),
    }
}

fn plain_best<const K: usize>(part: Part, input: Input, before: &[i16], after: &mut [i16]) {
    for tile in part.tiles::<K>() {
        let after = &mut after[tile.group..][..LANES];
        if tile.oldest == 0 {
            after.fill(i16::MIN);
        }
        for (oldest, row) in (tile.oldest..).zip(tile.rows) {
            let before = &before[sum_before::<K>(oldest, tile.group)..];
            let mut scores = [0; LANES];
            for lane in 0..LANES {
                scores[lane] = score(input, row.codes[lane], row.norms[lane]);
            }
            // Neighbours that come of one group.
            let sharing = LANES.min(1 << (2 * K));
            let scores = scores.chunks_exact(sharing).zip(before);
            for (after, (scores, &before)) in after.chunks_exact_mut(sharing).zip(scores) {
                for lane in 0..sharing {
                    after[lane] = after[lane].max(scores[lane].wrapping_add(before));
                }
            }
        }
    }
}

/// Which group the state with this oldest symbol in this group comes of.
#[inline(always)]
const fn sum_before<const K: usize>(oldest: usize, group: usize) -> usize {
    (oldest * (STATES >> (2 * K)) + group) >> (2 * K)
}

/// Rows of a table that the first-level cache holds, for all blocks.
#[derive(Clone, Copy)]
struct Part<'a> {
    rows: &'a [Row],
    /// Of the first row in the table.
    index: usize,
}

/// Rows of a part with the same groups.
struct Tile<'a> {
    rows: &'a [Row],
    /// Of the first row.
    oldest: usize,
    /// The first of [`LANES`].
    group: usize,
}

impl<'a> Part<'a> {
    #[inline(always)]
    fn tiles<const K: usize>(self) -> impl Iterator<Item = Tile<'a>> {
        let symbols = 1 << (2 * K);
        let tiles = self.rows.chunks_exact(ROWS.min(symbols)).enumerate();
        tiles.map(move |(tile, rows)| {
            let index = self.index + tile * rows.len();
            Tile { rows, oldest: index % symbols, group: index / symbols * LANES }
        })
    }
}

per_isa! {
    /// Takes off all sums what was the `largest` before the step, so that they stay small, and returns their largest.
    fn settle(sums: &mut [i16], largest: i16) -> i16 {
        let mut found = HOPELESS;
        for sum in sums {
            *sum = sum.saturating_sub(largest).max(HOPELESS);
            found = found.max(*sum);
        }
        found
    }
}

/// The oldest symbol of the state of `group` with the best sum, the lowest of equal ones.
#[inline]
fn oldest<const K: usize>(isa: Isa, along: &[Row], input: Input, before: &[i16], group: usize) -> usize {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::AvxVnni | Isa::Avx512 if K > 1 => {
            // SAFETY: as in `best`.
            unsafe { avx2::oldest::<K>(along, input, before, group) }
        }
        _ => plain_oldest::<K>(along, input, before, group),
    }
}

fn plain_oldest<const K: usize>(along: &[Row], input: Input, before: &[i16], group: usize) -> usize {
    let symbols = 1 << (2 * K);
    let (mut oldest, mut best) = (0, i16::MIN);
    for symbol in 0..symbols {
        let (row, lane) = ((group * symbols + symbol) / LANES, (group * symbols + symbol) % LANES);
        let score = score(input, along[row].codes[lane], along[row].norms[lane]);
        let sum = score.wrapping_add(before[sum_before::<K>(symbol, group)]);
        if sum > best {
            (oldest, best) = (symbol, sum);
        }
    }
    oldest
}
