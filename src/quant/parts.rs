//! Blocks taken apart into codes, scales and minimums: what kernels for many inputs work on, whatever the format.
//!
//! The formats form two families, told apart by what their inputs are quantized to, since that fixes the order of a
//! dot's float sum: [`Terms`] (inputs Q8_0 or Q8_1) and [`Scaled`] (inputs Q8_K).
//!
//! `unpack` is plain Rust, compiled once per instruction set: the compiler vectorizes it. What it cannot find by
//! itself, a table lookup in a register, is a [`Shuffle`].

use super::Block;
pub(crate) use crate::simd::vector::Shuffle;

/// What the bytes of unpacked codes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codes {
    /// 0..=`most`; the number that the dot multiplies is the code less `bias`.
    Unsigned { most: usize, bias: i16 },
    /// Two's complement, any value.
    Signed,
}

impl Codes {
    /// What is taken off each code.
    pub const fn bias(self) -> i16 {
        match self {
            Codes::Unsigned { bias, .. } => bias,
            Codes::Signed => 0,
        }
    }

    /// How many sums of two products of codes and inputs (at most 127 in magnitude) add up in an i16: a power of two,
    /// at most `limit`.
    #[cfg(target_arch = "x86_64")]
    pub const fn sums_in_i16(self, limit: usize) -> usize {
        let most = match self {
            Codes::Unsigned { most, .. } => most,
            Codes::Signed => 128,
        };
        let mut sums = 1;
        while 2 * sums <= limit && 2 * sums * 2 * 127 * most <= 32767 {
            sums *= 2;
        }
        sums
    }
}

/// Blocks whose dot adds a float term every [`Terms::TERM`] weights: `sum += (scale_w * scale_x) * integer`, and
/// `+ min_w * sum_x` within the term if there are minimums.
pub(crate) trait Terms: Block {
    const CODES: Codes;
    /// Weights of a term: 32 or 16.
    const TERM: usize = 32;
    /// Whether there are minimums.
    const MIN: bool = false;
    /// Sums that terms are added to in turn; four are added up at the end as (0 + 1) + (2 + 3).
    const SUMS: usize = 1;

    /// Writes `LEN` codes, a scale a term, and a minimum a term if there are any.
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], mins: &mut [f32]);
}

/// Blocks of 256 weights whose dot is integer within the block: `sum += (scale_w * scale_x) * integer`, the integer
/// being the sum over groups of 16 weights of the multiplier times the dot of codes and inputs, and
/// `- (min_w * scale_x) * offset` within the term if there are minimums, the offset being the sum over the groups of
/// the group's minimum times the sum of its inputs.
pub(crate) trait Scaled: Block {
    const CODES: Codes;
    /// Weights that are known to share a multiplier: 16 or 32.
    const GROUP: usize = 16;
    /// Whether there are minimums.
    const MIN: bool = false;

    fn unpack<S: Shuffle>(&self, parts: &mut Parts);
}

/// A block of 256 weights of the family [`Scaled`].
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub codes: [u8; 256],
    /// Of 16 weights each.
    pub multipliers: [i16; 16],
    /// Of 16 weights each; only with `Scaled::MIN`.
    pub mins: [i16; 16],
    pub scale: f32,
    /// Only with `Scaled::MIN`.
    pub min: f32,
}

impl Parts {
    pub const ZERO: Parts =
        Parts { codes: [0; 256], multipliers: [0; 16], mins: [0; 16], scale: 0.0, min: 0.0 };
}

/// 256 weights of a row of the family [`Terms`], fewer at its end.
#[derive(Clone, Debug)]
pub(crate) struct TermParts {
    pub codes: [u8; 256],
    pub scales: [f32; 16],
    /// Only with `Terms::MIN`.
    pub mins: [f32; 16],
}

impl TermParts {
    pub const ZERO: TermParts = TermParts { codes: [0; 256], scales: [0.0; 16], mins: [0.0; 16] };

    /// Takes the blocks of up to 256 weights apart.
    #[inline(always)]
    pub fn unpack<B: Terms, S: Shuffle>(&mut self, blocks: &[B]) {
        let terms = B::LEN / B::TERM;
        for (i, block) in blocks.iter().enumerate() {
            block.unpack::<S>(
                &mut self.codes[i * B::LEN..][..B::LEN],
                &mut self.scales[i * terms..][..terms],
                &mut self.mins[i * terms..][..terms],
            );
        }
    }
}

/// Nibbles of 16 bytes: the low ones to the first half of `codes`, the high ones to the second.
#[inline(always)]
pub(crate) fn nibbles(bytes: &[u8; 16], codes: &mut [u8]) {
    let (low, high) = codes.split_at_mut(16);
    for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
        *low = byte & 15;
        *high = byte >> 4;
    }
}

/// [`nibbles`], each replaced by `table[nibble]`.
#[inline(always)]
pub(crate) fn table_nibbles<S: Shuffle>(table: &[u8; 16], bytes: &[u8; 16], codes: &mut [u8]) {
    let (mut low, mut high) = ([0; 16], [0; 16]);
    for (i, byte) in bytes.iter().enumerate() {
        (low[i], high[i]) = (byte & 15, byte >> 4);
    }
    codes[..16].copy_from_slice(&S::lookup16(table, &low));
    codes[16..32].copy_from_slice(&S::lookup16(table, &high));
}

/// For each byte, its bits, lowest first, as bytes: 0xff where set.
pub(crate) static BITS: [[u8; 8]; 256] = spread_bits();

const fn spread_bits() -> [[u8; 8]; 256] {
    let mut spread = [[0; 8]; 256];
    let mut i = 0;
    while i < 8 * 256 {
        if (i / 8) >> (i % 8) & 1 == 1 {
            spread[i / 8][i % 8] = 0xff;
        }
        i += 1;
    }
    spread
}

/// For each byte, its four bit pairs, lowest first.
pub(crate) static BIT_PAIRS: [[u8; 4]; 256] = spread_bit_pairs();

const fn spread_bit_pairs() -> [[u8; 4]; 256] {
    let mut spread = [[0; 4]; 256];
    let mut i = 0;
    while i < 4 * 256 {
        spread[i / 4][i % 4] = ((i / 4) >> (2 * (i % 4)) & 3) as u8;
        i += 1;
    }
    spread
}
