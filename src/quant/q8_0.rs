//! Q8_0: 32 weights in 34 bytes: an f16 scale, then 32 signed codes; weight = code * scale.
//! Also what the inputs of Q4_0, Q5_0, IQ4_NL, MXFP4 and their like are quantized to.
//! (ggml: `d`, `qs`.)

use bytemuck::{Pod, Zeroable};

use super::le::F16;
use super::parts::{Codes, Shuffle, Terms};
use super::{Format, arms, panel, quantizers};

/// 32 weights; also 32 activations.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Block {
    /// Step between codes.
    pub scale: F16,
    /// -127..=127 when we wrote it; other writers may use -128.
    pub codes: [i8; 32],
}

/// The table row. Measured (see [`panel`]): four rows 29, panels 61 GMAC/s; 9.0 GB/s from memory.
pub static FORMAT: Format = Format::new::<Block>("q8_0", Some(8))
    .shader(include_str!("../../wgsl/quant/q8_0.wgsl"))
    .encode_shader(include_str!("../../wgsl/encode/q8_0.wgsl"))
    .encoder::<Block>()
    .largest(127.0 * 65_504.0)
    .quantizers(quantizers![
        Block;
        #[cfg(target_arch = "x86_64")] Avx2: avx2::quantize,
        #[cfg(target_arch = "aarch64")] Neon: lanes::quantize,
        #[cfg(target_arch = "wasm32")] Simd128: lanes::quantize,
    ])
    .dot(&FORMAT, arms![terms; Block, Block; dot, avx2])
    .panel(panel::terms::<Block>());

impl super::Block for Block {
    const LEN: usize = 32;
    const BYTES: usize = 34;

    #[inline(always)]
    fn decode(&self, out: &mut [f32]) {
        let scale = self.scale.get();
        for (out, &code) in out.iter_mut().zip(&self.codes) {
            *out = f32::from(code) * scale;
        }
    }
}

impl Terms for Block {
    const CODES: Codes = Codes::Signed;

    #[inline(always)]
    fn unpack<S: Shuffle>(&self, codes: &mut [u8], scales: &mut [f32], _: &mut [f32]) {
        scales[0] = self.scale.get();
        codes.copy_from_slice(bytemuck::cast_ref::<_, [u8; 32]>(&self.codes));
    }
}

impl super::Encode for Block {
    fn encode(values: &[f32]) -> Self {
        let (scale, codes) = encode_codes(values);
        Block { scale: F16::new(scale), codes }
    }
}

/// The unrounded f32 scale of 32 values, and their codes: from that scale, not from the stored f16, and rounded
/// half away from zero, as the reference's are. Where 1 / scale overflows the reference's codes are 0.
pub(super) fn encode_codes(values: &[f32]) -> (f32, [i8; 32]) {
    let largest = values.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = 1.0 / scale;
    let inverse = if inverse.is_finite() { inverse } else { 0.0 };
    let mut codes = [0; 32];
    for (code, &value) in codes.iter_mut().zip(values) {
        // Finite values never reach past 127 either way: the bound only says what a NaN becomes.
        *code = (value * inverse).round().max(-127.0) as i8;
    }
    (scale, codes)
}

/// Exact dot of the codes of 32 weights and 32 activations.
pub(super) fn integer_dot(weights: &[i8; 32], input: &[i8; 32]) -> i32 {
    weights.iter().zip(input).map(|(&w, &x)| i32::from(w) * i32::from(x)).sum()
}

/// Blocks in ascending order: sum += (scale_w * scale_x) * exact integer dot.
fn dot(weights: &[Block], input: &[Block]) -> f32 {
    let mut sum = 0.0;
    for (w, x) in weights.iter().zip(input) {
        sum += (w.scale.get() * x.scale.get()) * integer_dot(&w.codes, &x.codes) as f32;
    }
    sum
}

/// Quantizers in loops that the compiler vectorizes, for the targets whose vectors it takes for granted.
#[cfg(not(target_arch = "x86_64"))]
pub(super) mod lanes {
    use super::{Block, F16};

    pub fn quantize(values: &[f32], out: &mut [Block]) {
        for (values, out) in values.as_chunks::<32>().0.iter().zip(out) {
            let (scale, codes) = encode_codes(values);
            *out = Block { scale: F16::new(scale), codes };
        }
    }

    /// As the scalar one. Adding the float below one half and truncating rounds half away from zero: one half itself
    /// would carry 0.49999997 up to 1.
    #[inline(always)]
    pub fn encode_codes(values: &[f32; 32]) -> (f32, [i8; 32]) {
        let scale = largest_magnitude(values) / 127.0;
        let inverse = 1.0 / scale;
        let inverse = if inverse.is_finite() { inverse } else { 0.0 };
        let mut codes = [0; 32];
        for (code, value) in codes.iter_mut().zip(values) {
            let scaled = value * inverse;
            *code = bounded(scaled + 0.5f32.next_down().copysign(scaled));
        }
        (scale, codes)
    }

