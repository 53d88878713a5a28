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
    use crate::simd::x86::{broadcast_half, load8f, store8f};

    #[target_feature(enable = "avx2,f16c")]
    pub fn decode_2(blocks: &[Block<8>], out: &mut [f32]) {
        let [a, b, c, d] = tables::CENTROIDS_2;
        // Lookups take three bits of an index, the third of which is the next code's.
        let table = _mm256_setr_ps(a, b, c, d, a, b, c, d);
        decode::<2, 8>(blocks, out, [table; 2]);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn decode_3(blocks: &[Block<12>], out: &mut [f32]) {
        decode::<3, 12>(blocks, out, [load8f(&tables::CENTROIDS_3); 2]);
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn decode_4(blocks: &[Block<16>], out: &mut [f32]) {
        let [low, high] = tables::CENTROIDS_4.as_chunks::<8>().0 else { unreachable!("16 numbers") };
        decode::<4, 16>(blocks, out, [load8f(low), load8f(high)]);
    }

    /// Codes of `BITS` bits; codes from 8 on are looked up in the second table.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    fn decode<const BITS: i32, const N: usize>(blocks: &[Block<N>], out: &mut [f32], tables: [__m256; 2]) {
        let shifts = _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(BITS));
        let out = &mut out.as_chunks_mut::<32>().0[..blocks.len()];
        for at in 0..blocks.len() {
            let (block, out) = (&blocks[at], out[at].as_chunks_mut::<8>().0);
            let scale = broadcast_half(bytemuck::cast(block.scale));
            for eight in 0..4 {
                // One code a lane, with what stands above it.
                let word = _mm256_set1_epi32(word::<N>(&block.codes, eight * BITS as usize));
                let codes = _mm256_srlv_epi32(word, shifts);
                let mut numbers = _mm256_permutevar8x32_ps(tables[0], codes);
                if BITS == 4 {
                    let upper = _mm256_castsi256_ps(_mm256_slli_epi32::<28>(codes));
                    numbers = _mm256_blendv_ps(numbers, _mm256_permutevar8x32_ps(tables[1], codes), upper);
                }
                store8f(&mut out[eight], _mm256_mul_ps(numbers, scale));
            }
        }
    }

    /// What stands in `codes` from byte `at` on, in the lower bits of 32: those before the end, if that is nearer.
    #[inline(always)]
    fn word<const N: usize>(codes: &[u8; N], at: usize) -> i32 {
        let start = at.min(N - 4);
        let bytes = codes[start..start + 4].first_chunk().expect("four bytes");
        (u32::from_le_bytes(*bytes) >> (8 * (at - start))).cast_signed()
    }
}
