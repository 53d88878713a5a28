//! TQ1_0: 256 ternary weights in 54 bytes: 48 bytes of five trits, 4 bytes of four, then an f16 scale.
//! A byte is its trits as the digits of a fraction in base 3 (first one most significant), rounded up to 1/256:
//! multiplying by 3 modulo 256 moves to the next trit, and the upper 2 of the 10 bits of three times the byte are the
//! first, plus 1. Weight = trit * scale. Order: weight 32 n + j is trit n of byte j < 32; then 160 + 16 n + j is trit n
//! of byte 32 + j; then 240 + 4 n + j is trit n of byte 48 + j.
//! (ggml: `qs`, `qh`, `d`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{Codes, Parts, Scaled, Shuffle};
use super::tq2_0::trits;
use super::{Format, arms, panel, q8_k};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Block {
    fives: [u8; 32],
    short_fives: [u8; 16],
    fours: [u8; 4],
    scale: F16,
}

/// The table row. Measured (see [`panel`]): four rows 21, panels 81 GMAC/s.
pub static FORMAT: Format = Format::new::<Block>("tq1_0", Some(34))
    .shader(include_str!("../../wgsl/quant/tq1_0.wgsl"))
    .encoder::<Block>()
    .dot(&q8_k::FORMAT, arms![scaled; Block, q8_k::Block; dot, avx2])
    .panel(panel::scaled::<Block>());

/// 3^n modulo 256.
const POWERS: [u8; 5] = [1, 3, 9, 27, 81];

impl Block {
    /// Of all weights in order: the trit plus 1.
    fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        let (fives, rest) = codes.split_at_mut(160);
        let (short_fives, fours) = rest.split_at_mut(80);
        unpack(&self.fives, fives);
        unpack(&self.short_fives, short_fives);
        unpack(&self.fours, fours);
        codes
    }
}

/// Trit n of byte j, plus 1, goes to `codes[n * bytes.len() + j]`.
fn unpack(bytes: &[u8], codes: &mut [u8]) {
    for (codes, power) in codes.chunks_exact_mut(bytes.len()).zip(POWERS) {
        for (code, byte) in codes.iter_mut().zip(bytes) {
            *code = ((u16::from(byte.wrapping_mul(power)) * 3) >> 8) as u8;
        }
    }
}

/// The inverse of [`unpack`].
fn pack<const LEN: usize>(codes: &[u8]) -> [u8; LEN] {
    std::array::from_fn(|j| {
        // A byte of four trits has a zero digit in fifth place.
        let digits = |n: usize| codes.get(n * LEN + j).map_or(0, |&code| u16::from(code));
        let number = (0..5).fold(0, |number, n| number * 3 + digits(n));
        (number * 256).div_ceil(243) as u8
    })
}

impl super::Block for Block {
    const LEN: usize = 256;
    const BYTES: usize = 54;

    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, code) in out.iter_mut().zip(self.codes()) {
            *out = (f32::from(code) - 1.0) * scale;
        }
    }
}

impl Scaled for Block {
    const CODES: Codes = Codes::Unsigned { most: 2, bias: 1 };
    const GROUP: usize = 32;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, parts: &mut Parts) {
        parts.scale = self.scale.get();
        parts.multipliers = [1; 16];
        let (fives, rest) = parts.codes.split_at_mut(160);
        let (short_fives, fours) = rest.split_at_mut(80);
        unpack(&self.fives, fives);
        unpack(&self.short_fives, short_fives);
        unpack(&self.fours, fours);
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let (scale, trits) = trits(values);
        Block {
            fives: pack(&trits[..160]),
            short_fives: pack(&trits[160..240]),
            fours: pack(&trits[240..]),
            scale,
        }
    }
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * integer, where the integer is the exact dot of codes and
/// inputs less the sum of the inputs, taken from the block's `sums`.
fn dot(weights: &[Block], input: &[q8_k::Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        let mut integer: i32 =
            w.codes().iter().zip(&x.codes).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum();
        for x in &x.sums {
            integer -= i32::from(x.get());
        }
        sum += (w.scale.get() * x.scale.get()) * integer as f32;
    }
    sum
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, q8_k};
    use crate::quant::k;
    use crate::simd::x86::{Products, load16, load32};

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[q8_k::Block]) -> f32 {
        k::avx2::dot(weights, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[q8_k::Block]) -> [f32; 4] {
        k::avx2::rows4(rows, input, |w| w.scale.get(), |w, x| integers::<V>(w, x))
    }

    /// Partial sums of a block's integer.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn integers<V: Products>(w: &Block, x: &q8_k::Block) -> __m256i {
        let bytes = shifted(w);
        // As i16, 8 pairs of at most 2 * 128 * 2 fit.
        let mut sums = _mm256_setzero_si256();
        for g in 0..8 {
            sums = V::add(sums, first_trits(bytes[g]), k::avx2::load_group(x, g));
        }
        // The sum of the inputs comes off each code.
        V::fours(V::less(sums, k::avx2::load_sums(x)))
    }

    /// For all 256 weights in order, the byte that has the weight's trit in first place.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn shifted(w: &Block) -> [__m256i; 8] {
        let mut fives = [load32(&w.fives); 5];
        let mut short_fives = [load16(&w.short_fives); 5];
        let mut fours = [_mm_set1_epi32(i32::from_le_bytes(w.fours)); 4];
        for n in 1..5 {
            fives[n] = _mm256_add_epi8(fives[n - 1], _mm256_add_epi8(fives[n - 1], fives[n - 1]));
            short_fives[n] = times_3(short_fives[n - 1]);
        }
        for n in 1..4 {
            fours[n] = times_3(fours[n - 1]);
        }
        let low = _mm_blend_epi32::<0b0010>(fours[0], fours[1]);
        let high = _mm_blend_epi32::<0b1000>(fours[2], fours[3]);
        let last = _mm_blend_epi32::<0b1100>(low, high);
        let [a, b, c, d, e] = fives;
        let short = |n: usize, high| _mm256_set_m128i(high, short_fives[n]);
        [a, b, c, d, e, short(0, short_fives[1]), short(2, short_fives[3]), short(4, last)]
    }

    /// Modulo 256, in each byte.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn times_3(bytes: __m128i) -> __m128i {
        _mm_add_epi8(bytes, _mm_add_epi8(bytes, bytes))
    }

    /// The upper 2 of the 10 bits of three times each byte: how many of 256/3 and 512/3 it exceeds.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn first_trits(bytes: __m256i) -> __m256i {
        // Comparisons are signed: everything less 128.
        let signed = _mm256_xor_si256(bytes, _mm256_set1_epi8(-128));
        let above_85 = _mm256_cmpgt_epi8(signed, _mm256_set1_epi8(-43));
        let above_170 = _mm256_cmpgt_epi8(signed, _mm256_set1_epi8(42));
        _mm256_abs_epi8(_mm256_add_epi8(above_85, above_170))
    }
}