    /// Truncates; NaN to -127.
    #[inline(always)]
    pub fn bounded(scaled: f32) -> i8 {
        let bounded = if scaled > -127.0 { scaled } else { -127.0 };
        bounded as i32 as i8
    }

    /// NaNs are passed over.
    #[inline(always)]
    pub fn largest_magnitude(values: &[f32]) -> f32 {
        let mut lanes = [0.0f32; 8];
        for values in values.as_chunks::<8>().0 {
            for lane in 0..8 {
                let magnitude = values[lane].abs();
                lanes[lane] = if magnitude > lanes[lane] { magnitude } else { lanes[lane] };
            }
        }
        lanes.into_iter().fold(0.0, f32::max)
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use std::arch::x86_64::*;

    use bytemuck::Pod;

    use super::Block;
    use crate::simd::x86::{
        FourRows, Products, half, leading_halves, leading_halves_of_4, load8f, load32i, move_signs, sum4_i32,
    };

    #[target_feature(enable = "avx2,f16c")]
    pub fn dot<V: Products>(weights: &[Block], input: &[Block]) -> f32 {
        dot_blocks(weights, input, |w, x| products::<V>(w, x), |sums| sum4_i32(sums))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4<V: Products>(rows: [&[Block]; 4], input: &[Block]) -> [f32; 4] {
        let scales = |w: [&Block; 4]| leading_scales(w);
        rows4_blocks(rows, input, scales, |w, x| products::<V>(w, x), |sums| sum4_i32(sums))
    }

    /// In fours at once: two products may fill an i16.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn products<V: Products>(w: &Block, x: __m256i) -> __m256i {
        let (magnitudes, x) = move_signs(load32i(&w.codes), x);
        V::fours(V::dot(magnitudes, x))
    }

    /// The dot of any format with blocks of 32 that begin with their f16 scale, and Q8_0 inputs. `products` gives
    /// partial sums of the exact products of a block's codes with 32 input codes; `sum4` adds those of four blocks
    /// up. The blocks' terms are added one by one, in the order of the scalar dot.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn dot_blocks<W: Pod>(
        weights: &[W],
        input: &[Block],
        products: impl Fn(&W, __m256i) -> __m256i,
        sum4: impl Fn([__m256i; 4]) -> __m128i,
    ) -> f32 {
        let mut sum = 0.0;
        let (weight_groups, weight_rest) = weights.as_chunks::<4>();
        let (input_groups, input_rest) = input.as_chunks::<4>();
        for (w, x) in weight_groups.iter().zip(input_groups) {
            let products = |i: usize| products(&w[i], load32i(&x[i].codes));
            let integers = sum4([products(0), products(1), products(2), products(3)]);
            let scales = _mm256_mul_ps(leading_halves_of_4(w.each_ref()), leading_halves_of_4(x.each_ref()));
            let terms = _mm_mul_ps(_mm256_castps256_ps128(scales), _mm_cvtepi32_ps(integers));
            let terms: [f32; 4] = bytemuck::cast(terms);
            for term in terms {
                sum += term;
            }
        }
        let zero = _mm256_setzero_si256();
        for (w, x) in weight_rest.iter().zip(input_rest) {
            let integer = sum4([products(w, load32i(&x.codes)), zero, zero, zero]);
            let scale = _mm_mul_ss(leading_halves(w), leading_halves(x));
            sum += _mm_cvtss_f32(_mm_mul_ss(scale, _mm_cvtepi32_ps(integer)));
        }
        sum
    }

    /// The dots of four rows of blocks of 32 with Q8_0 inputs: each row takes a lane of the sum. `scales` gives those of
    /// a block of each row, `products` and `sum4` are as in [`dot_blocks`].
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4_blocks<W: Pod>(
        rows: [&[W]; 4],
        input: &[Block],
        scales: impl Fn([&W; 4]) -> __m128,
        products: impl Fn(&W, __m256i) -> __m256i,
        sum4: impl Fn([__m256i; 4]) -> __m128i,
    ) -> [f32; 4] {
        let mut sums = _mm_setzero_ps();
        let rows = FourRows::new(rows, input.len());
        for (i, x) in input.iter().enumerate() {
            let [a, b, c, d] = rows.blocks(i);
            let codes = load32i(&x.codes);
            let products = [products(a, codes), products(b, codes), products(c, codes), products(d, codes)];
            let integers = _mm_cvtepi32_ps(sum4(products));
            let scales = _mm_mul_ps(scales([a, b, c, d]), _mm_broadcastss_ps(leading_halves(x)));
            sums = _mm_add_ps(sums, _mm_mul_ps(scales, integers));
        }
        bytemuck::cast(sums)
    }

