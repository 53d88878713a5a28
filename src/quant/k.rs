//! What the formats with 256 weights a block and scaled groups share ("K quants"): the exact integers of their dots,
//! and the packed 6-bit scales and minimums of Q4_K and Q5_K.

use super::le::{F16, I16};

pub(super) mod lanes;
pub(super) mod search;
pub(super) mod symmetric;

/// Sum over groups of scale * dot of the group's codes with the input. The groups are of equal length.
/// Fits i32 with room to spare: 256 * 127 * 128 * 64 < 2^29.
pub(super) fn scaled_dot(codes: &[i8; 256], scales: &[i8], input: &[i8; 256]) -> i32 {
    let len = codes.len() / scales.len();
    let mut sum = 0;
    for ((codes, input), &scale) in codes.chunks_exact(len).zip(input.chunks_exact(len)).zip(scales) {
        let dot: i32 = codes.iter().zip(input).map(|(&code, &x)| i32::from(code) * i32::from(x)).sum();
        sum += i32::from(scale) * dot;
    }
    sum
}

/// Sum over groups of min * sum of the input codes that the group meets. `sums` are those of sixteens.
pub(super) fn scaled_sums(mins: &[i8], sums: &[I16; 16]) -> i32 {
    let len = sums.len() / mins.len();
    let group = |sums: &[I16]| sums.iter().map(|sum| i32::from(sum.get())).sum::<i32>();
    mins.iter().zip(sums.chunks_exact(len)).map(|(&min, sums)| i32::from(min) * group(sums)).sum()
}

/// The 256 codes of Q4_K and the low four bits of Q5_K's: byte 32 * p + i is code i of group 2p (low nibble) and of
/// group 2p + 1 (high).
pub(super) fn unpack_nibbles(bytes: &[u8; 128]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (j, code) in codes.iter_mut().enumerate() {
        let group = j / 32;
        *code = (bytes[group / 2 * 32 + j % 32] >> (4 * (group % 2)) & 15).cast_signed();
    }
    codes
}

/// The 256 codes of Q2_K and the low two bits of Q3_K's: bit pair s of byte 32 * half + i is code i of section s of
/// the half.
pub(super) fn unpack_bit_pairs(bytes: &[u8; 64]) -> [i8; 256] {
    let mut codes = [0; 256];
    for (j, code) in codes.iter_mut().enumerate() {
        let (half, section) = (j / 128, j % 128 / 32);
        *code = (bytes[32 * half + j % 32] >> (2 * section) & 3).cast_signed();
    }
    codes
}

/// [`unpack_nibbles`] in loops that the compiler vectorizes.
#[inline(always)]
pub(super) fn nibbles(bytes: &[u8; 128], codes: &mut [u8; 256]) {
    for (codes, bytes) in codes.as_chunks_mut::<64>().0.iter_mut().zip(bytes.as_chunks::<32>().0) {
        let (low, high) = codes.split_at_mut(32);
        for ((low, high), byte) in low.iter_mut().zip(high).zip(bytes) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
}

/// [`unpack_bit_pairs`] in loops that the compiler vectorizes.
#[inline(always)]
pub(super) fn bit_pairs(bytes: &[u8; 64], codes: &mut [u8; 256]) {
    for (codes, bytes) in codes.as_chunks_mut::<128>().0.iter_mut().zip(bytes.as_chunks::<32>().0) {
        for (section, codes) in codes.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code = byte >> (2 * section) & 3;
            }
        }
    }
}

/// [`unpack_scales`], each number twice, as inputs are summed in sixteens.
#[inline(always)]
pub(super) fn multipliers_and_mins(bytes: &[u8; 12]) -> ([i16; 16], [i16; 16]) {
    let (scales, mins) = unpack_scales(bytes);
    let twice = |numbers: [i8; 8]| std::array::from_fn(|i| i16::from(numbers[i / 2]));
    (twice(scales), twice(mins))
}

/// Eight 6-bit scales and eight 6-bit minimums from 12 bytes. The first four of each are the low six bits of bytes
/// 0..4 and 4..8; the last four have their low nibbles in bytes 8..12 (scale below, minimum above) and their upper
/// two bits on top of those bytes.
pub(super) fn unpack_scales(bytes: &[u8; 12]) -> ([i8; 8], [i8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = (bytes[j] & 63).cast_signed();
        mins[j] = (bytes[j + 4] & 63).cast_signed();
        scales[j + 4] = (bytes[j + 8] & 15 | bytes[j] >> 6 << 4).cast_signed();
        mins[j + 4] = (bytes[j + 8] >> 4 | bytes[j + 4] >> 6 << 4).cast_signed();
    }
    (scales, mins)
}

/// The weights of a block of Q4_K or Q5_K: (scale * group scale) * code - min * group min.
pub(super) fn decode_groups_of_32(
    scale: F16,
    min: F16,
    group_scales: &[u8; 12],
    codes: &[i8; 256],
    out: &mut [f32],
) {
    let (scales, mins) = unpack_scales(group_scales);
    for (j, (out, &code)) in out.iter_mut().zip(codes).enumerate() {
        let scale = scale.get() * f32::from(scales[j / 32]);
        *out = scale * f32::from(code) - min.get() * f32::from(mins[j / 32]);
    }
}

