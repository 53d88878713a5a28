//! Values, turned: 32 elements in 2 + 4 b bytes: an f16 scale, the root of the mean of squares, then codes of b bits as
//! a bit stream (`bits.rs`); element = codebook\[code\] · scale.

use bytemuck::{Pod, Zeroable};

use super::{bits, tables};
use crate::quant::le::F16;
use crate::quant::{Format, decoders};

/// 32 elements with `N` bytes of codes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Block<const N: usize> {
    scale: F16,
    codes: [u8; N],
}

// SAFETY: all fields are plain bytes of alignment 1, so zeros are a value and there is no padding.
unsafe impl<const N: usize> Zeroable for Block<N> {}
// SAFETY: as above; any bytes are a value.
unsafe impl<const N: usize> Pod for Block<N> {}

macro_rules! row {
    ($name:literal, $bytes:literal $(, $decode:ident)?) => {
        Format::new::<Block<$bytes>>($name, None)
            .shader(include_str!("../../../wgsl/quant/turbo_values.wgsl"))
            .encode_shader(include_str!("../../../wgsl/encode/turbo_values.wgsl"))
            .encoder::<Block<$bytes>>()
            $(.decoders(decoders![Block<$bytes>; #[cfg(target_arch = "x86_64")] Avx2: avx2::$decode]))?
    };
}

/// 2 bits.
pub static V2: Format = row!("turbo_v2", 8, decode_2);
/// 3 bits.
pub static V3: Format = row!("turbo_v3", 12, decode_3);
/// 4 bits.
pub static V4: Format = row!("turbo_v4", 16, decode_4);
/// 5 bits.
pub static V5: Format = row!("turbo_v5", 20);
/// 8 bits.
pub static V8: Format = row!("turbo_v8", 32);

/// All of them.
pub static ALL: [&Format; 5] = [&V2, &V3, &V4, &V5, &V8];

impl<const N: usize> Block<N> {
    /// What codes stand for, and what lies between neighbours.
    const fn codebook() -> (&'static [f32], &'static [f32]) {
        match N / 4 {
            2 => (&tables::CENTROIDS_2, &tables::BOUNDARIES_2),
            3 => (&tables::CENTROIDS_3, &tables::BOUNDARIES_3),
            4 => (&tables::CENTROIDS_4, &tables::BOUNDARIES_4),
            5 => (&tables::CENTROIDS_5, &tables::BOUNDARIES_5),
            _ => (&tables::CENTROIDS_8, &tables::BOUNDARIES_8),
        }
    }
}

impl<const N: usize> crate::quant::Block for Block<N> {
    const LEN: usize = 32;
    const BYTES: usize = 2 + N;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let (scale, (centroids, _)) = (self.scale.get(), Self::codebook());
        for (out, code) in out.iter_mut().zip(bits::unpack(&self.codes)) {
            *out = centroids[usize::from(code)] * scale;
        }
    }
}

impl<const N: usize> crate::quant::Encode for Block<N> {
    /// A NaN takes the lowest code.
    fn encode(values: &[f32]) -> Self {
        let squares = values.iter().fold(0.0, |sum, value| sum + value * value);
        // The scale that codes are chosen by is not the rounded one.
        let scale = (squares * (1.0 / 32.0)).sqrt();
        let (_, boundaries) = Self::codebook();
        let mut codes = [0; 32];
        for (code, value) in codes.iter_mut().zip(values) {
            let normal = value / (scale + 1e-8);
            *code = boundaries.partition_point(|&boundary| normal > boundary) as u8;
        }
        Block { scale: F16::new(scale), codes: bits::pack(&codes) }
    }
}

/// Codebooks of up to 16 numbers are looked up in registers.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{Block, tables};
    use crate::simd::x86::{load8f, store8f};

    #[target_feature(enable = "avx2")]
    pub fn decode_2(blocks: &[Block<8>], out: &mut [f32]) {
        let [a, b, c, d] = tables::CENTROIDS_2;
        // Lookups take three bits of an index, the third of which is the next code's.
        let table = _mm256_setr_ps(a, b, c, d, a, b, c, d);
        each_block(blocks, out, |block| {
            let words =
                [0, 2, 4, 6].map(|at| u32::from(u16::from_le_bytes([block.codes[at], block.codes[at + 1]])));
            words.map(|word| _mm256_permutevar8x32_ps(table, indices::<2>(word)))
        });
    }

    #[target_feature(enable = "avx2")]
    pub fn decode_3(blocks: &[Block<12>], out: &mut [f32]) {
        let table = load8f(&tables::CENTROIDS_3);
        each_block(blocks, out, |block| {
            let c = &block.codes;
            let words = [
                u32::from_le_bytes([c[0], c[1], c[2], c[3]]),
                u32::from_le_bytes([c[3], c[4], c[5], c[6]]),
                u32::from_le_bytes([c[6], c[7], c[8], c[9]]),
                u32::from_le_bytes([c[8], c[9], c[10], c[11]]) >> 8,
            ];
            words.map(|word| _mm256_permutevar8x32_ps(table, indices::<3>(word)))
        });
    }

    #[target_feature(enable = "avx2")]
    pub fn decode_4(blocks: &[Block<16>], out: &mut [f32]) {
        let [low, high] = tables::CENTROIDS_4.as_chunks::<8>().0 else { unreachable!("16 numbers") };
        let (low, high) = (load8f(low), load8f(high));
        each_block(blocks, out, |block| {
            let words = [0, 1, 2, 3].map(|i| u32::from_le_bytes(block.codes.as_chunks::<4>().0[i]));
            words.map(|word| {
                let indices = indices::<4>(word);
                let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(indices));
                _mm256_blendv_ps(
                    _mm256_permutevar8x32_ps(low, indices),
                    _mm256_permutevar8x32_ps(high, indices),
                    upper,
                )
            })
        });
    }

    /// Eight codes of `BITS` bits, one a lane, with what stands above them.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn indices<const BITS: i32>(word: u32) -> __m256i {
        let shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(BITS));
        _mm256_srlv_epi32(_mm256_set1_epi32(word.cast_signed()), shifts)
    }

    /// Writes `numbers` of each block, times its scale.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn each_block<const N: usize>(
        blocks: &[Block<N>],
        out: &mut [f32],
        numbers: impl Fn(&Block<N>) -> [__m256; 4],
    ) {
        for (block, out) in blocks.iter().zip(out.as_chunks_mut::<32>().0) {
            let scale = _mm256_set1_ps(block.scale.get());
            let numbers = numbers(block);
            let out = out.as_chunks_mut::<8>().0;
            for i in 0..4 {
                store8f(&mut out[i], _mm256_mul_ps(numbers[i], scale));
            }
        }
    }
}