    /// [`rows4_blocks`] for blocks of `P` times 32 weights that begin with an f16 scale. `products` gives sums of exact
    /// products of part `p` of a block for [`Products::totals`]; with `BY_PART` each part has a sum of its own.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn rows4_parts<V: Products, W: Pod, const P: usize, const BY_PART: bool>(
        rows: [&[W]; 4],
        input: &[Block],
        products: impl Fn(&W, usize, __m256i) -> __m256i,
    ) -> [__m128; P] {
        let mut sums = [_mm_setzero_ps(); P];
        let (input, _) = input.as_chunks::<P>();
        let rows = FourRows::new(rows, input.len());
        for (i, x) in input.iter().enumerate() {
            let [a, b, c, d] = rows.blocks(i);
            let scales = leading_scales([a, b, c, d]);
            for p in 0..P {
                let codes = load32i(&x[p].codes);
                let products = [
                    products(a, p, codes),
                    products(b, p, codes),
                    products(c, p, codes),
                    products(d, p, codes),
                ];
                let integers = _mm_cvtepi32_ps(V::totals(products));
                let scales = _mm_mul_ps(scales, _mm_broadcastss_ps(leading_halves(&x[p])));
                let sum = if BY_PART { p } else { 0 };
                sums[sum] = _mm_add_ps(sums[sum], _mm_mul_ps(scales, integers));
            }
        }
        sums
    }

    /// The f16 scales that four blocks begin with.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn leading_scales<W: Pod>(blocks: [&W; 4]) -> __m128 {
        _mm256_castps256_ps128(leading_halves_of_4(blocks))
    }

    #[target_feature(enable = "avx2,f16c")]
    pub fn quantize(values: &[f32], out: &mut [Block]) {
        for (values, out) in values.as_chunks::<32>().0.iter().zip(out) {
            let (scale, codes) = encode_codes(values);
            *out = Block { scale: bytemuck::cast(half(scale)), codes: bytemuck::cast(codes) };
        }
    }

    /// As the scalar one.
    #[inline]
    #[target_feature(enable = "avx2,f16c")]
    pub fn encode_codes(values: &[f32; 32]) -> (f32, __m256i) {
        let values = values.as_chunks::<8>().0;
        let values = [load8f(&values[0]), load8f(&values[1]), load8f(&values[2]), load8f(&values[3])];
        let largest = largest_magnitude(values);
        let scale = largest / 127.0;
        let inverse = 1.0 / scale;
        let inverse = _mm256_set1_ps(if inverse.is_finite() { inverse } else { 0.0 });
        let code = |v| round_half_away(_mm256_mul_ps(v, inverse));
        (scale, pack_codes([code(values[0]), code(values[1]), code(values[2]), code(values[3])]))
    }

    /// The largest magnitude of 32 values; NaNs are passed over, as `f32::max` does.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn largest_magnitude(values: [__m256; 4]) -> f32 {
        let sign = _mm256_set1_ps(-0.0);
        let mut largest = _mm256_setzero_ps();
        for v in values {
            // `max_ps` gives its second operand if either is NaN.
            largest = _mm256_max_ps(_mm256_andnot_ps(sign, v), largest);
        }
        let largest = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps::<1>(largest));
        let largest = _mm_max_ps(largest, _mm_movehl_ps(largest, largest));
        _mm_cvtss_f32(_mm_max_ss(largest, _mm_movehdup_ps(largest)))
    }

    /// Rounds half away from zero to -127..=127; NaN to -127. Adding the float below one half and truncating does
    /// so exactly: one half itself would carry 0.49999997 up to 1.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn round_half_away(v: __m256) -> __m256i {
        let sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0));
        let half = _mm256_or_ps(sign, _mm256_set1_ps(0.5f32.next_down()));
        _mm256_cvttps_epi32(_mm256_max_ps(_mm256_add_ps(v, half), _mm256_set1_ps(-127.0)))
    }

    /// 4 × 8 × i32 in -128..=127, to 32 bytes in order.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub fn pack_codes(v: [__m256i; 4]) -> __m256i {
        // Packing works within 128-bit halves: the groups of four come out as 0 2 4 6 1 3 5 7.
        let packed = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_permutevar8x32_epi32(packed, _mm256_set_epi32(7, 3, 6, 2, 5, 1, 4, 0))
    }
}