/// The inverse of [`unpack_scales`].
fn pack_scales(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    bytes
}

/// A block of Q4_K or Q5_K before its codes are packed.
pub(super) struct GroupsOf32 {
    pub scale: F16,
    pub min: F16,
    pub group_scales: [u8; 12],
    pub codes: [i8; 256],
}

/// Quantizes 256 values: a search in each group, then scales and minimums to 6 bits, then codes anew for those.
pub(super) fn encode_groups_of_32(values: &[f32], steps: &search::Steps) -> GroupsOf32 {
    let (mut codes, mut weights) = ([0; 256], [0.0; 256]);
    for (values, weights) in values.chunks_exact(32).zip(weights.chunks_exact_mut(32)) {
        let energy = values.iter().fold(0.0f32, |sum, x| sum + x * x);
        let level = (energy / 32.0).sqrt();
        for (weight, x) in weights.iter_mut().zip(values) {
            *weight = level + x.abs();
        }
    }
    let (scales, mins) = lanes::affine(lanes::isa(), values, &weights, steps, &mut codes);
    GroupsOf32::new(values, steps.most, codes, six_bits(&scales), six_bits(&mins))
}

/// [`encode_groups_of_32`] with codes up to `most`, where errors count as `importance` says.
pub(super) fn encode_groups_of_32_weighted(values: &[f32], importance: &[f32], most: i8) -> GroupsOf32 {
    let energy = 2.0 * values.iter().fold(0.0f32, |sum, x| sum + x * x) / 256.0;
    let (mut codes, mut weights) = ([0; 256], [0.0; 256]);
    search::weights(values, importance, energy, &mut weights);
    let steps = search::Steps::fine(most);
    let (scales, mins) = lanes::affine(lanes::isa(), values, &weights, &steps, &mut codes);
    let mut sums = [0.0f32; 8];
    for (sum, weights) in sums.iter_mut().zip(weights.chunks_exact(32)) {
        *sum = weights.iter().fold(0.0f32, |sum, weight| sum + weight);
    }
    let six_bits = |numbers: &[f32; 8]| {
        let mut multiples = [0; 8];
        let scale = search::multiples(numbers, &sums, 63, &mut multiples);
        (F16::new(scale), multiples)
    };
    GroupsOf32::new(values, most, codes, six_bits(&scales), six_bits(&mins))
}

impl GroupsOf32 {
    /// Scales, minimums and the codes of the search, which are made anew for scales and minimums as they are stored.
    fn new(
        values: &[f32],
        most: i8,
        mut codes: [i8; 256],
        (scale, scales): (F16, [u8; 8]),
        (min, mins): (F16, [u8; 8]),
    ) -> GroupsOf32 {
        let group_scales = pack_scales(&scales, &mins);
        let (scales, mins) = unpack_scales(&group_scales);
        for (j, (values, codes)) in values.chunks_exact(32).zip(codes.chunks_exact_mut(32)).enumerate() {
            let group_scale = scale.get() * f32::from(scales[j]);
            let group_min = min.get() * f32::from(mins[j]);
            if group_scale == 0.0 {
                continue; // The reference keeps the codes of the search, although all of them mean -group_min.
            }
            for (code, &x) in codes.iter_mut().zip(values) {
                *code = search::nearest((x + group_min) / group_scale).clamp(0, i32::from(most)) as i8;
            }
        }
        GroupsOf32 { scale, min, group_scales, codes }
    }
}

/// Eight numbers, not negative, as a common half and multiples of it in 0..=63.
fn six_bits(numbers: &[f32; 8]) -> (F16, [u8; 8]) {
    let largest = numbers.iter().fold(0.0f32, |largest, &x| if x > largest { x } else { largest });
    let inverse = if largest > 0.0 { 63.0 / largest } else { 0.0 };
    // Cut to a byte before the bound, as the reference does: it shows where a number is far out of range.
    let multiples = numbers.map(|x| (search::nearest(inverse * x) as u8).min(63));
    (F16::new(largest / 63.0), multiples)
}

/// The inverse of [`unpack_nibbles`].
pub(super) fn pack_nibbles(codes: &[i8; 256]) -> [u8; 128] {
    let mut bytes = [0; 128];
    for (bytes, codes) in bytes.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<64>().0) {
        for i in 0..32 {
            bytes[i] = (codes[i] & 15 | (codes[i + 32] & 15) << 4).cast_unsigned();
        }
    }
    bytes
}

/// The inverse of [`unpack_bit_pairs`], of the lowest two bits of each code.
pub(super) fn pack_bit_pairs(codes: &[i8; 256]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (bytes, codes) in bytes.as_chunks_mut::<32>().0.iter_mut().zip(codes.as_chunks::<128>().0) {
        for (section, codes) in codes.as_chunks::<32>().0.iter().enumerate() {
            for (byte, code) in bytes.iter_mut().zip(codes) {
                *byte |= (code & 3).cast_unsigned() << (2 * section);
            }
        }
    }
    bytes
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2;
